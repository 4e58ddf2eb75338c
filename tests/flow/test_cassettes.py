"""Folders of cassettes: what cannot be played or recorded is said before the run, and one run records at a time."""

from __future__ import annotations

import fcntl
import json
import os

import pytest
from project import Project
from test_gateway_runs import AGENT, HELLO, RUNNER, played


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--record-to", "agent.py"), "agent.py: it is not a folder"),
        (("--record-to", "agent.py/tapes"), "agent.py/tapes: Not a directory"),
        (("--cassette", "agent.py", "--cassette-mode", "new"), "agent.py: it is not a folder"),
        (("--cassette", "none"), "there is no folder"),
        (("--cassette", "agent.py"), "agent.py is not a folder"),
        (("--cassette", "empty"), "there is no cassette in"),
        (("--cassette", "empty", "--record-to", "tapes"), "a run plays cassettes or records them: --cassette and"),
        (("--cassette-mode", "new"), "--cassette-mode is for --cassette, which is not given"),
        (("--cassette-speed", "real"), "--cassette-speed is for --cassette, which is not given"),
    ],
)
def test_what_cannot_be_played_or_recorded_is_said_before_anything_is_asked(
    project: Project, flags: tuple[str, ...], problem: str
) -> None:
    (project.root / "empty").mkdir()

    outcome, model = played(project, [HELLO], "print(ask())", *flags)
    dry, _ = played(project, [], "print(ask())", *flags, "--dry-run")

    assert (outcome.code, model.requests) == (2, ()), outcome.stdout
    assert problem in outcome.stderr
    assert (dry.code, dry.stderr, dry.stdout) == (2, outcome.stderr, "")
    assert not (project.root / "tapes").exists()


def test_a_dry_run_tells_which_cassettes_are_missing_or_cannot_be_played(project: Project) -> None:
    prompt, cassette = "print(ask())", project.root / "tapes/suite/a/mine/default/1/1.jsonl"
    flags = ("--cassette", "tapes", "--trials", "2", "--dry-run")
    played(project, [HELLO], prompt, "--record-to", "tapes")

    whole, _ = played(project, [], prompt, *flags)
    cassette.write_text(cassette.read_text().replace('{"cassette": 1}', '{"cassette": 0}'))
    older, _ = played(project, [], prompt, *flags)
    cassette.rename(cassette.parents[3] / "other.jsonl")
    cassette.parents[1].rename(cassette.parents[1].with_name("another"))
    missing, _ = played(project, [], prompt, *flags)

    assert (whole.code, whole.stderr) == (0, "")
    assert (older.code, older.stdout) == (0, whole.stdout)
    assert older.stderr == f"warning: {cassette} is of another version; record it again with --record-to\n"
    none = f"there is no cassette for suite::a@mine/default#1 in {project.root}/tapes"
    assert missing.stderr == f"warning: {none}; record one with --record-to\n"


def test_a_dry_run_of_a_recording_makes_no_folder(project: Project) -> None:
    outcome, _ = played(project, [], "print(ask())", "--record-to", "deep/tapes", "--dry-run")

    assert outcome.code == 0, outcome.stderr
    assert not (project.root / "deep").exists()


def test_a_mode_in_the_settings_waits_for_a_cassette(project: Project) -> None:
    outcome, _ = played(project, [HELLO], "print(ask())", more='[run]\ncassette_mode = "new"\n')

    assert outcome.code == 0, outcome.stderr


def test_one_run_at_a_time_records_into_a_folder(project: Project) -> None:
    folder = project.root / "tapes"
    folder.mkdir()
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        refused = [
            played(project, [HELLO], "print(ask())", *flags)
            for flags in (("--record-to", "tapes"), ("--cassette", "tapes", "--cassette-mode", "new"))
        ]
    finally:
        os.close(held)
    after, _ = played(project, [HELLO], "print(ask())", "--record-to", "tapes")

    for outcome, model in refused:
        assert (outcome.code, model.requests) == (2, ())
        assert "tapes is in use by another whet" in outcome.stderr
        assert "it records cassettes there" in outcome.stderr
    assert after.code == 0, after.stderr


def test_a_recording_under_way_keeps_its_folder(project: Project) -> None:
    probe = "import fcntl; fcntl.flock(os.open(sys.argv[0][:-8] + 'tapes', os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    outcome, _ = played(project, [HELLO], f"ask(); {probe}", "--record-to", "tapes")

    assert outcome.codes == {"a": "agent-crashed"}
    assert "BlockingIOError" in outcome.artifact("a", "stderr.log").read_text()


def test_what_a_cassette_answers_is_not_paid_for(project: Project) -> None:
    prompt = "for n in range(5): print(ask(str(n)))"
    recorded, _ = played(project, [HELLO] * 5, prompt, "--record-to", "tapes")
    assert recorded.code == 0, recorded.stderr
    recorded_usage = recorded.trials[0]["usage"]["total_tokens"]
    written = (recorded.results, recorded.trials[0]["attempts"][0])
    recorded_unpaid = tuple(each["unpaid_usage"]["total_tokens"] for each in written)

    again, _ = played(project, [], prompt, "--cassette", "tapes", "--max-cost", "0.001", "--trials", "3")

    assert [trial["status"] for trial in again.trials] == ["passed"] * 3, again.stdout
    assert again.trials[0]["usage"]["cost_usd"] == recorded.trials[0]["usage"]["cost_usd"] > 0.001
    paid = json.loads(project.whet("export", "latest", "--format", "jsonl").stdout.splitlines()[0])
    assert (paid["paid_usd"], paid["paid_tokens"]) == (0, 0)
    assert paid["cost_usd"] > 0.001
    results, once = again.results, recorded_usage
    assert recorded_unpaid == (None, None)
    assert [trial["attempts"][0]["unpaid_usage"]["total_tokens"] for trial in again.trials] == [once] * 3
    assert results["unpaid_usage"]["total_tokens"] == results["total_usage"]["total_tokens"] == 3 * once
    assert results["unpaid_usage"]["cost_usd"] == results["total_usage"]["cost_usd"]
    assert project.whet("verify", "latest").code == 0


def test_what_a_cassette_lacks_is_paid_for(project: Project) -> None:
    played(project, [HELLO], 'print(ask("one"))', "--record-to", "tapes")
    prompt = 'print(ask("one")); print(ask("two")); print(ask("three"))'

    flags = ("--cassette", "tapes", "--cassette-mode", "new", "--max-cost", "0.001")
    outcome, model = played(project, [HELLO] * 3, prompt, *flags)

    assert outcome.codes == {"a": "max-cost"}, outcome.stdout
    assert len(model.requests) == 1


@pytest.mark.parametrize("network", ["full", "model"])
def test_what_is_missing_on_a_cassette_is_not_asked_for_without_a_key(project: Project, network: str) -> None:
    project.write("agent.py", AGENT)
    project.suite("suite = [Case(id='a', prompt='print(ask())', check=ok)]\n")
    project.settings(RUNNER + f'network = "{network}"\n')

    outcome = project.run("--cassette", "tapes", "--cassette-mode", "new")

    assert outcome.code == 2
    assert "there is no key in ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN" in outcome.stderr
    assert not (project.root / "tapes").exists()
