"""What operators see: readiness, the log of runs, warnings, and the uses of keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from postgres import Cluster
from running import CONFIG, create_suite, start_run, wait_for_run
from serving import SUITES, Server, wait_until

from whet.service.database import Database


@pytest.fixture
def served(fresh_database: Callable[[], str], tmp_path: Path) -> Iterator[Server]:
    """A server with an agent that is a shell, not started yet."""
    (tmp_path / "whet.toml").write_text(CONFIG)
    served = Server(
        fresh_database(), tmp_path / "data", ("--config", str(tmp_path / "whet.toml"), "--sandbox", "local")
    )
    yield served
    served.stop()


def test_a_server_that_can_take_runs_is_ready(served: Server) -> None:
    served.start()

    with served.client(None) as client:
        ready = client.get("/readyz")

    states = dict.fromkeys(("database", "migrations", "sandbox", "disk"), "ok")
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", **states, "reasons": []})


def test_a_server_without_room_on_its_disk_is_not_ready_and_says_so(served: Server) -> None:
    served.options += ("--min-free-mb", "999999999")
    served.start()

    with served.client(None) as client:
        ready = client.get("/readyz")
        alive = client.get("/healthz")

    found = ready.json()
    assert (ready.status_code, found["status"], found["disk"]) == (503, "not ready", "failed")
    assert re.fullmatch(r"[\d,]+ MB are free for runs, and 999,999,999 MB should be", found["reasons"][0])
    assert str(served.data_dir) not in ready.text
    assert alive.status_code == 200


def test_a_server_whose_tables_another_version_has_changed_is_not_ready(served: Server) -> None:
    served.start()
    with closing(Database(served.database)) as database, database.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))

    with served.client(None) as client:
        ready = client.get("/readyz")

    assert (ready.status_code, ready.json()["migrations"]) == (503, "failed")
    assert ready.json()["reasons"] == ["the tables are not those of this version: another whet has changed them"]


def test_a_server_without_its_database_is_not_ready(cluster: Cluster, tmp_path: Path) -> None:
    url = cluster.fresh_url()
    served = Server(url, tmp_path / "data", ("--sandbox", "local")).start()
    name = sa.make_url(url).database
    try:
        with closing(Database(cluster.fresh_url())) as database, database.engine.connect() as plain:
            connection = plain.execution_options(isolation_level="AUTOCOMMIT")
            connection.execute(sa.text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"
            connection.execute(sa.text(ended), {"name": name})

        with served.client(None) as client:
            ready = client.get("/readyz")
    finally:
        served.stop()

    assert (ready.status_code, ready.json()["database"]) == (503, "failed")
    assert "the database does not answer" in ready.json()["reasons"]


def test_the_log_has_a_line_for_each_step_of_a_run(served: Server, organisation: str, tmp_path: Path) -> None:
    served.start()
    key = served.key(organisation)
    with served.client(key) as client:
        suite_id = create_suite(client, ["echo done"])
        done = wait_for_run(client, start_run(client, suite_id))["id"]
        waits = create_suite(client, [f"touch {tmp_path}/begun; sleep 1000"])
        cancelled = start_run(client, waits)
        wait_until((tmp_path / "begun").exists)
        client.post(f"/api/v1/runs/{cancelled}/cancel")
        wait_for_run(client, cancelled)
        client.delete(f"/api/v1/runs/{done}")

    told = [line for line in served.log.read_text().splitlines() if " INFO run " in line]
    who = f"{key[:13]} of {organisation}"
    steps = {run: [line.partition(run)[2].strip() for line in told if run in line] for run in (done, cancelled)}
    assert [re.sub(r"\d+\.\d s", "N s", step) for step in steps[done]] == [
        f"queued by {who}: suite {suite_id}, version 1, runner sh",
        "started",
        "ended after N s: completed, passed",
        f"deleted by {who}",
    ]
    assert [step.split()[0] for step in steps[cancelled]] == ["queued", "started", "cancelled", "ended"]
    assert steps[cancelled][-1].endswith(": cancelled")


def test_the_log_says_that_a_run_goes_on_after_a_restart(served: Server, organisation: str, tmp_path: Path) -> None:
    served.start()
    with served.client(served.key(organisation)) as client:
        run_id = start_run(client, create_suite(client, [f"touch {tmp_path}/begun; sleep 1000"]))
        wait_until((tmp_path / "begun").exists)
    served.kill()

    served.start()

    wait_until(lambda: f"run {run_id} resumed: the last server ended before it did" in served.log.read_text())


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (("--host", "0.0.0.0"), True),
        (("--host", "::"), True),
        (("--host", "0.0.0.0", "--trusted-proxy", "127.0.0.1"), False),
        (("--host", "127.0.0.1"), False),
        (("--host", "localhost"), False),
    ],
)
def test_a_server_that_other_machines_reach_without_tls_says_so(
    tmp_path: Path, options: tuple[str, ...], warned: bool
) -> None:
    served = Server(f"sqlite:///{tmp_path}/whet.db", tmp_path / "data", ("--sandbox", "local", *options)).start()
    served.stop()

    assert ("keys and results are sent without encryption" in served.log.read_text()) is warned


def test_a_key_shows_its_label_its_date_and_its_last_use(served: Server, organisation: str) -> None:
    served.start()
    made = json.loads(served.whet("keys", "create", "--org", organisation, "--label", "CI of docs", "--json"))
    unused = json.loads(served.whet("keys", "create", "--org", organisation, "--scope", "read", "--json"))
    with served.client(made["key"]) as client:
        client.get(SUITES)

    keys = json.loads(served.whet("keys", "list", "--org", organisation, "--json"))["keys"]
    lines = served.whet("keys", "list", "--org", organisation).splitlines()

    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert [key["label"] for key in keys] == ["CI of docs", None]
    assert re.fullmatch(moment, keys[0]["used_at"])
    assert (re.fullmatch(moment, keys[1]["created_at"]) is not None, keys[1]["used_at"]) == (True, None)
    day = keys[0]["created_at"][:10]
    assert lines[0].startswith(f"{made['prefix']}  {organisation}  read, write, run, label  created {day}  used {day}")
    assert lines[0].endswith("CI of docs")
    assert f"created {day}  never used" in lines[1]
    assert unused["prefix"] in lines[1]


def test_a_label_of_a_key_must_fit_on_a_line(served: Server) -> None:
    said = served.fails("keys", "create", "--org", "o", "--label", "a\nb", "--database", served.database)

    assert "the label must be one line of up to 100 characters" in said
