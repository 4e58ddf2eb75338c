"""Whole improve runs of a service: `whet improve` itself, with an agent and a proposer that are shell scripts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest
from improve_service import (
    IMPROVE,
    PROPOSALS,
    get_improve_run,
    start_improve_run,
    upload_skill,
    wait_for_improve_run,
)
from running import read_events
from serving import SUITES, Server, suite_document, wait_until

pytestmark = pytest.mark.bubblewrap

SKILL = """---
name: greet
description: Write a greeting for a guest of the hotel, when somebody asks for one.
---

# Greeting

Write one line.
"""
RULE = "Please welcome each guest."
GUESTS = 12
# Greets every second guest as the hotel wants it, and all of them if the skill says how; with that, it waits at a gate.
AGENT = """
prompt=$(cat)
number=${prompt##* }
word=Hello
[ $((number % 2)) = 0 ] && word=Welcome
if grep -q "welcome each guest" "$WHET_SKILL/SKILL.md"; then
  word=Welcome
  while [ ! -e OUTSIDE/open ]; do sleep 0.05; done
fi
echo '{"type":"usage","input_tokens":10,"output_tokens":1,"cost_usd":0.01}'
echo '{"type":"message","role":"assistant","text":"'"$word, guest $number"'"}'
"""
# Each candidate has another text, so that none is raced for another.
PROPOSER = """
cat > /dev/null
echo '{"type":"usage","input_tokens":10,"output_tokens":1,"cost_usd":0.02}'
(echo "RULE"; cat /proc/sys/kernel/random/uuid) >> skill/SKILL.md
echo '{"type":"message","role":"assistant","text":"I added a rule."}'
"""
SETTINGS = """
[run]
max_parallel = 2
[runners.sh.agent]
type = "command"
command = "sh"
args = ["-c", AGENT]
output = "events"
mounts = ["OUTSIDE"]
[runners.writer.agent]
type = "command"
command = "sh"
args = ["-c", PROPOSER]
output = "events"
"""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Where the gate of the agent is."""
    (tmp_path / "outside").mkdir()
    return tmp_path / "outside"


@pytest.fixture
def hotel(tmp_path: Path, outside: Path) -> Iterator[Server]:
    """A server whose agent follows a skill to the letter; it is not started yet."""
    settings = SETTINGS.replace("AGENT", json.dumps(AGENT)).replace("PROPOSER", json.dumps(PROPOSER))
    (tmp_path / "whet.toml").write_text(settings.replace("OUTSIDE", str(outside)).replace("RULE", RULE))
    options = ("--config", str(tmp_path / "whet.toml"), "--requests-per-minute", "100000")
    served = Server(f"sqlite:///{tmp_path}/whet.db", tmp_path / "data", options)
    yield served
    assert served.stop() == 0


def create_guests(client: httpx2.Client, **changes: Any) -> str:
    """The id of a suite with a case for each guest."""
    cases = [
        {
            "case_kind": "boolean_assertion",
            "task_id": f"guest-{number}",
            "instruction": f"Greet guest {number}",
            "assertions": [{"op": "contains", "value": f"Welcome, guest {number}"}],
        }
        for number in range(GUESTS)
    ]
    made = client.post(SUITES, json=suite_document(cases_json=cases, **changes))
    assert made.status_code == 201, made.text
    return str(made.json()["suite"]["id"])


def start(client: httpx2.Client, suite_id: str, **more: Any) -> str:
    """The id of an improve run of the greeting."""
    skill = upload_skill(client, {"greet/SKILL.md": SKILL})
    return start_improve_run(client, suite_id, skill, proposer="writer", **more)


def improve_by_command(hotel: Server, organisation: str, suite_id: str, folder: Path) -> dict[str, Any]:
    """What `whet suites improve` prints as JSON, which is as its schema says."""
    (folder / "key").write_text(hotel.key(organisation))
    (folder / "greet").mkdir()
    (folder / "greet" / "SKILL.md").write_text(SKILL)
    ended = hotel.ended(
        *("suites", "improve", suite_id, "--skill", str(folder / "greet"), "--runner", "sh", "--proposer", "writer"),
        *("--max-cost", "5", "--candidates", "2", "--json", "--server", hotel.url, "--key-file", str(folder / "key")),
    )
    run: dict[str, Any] = json.loads(ended.stdout)
    jsonschema.validate(run, json.loads(hotel.plain("schema", "service-improve-run")))
    assert ended.returncode == {"succeeded": 0, "no_winner": 0, "undecided": 5}[run["status"]], ended.stderr
    assert "candidate " in ended.stderr
    return run


def told(client: httpx2.Client, run_id: str) -> list[dict[str, Any]]:
    """Each event of an improve run until its end."""
    with client.stream("GET", f"{IMPROVE}/{run_id}/events") as stream:
        return [event["data"] for event in read_events(stream.iter_lines())]


def test_a_skill_is_improved_and_the_next_improve_run_shares_its_split(
    hotel: Server, organisation: str, outside: Path, tmp_path: Path
) -> None:
    (outside / "open").touch()
    hotel.start()
    with hotel.client(hotel.key(organisation)) as client:
        suite_id = create_guests(client)
        run_id = start(client, suite_id)
        events = told(client, run_id)
        run = get_improve_run(client, run_id)
        proposal = client.get(f"{PROPOSALS}/{run['proposal_id']}").json()["proposal"]
        files = [file["path"] for file in client.get(f"{IMPROVE}/{run_id}/artifacts").json()["artifacts"]]
        lock = client.get(f"{IMPROVE}/{run_id}/artifacts/split.lock.json").json()
        client.patch(f"{SUITES}/{suite_id}", json={"name": "renamed"})
        second = improve_by_command(hotel, organisation, suite_id, tmp_path)
        again = second["id"]
        second_lock = client.get(f"{IMPROVE}/{again}/artifacts/split.lock.json").json()
        results = client.get(f"{IMPROVE}/{again}/results").json()
        names = ("whet.log", "report.md", "report.html")
        log, *reports = (client.get(f"{IMPROVE}/{run_id}/artifacts/{name}").text for name in names)

    assert (run["status"], run["error"]) == ("succeeded", None), log
    assert proposal["proposal_type"] == "body"
    assert RULE in proposal["proposed_value"]
    assert RULE not in proposal["current_value"]
    assert (proposal["pass_rate_before"] < 1, proposal["projected_pass_rate"]) == (True, 1.0)
    assert 0 < proposal["low"] <= proposal["difference"] <= proposal["high"]
    assert {"accepted.patch", "report.md", "report.html", "whet.log", "split.lock.json"} <= set(files)
    assert not [text for text in (log, *reports) if str(hotel.data_dir) in text]
    assert all(RULE in report for report in reports)
    phases = [event["phase"] for event in events if event["type"] == "phase_changed"]
    assert phases == [
        *("materialize", "validate", "classify", "eval_current", "generating", "eval_candidates", "confirm"),
        "persist",
    ]
    kinds = Counter(event["type"] for event in events)
    assert (kinds["candidate_persisted"], kinds["proposal_created"], kinds["run_completed"]) == (2, 1, 1)
    # The second one looked at the same held-out cases once more, at less error.
    assert second["status"] in ("succeeded", "no_winner", "undecided")
    assert second_lock["cases"] == lock["cases"]
    assert [max(each["confirms"].values()) for each in (lock, second_lock)] == [1, 2]
    assert results["rounds"][0]["step"] == 2
    assert str(hotel.data_dir) not in json.dumps(results)


def test_an_improve_run_goes_on_after_its_server_was_killed(hotel: Server, organisation: str, outside: Path) -> None:
    hotel.start()
    key = hotel.key(organisation)
    with hotel.client(key) as client:
        run_id = start(client, create_guests(client))
        wait_until(lambda: get_improve_run(client, run_id)["phase"] == "eval_candidates")
        record = next(hotel.data_dir.glob(f"runs/{run_id}/.whet/improve/2*"))

    hotel.kill()
    before = json.loads((record / "improve.json").read_text())
    (outside / "open").touch()
    hotel.start()

    with hotel.client(key) as client:
        run = wait_for_improve_run(client, run_id)
        events = told(client, run_id)
        after = client.get(f"{IMPROVE}/{run_id}/results").json()
    assert run["status"] == "succeeded"
    # Nothing that was done was done again.
    assert [step["chain"] for step in after["steps"]][: len(before["steps"])] == [
        step["chain"] for step in before["steps"]
    ]
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    kinds = Counter((event["type"], event.get("phase"), event.get("candidate_id")) for event in events)
    assert set(kinds.values()) == {1}


def test_an_improve_run_that_is_cancelled_ends_with_its_agents(hotel: Server, organisation: str, outside: Path) -> None:
    hotel.start()
    with hotel.client(hotel.key(organisation)) as client:
        run_id = start(client, create_guests(client))
        wait_for_improve_run(client, run_id, "running")
        wait_until(lambda: get_improve_run(client, run_id)["phase"] == "eval_candidates")

        client.post(f"{IMPROVE}/{run_id}/cancel")

        run = wait_for_improve_run(client, run_id)
        assert client.get(f"{IMPROVE}/{run_id}/results").json()["outcome"] in ("interrupted", None)
    assert (run["status"], run["proposal_id"], run["phase"]) == ("cancelled", None, None)


def test_cases_that_cannot_decide_end_an_improve_run_for_good(hotel: Server, organisation: str) -> None:
    hotel.start()
    with hotel.client(hotel.key(organisation)) as client:
        cases = [
            {
                "case_kind": "boolean_assertion",
                "task_id": f"guest-{number}",
                "instruction": f"Greet guest {number}",
                # Nothing at all passes it.
                "assertions": [{"op": "not_contains", "value": "Goodbye"}],
            }
            for number in range(GUESTS)
        ]
        suite_id = client.post(SUITES, json=suite_document(cases_json=cases)).json()["suite"]["id"]
        run_id = start(client, suite_id)
        run = wait_for_improve_run(client, run_id)

    assert run["status"] == "failed_terminal"
    assert "guest-" in run["error"]
    assert str(hotel.data_dir) not in run["error"]
