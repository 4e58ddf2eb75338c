"""The home of an agent: filled before an attempt, read after it, and kept without logins to resume its session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from whet.agents.agent import AgentCommand, Rows
from whet.dataclass import dataclass
from whet.errors import WhetError, WorkspaceError
from whet.ground.copying import copy_tree, remove_tree
from whet.ground.secrets import Masker, secrets_in
from whet.model import wire
from whet.model.run import STATE_FILE
from whet.run.ground import Ground

_LARGEST_LOGIN = 1024 * 1024


def fill_home(home: Path, asked: AgentCommand) -> None:
    """Put settings, credentials and skills into *home*, which is deleted after the attempt."""
    try:
        for name, data in asked.home_files.items():
            _below(home, name).write_bytes(data)
        for name, source in asked.home_copies.items():
            target = _below(home, name)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copyfile(source, target)
                # Only for this user. The agent may write it: some renew their login, and fail if they cannot.
                target.chmod(0o600)
    except OSError as error:
        raise WorkspaceError(f"the home of the agent cannot be prepared: {error}") from error


def login_secrets(asked: AgentCommand) -> tuple[str, ...]:
    """Return the secrets in the files that log an agent in: it could print them."""
    files = [path for path in (*asked.home_copies.values(), *asked.readable) if path.is_file()]
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
_LARGEST_STATE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What resuming a session needs: its id, and the paths that its own files mention.

    With `own_home` it is kept in the record; otherwise it is in the home of the user, where the agent left it.
    """

    session_id: str
    workspace: str
    home: str
    temporary: str
    own_home: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumable:
    """A session that could be resumed: the command that started it, and where it is in its home."""

    session_id: str
    names: tuple[str, ...]
    asked: AgentCommand


def keep_state(ground: Ground, session: Resumable, into: Path, masker: Masker) -> list[str]:
    """Copy the state of *session* from the home of an attempt to *into*; return notes on what was not kept."""
    own_home = session.asked.env.get("HOME") == str(ground.home)
    try:
        notes = _keep_files(ground.home, session, into / STATE_DIR, masker) if own_home else []
    except (WhetError, OSError, RecursionError) as error:
        # An agent may leave anything there.
        remove_tree(into / STATE_DIR)
        return [f"its session was not kept, so it cannot be resumed: {error}"]
    state = SessionState(
        session_id=session.session_id,
        workspace=str(ground.workspace.path),
        home=str(ground.home),
        temporary=str(ground.temporary),
        own_home=own_home,
    )
    (into / STATE_FILE).write_bytes(wire.encode_pretty(state))
    return notes


def read_state(folder: Path) -> SessionState | None:
    """Return the state that was kept in the folder of an attempt, if any."""
    file = folder / STATE_FILE
    return wire.decode_file(file, SessionState) if file.is_file() else None


def restore_state(folder: Path, home: Path) -> None:
    """Copy the state that was kept in the folder of an attempt into *home*."""
    if (folder / STATE_DIR).is_dir():
        copy_tree(folder / STATE_DIR, home)


def _keep_files(home: Path, session: Resumable, kept: Path, masker: Masker) -> list[str]:
    for name in session.names:
        # The agent may have made links; do not follow them.
        if (home / name).resolve() == home.resolve() / name:
            _copy(home / name, kept / name)
    # What whet puts into a home is put there again later; a login must not be anywhere else.
    for name in (*session.asked.home_files, *session.asked.home_copies):
        remove_tree(kept / name)
    if not kept.is_dir():
        return []
    # Only here and below: most attempts keep no session.
    from whet.ground.masking import mask_files  # noqa: PLC0415

    careful = masker.knowing(login_secrets(session.asked))
    notes = list(_drop_what_cannot_be_masked(careful, kept))
    return notes + mask_files(careful, kept)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True)
        copy_tree(source, target, force=True)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _drop_what_cannot_be_masked(masker: Masker, kept: Path) -> Iterator[str]:
    """Mask databases; remove what is too large or cannot be read, because it might hold anything."""
    import sqlite3  # noqa: PLC0415

    from whet.ground.masking import is_database, mask_database  # noqa: PLC0415

    for path in _files(kept):
        try:
            problem = "it is larger than 64 MiB" if path.stat().st_size > _LARGEST_STATE else None
            if problem is None and is_database(path):
                mask_database(masker, path)
        except FileNotFoundError:
            # A log that its database has taken in.
            continue
        except (OSError, sqlite3.Error) as error:
            problem = str(error)
        if problem is not None:
            for part in ("", "-wal", "-journal"):
                remove_tree(path.with_name(path.name + part))
            yield f"{path.relative_to(kept)} of the session was not kept, so it may not be resumed: {problem}"


def _files(folder: Path) -> list[Path]:
    """Return every regular file; raises if one cannot be reached, because it would not be masked."""
    found = (Path(place, name) for place, _, names in os.walk(folder, onerror=_give_up) for name in names)
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def _give_up(error: OSError) -> None:
    raise error


_LARGEST_COLLECTED = 16 * 1024 * 1024
_MOST_FILES = 200
_LARGEST_DATABASE = 256 * 1024 * 1024
# An agent may leave a database that never stops answering.
_MOST_STEPS = 200_000_000
_STEPS_AT_ONCE = 1_000_000


def collected(home: Path, asked: AgentCommand, masker: Masker) -> dict[str, bytes]:
    """Return the files that *asked* collects, by name, without those that are too large or outside of the home."""
    found = {}
    for path in _collected(home, asked.collect):
        found[str(path.relative_to(home))] = masker.data(path.read_bytes())
    for name, rows in asked.collect_rows.items():
        database = home / rows.database
        if _is_own(home, database, _LARGEST_DATABASE):
            found[name] = masker.data(_answer(database, rows))
    return found


def _collected(home: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        paths = sorted(home.glob(name))[:_MOST_FILES] if "*" in name else [home / name]
        yield from (path for path in paths if _is_own(home, path, _LARGEST_COLLECTED))


def _is_own(home: Path, path: Path, largest: int) -> bool:
    """Return whether it is a file below *home*, not by a link, and not too large."""
    own = path.is_file() and Path(os.path.realpath(path)) == Path(os.path.realpath(home)) / path.relative_to(home)
    return own and path.stat().st_size <= largest


def _answer(database: Path, rows: Rows) -> bytes:
    """Return a line for each row; none if it is not such a database."""
    import sqlite3  # noqa: PLC0415

    left = _MOST_STEPS // _STEPS_AT_ONCE

    def too_long() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    lines: list[bytes] = []
    size = 0
    try:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.set_progress_handler(too_long, _STEPS_AT_ONCE)
            cursor = connection.execute(rows.query)
            names = [column[0] for column in cursor.description]
            for row in cursor:
                lines.append(wire.encode(dict(zip(names, row, strict=True))) + b"\n")
                size += len(lines[-1])
                if size > _LARGEST_COLLECTED:
                    break
    except (sqlite3.Error, ValueError, OverflowError):
        return b"".join(lines)
    return b"".join(lines)
