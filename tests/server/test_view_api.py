"""The documents of pages over HTTP, on both databases: runs, trials, events, files, notes, comparisons, history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from running import CONFIG, create_suite, start_run, wait_for_run
from serving import Server

VIEW = "/api/v1/view"


@pytest.fixture(scope="module")
def view_server(fresh_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with an agent that is a shell."""
    folder = tmp_path_factory.mktemp("view")
    (folder / "whet.toml").write_text(CONFIG)
    options = ("--config", str(folder / "whet.toml"), "--sandbox", "local", "--requests-per-minute", "100000")
    served = Server(fresh_database(), folder / "data", options)
    served.start()
    yield served
    assert served.stop() == 0


@pytest.fixture
def client(view_server: Server, organisation: str) -> Iterator[httpx2.Client]:
    with view_server.client(view_server.key(organisation)) as client:
        yield client


@pytest.fixture
def other(view_server: Server, organisation: str) -> Iterator[httpx2.Client]:
    """A client of another organisation."""
    with view_server.client(view_server.key(f"{organisation}-other")) as client:
        yield client


def _ended_run(client: httpx2.Client, suite_id: str) -> str:
    run_id = start_run(client, suite_id)
    wait_for_run(client, run_id)
    return run_id


def _trials(client: httpx2.Client, run_id: str) -> list[str]:
    """The addresses of all trials of a run."""
    document = client.get(f"{VIEW}/runs/{run_id}").json()
    return [
        f"{VIEW}/runs/{run_id}/trials/"
        + "/".join(quote(part, safe="") for part in (case["id"], each["runner"], each["arm"], str(row[0])))
        for case in document["cases"]
        for each in case["executions"]
        for row in each["trials"]
    ]


def test_a_run_is_shown_with_its_trials_their_events_and_files_and_no_path_of_the_server(
    client: httpx2.Client, view_server: Server
) -> None:
    run_id = _ended_run(client, create_suite(client, ["echo done", "echo other"]))

    listed = client.get(f"{VIEW}/runs").json()
    document = client.get(f"{VIEW}/runs/{run_id}").json()
    trials = [client.get(address).json() for address in _trials(client, run_id)]

    assert [run["id"] for run in listed["runs"]] == [run_id]
    assert (document["schema"], document["run"]["status"]) == ("whet/view/1", "completed")
    assert document["run"]["counts"]["failed"] == 1
    assert document["run"]["problem"] is None
    assert str(view_server.data_dir) not in client.get(f"{VIEW}/runs/{run_id}").text
    assert sorted(trial["trial"]["status"] for trial in trials) == ["failed", "passed"]
    attempt = trials[0]["attempts"][0]
    assert all(
        client.get(f"{VIEW}/runs/{run_id}/files/{file['path']}").content.__len__() == file["size"]
        for file in attempt["files"]
    )
    answer = client.get(f"{VIEW}/runs/{run_id}/files/{attempt['files'][0]['path']}")
    assert answer.headers["content-disposition"] == "attachment"
    assert "sandbox" in answer.headers["content-security-policy"]
    for way_out in ("../run.json", "..%2frun.json", "run.json", ".lock", "%2e%2e/run.json"):
        assert client.get(f"{VIEW}/runs/{run_id}/files/{way_out}").status_code == 404


def test_another_organisation_sees_nothing_of_it(client: httpx2.Client, other: httpx2.Client) -> None:
    suite_id = create_suite(client, ["echo done"])
    run_id = _ended_run(client, suite_id)
    trial = _trials(client, run_id)[0]

    asked = (
        *(f"{VIEW}/runs/{run_id}{rest}" for rest in ("", "/rows", "/notes", "/events/trials", "/files/results.json")),
        *(trial, f"{VIEW}/compare/{run_id}/{run_id}", f"{VIEW}/history/{suite_id}"),
    )

    assert {other.get(address).status_code for address in asked} == {404}
    assert other.post(f"{trial}/notes", json={"text": "x"}).status_code == 404
    assert other.get(f"{VIEW}/runs").json()["runs"] == []


