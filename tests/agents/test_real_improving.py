"""Whole improve runs with real Claude Code, as the agent under test and as the proposer, against a scripted model."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from programs import CLAUDE_CODE, NotInstalled, installed, search_path
from project import Outcome, Project

from whet.model import codec
from whet.record.improve.document import ImproveDocument
from whet.testing.scripted_model.script import Step, read_step
from whet.testing.scripted_model.server import ModelServer, Request, ScriptedModel

pytestmark = pytest.mark.bubblewrap

SKILL = """---
name: greet
description: {description}
---
# Greeting

Write one line for the guest.
"""
USUAL = "How the hotel greets. Use it when somebody is to be greeted."
RULE = "Please welcome each guest by name."
GUESTS = ("Ada", "Bob", "Cyd", "Dan", "Eve", "Fay", "Gus", "Hal", "Ivy")
PRACTICE = 3


class ThinkingModel(ScriptedModel):
    """A model that answers each request by what is in it, and not by its place in a script."""

    def __init__(self, think: Callable[[Request], Mapping[str, Any]]) -> None:
        super().__init__()
        self._server.server_close()
        self._server = _ThinkingServer(think)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})


class _ThinkingServer(ModelServer):
    def __init__(self, think: Callable[[Request], Mapping[str, Any]]) -> None:
        super().__init__({})
        self._think = think

    def _next(self, request: Request) -> tuple[Request, Step | str]:
        return replace(request, step=1), read_step(dict(self._think(request)))


@pytest.fixture
def hotel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    try:
        installed(CLAUDE_CODE)
    except NotInstalled as error:
        pytest.skip(str(error))
    # Some eighty sessions of a real agent.
    monkeypatch.setattr("project.PATIENCE_S", 1_800)
    project = Project(tmp_path / "project", sandbox="bubblewrap")
    yield project
    project.clear()


def results_in(request: Request) -> list[str]:
    """What tools have given back in the session so far."""
    return [
        json.dumps(block["content"])
        for message in request.body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "tool_result"
    ]


def improve(project: Project, model: ScriptedModel, *words: str) -> tuple[Outcome, ImproveDocument]:
    env = "\n".join(f'{name} = "{value}"' for name, value in CLAUDE_CODE.env.items())
    project.settings(
        f"""
[runners.claude.agent]
type = "claude-code"
model = "{CLAUDE_CODE.model}"
[runners.claude.agent.env]
{env}
"""
    )
    environ = {
        "PATH": search_path(CLAUDE_CODE),
        **{name: value.format(url=model.url) for name, value in CLAUDE_CODE.environ.items()},
    }
    done = project.whet("improve", "greet", "--max-cost", "90", "--yes", *words, env=environ)
    (file,) = (project.root / ".whet" / "improve").glob("2*/improve.json")
    return done, codec.decode(file.read_bytes(), ImproveDocument)


def write_suite(project: Project, cases: list[dict[str, Any]]) -> None:
    suite = {"name": "greet", "source_kind": "manual", "verifier_kind": "deterministic", "cases_json": cases}
    project.write("greet/evals/suite.json", json.dumps(suite))


def test_claude_code_writes_a_version_and_shows_that_it_is_better(hotel: Project) -> None:
    hotel.write("greet/SKILL.md", SKILL.format(description=USUAL))
    write_suite(
        hotel,
        [
            {
                "case_kind": "boolean_assertion",
                "task_id": f"desk-{name.lower()}",
                "instruction": f"Greet {name} at the desk.",
                "assertions": [{"op": "contains", "value": f"Welcome, {name}"}],
                "split": "practice" if number < PRACTICE else "held-out",
            }
            for number, name in enumerate(GUESTS)
        ],
    )
    written_rules = iter((RULE, "Please be brief."))
    seen_by_proposers: list[str] = []

    def think(request: Request) -> dict[str, Any]:
        results = results_in(request)
        if "Improve the skill in the folder" in request.text:
            if not results:
                return {"run": "cat rules.md failures/*.md"}
            if len(results) == 1:
                seen_by_proposers.append(request.text)
                return {"run": f"echo '{next(written_rules)}' >> skill/SKILL.md"}
            return {"say": "- A rule for the greeting, because the guests want it."}
        guest = re.search(r"Greet (\w+) at the desk", request.text)
        assert guest is not None, request.text[:2000]
        if not results:
            return {"load_skill": "greet"}
        return {"say": f"Welcome, {guest[1]}" if "welcome each guest" in request.text else f"Hello, {guest[1]}"}

    with ThinkingModel(think) as model:
        done, document = improve(hotel, model, "--candidates", "2", "--accept", "these")

    assert document.outcome == "succeeded", done.stdout + done.stderr
    assert done.code == 0
    (last,) = document.rounds
    assert len(last.candidates) == 2
    accepted = next(candidate for candidate in last.candidates if candidate.id == last.accepted)
    assert f"+{RULE}" in accepted.diff
    assert accepted.changes.startswith("- A rule for the greeting")
    assert last.confirm is not None
    assert last.confirm.verdict == "better"
    assert {case.case for case in last.confirm.cases} == {f"desk-{name.lower()}" for name in GUESTS[PRACTICE:]}
    # Everything that a proposer was shown and did: of practice it knows, and of nothing else.
    assert len(seen_by_proposers) == 2
    assert all("Ada" in text and "Seen instead" in text for text in seen_by_proposers)
    words = [words.format(name) for name in GUESTS[PRACTICE:] for words in ("Greet {}", "Welcome, {}", "Hello, {}")]
    assert not any(phrase in text for text in seen_by_proposers for phrase in (*words, "desk-"))
    assert (hotel.root / "greet" / "SKILL.md").read_text() == SKILL.format(description=USUAL)
    assert document.cost_usd > 0
    assert hotel.whet("verify", str(hotel.root / ".whet" / "improve" / document.id)).code == 0


LOADED_FOR = "guest of the hotel"


def test_a_better_description_wins_by_trials_that_end_as_soon_as_the_skill_is_loaded(hotel: Project) -> None:
    hotel.write("greet/SKILL.md", SKILL.format(description=USUAL))
    better = f"How to greet a {LOADED_FOR}. Use it when anybody arrives."
    hotel.write("better/SKILL.md", SKILL.format(description=better))
    write_suite(
        hotel,
        [
            {
                "case_kind": "trigger_query",
                "task_id": f"{kind}-{number}",
                "query": f"{task}, number {number}.",
                "expectation": expectation,
                "split": "practice" if number < 3 else "held-out",
            }
            for kind, task, expectation in (
                ("arrival", "Somebody stands at the desk", "should_trigger"),
                ("invoice", "Add up this invoice", "should_not_trigger"),
            )
            for number in range(9)
        ],
    )

    def think(request: Request) -> dict[str, Any]:
        wants = "Somebody stands at the desk" in request.text and LOADED_FOR in request.text
        if wants:
            return {"load_skill": "greet"} if not results_in(request) else {"run": "ls"}
        return {"say": "Done."}

    with ThinkingModel(think) as model:
        done, document = improve(hotel, model, "--part", "description", "--candidate", "better", "--accept", "these")
        turns = len(model.turns)

    assert document.outcome == "succeeded", done.stdout + done.stderr
    assert document.options.part == "description"
    (last,) = document.rounds
    assert last.confirm is not None
    assert {case.case: (case.before, case.after) for case in last.confirm.cases}["arrival-3"] == (0.0, 1.0)
    # A session that loads the skill is over then: no session has come to a second round.
    trials = 6 * 2 * 3 + last.confirm.trials
    assert turns <= trials, (turns, trials)
