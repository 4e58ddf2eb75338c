"""Reading settings files: `whet.toml`, `[tool.whet]` of `pyproject.toml`, and the user's own."""

from __future__ import annotations

import json
import os
import pwd
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.errors import ConfigError
from whet.reading.documents import too_long_in
from whet.reading.fields import Language
from whet.reading.text import shown, written

PROJECT_FILE = "whet.toml"
PYPROJECT = "pyproject.toml"
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
_AT_END = " (at end of document)"
_LARGEST = 16 * 1024 * 1024
# Also with an index, which is not part of a name.
_BARE = re.compile(r"[A-Za-z0-9_-]+(\[\d+\])?")


def _show(value: object) -> str:
    """Return *value* for a message; of a list or a table only its kind, because it may hold secrets."""
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, float):
        # As TOML writes inf and nan, and JSON does not.
        return written(value)
    return "a table" if isinstance(value, Mapping) else shown(value)


def _quote(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def dotted(key: tuple[str, ...]) -> str:
    """Return *key* as you write it in TOML."""
    return ".".join(map(_quote, key))


TOML = Language(show=_show, name=_quote, an_object="a table")


class SettingsFile(Struct, frozen=True):
    """A settings file that was read: its content and its name for messages."""

    path: Path
    label: str
    data: Mapping[str, Any]


def find_own(path: Path) -> SettingsFile | None:
    """Read the `whet.toml` at *path*; None if there is none."""
    # os.path: a folder that we may not look into counts as one without settings.
    if not os.path.lexists(path):
        return None
    # A file that a person names may be a pipe, as a shell makes them. One that we find would block forever.
    if path.exists() and stat.S_ISFIFO(path.stat().st_mode):
        raise ConfigError(f"{path}: is a pipe, not a file", hint="name it with --config if you mean it")
    return read_file(path)


def read_file(path: Path, label: str | None = None) -> SettingsFile:
    """Read the settings file at *path*, which must exist."""
    if path.name == PYPROJECT:
        settings = find_shared(path)
        if settings is None:
            raise ConfigError(f"{path}: no [tool.whet] table" if path.is_file() else f"{path}: no such file")
        return settings
    label = label or path.name
    return SettingsFile(path, label, _parse(_read(path), label))


def find_user_file(environ: Mapping[str, str]) -> SettingsFile | None:
    """Read the user's own settings; None if there are none."""
    home, base = environ.get("HOME"), environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification says to ignore a relative folder.
    if not os.path.isabs(base):
        if not home:
            return None
        base = f"{home}/.config"
    path = Path(base, "whet", "config.toml")
    if not os.path.isfile(path):
        return None
    label = f"~/{path.relative_to(home)}" if home and path.is_relative_to(home) else str(path)
    return read_file(path, f"user file {label}")


def find_shared(path: Path) -> SettingsFile | None:
    """Read the settings in the `pyproject.toml` at *path*; None if there are none."""
    if not os.path.isfile(path):
        return None
    text = _read(path)
    # Most pyproject files on the way up do not mention us: parsing them takes time, and their errors are not ours.
    if "whet" not in text:
        return None
    tool = _parse(text, PYPROJECT).get("tool")
    if not isinstance(tool, dict) or "whet" not in tool:
        return None
    label = f"{PYPROJECT} [tool.whet]"
    if not isinstance(tool["whet"], dict):
        raise ConfigError(f"{PYPROJECT}: tool.whet: must be a table")
    return SettingsFile(path, label, tool["whet"])


def _read(path: Path) -> str:
    try:
        return _bytes(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path}: {'is a link to nowhere' if path.is_symlink() else 'no such file'}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start})") from error


def _bytes(path: Path) -> bytes:
    """Read *path*, up to a limit that no settings reach, because a device may have no end."""
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder, not a file")
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ConfigError(f"{path}: is larger than {_LARGEST:,} bytes, so it is not a settings file")
    return data


def _parse(text: str, label: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        match = _AT_LINE.search(message)
        line = int(match[1]) if match else len(text.splitlines())
        message = _AT_LINE.sub("", message).removesuffix(_AT_END)
        raise ConfigError(f"{label}: line {line}: {message[:1].lower()}{message[1:]}") from error
    except ValueError as error:
        raise ConfigError(f"{label}: {too_long_in(text)}") from error
    except RecursionError:
        raise ConfigError(f"{label}: is nested too deeply") from None


_REPOSITORY = ".git"
_ROOT = 0


class SettingsSearch(Struct, frozen=True):
    """What a search found.

    `last` is the folder that it ended in, if that is not the top of the file system. `foreign` says which file ended
    it and was not read.
    """

    file: SettingsFile | None = None
    last: Path | None = None
    foreign: str | None = None


def search_settings(folder: Path) -> SettingsSearch:
    """Find the settings file for *folder*: in the first folder upwards that has one, within the project."""
    for place in (folder, *folder.parents):
        for path in (place / PROJECT_FILE, place / PYPROJECT):
            if reason := _distrusted(path):
                return SettingsSearch(last=place, foreign=reason)
        project_file, pyproject = find_own(place / PROJECT_FILE), find_shared(place / PYPROJECT)
        if project_file and pyproject:
            raise ConfigError(
                f"{place}: both {PROJECT_FILE} and [tool.whet] of {PYPROJECT} hold settings",
                hint="keep one of them",
            )
        if project_file or pyproject:
            return SettingsSearch(project_file or pyproject, last=place)
        if is_project_root(place):
            return SettingsSearch(last=place)
    return SettingsSearch()


def find_project(folder: Path) -> Path | None:
    """Find the project of *folder*: the nearest folder upwards with a `.git`, else the one with settings."""
    root = next((place for place in (folder, *folder.parents) if is_project_root(place)), None)
    if root is not None:
        return root
    settings = search_settings(folder).file
    return settings.path.parent if settings else None


def is_project_root(folder: Path) -> bool:
    """Return whether a repository begins in *folder*; one of another user, as in `/tmp`, does not count."""
    mark = folder / _REPOSITORY
    return os.path.lexists(mark) and _stranger(mark) is None


def _distrusted(path: Path) -> str | None:
    """Return why the settings at *path* are not read: a stranger who can write them could run commands as us."""
    owner = _stranger(path)
    if owner is None or not _may_hold_settings(path):
        return None
    return f"{path} is not read: it belongs to {owner}, not to you"


def _may_hold_settings(path: Path) -> bool:
    """Return whether *path* may be about us; a pyproject file that cannot be read might be."""
    if path.name != PYPROJECT:
        return True
    try:
        return "whet" in path.read_text("utf-8", errors="replace")
    except OSError:
        return path.is_file()


def _stranger(path: Path) -> str | None:
    """Return the owner of *path*, or of the link at it, who is neither we nor root; None if there is no such one."""
    owners = _trusted_users()
    for look in (os.lstat, os.stat):
        try:
            owner = look(path).st_uid
        except OSError:
            # The file does not exist, is closed, or is a link to nowhere: the reader reports it.
            continue
        if owner not in owners:
            return _name_of(owner)
    return None


def _trusted_users() -> frozenset[int]:
    """Return the users that we trust: root, ourselves, and the user who became root to start us."""
    user = os.geteuid()
    before = os.environ.get("SUDO_UID", "")
    return frozenset({_ROOT, user, *([int(before)] if user == _ROOT and before.isdecimal() else [])})


def _name_of(user: int) -> str:
    try:
        return f"{pwd.getpwuid(user).pw_name} (uid {user})"
    except KeyError:
        return f"uid {user}"
