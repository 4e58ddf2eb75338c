"""List what agents start from besides the suite (templates, skills, programs, scripts), to notice a change on resume.

Contents are compared, because a checkout gives new times to old files. If there is too much to hash at every start,
size and time of the rest are compared instead.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import UsageError
from whet.model import wire
from whet.model.request import Settings
from whet.model.run import Plan
from whet.reading.text import escape_surrogates
from whet.record.chain import changed
from whet.record.folder import PRIVATE, SOURCES_FILE, file_hash, write_atomically
from whet.record.sealing import digest_of

# Hashed at the start of a run; a laptop does that in about a third of a second.
_MOST_FILES, _MOST_BYTES = 5_000, 128 * 1024 * 1024
# Folders that change when something only reads the project.
_SKIPPED = frozenset((".git", ".whet", "__pycache__"))


@dataclass(frozen=True, slots=True)
class Source:
    """A file as a run found it; if it was not hashed, its time is compared."""

    mode: int
    size: int
    mtime_ns: int
    digest: str | None


def sources_of(plan: Plan, settings: Settings, reporters: Iterable[str] = ()) -> dict[str, Source]:
    """Return every file that agents start from, by its path, as it is now."""
    found: dict[str, Source] = {}
    files, size = _MOST_FILES, _MOST_BYTES
    for path in _paths(plan, _written(settings, reporters)):
        try:
            seen = os.lstat(path)
            # A device or a pipe has no content of its own.
            if not stat.S_ISREG(seen.st_mode) and not stat.S_ISLNK(seen.st_mode):
                continue
            files, size = files - 1, size - seen.st_size
            digest = digest_of(path, seen) if files >= 0 and size >= 0 else None
        except OSError:
            # It is gone by now, or cannot be read. The code that needs it reports it.
            continue
        found[escape_surrogates(path)] = Source(stat.S_IMODE(seen.st_mode), seen.st_size, seen.st_mtime_ns, digest)
    return found


def write_sources(run_dir: Path, sources: Mapping[str, Source]) -> str:
    """Write *sources* to the record and return the hash of the file, for run.json."""
    data = wire.encode_pretty(sources)
    write_atomically(run_dir / SOURCES_FILE, data, mode=PRIVATE)
    return hashlib.sha256(data).hexdigest()


def refuse_changed_sources(run_dir: Path, digest: str, now: Mapping[str, Source]) -> None:
    """Refuse to resume if agents would start from other files than those before them."""
    path = run_dir / SOURCES_FILE
    if file_hash(path) != digest:
        raise changed(path, "has changed since the run began")
    before = wire.decode_file(path, dict[str, Source])
    different = sorted(name for name in {*before, *now} if not _is_same(before.get(name), now.get(name), name))
    if different:
        first, more = different[0], f" and {len(different) - 1} more" if len(different) > 1 else ""
        what = "is gone" if first not in now else "is new" if first not in before else "has changed"
        raise UsageError(
            f"{first} {what}{more} since {run_dir.name} began; its results would mix two things",
            hint="start a new run, or undo the change",
        )


def _is_same(before: Source | None, now: Source | None, path: str) -> bool:
    if before is None or now is None or (before.mode, before.size) != (now.mode, now.size):
        return False
    if before.digest is None:
        return before.mtime_ns == now.mtime_ns
    return before.digest == (now.digest or digest_of(path, os.lstat(path)))


def _written(settings: Settings, reporters: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return what whet itself writes into the project while it runs, by name."""
    named = (name.partition("=")[2] for name in (*settings.reporters, *reporters))
    snapshots = (settings.snapshots or {}).get("path")
    home = settings.file.parent if settings.file else Path.cwd()
    paths = (settings.output_dir, snapshots or home / "whet.snapshots.json", *filter(None, named))
    found = [os.path.realpath(path) for path in paths]
    return {Path(path).name: frozenset(found) for path in found}


def _paths(plan: Plan, written: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Yield each path once, in order."""
    seen: set[str] = set()
    for place in dict.fromkeys(_places(plan)):
        for path in _files(os.path.abspath(place), written):  # noqa: PTH100 - a link is looked at, not followed
            if path not in seen:
                seen.add(path)
                yield path


def _places(plan: Plan) -> Iterator[str]:
    """Yield the files and folders that the plan names."""
    # A shard lists what all of them start from, because any of them may go on as a part of what they are merged into.
    for execution in plan.whole or plan.executions:
        spec, runner = execution.workspace, execution.runner
        yield from (
            str(path) for path in (spec.template_dir, *runner.skills, *execution.case.check_files) if path is not None
        )
        for bootstrap in filter(None, (spec.bootstrap, execution.case.bootstrap)):
            yield from _named(bootstrap.command, bootstrap.args)
        yield from _named(runner.options.get("command"), runner.options.get("args") or ())
        # A run folder that is replayed is checked by its own journal.
        if runner.agent != "replay" and isinstance(script := runner.options.get("script"), str):
            yield script


def _named(command: Any, args: Iterable[Any]) -> Iterator[str]:
    """Yield the program, and the files that its arguments name."""
    program = shutil.which(command) if isinstance(command, str) else None
    if program is not None:
        yield from dict.fromkeys((program, os.path.realpath(program)))
    for arg in args:
        text = str(arg).partition("=")[2] if str(arg).startswith("-") else str(arg)
        if text.startswith("/") and Path(text).is_file():
            yield text


def _files(place: str, written: Mapping[str, frozenset[str]]) -> Iterator[str]:
    if not Path(place).is_dir():
        yield place
        return
    for folder, folders, files in os.walk(place):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and _counts(folder, name, written))
        links = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (f"{folder}/{name}" for name in sorted((*files, *links)) if _counts(folder, name, written))


def _counts(folder: str, name: str, written: Mapping[str, frozenset[str]]) -> bool:
    # By name first: resolving every path would take longer than everything else.
    return name not in written or os.path.realpath(f"{folder}/{name}") not in written[name]
