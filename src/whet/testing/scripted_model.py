"""A model that follows a script: a real server on loopback that real agents talk to, at no cost and without a network.

It answers Anthropic Messages, OpenAI Responses, OpenAI Chat Completions and Gemini, on one address. A script is a list
of steps, one for each answer; a request without tools, such as one for a title, is answered beside the script.
`python -m whet.testing.scripted_model script.json` serves a file that holds such a list, or a table of them by name.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self, TypeAlias

from whet.testing.model.request import Request
from whet.testing.model.script import Script, Step, Steps
from whet.testing.model.server import ModelServer

__all__ = ["Request", "ScriptedModel", "Step"]

Scripts: TypeAlias = "Steps | Mapping[str, Steps]"


class ScriptedModel:
    """Serves one script at `url`, or several, each at `url_of(name)`; `requests` holds what was asked, in order."""

    def __init__(self, script: Scripts = (), *, port: int = 0) -> None:
        named = script if isinstance(script, Mapping) else {"": script}
        self._server = ModelServer({name: Script(steps) for name, steps in named.items()}, port)
        # Ends may be asked for by another thread, and are looked for this often.
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.end()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def url_of(self, name: str) -> str:
        """Where the script *name* is followed."""
        return f"{self.url}/s/{name}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every request so far."""
        return tuple(self._server.requests)

    @property
    def turns(self) -> tuple[Request, ...]:
        """The requests that offered tools: those of the task itself."""
        return tuple(request for request in self._server.requests if request.tools)


def main(argv: list[str] | None = None) -> int:
    """Serve a file until interrupted; the first line printed is the address."""
    parser = argparse.ArgumentParser(prog="python -m whet.testing.scripted_model", description="a model by script")
    parser.add_argument("script", type=Path, help="a JSON file: a list of steps, or a table of such lists by name")
    parser.add_argument("--port", type=int, default=0, help="0 takes any that is free")
    args = parser.parse_args(argv)
    try:
        scripts = json.loads(args.script.read_text(encoding="utf-8"))
        model = ScriptedModel(scripts, port=args.port)
    except (OSError, ValueError) as error:
        parser.error(f"{args.script}: {error}")
    with model:
        sys.stdout.write(f"{model.url}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
