"""Paths that people write, and paths that the system refuses: what is wrong with them, and what to do.

Commands use paths of the user in a hundred places, and any of them may be closed, on a read-only disk or too long.
None of these places has to expect it: an `OSError` that names its path becomes one line here.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path, PurePosixPath

from whet.errors import ClaimError, PathRefused, UsageError
from whet.reading.text import check_text

# Errors that the user can correct. A missing file is not one of them: we look before we use a file, so one that is
# missing all the same is our mistake.
_REFUSALS = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENXIO,
        errno.EIO,
        errno.ESTALE,
    }
)
_CLOSED = frozenset({errno.EACCES, errno.EPERM})


def refusal(error: BaseException) -> UsageError | None:
    """Return the error as one that a user can act on; None if it is not about a path of theirs."""
    if not isinstance(error, OSError):
        return None
    if isinstance(error, FileNotFoundError) and error.filename is None and _here_is_gone():
        return UsageError("the current folder does not exist any more", hint="change to one that does: cd")
    if error.errno not in _REFUSALS:
        return None
    # Of two paths, the second is the new one.
    paths = [Path(os.fsdecode(name)) for name in (error.filename2, error.filename) if isinstance(name, str | bytes)]
    if not paths:
        return None
    reason = error.strerror or type(error).__name__
    for path in paths if error.errno in _CLOSED else ():
        if reason_and_hint := _find_closed(path):
            action, hint = reason_and_hint
            return PathRefused(str(path), f"{action}: {reason}", hint=hint)
    return PathRefused(str(paths[0]), f"cannot be used: {reason}", hint="name another path, or change this one")


@contextmanager
def refusals() -> Iterator[None]:
    """Raise a `PathRefused` for what the system refuses in here, for code that can go on without the path."""
    try:
        yield
    except OSError as error:
        if problem := refusal(error):
            raise problem from error
        raise


def _here_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _find_closed(path: Path) -> tuple[str, str] | None:
    """Return what cannot be done with *path* and what blocks it; None if it looks open."""
    path = Path(os.path.abspath(path))
    for folder in reversed(path.parents):
        if not os.path.lexists(folder):
            # The rest of the path would be made from here.
            path = folder
            break
        if not os.access(folder, os.X_OK):
            return "cannot be reached", _open_it(folder, "enter")
    if os.path.lexists(path):
        if not os.access(path, os.R_OK):
            return "cannot be read", _open_it(path, "read")
        if path.is_dir() and not os.access(path, os.X_OK):
            return "cannot be entered", _open_it(path, "enter")
        if not os.access(path, os.W_OK):
            return "cannot be written to", _open_it(path, "write to")
    if not os.access(path.parent, os.W_OK):
        return "cannot be made or replaced", _open_it(path.parent, "write to")
    return None


def _open_it(path: Path, action: str) -> str:
    status = path.stat()
    owner, group = _user(status.st_uid), _group(status.st_gid)
    facts = f"{path} belongs to {owner}, group {group}, mode {stat.S_IMODE(status.st_mode):04o}"
    return f"{facts}: let {_user(os.geteuid())} {action} it, or name another path"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return f"gid {number}"


def why_no_folder(path: Path) -> str:
    """Return what is wrong with a path that is to be a folder and is none."""
    return "is a file and not a folder" if path.exists() else "no such folder"


def nearest_beside(path: Path) -> str | None:
    """Return a hint with what has nearly that name and lies beside it."""
    try:
        beside = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return None
    near = get_close_matches(path.name, beside, n=1)
    return f'did you mean "{path.parent / near[0]}"?' if near else None


def clean_path(written: str) -> str:
    """Return the path without `.`, `..` and doubled slashes; a slash at the end stays, because it asks for a folder."""
    if not written.strip():
        raise ClaimError("the path is missing")
    check_text(written, "path")
    if written.startswith("/"):
        raise ClaimError(f"{written} is an absolute path", hint="write it relative to the project, such as src/a.ts")
    if written == "~" or written.startswith("~/"):
        raise ClaimError(f"{written} is in a home folder", hint="write it relative to the project, such as src/a.ts")
    parts: list[str] = []
    for part in written.split("/"):
        if part == "..":
            if not parts:
                raise ClaimError(f"{written} leads out of the workspace", hint="name something inside of the project")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    folder = written.endswith(("/", "/.", "/..")) and parts
    return ("/".join(parts) or ".") + ("/" if folder else "")


def path_warnings(path: str) -> tuple[str, ...]:
    """Return warnings about a path that may not mean what its author wants."""
    if "*" in path:
        return (f'"*" in {path} means itself: paths of expectations are not patterns',)
    return ()


_LONGEST = 1000
_WILDCARDS = {"*": "[^/]*", "?": "[^/]"}


def glob_problem(pattern: str) -> str | None:
    """Return why a pattern cannot be used; None if it can."""
    if pattern.startswith("/"):
        return "must be relative to the project"
    if ".." in pattern.split("/"):
        return "must not lead out of the project"
    if pattern.startswith("!"):
        return 'must not begin with "!"'
    if "\0" in pattern or len(pattern) > _LONGEST:
        return "is not a pattern of paths"
    return None


def literal_head(pattern: str) -> str:
    """Return the names at the beginning of a pattern that have no wildcard."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return "/".join(takewhile(lambda part: "*" not in part and "?" not in part, parts))


