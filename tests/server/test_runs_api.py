"""Runs over HTTP, on both databases, with real processes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from running import (
    CONFIG,
    all_events,
    ask_for_run,
    create_suite,
    get_run,
    read_events,
    skill_archive,
    start_run,
    wait_for_run,
)
from serving import SUITES, Server, suite_document, wait_until

pytestmark = pytest.mark.both_databases


@pytest.fixture(scope="module")
def runs_server(fresh_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one worker and an agent that is a shell."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "whet.toml").write_text(CONFIG)
    options = ("--config", str(folder / "whet.toml"), "--sandbox", "local", "--workers", "1")
    served = Server(fresh_database(), folder / "data", (*options, "--requests-per-minute", "100000"))
    served.start()
    yield served
    assert served.stop() == 0


@pytest.fixture
def client(runs_server: Server, organisation: str) -> Iterator[httpx2.Client]:
    with runs_server.client(runs_server.key(organisation)) as client:
        yield client


@pytest.fixture
def other(runs_server: Server, organisation: str) -> Iterator[httpx2.Client]:
    """A client of another organisation."""
    with runs_server.client(runs_server.key(f"{organisation}-other")) as client:
        yield client


def _waiting(gate: Path) -> str:
    """A script that is done once *gate* is there."""
    return f"while [ ! -e {gate} ]; do sleep 0.02; done; echo done"


def test_a_run_ends_with_results_events_and_evidence(client: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done", "echo other"], supports_no_skill=True)

    run = wait_for_run(client, start_run(client, suite_id))

    assert (run["status"], run["outcome"], run["error"]) == ("completed", "failed", None)
    assert run["summary"]["counts"]["total"] == 4
    place = f"/api/v1/runs/{run['id']}"
    results = client.get(f"{place}/results").json()
    assert {execution["arm"] for case in results["cases"] for execution in case["executions"]} == {
        "skill",
        "no_skill",
    }
    trials = client.get(f"{place}/trials").json()["trials"]
    assert len(trials) == 4
    artifacts = {each["path"] for each in client.get(f"{place}/artifacts").json()["artifacts"]}
    first = next(trial for trial in trials if trial["key"]["case"] == results["cases"][0]["id"])
    transcript = f"{first['artifact_dir']}/transcript.txt"
    assert {transcript, "results.json", "whet.log", "report.md"} <= artifacts
    assert client.get(f"{place}/artifacts/{transcript}").text == "done\n"
    assert [event["event"] for event in all_events(client, run["id"])] == [
        "run_queued",
        "run_started",
        "run_planned",
        *["trial_ended"] * 4,
        "run_completed",
    ]


def test_runs_are_listed_by_suite_and_by_status(client: httpx2.Client) -> None:
    first, second = create_suite(client, ["echo done"]), create_suite(client, ["echo done"])
    runs = [start_run(client, first), start_run(client, second), start_run(client, first)]
    for run in runs:
        wait_for_run(client, run)

    of_first = client.get(f"{SUITES}/{first}/runs", params={"status": "completed", "limit": 1}).json()
    rest = client.get(f"{SUITES}/{first}/runs", params={"cursor": of_first["next_cursor"]}).json()

    assert [run["id"] for run in of_first["runs"] + rest["runs"]] == [runs[2], runs[0]]
    assert [run["id"] for run in client.get("/api/v1/runs").json()["runs"]] == runs[::-1]
    assert client.get("/api/v1/runs", params={"status": "queued"}).json()["runs"] == []


def test_a_run_is_of_the_version_that_was_named(client: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done"])
    client.patch(
        f"{SUITES}/{suite_id}", json={"cases_json": [{"case_kind": "exact_match", "query": "x", "expected": 1}]}
    )

    run = wait_for_run(client, start_run(client, suite_id, suite_version=1))

    assert (run["suite_version"], run["outcome"]) == (1, "passed")


def test_events_come_while_the_run_goes_on_and_can_be_taken_up_again(client: httpx2.Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    run_id = start_run(client, create_suite(client, ["echo done", _waiting(gate)]))

    with client.stream("GET", f"/api/v1/runs/{run_id}/events") as stream:
        seen = []
        for event in read_events(stream.iter_lines()):
            seen.append(event)
            if event["event"] == "trial_ended":
                break
    under_way = get_run(client, run_id)["status"]
    gate.touch()
    rest = all_events(client, run_id, **{"last-event-id": seen[-1]["id"]})

    assert under_way == "running"
    assert [event["id"] for event in seen + rest] == ["1", "2", "3", "4", "5", "6"]
    assert rest[-1]["event"] == "run_completed"


def test_a_run_that_waits_is_cancelled_at_once(client: httpx2.Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    suite_id = create_suite(client, [_waiting(gate)])
    first, second = start_run(client, suite_id), start_run(client, suite_id)
    wait_for_run(client, first, "running")

    cancelled = client.post(f"/api/v1/runs/{second}/cancel")
    again = client.post(f"/api/v1/runs/{second}/cancel")
    gate.touch()

    assert (cancelled.json()["run"]["status"], again.status_code) == ("cancelled", 200)
    assert [event["event"] for event in all_events(client, second)] == ["run_queued", "run_cancelled"]
    assert wait_for_run(client, first)["status"] == "completed"
    assert client.post(f"/api/v1/runs/{first}/cancel").status_code == 409


def test_a_run_under_way_is_cancelled_with_its_agents(client: httpx2.Client, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"echo $$ >> {pids}; sleep 1000; echo done"
    run_id = start_run(client, create_suite(client, ["echo done", script]))
    wait_until(pids.exists)

    client.post(f"/api/v1/runs/{run_id}/cancel")

    run = wait_for_run(client, run_id)
    assert (run["status"], run["outcome"]) == ("cancelled", None)
    assert all_events(client, run_id)[-1]["event"] == "run_cancelled"
    assert not [pid for pid in pids.read_text().split() if Path("/proc", pid).exists()]


def test_one_organisation_does_not_keep_another_waiting(
    client: httpx2.Client, other: httpx2.Client, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    many = create_suite(client, [_waiting(gate)])
    runs = [start_run(client, many) for _ in range(4)]
    wait_for_run(client, runs[0], "running")
    late = start_run(other, create_suite(other, ["echo done"]))

    gate.touch()
    ended = [wait_for_run(client, run) for run in runs]

    started = wait_for_run(other, late)["started_at"]
    assert ended[0]["started_at"] < started < ended[1]["started_at"]


def test_a_suite_that_is_not_runnable_is_refused_with_its_reasons(client: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done"], verifier_kind="llm_judge")

    refused = ask_for_run(client, suite_id)

    assert refused.status_code == 409
    assert "llm_judge does not allow exact_match" in refused.json()["details"][0]["message"]


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ({"runner": "nobody"}, "runner"),
        ({"runner": None}, "runner"),
        ({"runner": 5}, "runner"),
        ({"arm": "other"}, "arm"),
        ({"arm": "no_skill"}, "arm"),
        ({"trials": 0}, "trials"),
        ({"trials": True}, "trials"),
        ({"skill": "sha256:" + "0" * 64}, "skill"),
        ({"skill": "/etc"}, "skill"),
        ({"skill": "file:///etc"}, "skill"),
        ({"skill": None}, "skill"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_request_for_what_is_not_there_is_refused(client: httpx2.Client, asked: dict[str, object], path: str) -> None:
    suite_id = create_suite(client, ["echo done"])
    skill = "https://example.com/skill.tar.gz"

    refused = client.post(f"{SUITES}/{suite_id}/runs", json={"runner": "sh", "skill": skill, **asked})

    assert refused.status_code == 422
    assert [detail["path"] for detail in refused.json()["details"]] == [path]


@pytest.mark.parametrize(
    "archive",
    [
        b"no archive",
        b"",
        skill_archive({"readme.md": "no skill"}),
        skill_archive({"../SKILL.md": "out"}),
        skill_archive({"/SKILL.md": "out"}),
        skill_archive({"s/SKILL.md": "in", "s/link": "->/etc/passwd"}),
    ],
    ids=["no-archive", "empty", "no-skill", "dots", "absolute", "link"],
)
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    client: httpx2.Client, runs_server: Server, archive: bytes
) -> None:
    suite_id = create_suite(client, ["echo done"])
    files = {"skill": ("skill.tar.gz", archive)}

    refused = client.post(f"{SUITES}/{suite_id}/runs", data={"request": '{"runner": "sh"}'}, files=files)

    assert refused.status_code == 422, refused.text
    assert refused.json()["details"][0]["path"] == "skill"
    assert str(runs_server.data_dir) not in refused.text
    assert not list((runs_server.data_dir / "bundles").glob("*/.upload*"))


def test_a_skill_at_a_private_address_is_not_fetched(client: httpx2.Client, runs_server: Server) -> None:
    suite_id = create_suite(client, ["echo done"])

    made = client.post(f"{SUITES}/{suite_id}/runs", json={"runner": "sh", "skill": f"{runs_server.url}/healthz"})

    run = wait_for_run(client, made.json()["run"]["id"])
    assert run["status"] == "failed"
    assert "not a public address" in run["error"]


def test_an_uploaded_skill_can_be_named_by_its_own_organisation_alone(
    client: httpx2.Client, other: httpx2.Client
) -> None:
    uploaded = get_run(client, start_run(client, create_suite(client, ["echo done"])))["skill"]

    own = client.post(f"{SUITES}/{create_suite(client, ['echo done'])}/runs", json={"runner": "sh", "skill": uploaded})
    theirs = other.post(f"{SUITES}/{create_suite(other, ['echo done'])}/runs", json={"runner": "sh", "skill": uploaded})

    assert wait_for_run(client, own.json()["run"]["id"])["outcome"] == "passed"
    assert theirs.status_code == 422


def test_a_request_for_a_run_that_comes_twice_starts_one(client: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done"], supports_no_skill=True)
    key = {"idempotency-key": secrets.token_hex(8)}

    made = [client.post(f"{SUITES}/{suite_id}/runs", json={"runner": "sh"}, headers=key) for _ in range(3)]
    other = client.post(f"{SUITES}/{suite_id}/runs", json={"runner": "sh", "trials": 2}, headers=key)

    assert len({each.json()["run"]["id"] for each in made}) == 1
    assert other.status_code == 409
    assert len(client.get(f"{SUITES}/{suite_id}/runs").json()["runs"]) == 1


def test_another_organisations_suites_and_runs_are_not_found(client: httpx2.Client, other: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done"])
    run = wait_for_run(client, start_run(client, suite_id))["id"]
    body = {"runner": "sh"}

    asked = [
        other.get(f"{SUITES}/{suite_id}"),
        other.get(f"{SUITES}/{suite_id}/versions"),
        other.get(f"{SUITES}/{suite_id}/versions/1"),
        other.patch(f"{SUITES}/{suite_id}", json={"name": "theirs"}),
        other.delete(f"{SUITES}/{suite_id}"),
        other.get(f"{SUITES}/{suite_id}/runs"),
        other.post(f"{SUITES}/{suite_id}/runs", json=body),
        *(other.get(f"/api/v1/runs/{run}{part}") for part in ("", "/events", "/results", "/trials", "/artifacts")),
        other.get(f"/api/v1/runs/{run}/artifacts/results.json"),
        other.post(f"/api/v1/runs/{run}/cancel"),
    ]

    assert [each.status_code for each in asked] == [404] * len(asked)
    assert other.get(SUITES).json()["suites"] == []
    assert other.get("/api/v1/runs").json()["runs"] == []


@pytest.mark.parametrize(
    "path",
    [
        "../suite.json",
        "..%2fsuite.json",
        "%2e%2e/suite.json",
        "/etc/passwd",
        "trials/../run.json",
        "run.json",
        ".lock",
        "%00",
        "a" * 3000,
        "trials",
    ],
)
def test_nothing_but_kept_files_can_be_got_as_an_artifact(client: httpx2.Client, path: str) -> None:
    run = wait_for_run(client, start_run(client, create_suite(client, ["echo done"])))["id"]

    asked = client.get(f"/api/v1/runs/{run}/artifacts/{path}")

    assert asked.status_code == 404


def test_a_link_that_an_agent_left_leads_nowhere(client: httpx2.Client) -> None:
    script = "ln -s /etc/passwd link; ln -s /etc folder; echo kept > file; echo other"
    run = wait_for_run(client, start_run(client, create_suite(client, [script])))["id"]
    trial = client.get(f"/api/v1/runs/{run}/trials").json()["trials"][0]
    workspace = f"/api/v1/runs/{run}/artifacts/{trial['workspace_dir']}"

    codes = [client.get(f"{workspace}/{name}").status_code for name in ("file", "link", "folder/passwd")]

    listed = client.get(f"/api/v1/runs/{run}/artifacts", params={"below": trial["workspace_dir"]}).json()
    assert codes == [200, 404, 404]
    assert [each["path"] for each in listed["artifacts"]] == [f"{trial['workspace_dir']}/file"]


def test_a_run_that_cannot_begin_says_why(client: httpx2.Client) -> None:
    case = {"case_kind": "task_package", "environment_ref": "https://127.0.0.1:1/a.tar.gz"}
    made = client.post(SUITES, json=suite_document(cases_json=[case], supports_no_skill=True))

    asked = client.post(f"{SUITES}/{made.json()['suite']['id']}/runs", json={"arm": "no_skill"})

    run = wait_for_run(client, asked.json()["run"]["id"])
    said = run["error"] or json.dumps(client.get(f"/api/v1/runs/{run['id']}/results").json())
    assert (run["status"], run["outcome"]) in {("failed", None), ("completed", "errored")}
    assert "127.0.0.1" in said


def test_runs_do_not_see_the_address_of_the_database(client: httpx2.Client, tmp_path: Path) -> None:
    script = f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo done"
    run_id = start_run(client, create_suite(client, [script]))
    wait_until((tmp_path / "begun").exists)

    environs = [environ for environ in _environs(b"whet.run.child") if run_id.encode() in environ]
    (tmp_path / "go").touch()
    wait_for_run(client, run_id)

    names = {line.partition(b"=")[0] for environ in environs for line in environ.split(b"\0")}
    assert b"WHET_SERVICE_RUN" in names
    assert b"WHET_DATABASE" not in names


def _environs(word: bytes) -> Iterator[bytes]:
    """The environment of each process that has *word* in its command line."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word in (place / "cmdline").read_bytes():
                yield (place / "environ").read_bytes()


