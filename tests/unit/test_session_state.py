"""The state of a session: kept without logins and secrets, whatever the agent left in its home, and laid out again."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from whet.agents.contract import AgentCommand
from whet.run.attempt.folders import AttemptFolders
from whet.run.attempt.home import Resumable, keep_state, read_state, restore_state
from whet.secrets import Masker
from whet.workspace.contract import SharedWorkspace

SECRET = "sk-secret-value-0000000000"


@pytest.fixture
def folders(tmp_path: Path) -> AttemptFolders:
    for name in ("work", "home/.x/sessions", "temporary", "kept"):
        (tmp_path / name).mkdir(parents=True)
    workspace = SharedWorkspace(tmp_path / "work", method="given")
    return AttemptFolders(workspace=workspace, home=tmp_path / "home", temporary=tmp_path / "temporary", shared=False)


def resumable(folders: AttemptFolders, *names: str, login: Path | None = None, home: Path | None = None) -> Resumable:
    copies = {".x/sessions/login.json": login} if login else {}
    asked = AgentCommand(argv=("x",), env={"HOME": str(home or folders.home)}, home_copies=copies)
    return Resumable(session_id="s-1", names=names, agent_command=asked)


def keep(folders: AttemptFolders, session: Resumable, masker: Masker | None = None) -> tuple[Path, list[str]]:
    into = folders.home.parent / "kept"
    return into, keep_state(folders, session, into, masker or Masker([SECRET]))


def test_what_the_agent_declares_is_kept_and_laid_out_again_and_nothing_else(
    folders: AttemptFolders, tmp_path: Path
) -> None:
    (folders.home / ".x/sessions/s-1.jsonl").write_text(f"it said {SECRET}")
    (folders.home / ".x/other").write_text("other")

    kept, notes = keep(folders, resumable(folders, ".x/sessions", ".x/not-there"))
    again = tmp_path / "again"
    again.mkdir()
    restore_state(kept, again)

    assert notes == []
    assert [str(path.relative_to(again)) for path in again.rglob("*") if path.is_file()] == [".x/sessions/s-1.jsonl"]
    assert (again / ".x/sessions/s-1.jsonl").read_text() == "it said ***"
    state = read_state(kept)
    assert state is not None
    assert (state.session_id, state.home, state.own_home) == ("s-1", str(folders.home), True)


def test_a_login_is_not_kept_as_a_file_and_not_by_its_words(folders: AttemptFolders, tmp_path: Path) -> None:
    login = tmp_path / "login.json"
    login.write_text(json.dumps({"deep": [{"token": "the-users-login-12345", "short": "word"}]}))
    (folders.home / ".x/sessions/login.json").write_text("the-users-login-12345")
    (folders.home / ".x/sessions/s-1.jsonl").write_text("a word: the-users-login-12345")

    kept, _ = keep(folders, resumable(folders, ".x/sessions", login=login), Masker())

    assert not (kept / "state/.x/sessions/login.json").exists()
    assert (kept / "state/.x/sessions/s-1.jsonl").read_text() == "a word: ***"


@pytest.mark.parametrize("login", ['{"access": "users-pin-1"}', "machine x login me password users-pin-1\n"])
def test_a_login_is_the_same_to_a_kept_session_as_to_the_rest_of_the_record(
    folders: AttemptFolders, tmp_path: Path, login: str
) -> None:
    (tmp_path / "login").write_text(login)
    (folders.home / ".x/sessions/s-1.jsonl").write_text("I found users-pin-1")

    kept, _ = keep(folders, resumable(folders, ".x/sessions", login=tmp_path / "login"), Masker())

    assert (kept / "state/.x/sessions/s-1.jsonl").read_text() == "I found ***"


def test_a_database_is_masked_from_within_and_one_that_cannot_be_read_is_left_out(folders: AttemptFolders) -> None:
    sessions = folders.home / ".x/sessions"
    with closing(sqlite3.connect(sessions / "good.db")) as database:
        database.execute("CREATE TABLE said (words TEXT)")
        database.execute("INSERT INTO said VALUES (?)", (SECRET,))
        database.commit()
    (sessions / "spoiled.db").write_bytes(b"SQLite format 3\0" + SECRET.encode() * 300)
    (sessions / "spoiled.db-wal").write_text("its log")

    kept, notes = keep(folders, resumable(folders, ".x/sessions"))

    with closing(sqlite3.connect(kept / "state/.x/sessions/good.db")) as database:
        assert database.execute("SELECT words FROM said").fetchall() == [("***",)]
    assert sorted(path.name for path in (kept / "state/.x/sessions").iterdir()) == ["good.db"]
    assert len(notes) == 1
    assert "spoiled.db of the session was not kept" in notes[0]


def test_a_file_too_large_to_be_looked_through_is_left_out(folders: AttemptFolders) -> None:
    with (folders.home / ".x/sessions/huge").open("wb") as file:
        file.truncate(64 * 1024 * 1024 + 1)

    kept, notes = keep(folders, resumable(folders, ".x/sessions"))

    assert not (kept / "state/.x/sessions/huge").exists()
    assert "larger than 64 MiB" in notes[0]


def test_a_link_in_the_place_of_the_state_leads_nowhere(folders: AttemptFolders, tmp_path: Path) -> None:
    (tmp_path / "elsewhere/sessions").mkdir(parents=True)
    (tmp_path / "elsewhere/sessions/precious").touch()
    (folders.home / ".y").symlink_to(tmp_path / "elsewhere")
    (folders.home / ".z").symlink_to(tmp_path / "elsewhere/sessions/precious")

    kept, _ = keep(folders, resumable(folders, ".y/sessions", ".z"))

    assert not (kept / "state").exists()


def test_a_tree_that_is_too_deep_costs_the_session_and_not_the_attempt(folders: AttemptFolders) -> None:
    deepest = folders.home / ".x/sessions"
    names = ["d" * 200] * 40
    here = os.open(deepest, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)

    kept, notes = keep(folders, resumable(folders, ".x/sessions"))

    assert read_state(kept) is None
    assert not (kept / "state").exists()
    assert "its session was not kept, so it cannot be resumed" in notes[0]


def test_a_session_in_the_users_own_home_stays_there(folders: AttemptFolders, tmp_path: Path) -> None:
    (tmp_path / "user/.x/sessions").mkdir(parents=True)
    (tmp_path / "user/.x/sessions/private").touch()

    kept, notes = keep(folders, resumable(folders, ".x/sessions", home=tmp_path / "user"))

    assert notes == []
    assert [path.name for path in kept.iterdir()] == ["state.json"]
    state = read_state(kept)
    assert state is not None
    assert not state.own_home