def test_a_person_notes_a_verdict_which_counts_as_agreement_and_can_be_removed(
    client: httpx2.Client, view_server: Server, organisation: str
) -> None:
    run_id = _ended_run(client, create_suite(client, ["echo done", "echo other"]))
    passed, failed = sorted(_trials(client, run_id), key=lambda each: client.get(each).json()["trial"]["status"])[::-1]

    first = client.post(f"{passed}/notes", json={"text": "<b>right</b> \x00", "verdict": "passed", "by": "Ada"})
    second = client.post(f"{failed}/notes", json={"verdict": "passed"})
    noted = client.get(f"{VIEW}/runs/{run_id}/notes").json()
    shown = client.get(passed).json()["notes"]
    counts = client.get(f"{VIEW}/runs/{run_id}").json()["notes"]
    gone = client.delete(f"{failed}/notes/{second.json()['id']}")

    assert (first.status_code, second.status_code, gone.status_code) == (201, 201, 204)
    assert (shown[0]["text"], shown[0]["by"], shown[0]["verdict"]) == ("<b>right</b> \x00", "Ada", "passed")
    assert (noted["agreement"]["judged"], noted["agreement"]["agreed"]) == (2, 1)
    assert noted["agreement"]["low"] < 0.5 < noted["agreement"]["high"]
    assert sorted(counts.values()) == [1, 1]
    assert client.get(f"{VIEW}/runs/{run_id}/notes").json()["agreement"]["judged"] == 1
    assert client.delete(f"{failed}/notes/{second.json()['id']}").status_code == 404
    # What is not the key of a trial could be taken for another address.
    assert client.delete(f"{failed.rpartition('/trials/')[0]}/trials/0/notes/0").status_code == 404
    assert client.post(f"{passed}/notes", json={}).status_code == 422
    assert client.post(f"{passed}/notes", json={"verdict": "maybe"}).status_code == 422
    assert client.post(f"{passed}/notes", content=b"text=x").status_code == 415
    with view_server.client(view_server.key(organisation, "run")) as runner:
        assert runner.get(passed).status_code == 403
        assert runner.post(f"{passed}/notes", json={"text": "x"}).status_code == 201
    with view_server.client(view_server.key(organisation, "read")) as reader:
        assert reader.get(passed).status_code == 200
        assert reader.post(f"{passed}/notes", json={"text": "x"}).status_code == 403


def test_two_runs_are_compared_and_the_suite_has_a_history(client: httpx2.Client, tmp_path: Path) -> None:
    flips = f"if [ -e {tmp_path}/there ]; then echo other; else echo done; fi"
    suite_id = create_suite(client, ["echo done", flips])
    before = _ended_run(client, suite_id)
    (tmp_path / "there").touch()
    after = _ended_run(client, suite_id)

    compared = client.get(f"{VIEW}/compare/{before}/{after}").json()
    history = client.get(f"{VIEW}/history/{suite_id}").json()

    assert (compared["a"]["id"], compared["b"]["id"]) == (before, after)
    assert len(compared["newly_failing"]) == 1
    assert compared["newly_passing"] == []
    assert compared["comparisons"][0]["verdict"] == "inconclusive"
    assert [point["run"] for point in history["points"]] == [before, after]
    named = client.get(f"{VIEW}/history/{quote(compared['a']['suite'], safe='')}").json()
    assert named["points"] == history["points"]
    assert client.get(f"{VIEW}/history/none").status_code == 404
    assert [point["rate"]["value"] for point in history["points"]] == [1.0, 0.5]
    assert client.get(f"{VIEW}/runs/{after}").json()["previous"] == before


def test_a_run_that_waits_or_is_under_way_is_shown_as_far_as_it_is(client: httpx2.Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    suite_id = create_suite(client, ["echo done", f"while [ ! -e {gate} ]; do sleep 0.02; done; echo done"])
    run_id = start_run(client, suite_id)

    waiting = client.get(f"{VIEW}/runs/{run_id}").json()
    gate.touch()
    wait_for_run(client, run_id)
    rows = client.get(f"{VIEW}/runs/{run_id}/rows").json()

    assert waiting["run"]["status"] in ("queued", "running")
    assert (rows["status"], len(rows["rows"])) == ("completed", 2)
    later = client.get(f"{VIEW}/runs/{run_id}/rows", params={"offset": rows["offset"]}).json()
    assert later["rows"] == []
