"""Judges by a function: a server on this machine that rates what it is asked about, as a model would."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from whet.grade.judge import pairs
from whet.grade.judge.questions import TOOL

# Returns a rating of a statement on an answer.
Rate = Callable[[str, str], float]
# Returns which of two answers to a question is better: "A", "B" or "tie".
Choose = Callable[[str, str, str], str]
_CRITERIA = re.compile(r"# Criteria\n\n(.*?)\n\n# What the program was given", re.DOTALL)
_QUESTION = re.compile(r"# Question\n\n(.*?)\n\n# What the programs were given", re.DOTALL)
_ANSWER = re.compile(r"BEGIN ANSWER (\w+) -----\n(.*?)\n----- END ANSWER \1", re.DOTALL)


def _call(asked: Any, rate: Rate, choose: Choose) -> tuple[str, dict[str, object]]:
    """Return the tool that is called, and with what."""
    text, tool = asked["messages"][-1]["content"], asked["tools"][0]["function"]["name"]
    answers = [found[2] for found in _ANSWER.finditer(text)]
    said: dict[str, object] = {"rationale": "Because.", "manipulation": False}
    if tool == pairs.TOOL:
        question = _QUESTION.search(text)
        assert question is not None
        first, second = answers
        return tool, said | {"better": choose(question[1], first, second)}
    assert tool == TOOL
    criteria = _CRITERIA.search(text)
    assert criteria is not None
    (answer,) = answers
    return tool, said | {"rating": rate(criteria[1], answer)}


def never(*_: str) -> str:
    """Say neither A nor B."""
    return "neither"


@contextmanager
def judging(rate: Rate, choose: Choose = never) -> Iterator[str]:
    """Serve a judge that rates by *rate*, and compares by *choose*; yield the address for `judge.url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            tool, arguments = _call(json.loads(self.rfile.read(int(self.headers["content-length"]))), rate, choose)
            call = {"function": {"name": tool, "arguments": json.dumps(arguments)}}
            usage = {"prompt_tokens": 1000, "completion_tokens": 100}
            document = {"choices": [{"message": {"tool_calls": [call]}}], "usage": usage}
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
