"""A real agent on stage: a suite of one case, a runner, and a model that follows a script."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from textwrap import dedent
from typing import Any

from msgspec import Struct
from programs import KEY, Program, search_path
from project import Outcome, Project

from whet.testing.scripted_model.server import Request, ScriptedModel

SKILL = """\
---
name: tidy-up
description: How to tidy up a folder.
---
TIDY-UP-BODY: remove what nobody needs.
"""


@contextmanager
def closed_port() -> Iterator[str]:
    """An address that is ours and at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


class Played(Struct, frozen=True):
    """How a run went, and what the model was asked."""

    outcome: Outcome
    requests: tuple[Request, ...]
    turns: tuple[Request, ...]

    @property
    def trial(self) -> dict[str, Any]:
        """The first trial."""
        return self.outcome.trials[0]

    @property
    def verdict(self) -> tuple[str, str | None]:
        """Its status and failure code."""
        return self.trial["status"], (self.trial["failure"] or {}).get("code")

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of the first trial."""
        return [json.loads(line) for line in self.outcome.artifact("a", "events.jsonl").read_bytes().splitlines()]

    @property
    def story(self) -> str:
        """Everything that explains a verdict, for the message of an assertion."""
        folder = self.outcome.artifact("a", "stderr.log").parent
        logs = [path for path in (folder / "stderr.log", folder / "transcript.jsonl") if path.exists()]
        asked = [f"{request.method} {request.path} step {request.step}" for request in self.requests]
        return "\n".join(
            [self.outcome.stdout, self.outcome.stderr, *asked, *(path.read_text()[-4000:] for path in logs)]
        )


class Stage(Struct):
    """One runner, called `real`, in a project."""

    project: Project
    program: Program
    # More lines of the runner, and of its `agent` table, where `{url}` is the model's.
    runner: str = ""
    agent: str = ""
    # Lines of the `defaults` table.
    defaults: str = ""

    def play(
        self,
        steps: list[dict[str, Any]],
        *flags: str,
        check: str = "pass",
        refused: bool = False,
        keyless: bool = False,
        keys: tuple[str, ...] | None = None,
        **case: Any,
    ) -> Played:
        """Run the case `a` while the model follows *steps*; *refused* where nobody listens at its address.

        If it is *keyless*, whet knows neither the key nor the address. The model takes no other *keys*, if they are
        given.
        """
        fields = "".join(f", {name}={value!r}" for name, value in {"prompt": "Do it.", **case}.items())
        self.project.suite(f"def seen(report, ctx):\n    {check}\nsuite = [Case(id='a', check=seen{fields})]\n")
        for name, text in self.program.workspace.items():
            self.project.write(f"template/{name}", text)
        with ScriptedModel(steps, keys=keys) as model, closed_port() if refused else nullcontext(model.url) as url:
            self.project.settings(self._settings(url))
            environ = self.environ(url)
            if keyless:
                environ = {name: value for name, value in environ.items() if KEY not in value and url not in value}
            outcome = self.project.run(*flags, env=environ)
            return Played(outcome, model.requests, model.turns)

    def play_skill(self) -> Played:
        """Let the agent load a skill of its runner, and check that this is detected."""
        self.project.write("skills/tidy-up/SKILL.md", SKILL)
        self.runner = 'skills = ["./skills/tidy-up"]'
        path = (self.program.skill_path or "").format(skill="tidy-up")
        check = """
    found = {each.skill: each.confidence for each in ctx.detected_skills()}
    assert found.get("tidy-up") in ("explicit", "strong"), (found, report.events)
    """
        loaded = {"load_skill": "tidy-up", **({"path": path} if path else {})}
        return self.play([loaded, {"say": "All is ready."}], check=check)

    def play_evals(self, steps: list[dict[str, Any]], case: dict[str, Any], *flags: str) -> Played:
        """Run an eval suite of the one case `a` while the model follows *steps*."""
        suite = {"name": "s", "source_kind": "manual", "verifier_kind": "llm_judge", "supports_no_skill": True}
        self.project.write("suite.json", json.dumps({**suite, "cases_json": [{"task_id": "a", **case}]}))
        for name, text in self.program.workspace.items():
            self.project.write(f"template/{name}", text)
        with ScriptedModel(steps) as model:
            self.project.settings(self._settings(model.url))
            outcome = self.project.whet("run", "suite.json", *flags, env=self.environ(model.url))
            return Played(outcome, model.requests, model.turns)

    def explain(self, steps: list[dict[str, Any]], *args: str, folder: str = "latest/trials/a") -> Played:
        """Ask about the newest run while the model follows *steps*; the model is at another address by now."""
        with ScriptedModel(steps) as model:
            place = self.project.output_dir / folder
            outcome = self.project.whet("explain", str(place), *args, env=self.environ(model.url))
            return Played(outcome, model.requests, model.turns)

    def _settings(self, url: str) -> str:
        variables = {"WHET_TEST": self.project.token, **self.program.env}
        env = "\n".join(f"{name} = {json.dumps(value)}" for name, value in variables.items())
        return "\n".join(
            [
                "[runners.real]",
                dedent(self.runner),
                "[runners.real.agent]",
                f'type = "{self.program.type or self.program.agent}"',
                self._named(),
                f'model = "{self.program.model}"',
                dedent(self.agent).replace("{url}", url),
                "[runners.real.agent.env]",
                env,
                f"[defaults]\n{self.defaults}",
                self._workspace(),
            ]
        )

    def _named(self) -> str:
        """The program and its arguments, of a type that does not know them."""
        if self.program.type is None:
            return ""
        return f'command = "{self.program.command}"\nargs = {json.dumps(list(self.program.args))}'

    def _workspace(self) -> str:
        """What lies in `template` of the project, if it is there."""
        there = (self.project.root / "template").is_dir()
        return '[run.workspace]\nmode = "isolated"\ntemplate_dir = "template"\n' if there else ""

    def environ(self, url: str) -> dict[str, str]:
        return {
            "PATH": search_path(self.program),
            **{name: value.format(url=url) for name, value in self.program.environ.items()},
        }
