"""Watermarks: a random word in the copy of a skill that agents are given, so that it shows where that copy got to.

The word is the name of an empty file in the folder, and a value in the `metadata` of SKILL.md. It is never in the
instructions, and every copy has one, so that it tells an agent nothing about its arm.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from secrets import choice
from typing import Any

from whet.reading.front_matter import parse_front_matter
from whet.reading.plugin_folder import skills_of
from whet.workspace.copy import copy_tree
from whet.workspace.make import MANIFEST
from whet.workspace.walk import is_empty

_SYLLABLES = 9
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"
_KEY = "revision"
# A larger front matter is left as it is: reading YAML takes long.
_LARGEST_FRONT = 64 * 1024
_FRONT = re.compile(rb"\A(?:\xef\xbb\xbf)?---[ \t]*(\r?\n)(.*?\r?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_METADATA = re.compile(rb"^metadata[ \t]*:[ \t]*(\{)?[^\r\n]*(?:\r?\n([ \t]+)(?=[^\s#]))?", re.MULTILINE)
_PIECE = 1024 * 1024
# The modes that git knows, and the first moment that a zip archive can say.
_PROGRAM, _FILE = 0o755, 0o644
_LONG_AGO = (315532800, 315532800)


def new_watermarks(digests: Mapping[str, str]) -> dict[str, str]:
    """Return a word for each arm, by the digest of its skill: arms with the same skill have the same word."""
    words = {digest: _word() for digest in sorted(set(digests.values()))}
    return {arm: words[digest] for arm, digest in digests.items()}


def _word() -> str:
    return "".join(choice(_CONSONANTS) + choice(_VOWELS) for _ in range(_SYLLABLES))


def watermarked(skill: Path, word: str, holder: Path) -> Path:
    """Copy the folder of a skill into the new folder *holder*, with *word* in it; return the copy."""
    copy = holder / skill.name
    copy.mkdir(parents=True)
    copy_tree(skill, copy)
    (copy / word).touch()
    for folder in skills_of(copy):
        manifest = folder / MANIFEST
        # A link may lead to a file that is not of the copy.
        if not manifest.is_symlink():
            _mark(manifest, word)
    _level(copy)
    return copy


def _level(copy: Path) -> None:
    """Give everything in *copy* the same times, plain modes and no empty folders.

    Git, archives and disks keep other ones, and an agent could tell by them how the skill of its arm came here.
    """
    for place, folders, names in os.walk(copy, topdown=False):
        here = Path(place)
        for path in (here / name for name in (*names, *folders)):
            if path.is_symlink():
                os.utime(path, _LONG_AGO, follow_symlinks=False)
        for file in (here / name for name in names if not (here / name).is_symlink()):
            file.chmod(_PROGRAM if file.stat().st_mode & stat.S_IXUSR else _FILE)
            os.utime(file, _LONG_AGO)
        if here != copy and is_empty(here):
            here.rmdir()
        else:
            here.chmod(_PROGRAM)
            os.utime(here, _LONG_AGO)


def _mark(manifest: Path, word: str) -> None:
    with manifest.open("rb") as file:
        start = file.read(_LARGEST_FRONT)
        marked = marked_front(start, word)
        if marked == start:
            return
        rest = file.read()
    fresh = manifest.with_name(f"{word}.new")
    fresh.write_bytes(marked + rest)
    shutil.copystat(manifest, fresh)
    fresh.replace(manifest)


def marked_front(start: bytes, word: str) -> bytes:
    """Return the start of a SKILL.md with *word* in its metadata, or as it is if its meaning would change otherwise."""
    match = _FRONT.match(start)
    before = _read(match[2]) if match else None
    if match is None or before is None:
        return start
    known = before.get("metadata")
    if (known is not None and not isinstance(known, dict)) or _KEY in (known or ()):
        return start
    wanted = {**before, "metadata": {**(known or {}), _KEY: word}}
    item = f"{_KEY}: {word}".encode()
    add = match[2] + b"metadata:" + match[1] + b"  " + item + match[1]
    for front in _drafts(match[2], match[1], item) if "metadata" in before else (add,):
        if _read(front) == wanted:
            return start[: match.start(2)] + front + start[match.end(2) :]
    return start


def _drafts(front: bytes, newline: bytes, item: bytes) -> Iterator[bytes]:
    """Yield the front matter with *item* in every place that may be the metadata."""
    for there in _METADATA.finditer(front):
        if there[1]:
            yield front[: there.end(1)] + item + front[there.end(1) :]
            yield front[: there.end(1)] + item + b", " + front[there.end(1) :]
        if there[2]:
            yield front[: there.start(2)] + there[2] + item + newline + front[there.start(2) :]
        yield front[: there.end()] + newline + b"  " + item + front[there.end() :]


def _read(front: bytes) -> dict[str, Any] | None:
    """Return what front matter says; None if it cannot be read."""
    try:
        return parse_front_matter(front.decode())
    except ValueError:
        return None


def shown_in(folder: Path, words: Iterable[str], *, but: Collection[str] = ()) -> dict[str, str]:
    """Return which of *words* the files of *folder* hold, each with the name of the first file that does."""
    wanted = [word.encode() for word in dict.fromkeys(words)]
    places_by_word: dict[str, str] = {}
    if not wanted:
        return places_by_word
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        if place.name not in but and place.is_file() and not place.is_symlink():
            for word in _held(place, wanted):
                places_by_word.setdefault(word.decode(), place.name)
    return places_by_word


def _held(file: Path, words: list[bytes]) -> set[bytes]:
    held: set[bytes] = set()
    overlap = max(map(len, words)) - 1
    before = b""
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE):
            text = before + piece
            held.update(word for word in words if word in text)
            before = text[-overlap:]
    return held
