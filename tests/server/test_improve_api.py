"""Improve runs and proposals over HTTP, on both databases."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from improve_service import (
    CANDIDATE,
    IMPROVE,
    NEW,
    PROPOSALS,
    create_cases,
    get_improve_run,
    improve_body,
    seed_improve_run,
    start_improve_run,
    upload_skill,
)
from running import CONFIG, read_events, shell_server, start_run, wait_for_run
from serving import SUITES, Server, wait_until

pytestmark = [pytest.mark.both_databases, pytest.mark.bubblewrap]

NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def shell(fresh_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose agent is a shell, with one worker."""
    folder = tmp_path_factory.mktemp("shell")
    (folder / "gates").mkdir()
    (folder / "whet.toml").write_text(f'{CONFIG}mounts = ["{folder}/gates"]\n')
    options = ("--config", str(folder / "whet.toml"), "--workers", "1")
    served = Server(fresh_database(), folder / "data", (*options, "--requests-per-minute", "100000"))
    served.start()
    yield served
    assert served.stop() == 0


@pytest.fixture
def caller(shell: Server, organisation: str) -> Iterator[httpx2.Client]:
    """A client of a new organisation, with all scopes."""
    with shell.client(shell.key(organisation)) as client:
        yield client


@pytest.fixture
def busy(shell: Server, caller: httpx2.Client, organisation: str) -> Iterator[None]:
    """The only worker is busy meanwhile."""
    gate = shell.data_dir.with_name("gates") / organisation
    blocking = create_cases(caller, cases=1, script=f"while [ ! -e {gate} ]; do sleep 0.05; done; echo done")
    run_id = start_run(caller, blocking)
    wait_for_run(caller, run_id, "running")
    yield
    gate.touch()
    wait_for_run(caller, run_id)


@pytest.mark.usefixtures("busy")
def test_an_improve_run_waits_in_the_queue_of_runs_and_can_be_cancelled_there(caller: httpx2.Client) -> None:
    suite_id, skill = create_cases(caller), upload_skill(caller)
    made = caller.post(IMPROVE, json=improve_body(suite_id, skill, label="first"))
    run = made.json()["improve_run"]

    cancelled = caller.post(f"{IMPROVE}/{run['id']}/cancel").json()["improve_run"]

    assert (made.status_code, made.headers["location"]) == (202, f"{IMPROVE}/{run['id']}")
    assert (run["status"], run["phase"], run["label"], run["eval_suite_id"]) == ("queued", None, "first", suite_id)
    assert run["options"] == {
        "part": None,
        "goal": "better",
        "candidates": 2,
        "rounds": 1,
        "max_cost_usd": 5.0,
        "accept": None,
    }
    assert (cancelled["status"], cancelled["proposal_id"]) == ("cancelled", None)
    listed = caller.get(IMPROVE, params={"status": "cancelled", "eval_suite_id": suite_id}).json()["improve_runs"]
    assert [each["id"] for each in listed] == [run["id"]]
    # Runs of suites are at other addresses.
    assert caller.get(f"/api/v1/runs/{run['id']}").status_code == 404
    assert caller.get(f"{SUITES}/{suite_id}/runs").json()["runs"] == []
    with caller.stream("GET", f"{IMPROVE}/{run['id']}/events") as stream:
        told = list(read_events(stream.iter_lines()))
    assert [event["event"] for event in told] == ["run_enqueued", "run_cancelled"]
    assert told[1]["data"]["status"] == "cancelled"
    assert {event["data"]["run_id"] for event in told} == {run["id"]}
    assert caller.delete(f"{IMPROVE}/{run['id']}").status_code == 204
    assert caller.get(f"{IMPROVE}/{run['id']}").status_code == 404


