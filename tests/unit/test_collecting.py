"""What is taken from the home of an agent: its own files and rows, masked, and nothing that leads elsewhere."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from whet.agents.contract import AgentCommand, Rows
from whet.run.attempt import home as collecting
from whet.run.attempt.home import collect_files
from whet.secrets import Masker

ROWS = {"rows": Rows("a.db", "SELECT name, size FROM part")}


def asked(*names: str, rows: dict[str, Rows] | None = None) -> AgentCommand:
    return AgentCommand(argv=("x",), env={}, collect=names, collect_rows=rows or {})


def test_files_are_found_by_name_and_by_pattern_and_secrets_are_masked(tmp_path: Path) -> None:
    (tmp_path / "chats").mkdir()
    (tmp_path / "usage.json").write_text("{}")
    (tmp_path / "chats" / "a.jsonl").write_text("the key is sk-very-secret-000000")

    found = collect_files(tmp_path, asked("usage.json", "chats/*.jsonl", "missing"), Masker(["sk-very-secret-000000"]))

    assert set(found) == {"usage.json", "chats/a.jsonl"}
    assert b"sk-very" not in found["chats/a.jsonl"]


def test_what_leads_out_of_the_home_is_left_out(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (outside / "a.jsonl").write_text("not theirs")
    (home / "chats").symlink_to(outside)
    (home / "usage.json").symlink_to(outside / "a.jsonl")

    assert collect_files(home, asked("usage.json", "chats/*.jsonl", "chats/a.jsonl"), Masker()) == {}


def test_rows_of_a_database_are_lines_also_while_its_log_is_not_merged(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE part (name TEXT, size INTEGER)")
        database.execute("INSERT INTO part VALUES ('a', 1), ('b', 2)")
        database.commit()

        found = collect_files(tmp_path, asked(rows=ROWS), Masker())

    assert found == {"rows": b'{"name":"a","size":1}\n{"name":"b","size":2}\n'}


def test_what_is_no_such_database_gives_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"anything")

    assert collect_files(tmp_path, asked(rows=ROWS), Masker()) == {"rows": b""}


def test_a_database_that_never_stops_answering_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_MOST_STEPS", 2_000_000)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS name, 1 AS size FROM n"
    with closing(sqlite3.connect(tmp_path / "a.db")) as database:
        database.execute(f"CREATE VIEW part AS {endless}")

    assert collect_files(tmp_path, asked(rows=ROWS), Masker()) == {"rows": b""}
