"""The state of an agent's session: kept from the home of an attempt, without logins, and laid out again later."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from whet import wire
from whet.agents.base import AgentCommand
from whet.engine.furnish import login_secrets
from whet.engine.ground import Ground
from whet.errors import WhetError
from whet.mask import Masker
from whet.model.naming import STATE_FILE
from whet.workspace import mask_files, remove_tree
from whet.workspace.copying import copy_tree
from whet.workspace.databases import is_database, mask_database

STATE_DIR = "state"
# What is larger is not looked through, and so not kept.
_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What resuming a session takes: its id, and the paths that its own notes speak of.

    `own_home` says that it lies beside; otherwise it lies in the home of the user, where the agent left it.
    """

    session_id: str
    workspace: str
    home: str
    temporary: str
    own_home: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumable:
    """A session that could be resumed: who was asked how, and what of its home it lies in."""

    session_id: str
    names: tuple[str, ...]
    asked: AgentCommand


def keep_state(ground: Ground, session: Resumable, into: Path, masker: Masker) -> list[str]:
    """Copy the state of *session* from the home of an attempt into the folder *into*; what stayed out, as sentences."""
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
    """The state that was kept in the folder of an attempt, if any was."""
    file = folder / STATE_FILE
    return wire.decode(file.read_bytes(), SessionState) if file.is_file() else None


def lay_state(folder: Path, home: Path) -> None:
    """Copy what was kept in the folder of an attempt into *home*."""
    if (folder / STATE_DIR).is_dir():
        copy_tree(folder / STATE_DIR, home)


def _keep_files(home: Path, session: Resumable, kept: Path, masker: Masker) -> list[str]:
    for name in session.names:
        # Nothing that a link of the agent's own making leads to.
        if (home / name).resolve() == home.resolve() / name:
            _copy(home / name, kept / name)
    # What we put into the home is put there again; a login is never to be anywhere else.
    for name in (*session.asked.home_files, *session.asked.home_copies):
        remove_tree(kept / name)
    if not kept.is_dir():
        return []
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
    """Mask databases from within; what is too large or cannot be read might hold anything, and is removed."""
    for path in _files(kept):
        try:
            problem = "it is larger than 64 MiB" if path.stat().st_size > _LARGEST else None
            if problem is None and is_database(path):
                mask_database(masker, path)
        except FileNotFoundError:
            # A database has taken it in.
            continue
        except (OSError, sqlite3.Error) as error:
            problem = str(error)
        if problem is not None:
            for part in ("", "-wal", "-journal"):
                remove_tree(path.with_name(path.name + part))
            yield f"{path.relative_to(kept)} of the session was not kept, so it may not be resumed: {problem}"


def _files(folder: Path) -> list[Path]:
    """Every regular file; raises where one cannot be reached, since what is not seen is not masked."""
    found = (Path(place, name) for place, _, names in os.walk(folder, onerror=_give_up) for name in names)
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def _give_up(error: OSError) -> None:
    raise error
