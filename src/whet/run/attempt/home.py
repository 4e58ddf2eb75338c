"""The home of an agent: filled before an attempt, read after it, and kept without logins to resume its session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from whet.agents.contract import AgentCommand, Rows
from whet.errors import WhetError, WorkspaceError
from whet.model import codec
from whet.model.run import STATE_FILE
from whet.run.attempt.folders import AttemptFolders
from whet.secrets import Masker, secrets_in
from whet.workspace.copy import copy_tree, remove_tree

_LARGEST_LOGIN = 1024 * 1024


def fill_home(home: Path, agent_command: AgentCommand) -> None:
    """Put settings, credentials and skills into *home*, which is deleted after the attempt."""
    try:
        for name, data in agent_command.home_files.items():
            _below(home, name).write_bytes(data)
        for name, source in agent_command.home_copies.items():
            target = _below(home, name)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copyfile(source, target)
                # Only for this user. The agent may write it: some renew their login, and fail if they cannot.
                target.chmod(0o600)
    except OSError as error:
        raise WorkspaceError(f"the home of the agent cannot be prepared: {error}") from error


def login_secrets(agent_command: AgentCommand) -> tuple[str, ...]:
    """Return the secrets in the files that log an agent in: it could print them."""
    files = [path for path in (*agent_command.home_copies.values(), *agent_command.readable) if path.is_file()]
    return tuple(value for path in files for value in secrets_in(_content(path)))


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_LOGIN)
    except OSError:
        return b""


def _below(home: Path, name: str) -> Path:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


STATE_DIR = "state"
# A larger file is not searched for secrets, so it is not kept.


class SessionState(Struct, frozen=True, kw_only=True):
    """What resuming a session needs: its id, and the paths that its own files mention.

    With `own_home` it is kept in the record; otherwise it is in the home of the user, where the agent left it.
    """

    session_id: str
    workspace: str
    home: str
    temporary: str
    own_home: bool


class Resumable(Struct, frozen=True, kw_only=True):
    """A session that could be resumed: the command that started it, and where it is in its home."""

    session_id: str
    names: tuple[str, ...]
    agent_command: AgentCommand


def keep_state(folders: AttemptFolders, session: Resumable, into: Path, masker: Masker) -> list[str]:
    """Copy the state of *session* from the home of an attempt to *into*; return notes on what was not kept."""
    own_home = session.agent_command.env.get("HOME") == str(folders.home)
    try:
        notes = _keep_files(folders.home, session, into / STATE_DIR, masker) if own_home else []
    except (WhetError, OSError, RecursionError) as error:
        # An agent may leave anything there.
        remove_tree(into / STATE_DIR)
        return [f"its session was not kept, so it cannot be resumed: {error}"]
    state = SessionState(
        session_id=session.session_id,
        workspace=str(folders.workspace.path),
        home=str(folders.home),
        temporary=str(folders.temporary),
        own_home=own_home,
    )
    (into / STATE_FILE).write_bytes(codec.encode_pretty(state))
    return notes


def read_state(folder: Path) -> SessionState | None:
    """Return the state that was kept in the folder of an attempt, if any."""
    file = folder / STATE_FILE
    return codec.decode_file(file, SessionState) if file.is_file() else None


def restore_state(folder: Path, home: Path) -> None:
    """Copy the state that was kept in the folder of an attempt into *home*."""
    if (folder / STATE_DIR).is_dir():
        copy_tree(folder / STATE_DIR, home)


def _keep_files(home: Path, session: Resumable, archive: Path, masker: Masker) -> list[str]:
    for name in session.names:
        # The agent may have made links; do not follow them.
        if (home / name).resolve() == home.resolve() / name:
            _copy(home / name, archive / name)
    # What whet puts into a home is put there again later; a login must not be anywhere else.
    for name in (*session.agent_command.home_files, *session.agent_command.home_copies):
        remove_tree(archive / name)
    if not archive.is_dir():
        return []
    # Only here: most attempts keep no session.
    from whet.workspace.mask_files import drop_unmaskable, mask_files

    careful = masker.knowing(login_secrets(session.agent_command))
    notes = [
        f"{path.relative_to(archive)} of the session was not kept, so it may not be resumed: {problem}"
        for path, problem in drop_unmaskable(careful, archive)
    ]
    return notes + mask_files(careful, archive)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True)
        copy_tree(source, target, force=True)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


_LARGEST_COLLECTED = 16 * 1024 * 1024
_MOST_FILES = 200
_LARGEST_DATABASE = 256 * 1024 * 1024
# An agent may leave a database that never stops answering.
_MOST_STEPS = 200_000_000
_STEPS_AT_ONCE = 1_000_000


def collect_files(home: Path, agent_command: AgentCommand, masker: Masker) -> dict[str, bytes]:
    """Return the files to collect, by name, without those that are too large or outside of the home."""
    contents = {}
    for path in _files_to_collect(home, agent_command.collect):
        contents[str(path.relative_to(home))] = masker.data(path.read_bytes())
    for name, rows in agent_command.collect_rows.items():
        database = home / rows.database
        if _is_own(home, database, _LARGEST_DATABASE):
            contents[name] = masker.data(_answer(database, rows))
    return contents


def _files_to_collect(home: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        paths = sorted(home.glob(name))[:_MOST_FILES] if "*" in name else [home / name]
        yield from (path for path in paths if _is_own(home, path, _LARGEST_COLLECTED))


def _is_own(home: Path, path: Path, largest: int) -> bool:
    """Return whether it is a file below *home*, not by a link, and not too large."""
    is_inside = path.is_file() and Path(os.path.realpath(path)) == Path(os.path.realpath(home)) / path.relative_to(home)
    return is_inside and path.stat().st_size <= largest


def _answer(database: Path, rows: Rows) -> bytes:
    """Return a line for each row; none if it is not such a database."""
    import sqlite3

    steps_left = _MOST_STEPS // _STEPS_AT_ONCE

    def too_long() -> bool:
        nonlocal steps_left
        steps_left -= 1
        return steps_left < 0

    lines: list[bytes] = []
    size = 0
    try:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.set_progress_handler(too_long, _STEPS_AT_ONCE)
            cursor = connection.execute(rows.query)
            names = [column[0] for column in cursor.description]
            for row in cursor:
                lines.append(codec.encode(dict(zip(names, row, strict=True))) + b"\n")
                size += len(lines[-1])
                if size > _LARGEST_COLLECTED:
                    break
    except (sqlite3.Error, ValueError, OverflowError):
        return b"".join(lines)
    return b"".join(lines)