class Globs:
    """Several patterns; a path belongs to them if one of them names it, or a folder above it."""

    def __init__(self, patterns: Iterable[str]) -> None:
        parts = [_parts(pattern) for pattern in patterns]
        self._whole = [re.compile(_expression(names) + "(?:/.*)?", re.DOTALL) for names in parts if names]
        above = {tuple(names[:count]) for names in parts for count in range(1, len(names))}
        self._above = [re.compile(_expression(list(names)), re.DOTALL) for names in above]
        exact = [names for names in above if "**" not in names]
        self._exact = [re.compile(_expression(list(names)), re.DOTALL) for names in exact]

    def __bool__(self) -> bool:
        return bool(self._whole)

    def holds(self, path: str) -> bool:
        """Return whether one of the patterns matches *path*."""
        return any(pattern.fullmatch(path) for pattern in self._whole)

    def guards(self, path: str) -> bool:
        """Return whether a link at *path* would replace files that the patterns match."""
        return self.holds(path) or any(pattern.fullmatch(path) for pattern in self._exact)

    def leads_to(self, path: str) -> bool:
        """Return whether the folder *path* could hold something that the patterns match."""
        return self.holds(path) or any(pattern.fullmatch(path) for pattern in self._above)


def _parts(pattern: str) -> list[str]:
    parts: list[str] = []
    for part in pattern.split("/"):
        if part not in ("", ".") and not (part == "**" and parts[-1:] == ["**"]):
            parts.append(part)
    # `test/**` is all that is in the folder, which is what `test` is too: so the folder itself belongs to it.
    while len(parts) > 1 and parts[-1] == "**":
        parts.pop()
    return parts


def _expression(parts: list[str]) -> str:
    pieces = []
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            pieces.append(".*" if last else "(?:[^/]+/)*")
        else:
            pieces.append(_segment(part) + ("" if last else "/"))
    return "".join(pieces)


def _segment(part: str) -> str:
    return "".join(_WILDCARDS.get(char) or re.escape(char) for char in re.sub(r"\*+", "*", part))


REMOTE = ("r2://", "s3://", "http://", "https://")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BUCKET = re.compile(r"(?:r2|s3)://[^/]+/.+")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_POINTER = re.compile(r"(?:/(?:[^~/]|~0|~1)*)*")


def inside_problem(path: str) -> str | None:
    """Return why *path* is not a path below the root of a package; None if it is one."""
    parts = PurePosixPath(path).parts
    if path.startswith("/") or "\\" in path:
        return "must be a relative path with forward slashes"
    if ".." in parts:
        return 'must not lead out of the package by ".."'
    return None


def reference_problem(reference: str, *, remote_only: bool) -> str | None:
    """Return why *reference* does not name an archive; None if it does."""
    address = reference.lower()
    if address.startswith(REMOTE):
        if address.startswith(("r2://", "s3://")) and not _BUCKET.fullmatch(reference.lower()):
            return "must name a bucket and a key, such as r2://bucket/folder/archive.tar.gz"
        return None
    if remote_only:
        return f"must begin with one of {', '.join(REMOTE)}"
    if _SCHEME.match(reference) and not address.startswith("file://"):
        return f"has an unknown scheme; known: {', '.join(REMOTE)}, file:// and paths"
    return None


def digest_problem(text: str) -> str | None:
    """Return why *text* is not a SHA-256; None if it is one."""
    return None if _DIGEST.fullmatch(text) else "must be 64 hexadecimal digits"


def pointer_problem(text: str) -> str | None:
    """Return why *text* is not a JSON pointer; None if it is one."""
    return None if _POINTER.fullmatch(text) else "must be a JSON pointer, such as /items/0/name"


def own_state() -> Path:
    """Return where this user's whet keeps what is no record; it may not exist."""
    return Path(f"/var/tmp/whet-{os.getuid()}")  # noqa: S108 - whoever writes there checks that it is ours
