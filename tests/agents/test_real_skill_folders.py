"""A user with nothing but a skill and an agent on the PATH: `whet run my-skill`, and a decision."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace
from stage import Stage

from whet.testing.scripted_model.script import Step
from whet.testing.scripted_model.server import ModelServer, Request

SKILL = """\
---
name: formal-greetings
description: Greets people formally. Use when asked to greet somebody.
---
Begin every greeting with "Dear".
"""
GREETS = """\
from whet import case

@case(prompt="Say hello.")
def says_hello(session, ctx):
    assert session.final_output == "Hi friend"
"""
EVALS: dict[str, Any] = {
    "skill_name": "formal-greetings",
    "evals": [
        {"id": number, "prompt": f"Greet {name}.", "expectations": ["The greeting begins with Dear"]}
        for number, name in enumerate(("Ada", "Grace", "Alan", "Barbara"), 1)
    ],
}


class _Model(ModelServer):
    """Greets formally if it is shown the skill, and judges by what it is shown."""

    def _next(self, request: Request) -> tuple[Request, Step | str]:
        if "verdicts" in request.text:
            held = "Dear friend" in request.text
            verdict = {"number": 1, "rationale": "Read it.", "evidence": "answer", "rating": 10 if held else 0}
            said = json.dumps({"verdicts": [{**verdict, "manipulation": False}]})
        else:
            said = "Dear friend" if "Greets people formally" in request.text else "Hi friend"
        return replace(request, step=0), Step(say=said)


@contextmanager
def _model() -> Iterator[str]:
    server = _Model({})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.end()
        thread.join()


def test_a_skill_and_an_agent_are_enough_for_a_decision(stage: Stage) -> None:
    project = stage.project
    project.write("my-skill/SKILL.md", SKILL)
    project.write("my-skill/evals/evals.json", json.dumps(EVALS))

    with _model() as url:
        done = project.whet("run", "my-skill", env=stage.environ(url))
        compared = project.whet("compare", "--json")

    told = done.stdout + done.stderr
    assert done.code == 0, told
    assert f"no settings, so {stage.program.agent}, which is installed, runs 24 trials and judges 24 trials" in told
    assert "1.00 with the skill, 0.00 without" in told
    assert json.loads(compared.stdout)["verdict"] == "better"


def test_what_init_writes_for_a_skill_runs_once_its_author_has_written_the_rest(stage: Stage) -> None:
    project = stage.project
    project.write("my-skill/SKILL.md", SKILL)

    with _model() as url:
        environ = stage.environ(url)
        written = project.whet("init", "my-skill", env=environ)
        path = project.root / "my-skill/evals/evals.json"
        skeleton = json.loads(path.read_text())
        texts = {"prompt": EVALS["evals"][0]["prompt"], "expectations": EVALS["evals"][0]["expectations"]}
        path.write_text(json.dumps({**skeleton, "evals": [skeleton["evals"][0] | texts]}))
        done = project.whet("run", "my-skill", env=environ)

    assert f"runs and judges cases with {stage.program.agent}" in written.stdout
    assert "1 case x 1 runner x 2 arms x 3 trials = 6 trials" in done.stdout, done.stdout + done.stderr
    assert "1.00 with the skill, 0.00 without" in done.stdout


def test_a_python_suite_beside_a_skill_is_decided_too(stage: Stage) -> None:
    project = stage.project
    project.write("greets.py", GREETS)
    project.write("my-skill/SKILL.md", SKILL)
    project.write("my-skill/evals/evals.json", json.dumps({**EVALS, "evals": EVALS["evals"][:1]}))

    with _model() as url:
        done = project.whet("run", ".", "--trials", "1", env=stage.environ(url))

    assert done.code == 0, done.stdout + done.stderr
    assert "3 trials: 2 passed, 1 failed" in done.stdout