@pytest.mark.usefixtures("busy")
def test_the_same_request_starts_one_improve_run(caller: httpx2.Client) -> None:
    body = improve_body(create_cases(caller), upload_skill(caller))
    headers = {"idempotency-key": "once"}

    first = caller.post(IMPROVE, json=body, headers=headers).json()["improve_run"]["id"]
    again = caller.post(IMPROVE, json=body, headers=headers)
    other = caller.post(IMPROVE, json={**body, "label": "other"}, headers=headers)

    assert again.json()["improve_run"]["id"] == first
    assert other.status_code == 409
    assert len(caller.get(IMPROVE).json()["improve_runs"]) == 1
    caller.post(f"{IMPROVE}/{first}/cancel")


def test_what_cannot_be_improved_is_refused_with_every_reason(caller: httpx2.Client) -> None:
    skill = upload_skill(caller)
    few, enough = create_cases(caller, cases=6), create_cases(caller)

    small = caller.post(IMPROVE, json=improve_body(few, skill))
    wrong = caller.post(IMPROVE, json=improve_body(enough, "no-skill", runner="none", proposer="nobody"))
    dear = caller.post(IMPROVE, json=improve_body(enough, skill, options={"max_cost_usd": None, "candidates": 25}))
    unknown = caller.post(IMPROVE, json=improve_body(NOBODY, skill))

    assert small.status_code == 409
    assert small.json()["error"] == "the suite is not ready to improve a skill on"
    (reason,) = small.json()["details"]
    assert reason["message"].startswith("smoke holds out 3 cases, and fewer than 6 cannot decide")
    assert [detail["path"] for detail in wrong.json()["details"]] == ["skill", "runner", "proposer"]
    assert [detail["path"] for detail in dear.json()["details"]] == ["options.candidates", "options.max_cost_usd"]
    assert (wrong.status_code, dear.status_code, unknown.status_code) == (422, 422, 404)


def test_a_proposal_is_applied_as_a_draft_and_nothing_is_released(
    shell: Server, caller: httpx2.Client, organisation: str
) -> None:
    before = upload_skill(caller)
    caller.patch(f"/api/v1/skills/{before.removeprefix('sha256:')}", json={"label": "released"})
    run_id = seed_improve_run(shell, organisation, create_cases(caller))
    (proposal,) = caller.get(PROPOSALS).json()["proposals"]
    where = f"{PROPOSALS}/{proposal['id']}"

    wrong = caller.post(f"{where}/apply", json={"target": "draft", "candidate_id": "r1-c1"})
    released = caller.post(f"{where}/apply", json={"target": "released"})
    applied = caller.post(f"{where}/apply", json={"target": "draft", "candidate_id": CANDIDATE})
    again = caller.post(f"{where}/apply", json={"target": "draft"})

    assert (wrong.status_code, released.status_code) == (422, 422)
    assert (applied.status_code, again.json()) == (200, applied.json())
    done = applied.json()["proposal"]
    assert (done["status"], done["improve_run_id"]) == ("applied", run_id)
    assert done["applied_at"] is not None
    labels = {skill["label"]: f"sha256:{skill['sha256']}" for skill in caller.get("/api/v1/skills").json()["skills"]}
    assert labels == {"released": before, "draft": done["skill"]}
    kept = shell.data_dir.glob(f"bundles/*/{done['skill'].removeprefix('sha256:')}.tar.gz")
    with tarfile.open(next(kept)) as archive:
        texts = {entry.name: read.read().decode() for entry in archive if (read := archive.extractfile(entry))}
    # What no agent is given is still there.
    assert texts == {"greet/SKILL.md": NEW, "greet/evals/own.md": "mine\n"}
    # What was applied stays as it is, also when its improve run is gone.
    assert caller.patch(where, json={"status": "rejected"}).status_code == 409
    assert caller.delete(f"{IMPROVE}/{run_id}").status_code == 204
    assert caller.get(where).status_code == 404
    assert len(caller.get("/api/v1/skills").json()["skills"]) == 2


