"""Secrets in the SQLite files of agents: gone from every value, and from what SQLite only marked as deleted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from whet.secrets import Masker
from whet.workspace.mask_files import is_database, mask_database

SECRET = "sk-secret-value-0000000000"


def made(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return path


def rows(path: Path, table: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(f"SELECT * FROM {table}").fetchall()


def test_a_secret_that_lies_across_pages_is_found(tmp_path: Path) -> None:
    long = ("x" * 50 + SECRET) * 400
    path = made(tmp_path / "a.db", "CREATE TABLE part (id TEXT PRIMARY KEY, data TEXT, raw BLOB, size INT)")
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO part VALUES (?, ?, ?, ?)", (SECRET, long, long.encode(), 7))
        database.commit()

    mask_database(Masker([SECRET]), path)

    hidden = long.replace(SECRET, "***")
    assert rows(path, "part") == [("***", hidden, hidden.encode(), 7)]
    assert b"secret-value" not in path.read_bytes()


def test_what_was_written_last_and_lies_in_a_file_beside_is_masked_too(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE said (words TEXT)")
    writer.execute("INSERT INTO said VALUES (?)", (f"the key is {SECRET}",))
    writer.commit()
    copy = tmp_path / "copy.db"
    for part in ("", "-wal"):
        Path(f"{copy}{part}").write_bytes(Path(f"{path}{part}").read_bytes())
    writer.close()

    mask_database(Masker([SECRET]), copy)

    assert rows(copy, "said") == [("the key is ***",)]
    assert not Path(f"{copy}-wal").exists()
    assert b"secret-value" not in copy.read_bytes()


def test_deleted_rows_and_columns_that_are_named_after_logins_leave_no_trace(tmp_path: Path) -> None:
    path = made(
        tmp_path / "a.db",
        "CREATE TABLE credential (id TEXT, value TEXT)",
        "CREATE TABLE account (email TEXT, access_token TEXT, tokens_input INT)",
        "CREATE TABLE meta (key TEXT, value TEXT)",
        "INSERT INTO credential VALUES ('a', 'fresh-login-11111')",
        "INSERT INTO account VALUES ('me', 'fresh-login-22222', 5)",
        "INSERT INTO meta VALUES ('a key', 'stays')",
        "INSERT INTO meta VALUES ('gone', 'fresh-login-33333')",
        "DELETE FROM meta WHERE key = 'gone'",
    )

    mask_database(Masker(), path)

    assert rows(path, "credential") == []
    assert rows(path, "account") == [("me", "***", 5)]
    assert rows(path, "meta") == [("a key", "stays")]
    assert b"fresh-login" not in path.read_bytes()


def test_a_file_that_only_looks_like_a_database_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)

    assert is_database(path)
    with pytest.raises(sqlite3.Error):
        mask_database(Masker([SECRET]), path)


def test_a_trigger_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.workspace.mask_files._PATIENCE_S", 0.2)
    path = made(
        tmp_path / "a.db",
        "CREATE TABLE said (words TEXT)",
        f"INSERT INTO said VALUES ('{SECRET}')",
        """CREATE TRIGGER forever AFTER UPDATE ON said BEGIN
            SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n);
        END""",
    )

    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        mask_database(Masker([SECRET]), path)
