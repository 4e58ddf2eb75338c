"""Real agents that reach their model and nothing else: the gateway puts the key in, and counts what passes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from programs import KEY
from stage import Played, Stage

from whet.testing.scripted_model.server import ScriptedModel

FIRST = {"input": 2000, "cached": 500, "output": 40}
READY = {"say": "All is ready.", "usage": {"input": 1100, "cached": 300, "output": 21}}
# What a request without tools takes, which some agents make by the way.
ASIDE = {"input": 50, "cached": 0, "output": 5}
# The pattern is not the key itself, so that it does not find this command.
LOOK = """
PATTERN='sk-scripted-model-00000[0]'
env > env.txt; cat /proc/[0-9]*/environ > others.txt 2> errors.txt
find "$HOME" "$TMPDIR" . /etc /tmp /run -type f -exec grep -lE "$PATTERN" {} + > found.txt 2>> errors.txt
python3 - PORT > reached.txt <<END
import socket, sys
for host in ("127.0.0.1", "localhost", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1"):
    try:
        socket.create_connection((host, int(sys.argv[1])), 3).close()
        print(host)
    except OSError:
        pass
END
echo looked
"""


@pytest.fixture
def confined(stage: Stage) -> Stage:
    """An agent in bubblewrap that has its model and nothing else."""
    stage.project.sandbox = "bubblewrap"
    stage.agent = 'network = "model"'
    return stage


def noted(played: Played) -> list[dict[str, Any]]:
    """The requests to a model that the gateway noted."""
    text = played.outcome.artifact("a", "requests.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["format"]]


def sent(played: Played, *usages: dict[str, int]) -> dict[str, int]:
    """All tokens that the server sent: with the steps of the script, and with what was asked by the way."""
    aside = [ASIDE for request in played.requests if request.wire and request.step is None]
    names = {"input_tokens": "input", "cached_tokens": "cached", "output_tokens": "output"}
    return {ours: sum(each[theirs] for each in (*usages, *aside)) for ours, theirs in names.items()}


@pytest.mark.bubblewrap
def test_an_agent_with_its_model_alone_works_as_ever_and_has_no_key(confined: Stage) -> None:
    check = """
    assert ctx.final_output() == "All is ready."
    assert "echo looked" in ctx.get_commands()[0]
    seen = ctx.read("env.txt") + ctx.read("others.txt")
    assert "HOME=" in seen and "scripted-model-000000" not in seen, seen
    assert ctx.read("found.txt") == "", ctx.read("found.txt")
    assert ctx.read("reached.txt") == "", ctx.read("reached.txt")
    """
    with ScriptedModel() as other:
        look = LOOK.replace("PORT", other.url.rpartition(":")[2])

        played = confined.play([{"run": look, "usage": FIRST}, READY], check=check)

    assert played.verdict == ("passed", None), played.story
    assert all(any(KEY in value for value in request.headers.values()) for request in played.turns)
    usage = played.outcome.session("a")["usage"]
    assert {name: usage[name] for name in sent(played)} == sent(played, FIRST, READY["usage"])  # type: ignore[arg-type]
    assert set(usage["sources"].values()) == {"gateway"}
    lines = noted(played)
    assert sum(line["input_tokens"] for line in lines) == usage["input_tokens"]
    assert {(line["outcome"], line["status"], line["retries"]) for line in lines} == {("answered", 200, 0)}
    assert all(0 < line["first_token_s"] <= line["duration_s"] for line in lines)
    record = [path for path in played.outcome.output_dir.rglob("*") if path.is_file()]
    assert [path for path in record if KEY.encode() in path.read_bytes()] == []
    assert confined.project.left_after_a_while() == []


def test_a_budget_stops_an_agent_at_its_next_request(stage: Stage) -> None:
    stage.defaults = "budget_requests = 2"
    steps = [{"run": f"echo {number}", "usage": FIRST} for number in range(5)]

    played = stage.play([*steps, READY])

    assert played.verdict == ("failed", "budget"), played.story
    assert "2 of 2 requests" in played.outcome.message("a")
    assert len(played.turns) <= 2
    assert noted(played)[-1]["outcome"] == "refused"
    assert stage.project.left_after_a_while() == []


def kinds(played: Played) -> list[tuple[str, str]]:
    """What happened in a session: every event, with the command or the words."""
    return [(event["type"], event.get("command") or event.get("text") or "") for event in played.events]


@pytest.mark.bubblewrap
def test_a_recorded_session_is_played_again_with_the_model_gone(confined: Stage, tmp_path: Any) -> None:
    steps = [
        {"say": "Looking.", "run": "echo hi > out.txt && pwd && date && cat out.txt", "usage": FIRST},
        {"write": "report.md", "text": "# Report\n"},
        READY,
    ]
    check = 'assert ctx.final_output() == "All is ready." and ctx.read("report.md").strip() == "# Report"'
    tapes = str(tmp_path / "tapes")
    recorded = confined.play(steps, "--record-to", tapes, check=check)
    assert recorded.verdict == ("passed", None), recorded.story
    usage, events = recorded.outcome.session("a")["usage"], kinds(recorded)

    again = confined.play([], "--cassette", tapes, "--trials", "2", check=check, keyless=True)

    assert again.verdict == ("passed", None), again.story
    assert again.requests == ()
    assert [trial["status"] for trial in again.outcome.trials] == ["passed", "passed"], again.outcome.stdout
    assert "taken in turn" in again.outcome.stdout
    assert (again.outcome.session("a")["usage"], kinds(again)) == (usage, events)
    assert {line["by"] for line in noted(again)} == {"cassette"}
    kept = [path.read_text() for path in (tmp_path / "tapes").rglob("*.jsonl")]
    assert len(kept) == 1
    assert KEY not in kept[0]
    assert "whet:workspace" in kept[0]
