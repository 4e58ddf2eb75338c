"""What the service deletes, on request and by itself, and what is left when it is killed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from running import CONFIG, create_suite, get_run, skill_archive, start_run, wait_for_run
from serving import SUITES, Server, wait_until
from sqlalchemy import func, select, update

from whet.service.database import Database, bundles, idempotency, metadata, now_us, run_events, runs

pytestmark = pytest.mark.both_databases

DAY_US = 24 * 3600 * 1_000_000
MANY = 10
# Makes an interpreter stop for ever when it removes the fourth of them.
STOPS_IN_THE_MIDDLE = """
import os, time
unlink, removed = os.unlink, []
def stops(path, *, dir_fd=None):
    if os.path.basename(path).startswith("one-of-many-"):
        removed.append(path)
        if len(removed) == 4:
            open({stopped!r}, "w").close()
            time.sleep(3600)
    unlink(path, dir_fd=dir_fd)
os.unlink = stops
os.supports_dir_fd.add(stops)
"""


@pytest.fixture
def served(fresh_database: Callable[[], str], tmp_path: Path) -> Iterator[Server]:
    """A server that was not started yet."""
    (tmp_path / "whet.toml").write_text(CONFIG)
    options = ("--config", str(tmp_path / "whet.toml"), "--sandbox", "local", "--requests-per-minute", "100000")
    served = Server(fresh_database(), tmp_path / "data", options)
    yield served
    served.stop()


def _rows(served: Server, run_id: str) -> list[int]:
    """How many rows there are of a run in each table that can have some."""
    with closing(Database(served.database)) as database, database.reading() as connection:
        columns = (runs.c.id, run_events.c.run_id, idempotency.c.resource_id)
        return [connection.execute(select(func.count()).where(column == run_id)).scalar_one() for column in columns]


def _age(served: Server, days: int, *run_ids: str, skills: Sequence[str] = ()) -> None:
    """Let runs and skills be older."""
    with closing(Database(served.database)) as database, database.writing() as connection:
        past = now_us() - days * DAY_US
        connection.execute(update(runs).where(runs.c.id.in_(run_ids)).values(ended_us=past))
        connection.execute(update(bundles).where(bundles.c.sha256.in_(skills)).values(created_us=past))


def _is_gone(served: Server, run_id: str) -> bool:
    return _rows(served, run_id) == [0, 0, 0] and not (served.data_dir / "runs" / run_id).exists()


def test_a_deleted_run_is_gone_with_its_rows_and_files(served: Server, organisation: str) -> None:
    served.start()
    with served.client(served.key(organisation)) as client:
        client.headers["idempotency-key"] = "once"
        suite_id = create_suite(client, ["echo done"])
        del client.headers["idempotency-key"]
        run_id, other = start_run(client, suite_id), start_run(client, suite_id)
        wait_for_run(client, run_id)
        wait_for_run(client, other)
        before = _rows(served, run_id)

        deleted = client.delete(f"/api/v1/runs/{run_id}")

        place = f"/api/v1/runs/{run_id}"
        parts = ("", "/events", "/trials", "/results", "/artifacts", "/artifacts/results.json")
        codes = {client.get(f"{place}{part}").status_code for part in parts}
        again = client.delete(place).status_code
        listed = [run["id"] for run in client.get("/api/v1/runs").json()["runs"]]
        wait_until(lambda: _is_gone(served, run_id))
    assert before[:2] == [1, 5]
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert (codes, again, listed) == ({404}, 404, [other])
    assert (served.data_dir / "runs" / other / "suite.json").exists()
    assert f"run {run_id} deleted by whet_" in served.log.read_text()


def test_a_run_that_has_not_ended_is_not_deleted(served: Server, organisation: str, tmp_path: Path) -> None:
    served.options += ("--workers", "1")
    served.start()
    with served.client(served.key(organisation)) as client:
        suite_id = create_suite(client, [f"while [ ! -e {tmp_path}/gate ]; do sleep 0.02; done; echo done"])
        running, waiting = start_run(client, suite_id), start_run(client, suite_id)
        wait_for_run(client, running, "running")

        refused = [client.delete(f"/api/v1/runs/{each}") for each in (running, waiting)]

        (tmp_path / "gate").touch()
        ended = [wait_for_run(client, each) for each in (running, waiting)]
        deleted = [client.delete(f"/api/v1/runs/{each}").status_code for each in (running, waiting)]
    assert [each.status_code for each in refused] == [409, 409]
    assert refused[0].json()["error"] == "the run is running: cancel it, and wait until it has ended"
    assert [(run["status"], run["outcome"]) for run in ended] == [("completed", "passed")] * 2
    assert deleted == [204, 204]


def _run_of_many_files(served: Server, client: httpx2.Client) -> tuple[str, Path]:
    """A run with a folder of many files."""
    run_id = start_run(client, create_suite(client, ["echo done"]))
    wait_for_run(client, run_id)
    folder = served.data_dir / "runs" / run_id / "many"
    folder.mkdir()
    for number in range(MANY):
        (folder / f"one-of-many-{number}").touch()
    return run_id, folder


def _stop_in_the_middle(served: Server, tmp_path: Path) -> Path:
    """Let the server, when it is started, stop while it removes such a folder; return the file that says so."""
    stopped = tmp_path / "stopped"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(STOPS_IN_THE_MIDDLE.format(stopped=str(stopped)))
    served.env["PYTHONPATH"] = str(tmp_path / "site")
    return stopped


def _kill_in_the_middle(served: Server, stopped: Path) -> None:
    wait_until(stopped.exists)
    served.kill()
    del served.env["PYTHONPATH"]


def test_a_server_that_is_killed_while_it_deletes_goes_on_when_it_starts(
    served: Server, organisation: str, tmp_path: Path
) -> None:
    stopped = _stop_in_the_middle(served, tmp_path)
    served.start()
    key = served.key(organisation)
    with served.client(key) as client:
        run_id, folder = _run_of_many_files(served, client)
        answered = client.delete(f"/api/v1/runs/{run_id}").status_code

        _kill_in_the_middle(served, stopped)

    left = len(list(folder.iterdir()))
    half = _rows(served, run_id)
    served.start()
    with served.client(key) as client:
        code = client.get(f"/api/v1/runs/{run_id}").status_code
        wait_until(lambda: _is_gone(served, run_id))
    assert answered == 204
    # It was in the middle: some files were removed, others and all rows were not.
    assert 0 < left < MANY
    assert half[0] == 1
    assert code == 404


def test_retention_that_is_killed_goes_on_when_the_server_starts(
    served: Server, organisation: str, tmp_path: Path
) -> None:
    served.start()
    key = served.key(organisation)
    with served.client(key) as client:
        run_id, folder = _run_of_many_files(served, client)
        newest = start_run(client, get_run(client, run_id)["suite_id"])
        wait_for_run(client, newest)
    served.stop()
    _age(served, 3, run_id, newest)
    served.options += ("--keep-days", "2")
    stopped = _stop_in_the_middle(served, tmp_path)
    served.start()

    _kill_in_the_middle(served, stopped)

    left = len(list(folder.iterdir()))
    served.start()
    with served.client(key) as client:
        wait_until(lambda: _is_gone(served, run_id))
        kept = get_run(client, newest)["status"]
    assert 0 < left < MANY
    # The last completed run of a suite stays, whatever its age: the next one is compared with it.
    assert kept == "completed"


def test_runs_are_kept_by_days_and_by_number_for_each_suite_and_organisation(served: Server, organisation: str) -> None:
    served.start()
    names = (organisation, f"{organisation}-other")
    kept: dict[str, list[str]] = {}
    keys = {name: served.key(name) for name in names}
    for name in names:
        with served.client(keys[name]) as client:
            for _ in range(2):
                suite_id = create_suite(client, ["echo done"])
                kept[suite_id] = [start_run(client, suite_id) for _ in range(3)]
                for run in kept[suite_id]:
                    wait_for_run(client, run)
    served.stop()
    served.options += ("--keep-runs", "2")

    served.start()

    gone = [found[0] for found in kept.values()]
    for run in gone:
        wait_until(lambda run=run: _is_gone(served, run))
    for name in names:
        with served.client(keys[name]) as client:
            left = {run["id"] for run in client.get("/api/v1/runs").json()["runs"]}
            suites = [suite["id"] for suite in client.get(SUITES).json()["suites"]]
        assert left == {run for suite in suites for run in kept[suite][1:]}


def test_the_last_completed_run_is_kept_behind_newer_ones_that_did_not_complete(
    served: Server, organisation: str
) -> None:
    served.start()
    key = served.key(organisation)
    with served.client(key) as client:
        suite_id = create_suite(client, ["echo done"])
        completed = wait_for_run(client, start_run(client, suite_id))["id"]
        asked = {"runner": "sh", "skill": "https://127.0.0.1:1/skill.tar.gz"}
        made = [client.post(f"{SUITES}/{suite_id}/runs", json=asked).json()["run"]["id"] for _ in range(2)]
        failed = [wait_for_run(client, each)["status"] for each in made]
    served.stop()
    served.options += ("--keep-runs", "1")

    served.start()

    wait_until(lambda: _is_gone(served, made[0]))
    with served.client(key) as client:
        left = [run["id"] for run in client.get("/api/v1/runs").json()["runs"]]
        client.delete(f"{SUITES}/{suite_id}")
        client.delete(f"/api/v1/runs/{made[1]}")
        wait_until(lambda: _is_gone(served, made[1]))
        alone = [run["id"] for run in client.get("/api/v1/runs").json()["runs"]]
    assert failed == ["failed", "failed"]
    assert left == [made[1], completed]
    assert alone == [completed]


def _upload(client: httpx2.Client, word: str) -> str:
    """The digest of a skill that no other test has."""
    manifest = f"---\nname: greet\ndescription: Says {word}.\n---\n"
    made = client.post("/api/v1/skills", files={"skill": ("a.tar.gz", skill_archive({"SKILL.md": manifest}))})
    assert made.status_code == 201, made.text
    return str(made.json()["skill"]["sha256"])


def test_an_old_skill_goes_if_no_run_names_it_and_it_has_no_label(served: Server, organisation: str) -> None:
    served.start()
    key = served.key(organisation)
    with served.client(key) as client:
        unused, labelled, of_arm, young = (_upload(client, word) for word in ("a", "b", "c", "d"))
        client.patch(f"/api/v1/skills/{labelled}", json={"label": "current"})
        suite_id = create_suite(client, ["echo done"], supports_no_skill=True)
        arms = [{"name": "old", "skill": "none"}, {"name": "new", "skill": f"sha256:{of_arm}"}]
        made = client.post(f"{SUITES}/{suite_id}/runs", json={"runner": "sh", "arms": arms})
        wait_for_run(client, made.json()["run"]["id"])
    served.stop()
    _age(served, 40, skills=(unused, labelled, of_arm))
    served.options += ("--keep-days", "30")

    served.start()

    with served.client(key) as client:
        page = "/api/v1/skills"
        wait_until(lambda: unused not in {skill["sha256"] for skill in client.get(page).json()["skills"]})
        left = {skill["sha256"] for skill in client.get(page).json()["skills"]}
    files = {path.name.partition(".")[0] for path in (served.data_dir / "bundles").glob("*/*")}
    assert left == files == {labelled, of_arm, young}


def test_archives_that_a_killed_server_left_without_a_row_are_removed(served: Server, organisation: str) -> None:
    served.start()
    with served.client(served.key(organisation)) as client:
        kept = _upload(client, "kept")
    served.kill()
    (folder,) = (served.data_dir / "bundles").iterdir()
    # As a kill leaves them: of a deletion, after the row; of an upload, before the row, or in its middle.
    (folder / f"{'0' * 64}.tar.gz").write_bytes(b"deleted or not yet known")
    (folder / ".upload-half").mkdir()
    (folder / ".upload-half" / "archive").write_bytes(b"half")

    served.start()

    assert [path.name.partition(".")[0] for path in folder.iterdir()] == [kept]


def test_everything_of_a_run_is_in_tables_that_deleting_knows() -> None:
    naming = {
        table.name
        for table in metadata.sorted_tables
        for column in table.columns
        if column.name in ("run_id", "resource_id")
    }
    tied = {table.name for table in metadata.sorted_tables for key in table.foreign_keys if key.column.table is runs}

    assert naming == tied | {"idempotency"}
