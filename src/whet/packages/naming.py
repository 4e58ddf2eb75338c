"""The names of what an archive holds: which of them can be a path inside of a folder."""

from __future__ import annotations

from whet.errors import PackageError

LONGEST_PATH = 1024
_LONGEST_NAME = 255
_DEEPEST = 64
_SHOWN = 120


def path_of(name: str) -> str:
    """The path below the root that *name* stands for; empty for the root itself, `PackageError` for what is unsafe."""
    if name.startswith("/"):
        raise _refused(name, "the path is absolute")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _refused(name, "the path leads upwards")
    if "\\" in name or any(ord(character) < ord(" ") or ord(character) == 0x7F for character in name):  # noqa: PLR2004
        raise _refused(name, "the name holds a backslash or a control character")
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        raise _refused(name, "the name is not UTF-8") from None
    if sum(sizes) + len(sizes) > LONGEST_PATH or max(sizes, default=0) > _LONGEST_NAME:
        raise _refused(name, "the name is longer than a file system takes")
    if len(parts) > _DEEPEST:
        raise _refused(name, f"the path is more than {_DEEPEST} folders deep")
    return "/".join(parts)


def shown(name: str) -> str:
    """*name* for a message: what cannot be printed as an escape, and not without end."""
    text = "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode("ascii")
        for character in name[: _SHOWN + 1]
    )
    return text if len(name) <= _SHOWN else f"{text}..."


def shown_ref(ref: str) -> str:
    """A reference for a message: without the query, where signatures stand, and without a password."""
    address = ref.partition("?")[0]
    scheme, found, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return shown(f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if found else address)


def _refused(name: str, why: str) -> PackageError:
    return PackageError(f"{shown(name)}: {why}")