def test_an_answer_under_way_ends_when_the_server_does(
    fresh_database: Callable[[], str], tmp_path: Path, organisation: str
) -> None:
    (tmp_path / "whet.toml").write_text(CONFIG)
    options = ("--config", str(tmp_path / "whet.toml"), "--sandbox", "local")
    served = Server(fresh_database(), tmp_path / "data", options).start()
    with served.client(served.key(organisation)) as client:
        pids = tmp_path / "pids"
        run_id = start_run(client, create_suite(client, [f"echo $$ > {pids}; sleep 1000"]))
        wait_until(pids.exists)
        with client.stream("GET", f"/api/v1/runs/{run_id}/events") as stream:
            lines = stream.iter_lines()
            next(lines)

            code = served.stop()

            rest = list(lines)
    assert code == 0
    assert not any("run_completed" in line for line in rest)
    assert not Path("/proc", pids.read_text().strip()).exists()


def test_one_skill_that_is_uploaded_many_times_at_once_is_kept_once(client: httpx2.Client, runs_server: Server) -> None:
    suite_id = create_suite(client, ["echo done"])

    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: ask_for_run(client, suite_id), range(6)))

    assert [each.status_code for each in made] == [202] * 6
    digest = made[0].json()["run"]["skill"].removeprefix("sha256:")
    kept = list(runs_server.data_dir.glob("bundles/*/.upload*"))
    assert kept == []
    assert {each.json()["run"]["skill"] for each in made} == {f"sha256:{digest}"}
    for each in made:
        client.post(f"/api/v1/runs/{each.json()['run']['id']}/cancel")
