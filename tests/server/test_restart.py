"""Runs whose server ends before they do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres import Cluster
from running import CONFIG, all_events, create_suite, get_run, is_running, start_run, wait_for_run
from serving import Server, wait_until

pytestmark = pytest.mark.both_databases

RUNS, CASES = 10, 6


@pytest.fixture
def served(fresh_database: Callable[[], str], tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "whet.toml").write_text(CONFIG)
    options = ("--config", str(tmp_path / "whet.toml"), "--sandbox", "local", "--workers", "3")
    served = Server(fresh_database(), tmp_path / "data", (*options, "--requests-per-minute", "100000"))
    yield served
    served.stop()


def _journals(served: Server) -> dict[str, list[bytes]]:
    """The whole lines of every journal, by run."""
    found = (served.data_dir / "runs").glob("*/record/2*/journal.jsonl")
    return {path.parts[-4]: path.read_bytes().split(b"\n")[:-1] for path in found}


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_ten_runs_are_all_finished_after_the_server_ended_in_the_middle(
    served: Server, organisation: str, ending: str, tmp_path: Path
) -> None:
    served.start()
    key = served.key(organisation)
    scripts = [f"echo {number} >> {tmp_path}/tries; sleep 0.1; echo done" for number in range(CASES)]
    with served.client(key) as client:
        suite_id = create_suite(client, scripts)
        runs = [start_run(client, suite_id) for _ in range(RUNS)]
        wait_until(lambda: sum(map(len, _journals(served).values())) >= CASES)

    getattr(served, ending)()
    before = _journals(served)
    served.start()

    with served.client(key) as client:
        ended = [wait_for_run(client, run) for run in runs]
        told = {run: all_events(client, run) for run in runs}
        again = get_run(client, runs[0])
    assert 0 < sum(map(len, before.values())) < RUNS * CASES
    assert [(run["status"], run["outcome"]) for run in ended] == [("completed", "passed")] * RUNS
    assert again["event_count"] == len(told[runs[0]])
    after = _journals(served)
    for run in runs:
        assert after[run][: len(before.get(run, []))] == before.get(run, [])
        keys = Counter(json.dumps(json.loads(line)["key"]) for line in after[run])
        assert (len(keys), set(keys.values())) == (CASES, {1})
        kinds = Counter(event["event"] for event in told[run])
        assert kinds == {"run_queued": 1, "run_started": 1, "run_planned": 1, "trial_ended": CASES, "run_completed": 1}
        assert [event["id"] for event in told[run]] == [str(number) for number in range(1, len(told[run]) + 1)]
    # What had been done was not done again; of the others, only those that were under way can have been tried twice.
    tries = len((tmp_path / "tries").read_text().split())
    assert tries <= RUNS * CASES + 3 * 2
    assert served.stop() == 0


def test_nothing_of_a_run_outlives_a_server_that_was_killed(served: Server, organisation: str, tmp_path: Path) -> None:
    served.start()
    pids = tmp_path / "pids"
    with served.client(served.key(organisation)) as client:
        start_run(client, create_suite(client, [f"echo $$ $PPID > {pids}; sleep 1000"]))
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)

    served.kill()

    wait_until(lambda: not [pid for pid in pids.read_text().split() if is_running(pid)])


def test_a_run_whose_cancellation_was_asked_before_the_end_is_cancelled_after_it(
    served: Server, organisation: str, tmp_path: Path
) -> None:
    served.start()
    key = served.key(organisation)
    with served.client(key) as client:
        pids = tmp_path / "pids"
        # It ignores the polite signal, so that the server is killed while it waits.
        run_id = start_run(client, create_suite(client, [f"trap '' TERM; echo $$ > {pids}; sleep 5; sleep 5"]))
        wait_until(pids.exists)
        client.post(f"/api/v1/runs/{run_id}/cancel")

    served.kill()
    served.start()

    with served.client(key) as client:
        assert wait_for_run(client, run_id)["status"] == "cancelled"
    served.stop()


def test_a_second_server_on_the_same_database_is_refused(served: Server, tmp_path: Path) -> None:
    served.start()
    second = Server(served.database, tmp_path / "other", served.options)

    with pytest.raises(AssertionError, match="is in use by another server"):
        second.start()

    assert served.stop() == 0


def test_a_second_server_that_knows_the_database_by_another_name_is_refused(tmp_path: Path) -> None:
    served = Server(f"sqlite:///{tmp_path}/whet.db", tmp_path / "data").start()
    (tmp_path / "alias.db").symlink_to(tmp_path / "whet.db")
    second = Server(f"sqlite:///{tmp_path}/alias.db", tmp_path / "other")

    with pytest.raises(AssertionError, match="is in use by another server"):
        second.start()

    assert served.stop() == 0


def test_runs_outlast_a_database_that_is_restarted(cluster: Cluster, organisation: str, tmp_path: Path) -> None:
    (tmp_path / "whet.toml").write_text(CONFIG)
    options = ("--config", str(tmp_path / "whet.toml"), "--sandbox", "local")
    served = Server(cluster.fresh_url(), tmp_path / "data", options).start()
    gate = tmp_path / "gate"
    script = f"while [ ! -e {gate} ]; do sleep 0.02; done; echo done"
    with served.client(served.key(organisation)) as client:
        run_id = start_run(client, create_suite(client, ["echo done", script]))
        wait_for_run(client, run_id, "running")

        cluster.restart()
        gate.touch()

        wait_until(lambda: client.get("/healthz").status_code == 200)
        run = wait_for_run(client, run_id)
        told = all_events(client, run_id)
    assert (run["status"], run["outcome"]) == ("completed", "passed")
    assert Counter(event["event"] for event in told)["trial_ended"] == 2
    assert served.stop() == 0
