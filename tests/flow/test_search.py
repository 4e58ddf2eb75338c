"""Searching the sessions of a run by the real command, and through the address that the pages use."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import EVENTS, Project

from whet.view.addresses import Missing, Runs

# One arm tests what it wrote, and the other does not.
SUITE = r"""
    def tested(session, ctx):
        assert "ok" in session.final_output
    told = [
        '{"type": "tool_call", "tool": "Bash", "id": "1", "args": {"command": "make"}}',
        '{"type": "command", "command": "python -m unittest", "exit_code": 0}',
    ]
    script = "if [ -z \"$HASTY\" ]; then printf '%s\\n' " + " ".join(f"'{line}'" for line in told) + "; fi; "
    end = '{"type": "final_output", "text": "ok it is"}'
    suite = [Case(id=name, prompt=script + f"echo '{end}'", check=tested) for name in ("a", "b")]
"""


@pytest.fixture
def ran(project: Project) -> Project:
    project.settings(EVENTS)
    project.suite(SUITE)
    done = project.run("--arm", "v1=as-is", "--arm", "v2=env:HASTY=1", "--trials", "3")
    assert done.code == 0, done.stderr
    return project


def found(project: Project, *words: str) -> dict[str, Any]:
    printed = project.whet("search", "latest", *words, "--json").stdout
    document: dict[str, Any] = json.loads(printed)
    return document


def test_sessions_are_counted_by_arm_and_the_trials_are_named(ran: Project) -> None:
    document = found(ran, "cmd:unittest")
    lines = ran.whet("search", "latest", "cmd:unittest").stdout.splitlines()

    assert [(arm["arm"], arm["matched"], arm["trials"]) for arm in document["arms"]] == [("v1", 6, 6), ("v2", 0, 6)]
    assert [(arm["passed_with"], arm["passed_without"]) for arm in document["arms"]] == [(6, 0), (0, 6)]
    assert {(trial["arm"], trial["first"], trial["excerpt"]) for trial in document["trials"]} == {
        ("v1", 1, "python -m unittest")
    }
    assert lines[2].split() == ["v1", "sh", "6", "of", "6", "sessions", "6", "of", "6", "100", "%", "-"]
    assert "  a@sh/v1#1  passed" in lines
    assert "    │ event 2: python -m unittest" in lines


@pytest.mark.parametrize(
    "words",
    [("tool:Bash", "cmd:unittest"), ("tool:Bash cmd:unittest",), ("text:ok it is", "tool:Bash"), ('"ok it" Bash',)],
)
def test_words_of_the_shell_are_terms_that_must_all_be_there(ran: Project, words: tuple[str, ...]) -> None:
    assert [arm["matched"] for arm in found(ran, *words)["arms"]] == [6, 0]


def test_a_mistake_in_a_query_is_one_clear_error(ran: Project) -> None:
    refused = ran.whet("search", "latest", "toll:Bash")
    empty = ran.whet("search", "latest", " ")

    assert (refused.code, empty.code) == (2, 2)
    assert refused.stderr.splitlines() == ['error[usage]: there is no "toll:" to look in', '  did you mean "tool"?']
    assert empty.stderr.startswith("error[usage]: the query is empty\n  such as tool:Bash")


def test_the_pages_get_the_same_document(ran: Project) -> None:
    runs = Runs("project", lambda: [(ran.output_dir / "latest").resolve()])
    [run] = runs.folders()

    document = json.loads(runs.get(f"runs/{run}/search", {"q": "cmd:unittest"}))

    assert document == found(ran, "cmd:unittest")
    with pytest.raises(Missing):
        runs.get("runs/other/search", {"q": "a"})


def test_before_the_first_run_an_error_says_how_to_make_one(project: Project) -> None:
    refused = project.whet("search", "latest", "a")

    assert refused.code == 2
    assert refused.stderr.endswith("\n  whet run SUITE makes the first one\n")