def test_a_proposal_that_was_rejected_is_not_applied(shell: Server, caller: httpx2.Client, organisation: str) -> None:
    seed_improve_run(shell, organisation, create_cases(caller))
    (proposal,) = caller.get(PROPOSALS, params={"status": "pending"}).json()["proposals"]
    where = f"{PROPOSALS}/{proposal['id']}"

    rejected = caller.patch(where, json={"status": "rejected"})
    refused = caller.post(f"{where}/apply", json={"target": "draft"})
    approved = caller.patch(where, json={"status": "approved"})
    elsewhere = caller.patch(where, json={"status": "applied"})

    assert rejected.json()["proposal"]["status"] == "rejected"
    assert (refused.status_code, refused.json()["error"]) == (409, "the proposal was rejected: approve it first")
    assert (approved.json()["proposal"]["status"], approved.json()["proposal"]["applied_at"]) == ("approved", None)
    assert (elsewhere.json()["proposal"]["status"], elsewhere.json()["proposal"]["skill"]) == ("applied", None)
    assert elsewhere.json()["proposal"]["applied_at"] is not None
    assert caller.get("/api/v1/skills").json()["skills"] == []


def test_a_draft_takes_no_label_from_a_skill_that_has_another(
    shell: Server, caller: httpx2.Client, organisation: str
) -> None:
    suite_id = create_cases(caller)
    for _ in range(2):
        seed_improve_run(shell, organisation, suite_id)
    first, second = caller.get(PROPOSALS).json()["proposals"]
    skill = caller.post(f"{PROPOSALS}/{first['id']}/apply", json={"target": "draft"}).json()["proposal"]["skill"]
    caller.patch(f"/api/v1/skills/{skill.removeprefix('sha256:')}", json={"label": "released"})

    refused = caller.post(f"{PROPOSALS}/{second['id']}/apply", json={"target": "draft"})

    assert refused.status_code == 409
    assert 'has the label "released", which it keeps' in refused.json()["error"]
    assert [skill["label"] for skill in caller.get("/api/v1/skills").json()["skills"]] == ["released"]
    assert caller.get(f"{PROPOSALS}/{second['id']}").json()["proposal"]["status"] == "pending"


def test_what_an_improve_run_found_and_left_can_be_read_without_places_of_the_server(
    shell: Server, caller: httpx2.Client, organisation: str
) -> None:
    suite_id = create_cases(caller)
    run_id = seed_improve_run(shell, organisation, suite_id, suite=f"{shell.data_dir.resolve()}/suite.json")

    results = caller.get(f"{IMPROVE}/{run_id}/results")
    files = caller.get(f"{IMPROVE}/{run_id}/artifacts").json()["artifacts"]

    assert results.json()["schema"] == "whet/improve/1"
    assert results.json()["suite"] == "suite.json"
    assert [file["path"] for file in files] == ["accepted.patch", f"candidates/{CANDIDATE}/skill/SKILL.md"]
    assert caller.get(f"{IMPROVE}/{run_id}/artifacts/accepted.patch").text == "the patch\n"
    for name in ("improve.json", "runs/practice/one/run.json"):
        assert caller.get(f"{IMPROVE}/{run_id}/artifacts/{name}").status_code == 404


def test_events_go_on_after_the_last_one_that_a_caller_has(
    shell: Server, caller: httpx2.Client, organisation: str
) -> None:
    run_id = seed_improve_run(shell, organisation, create_cases(caller))
    where = f"{IMPROVE}/{run_id}/events"

    def events(**asked: dict[str, str]) -> list[tuple[str, str]]:
        with caller.stream("GET", where, **asked) as stream:
            return [(event["id"], event["event"]) for event in read_events(stream.iter_lines())]

    all_of_them = events()

    assert [number for number, _ in all_of_them] == [str(number) for number in range(1, len(all_of_them) + 1)]
    assert events(headers={"last-event-id": "5"}) == all_of_them[5:]
    assert events(params={"cursor": "5"}) == all_of_them[5:]
    with caller.stream("GET", where) as stream:
        told = [event["data"] for event in read_events(stream.iter_lines())]
    assert {data["run_id"] for data in told} == {run_id}
    assert len({data["org_id"] for data in told}) == 1
    assert told[-1]["type"] == "run_completed"
    assert told[-1]["status"] == "succeeded"


