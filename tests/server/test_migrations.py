"""Databases of earlier versions, with data in them, on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from running import CONFIG, get_run, wait_for_run
from serving import SUITES, Server, wait_until
from sqlalchemy import text

from whet.service.database import Database, metadata, open_database

pytestmark = pytest.mark.both_databases


@pytest.fixture
def first_version(fresh_database: Callable[[], str]) -> Iterator[Database]:
    """A database as the first version made it."""
    with closing(Database(fresh_database())) as database:
        config = Config()
        config.set_main_option("script_location", "whet.service:migrations")
        with database.writing() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "0001")
        yield database


ORGANISATION, SUITE, DONE, WAITING = (f"{number:08}-0000-4000-8000-000000000000" for number in range(4))
HASH = "0" * 64
ASKED = {"runner": "sh", "skill": "sha256:" + HASH, "asked_by": "whet_00000000"}


def _fill(database: Database) -> None:
    """Store what a server of the first version would have."""
    document = {"name": "old", "source_kind": "manual", "verifier_kind": "deterministic", "supports_no_skill": True}
    case = {"case_kind": "exact_match", "instruction": "echo done", "expected": "done"}
    head = {"document": document, "derived": {"case_count": 1, "suite_kind": "exact_match", "not_runnable_reasons": []}}
    rows = {
        "organisations (id, name, created_us)": [(ORGANISATION, "acme", 1)],
        "keys (id, organisation_id, prefix, hash, scopes, created_us, revoked_us)": [
            ("k", ORGANISATION, "whet_00000000", HASH, "read", 1_700_000_000_000_000, None)
        ],
        "suites (id, organisation_id, version, created_us, updated_us)": [(SUITE, ORGANISATION, 1, 1, 1)],
        "suite_versions (suite_id, version, head, cases, created_us)": [
            (SUITE, 1, json.dumps(head).encode(), json.dumps([case]).encode(), 1)
        ],
        "runs (id, organisation_id, suite_id, suite_version, status, outcome, request, created_us, ended_us, "
        "event_count)": [
            (DONE, ORGANISATION, SUITE, 1, "completed", "passed", json.dumps(ASKED).encode(), 1, 2, 1),
            (WAITING, ORGANISATION, SUITE, 1, "queued", None, json.dumps({"runner": "sh"}).encode(), 3, None, 1),
        ],
        "run_events (run_id, number, mark, type, payload, created_us)": [
            (run, 1, "queued", "run_queued", b"{}", 1) for run in (DONE, WAITING)
        ],
        "bundles (organisation_id, sha256, size, created_us)": [(ORGANISATION, HASH, 5, 1)],
        "idempotency (organisation_id, key_hash, fingerprint, resource_id, created_us)": [
            (ORGANISATION, HASH, HASH, DONE, 1)
        ],
    }
    with database.writing() as connection:
        for table, values in rows.items():
            for row in values:
                names = [f"v{number}" for number in range(len(row))]
                places = ", ".join(f":{name}" for name in names)
                connection.execute(text(f"INSERT INTO {table} VALUES ({places})"), dict(zip(names, row, strict=True)))


def test_what_an_earlier_version_stored_is_there_after_an_upgrade(first_version: Database, tmp_path: Path) -> None:
    _fill(first_version)
    first_version.close()
    (tmp_path / "whet.toml").write_text(CONFIG)
    kept = tmp_path / "data" / "bundles" / ORGANISATION / f"{HASH}.tar.gz"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"12345")
    files = tmp_path / "data" / "runs" / DONE
    files.mkdir(parents=True)
    (files / "whet.log").write_text("seven b")
    url = first_version.url.render_as_string(hide_password=False)
    served = Server(url, tmp_path / "data", ("--config", str(tmp_path / "whet.toml"), "--sandbox", "local")).start()

    try:
        with served.client(served.key("acme")) as client:
            waited = wait_for_run(client, WAITING)
            done = wait_until(lambda: (run := get_run(client, DONE))["bytes"] is not None and run)
            suite = client.get(f"{SUITES}/{SUITE}").json()["suite"]
            skills = client.get("/api/v1/skills").json()["skills"]
            keys = json.loads(served.whet("keys", "list", "--json"))["keys"]
            deleted = client.delete(f"/api/v1/runs/{DONE}").status_code
    finally:
        served.stop()

    assert (waited["status"], waited["outcome"], waited["label"]) == ("completed", "passed", None)
    assert (done["skill"], done["bytes"], done["arms"], done["previous"]) == (ASKED["skill"], 7, None, None)
    assert suite["name"] == "old"
    assert skills == [{"sha256": HASH, "size": 5, "label": None, "created_at": "1970-01-01T00:00:00.000Z"}]
    assert keys[0]["created_at"] == "2023-11-14T22:13:20Z"
    assert (keys[0]["label"], keys[0]["used_at"], kept.exists()) == (None, None, True)
    assert deleted == 204


def test_a_migrated_database_has_the_tables_of_a_new_one(first_version: Database) -> None:
    _fill(first_version)
    url = first_version.url.render_as_string(hide_password=False)
    with closing(open_database(url)) as migrated, migrated.reading() as connection:
        difference = compare_metadata(MigrationContext.configure(connection), metadata)
        counts = [connection.execute(text(f"SELECT count(*) FROM {name}")).scalar() for name in ("runs", "run_events")]

    assert difference == []
    assert counts == [2, 2]
