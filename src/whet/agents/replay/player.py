"""The program of the replay agent: it applies recorded changes to its folder and prints the recorded output.

The player runs on its own, by `python -I -S`, and imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import BinaryIO

_NEEDED = 5


def lay(folder: Path, into: Path) -> None:
    """Apply the changes that are recorded in *folder* to *into*, and touch nothing outside of it."""
    changes = _changes(folder)
    for path in changes.get("deleted", []):
        _clear(_place(into, path))
    for path in sorted(changes.get("gone", []), key=len, reverse=True):
        # The folder may hold what was never recorded, such as empty folders of its own.
        with contextlib.suppress(OSError):
            _place(into, path).rmdir()
    if (folder / "changes.tar").is_file():
        with tarfile.open(folder / "changes.tar", "r:") as archive:
            for member in archive:
                _put(archive, member, _place(into, member.name, make=True))


def _changes(folder: Path) -> dict[str, list[str]]:
    listed = folder / "changes.json"
    changes: dict[str, list[str]] = json.loads(listed.read_bytes()) if listed.is_file() else {}
    return changes


def lay_again(folder: Path, into: Path, kept: Path) -> None:
    """Apply changes as `lay` does, after those of an earlier turn, which began at the same: first undo those.

    What the changes replace is kept in *kept*, with a list of all that they touch.
    """
    listed = kept / "touched.json"
    for path in json.loads(listed.read_bytes()) if listed.is_file() else []:
        place, old = _place(into, path, make=True), kept / "files" / path
        _clear(place)
        if os.path.lexists(old):
            shutil.copy2(old, place, follow_symlinks=False)
    changes = _changes(folder)
    touched = [path for name in ("created", "modified", "deleted") for path in changes.get(name, [])]
    for path in touched:
        place, old = _place(into, path, make=True), kept / "files" / path
        if os.path.lexists(place) and not place.is_dir() and not os.path.lexists(old):
            old.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(place, old, follow_symlinks=False)
    kept.mkdir(parents=True, exist_ok=True)
    listed.write_text(json.dumps(touched))
    lay(folder, into)


def _place(into: Path, path: str, *, make: bool = False) -> Path:
    """Return *path* below *into*: a recording may come from anyone, and must not lead outside by `..` or a link."""
    *parents, name = path.split("/")
    if any(part in {"", ".", ".."} for part in (*parents, name)):
        raise ValueError(f"the recording names {path!r}, which is not a path below a workspace")
    place = into
    for part in parents:
        place /= part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise ValueError(f"the recording names {path!r}, but {part!r} is not a folder")
        if make and not place.exists():
            place.mkdir()
    return place / name


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    _clear(place)
    if member.issym():
        place.symlink_to(member.linkname)
        return
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        raise ValueError(f"the recording holds {member.name!r}, which is neither a file nor a link")
    with place.open("xb") as file:
        shutil.copyfileobj(content, file)
    place.chmod(member.mode & 0o777)


def _clear(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def play(folder: Path) -> None:
    """Print what was printed, byte for byte."""
    for name, stream in (("stderr.log", sys.stderr), ("transcript.jsonl", sys.stdout), ("transcript.txt", sys.stdout)):
        if (folder / name).is_file():
            with (folder / name).open("rb") as file:
                _copy(file, stream.buffer)


def _copy(file: BinaryIO, stream: BinaryIO) -> None:
    shutil.copyfileobj(file, stream)
    stream.flush()


def main() -> int:
    """Play the recording that the arguments name, and end as it ended."""
    if len(sys.argv) != _NEEDED:
        sys.stderr.write("usage: player.py FOLDER EXIT_CODE CHANGES REPLACED\n")
        return 2
    folder, code, changes, replaced = sys.argv[1:]
    here = Path(os.getcwd())  # noqa: PTH109 - Path.cwd() is the same call
    if replaced:
        lay_again(Path(changes), here, Path(replaced))
    else:
        lay(Path(changes), here)
    play(Path(folder))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