def test_organisations_and_scopes_are_kept_apart(shell: Server, caller: httpx2.Client, organisation: str) -> None:
    suite_id = create_cases(caller)
    run_id = seed_improve_run(shell, organisation, suite_id)
    proposal_id = get_improve_run(caller, run_id)["proposal_id"]
    places = (
        *(f"{IMPROVE}/{run_id}{part}" for part in ("", "/events", "/results", "/artifacts", "/artifacts/whet.log")),
        f"{PROPOSALS}/{proposal_id}",
    )

    with shell.client(shell.key("strangers")) as stranger:
        seen = [stranger.get(place).status_code for place in places]
        skill = upload_skill(stranger)
        changes = [
            stranger.post(f"{IMPROVE}/{run_id}/cancel"),
            stranger.delete(f"{IMPROVE}/{run_id}"),
            stranger.patch(f"{PROPOSALS}/{proposal_id}", json={"status": "rejected"}),
            stranger.post(f"{PROPOSALS}/{proposal_id}/apply", json={"target": "draft"}),
            stranger.post(IMPROVE, json=improve_body(suite_id, skill)),
        ]
        lists = [stranger.get(IMPROVE).json()["improve_runs"], stranger.get(PROPOSALS).json()["proposals"]]
    with shell.client(shell.key(organisation, "read")) as reader:
        shown = [reader.get(place).status_code for place in places[:-2]]
        refused = [
            reader.post(IMPROVE, json=improve_body(suite_id, skill)),
            reader.post(f"{IMPROVE}/{run_id}/cancel"),
            reader.delete(f"{IMPROVE}/{run_id}"),
            reader.patch(f"{PROPOSALS}/{proposal_id}", json={"status": "rejected"}),
            reader.post(f"{PROPOSALS}/{proposal_id}/apply", json={"target": "draft"}),
        ]

    assert set(seen) == {404}
    assert {answer.status_code for answer in changes} == {404}
    assert lists == [[], []]
    assert set(shown) == {200}
    assert {answer.status_code for answer in refused} == {403}


def test_improve_runs_and_drafts_count_towards_the_quota(
    shell: Server, caller: httpx2.Client, organisation: str
) -> None:
    suite_id, skill = create_cases(caller), upload_skill(caller)
    seed_improve_run(shell, organisation, suite_id)
    proposal = caller.get(PROPOSALS).json()["proposals"][0]
    shell.whet("orgs", "quota", organisation, "--runs", "1")
    full = caller.post(IMPROVE, json=improve_body(suite_id, skill))
    shell.whet("orgs", "quota", organisation, "--mb", "0")
    no_room = caller.post(f"{PROPOSALS}/{proposal['id']}/apply", json={"target": "draft"})

    assert (full.status_code, full.json()["error"].partition(",")[0]) == (409, "the organisation keeps 1 run")
    assert no_room.status_code == 409
    assert caller.get(f"{PROPOSALS}/{proposal['id']}").json()["proposal"]["status"] == "pending"


def test_a_skill_that_an_improve_run_waits_for_is_not_deleted(caller: httpx2.Client, busy: None) -> None:
    del busy
    skill = upload_skill(caller, {"other/SKILL.md": "---\nname: other\ndescription: Greets.\n---\n"})
    run_id = start_improve_run(caller, create_cases(caller), skill)

    refused = caller.delete(f"/api/v1/skills/{skill.removeprefix('sha256:')}")
    caller.post(f"{IMPROVE}/{run_id}/cancel")

    assert refused.status_code == 409
    wait_until(lambda: get_improve_run(caller, run_id)["status"] == "cancelled")
    assert caller.delete(f"/api/v1/skills/{skill.removeprefix('sha256:')}").status_code == 204


def test_a_server_without_a_boundary_improves_nothing(organisation: str, tmp_path: Path) -> None:
    served = shell_server(tmp_path).start()
    with served.client(served.key(organisation)) as client:
        refused = client.post(IMPROVE, json=improve_body(create_cases(client), upload_skill(client)))
    served.stop()

    assert refused.status_code == 409
    assert "without a boundary that hides files" in refused.json()["details"][0]["message"]
