"""The lock of a split: the file beside a suite that keeps the part of each case, and what that asked then.

The file is written once and meant to be committed. Nothing moves from practice to what is held out: what a skill was
changed by can no longer say how good it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from whet.errors import Problem, SuiteError, UsageError
from whet.model import codec
from whet.model.suite import PARTS, Case, Part, Suite
from whet.reading.documents import load_json
from whet.reading.files import read_file
from whet.reading.text import shown
from whet.suites.digests import question_digest
from whet.suites.split.draw import draw, refuse_few_triggers

SCHEMA = "whet/split/1"
NAME = "split.lock.json"
_LARGEST = 64 * 1024 * 1024
_RESTORE = "restore the file as it was committed, for parts that are drawn anew would mix practice and what is held out"


class SplitLock(Struct, frozen=True, kw_only=True):
    """What a lock says: the part of each case, and a digest of what it asked and checked when it got it.

    `file` is the suite's, so that several in one folder may have locks. `confirms` says of held-out cases how many
    confirm steps of `whet improve` were made on them, or on others together with which they were held out.
    """

    schema: str = SCHEMA
    suite: str
    file: str = ""
    seed: str
    cases: dict[str, Part] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    confirms: dict[str, Annotated[int, Meta(ge=1)]] = field(default_factory=dict)


def find_lock(suite: Suite) -> tuple[Path, SplitLock | None]:
    """Return where the lock of *suite* is or would be, and what it says; None if there is none.

    The lock is beside the suite, or in its folder. The first suite of a folder has `split.lock.json`, and others have
    their name in front of that. Raises `SuiteError` if it is damaged or of another suite.
    """
    folder = suite.source if suite.source.is_dir() else suite.source.parent
    own = folder / f"{suite.source.name.partition('.')[0]}.{NAME}"
    path = own if own.exists() else folder / NAME
    lock = _read(path) if path.exists() else None
    if lock is not None and path != own and lock.file not in ("", suite.source.name) and (folder / lock.file).exists():
        return own, None
    if lock is not None and lock.suite != suite.name:
        raise _problem(
            path,
            f'is the split of the suite "{lock.suite}", and {suite.source.name} is "{suite.name}"',
            "if you renamed the suite, write its new name here; if you copied the folder, remove this file",
        )
    return path, lock


def _read(path: Path) -> SplitLock:
    try:
        data = read_file(path, _LARGEST)
        value: Any = load_json(data)
    except (OSError, ValueError, RecursionError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise _problem(path, f"cannot be read: {reason}", _RESTORE) from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != SCHEMA:
        actual = "it has none" if schema is None else f"it is {shown(schema)}"
        raise _problem(path, f"is not the lock of a split: its schema must be {SCHEMA}, and {actual}", _RESTORE)
    try:
        lock = codec.decode(data, SplitLock)
    except codec.WireError as error:
        raise _problem(path, f"is not the lock of a split: {error.message}", _RESTORE) from None
    if lock.digests.keys() != lock.cases.keys():
        raise _problem(path, "is not the lock of a split: its cases are not those of its digests", _RESTORE)
    return lock


def _problem(path: Path, message: str, hint: str) -> SuiteError:
    return SuiteError([Problem(file=str(path), message=message, hint=hint)])


def with_parts(suite: Suite) -> Suite:
    """Return *suite* with the part of each case that its lock says; a case that says its own keeps that."""
    path, lock = find_lock(suite)
    return suite if lock is None else with_parts_of(suite, lock, path)


def with_parts_of(suite: Suite, lock: SplitLock, path: Path) -> Suite:
    """Return *suite* with the part of each case that *lock* says, which is or will be at *path*."""
    if problems := list(_moves(suite, lock, path)):
        raise SuiteError(problems)
    return replace(suite, cases=tuple(_with_part(case, suite, lock) for case in suite.cases))


def _moves(suite: Suite, lock: SplitLock, path: Path) -> Iterator[Problem]:
    """Yield a problem for each case that was practice, and now says that it is held out."""
    for case in suite.cases:
        if lock.cases.get(case.id) == PARTS[0] and case.split not in (None, PARTS[0]):
            yield Problem(
                file=str(suite.source),
                case=case.id,
                field="split",
                message=f"is {case.split}, and was practice when {path.name} was written",
                hint="nothing that was practised on can be held out later: leave the word out, or write a new case",
            )


def _with_part(case: Case, suite: Suite, lock: SplitLock) -> Case:
    locked = lock.cases.get(case.id)
    split = case.split or locked
    digest = None if split in (None, PARTS[0]) else lock.digests.get(case.id)
    return replace(case, split=split, edited=digest not in (None, question_digest(case, suite.source)))


def drawn_lock(suite: Suite, lock: SplitLock | None, seed: str | None) -> SplitLock:
    """Return *lock* with the parts of new cases, or a new one; refuses another *seed* than that of a lock.

    What it says of earlier cases stays, also of those that are gone: they may come back.
    """
    if lock is not None and seed not in (None, lock.seed):
        raise UsageError(
            f"the parts of {suite.name} were drawn with the seed {shown(lock.seed)}",
            hint="leave out --seed; another one would move cases from practice to what is held out",
        )
    seed = seed or (lock.seed if lock else suite.name)
    earlier = lock or SplitLock(suite=suite.name, seed=seed)
    parts = draw(suite.cases, seed, earlier.cases)
    refuse_few_triggers(suite.cases, parts)
    digests = {case.id: question_digest(case, suite.source) for case in suite.cases}
    return replace(
        earlier, file=suite.source.name, cases={**earlier.cases, **parts}, digests={**digests, **earlier.digests}
    )


def held_out_in(suite: Suite, lock: SplitLock) -> tuple[str, ...]:
    """Return the cases of *suite* that are held out, also by what a newer *lock* says of them."""
    parts = {case.id: case.split or lock.cases.get(case.id) for case in suite.cases}
    return tuple(case for case, part in parts.items() if part == PARTS[1])


def with_confirm(lock: SplitLock, held_out: Collection[str]) -> tuple[SplitLock, int]:
    """Return *lock* with one more confirm step on the cases that are *held_out*, and the number of that step.

    As long as one case stays that earlier steps were on, neither new cases nor edits give a free look.
    """
    step = 1 + max((lock.confirms.get(case, 0) for case in held_out), default=0)
    return replace(lock, confirms={**lock.confirms, **dict.fromkeys(held_out, step)}), step
