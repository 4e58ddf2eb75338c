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

from msgspec import Struct

from whet.errors import UsageError
from whet.model import codec
from whet.model.request import Settings
from whet.model.run import Execution, Plan, Runner
from whet.reading.text import escape_surrogates
from whet.record.file_hashes import digest_of
from whet.record.folder import PRIVATE, SOURCES_FILE, file_hash, write_atomically
from whet.record.journal.chain import change_error

# Hashed at the start of a run; a laptop does that in about a third of a second.
_MOST_FILES, _MOST_BYTES = 5_000, 128 * 1024 * 1024
# Folders that change when something only reads the project.
_SKIPPED = frozenset((".git", ".whet", "__pycache__"))


class SourceFile(Struct, frozen=True):
    """A file as a run found it; if it was not hashed, its time is compared."""

    mode: int
    size: int
    mtime_ns: int
    digest: str | None


def sources_of(plan: Plan, settings: Settings, reporters: Iterable[str] = ()) -> dict[str, SourceFile]:
    """Return every file that agents start from, by its path, as it is now."""
    sources: dict[str, SourceFile] = {}
    files, size = _MOST_FILES, _MOST_BYTES
    for path in _paths(plan, _output_paths(settings, reporters)):
        try:
            status = os.lstat(path)
            # A device or a pipe has no content of its own.
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
                continue
            files, size = files - 1, size - status.st_size
            digest = digest_of(path, status) if files >= 0 and size >= 0 else None
        except OSError:
            # The file is gone by now, or cannot be read. The code that needs it reports it.
            continue
        sources[escape_surrogates(path)] = SourceFile(
            stat.S_IMODE(status.st_mode), status.st_size, status.st_mtime_ns, digest
        )
    return sources


def write_sources(run_dir: Path, sources: Mapping[str, SourceFile]) -> str:
    """Write *sources* to the record and return the hash of the file, for run.json."""
    data = codec.encode_pretty(sources)
    write_atomically(run_dir / SOURCES_FILE, data, mode=PRIVATE)
    return hashlib.sha256(data).hexdigest()


def refuse_changed_sources(run_dir: Path, digest: str, now: Mapping[str, SourceFile]) -> None:
    """Refuse to resume if agents would start from other files than those before them."""
    path = run_dir / SOURCES_FILE
    if file_hash(path) != digest:
        raise change_error(path, "has changed since the run began")
    before = codec.decode_file(path, dict[str, SourceFile])
    different = sorted(name for name in {*before, *now} if not _is_same(before.get(name), now.get(name), name))
    if different:
        first, more = different[0], f" and {len(different) - 1} more" if len(different) > 1 else ""
        if first not in now:
            what = "is gone"
        elif first not in before:
            what = "is new"
        else:
            what = "has changed"
        raise UsageError(
            f"{first} {what}{more} since {run_dir.name} began; its results would mix two things",
            hint="start a new run, or undo the change",
        )


def _is_same(before: SourceFile | None, now: SourceFile | None, path: str) -> bool:
    if before is None or now is None or (before.mode, before.size) != (now.mode, now.size):
        return False
    if before.digest is None:
        return before.mtime_ns == now.mtime_ns
    return before.digest == (now.digest or digest_of(path, os.lstat(path)))


def _output_paths(settings: Settings, reporters: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return what whet itself writes into the project while it runs, by name."""
    targets = (name.partition("=")[2] for name in (*settings.reporters, *reporters))
    snapshots = (settings.snapshots or {}).get("path")
    home = settings.file.parent if settings.file else Path.cwd()
    paths = (settings.output_dir, snapshots or home / "whet.snapshots.json", *filter(None, targets))
    resolved_paths = [os.path.realpath(path) for path in paths]
    return {Path(path).name: frozenset(resolved_paths) for path in resolved_paths}


def _paths(plan: Plan, outputs: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Yield each path once, in order."""
    yielded_paths: set[str] = set()
    for place in dict.fromkeys(_places(plan)):
        for path in _files(os.path.abspath(place), outputs):
            if path not in yielded_paths:
                yielded_paths.add(path)
                yield path


def _places(plan: Plan) -> Iterator[str]:
    """Yield the files and folders that the plan names."""
    # A shard lists what all of them start from, because any of them may go on as a part of what they are merged into.
    for execution in plan.whole or plan.executions:
        yield from fixtures_of(execution)
        yield from map(str, execution.runner.skills)
        yield from programs_of(execution.runner)


def fixtures_of(execution: Execution) -> Iterator[str]:
    """Yield the files and folders that the workspaces and the checks of *execution* begin as."""
    spec, case = execution.workspace, execution.case
    paths = (spec.template_dir, *case.check_files, *_placed_files(execution), *_packed_files(execution))
    yield from (str(path) for path in paths if path is not None)
    for bootstrap in filter(None, (spec.bootstrap, case.bootstrap)):
        yield from _program_files(bootstrap.command, bootstrap.args)


def _placed_files(execution: Execution) -> Iterator[Path]:
    """Yield what is put into workspaces; the skill under test is not of the case."""
    for item in execution.workspace.placed:
        if item.source is not None and item.source != execution.skill:
            yield item.source


def _packed_files(execution: Execution) -> Iterator[Path]:
    """Yield the package and the folders of a task that lie on this machine."""
    package, task = execution.workspace.package, execution.case.task
    if package is not None and (package.base_dir / package.ref).exists():
        yield package.base_dir / package.ref
    if task is not None:
        yield task.folder


def programs_of(runner: Runner, *, program: bool = True) -> Iterator[str]:
    """Yield the files that *runner* starts from, with or without its *program*."""
    command = runner.options.get("command") if program else None
    yield from _program_files(command, runner.options.get("args") or ())
    # A run folder that is replayed is checked by its own journal.
    if runner.agent != "replay" and isinstance(script := runner.options.get("script"), str):
        yield script


def _program_files(command: Any, args: Iterable[Any]) -> Iterator[str]:
    """Yield the program, and the files that its arguments name."""
    program = shutil.which(command) if isinstance(command, str) else None
    if program is not None:
        yield from dict.fromkeys((program, os.path.realpath(program)))
    for arg in args:
        text = str(arg).partition("=")[2] if str(arg).startswith("-") else str(arg)
        if text.startswith("/") and Path(text).is_file():
            yield text


def _files(place: str, outputs: Mapping[str, frozenset[str]]) -> Iterator[str]:
    if not Path(place).is_dir():
        yield place
        return
    for folder, folders, files in os.walk(place):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and _counts(folder, name, outputs))
        links = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (f"{folder}/{name}" for name in sorted((*files, *links)) if _counts(folder, name, outputs))


def _counts(folder: str, name: str, outputs: Mapping[str, frozenset[str]]) -> bool:
    # By name first: resolving every path would take longer than everything else.
    return name not in outputs or os.path.realpath(f"{folder}/{name}") not in outputs[name]
