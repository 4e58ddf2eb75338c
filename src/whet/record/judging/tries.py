"""What a judge said when it was asked about a run once more: one file for each time in the folder `judge` of the run.

`whet judge try` and `whet judge pairs` ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field, structs

from whet.decide.judging.pairs import JudgedPair
from whet.decide.judging.probes import ProbeFigures, TriedPair, TriedUnit, leaks_of
from whet.errors import StoreError
from whet.model import codec
from whet.model.comparison import PairFigures
from whet.reading.files import read_file
from whet.record.folder import PRIVATE, write_atomically, writing

FOLDER = "judge"
# What stored answers are called in the place of a baseline.
REFERENCE = "reference"
_ENDING = ".json"
# A page shows a run that may be anybody's.
_LARGEST = 16 * 1024 * 1024
_MOST = 50


class TrySpending(Struct, frozen=True, kw_only=True):
    """What asking took: dollars as far as they are known, and how many costs are not."""

    cost_usd: float | None = None
    unknown: int = 0


class JudgeTry(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/judge-try/1"):
    """What a judge said when it was asked again about a sample of a run; `judge` are the facts that it is known by.

    `units` is how many statements the sample has, and `asked` those that the judge was asked about, of `judged` ones in
    the run. `leaks` is how many leak probes passed, of which `max_leak` are allowed.
    """

    id: str
    at: str
    run: str
    suite: str
    whet_version: str
    seed: str
    judge: Mapping[str, Any] = field(default_factory=dict)
    judged: int
    units: int
    probes: tuple[ProbeFigures, ...]
    leaks: int
    max_leak: int
    exit_code: int
    spending: TrySpending = TrySpending()
    notes: tuple[str, ...] = ()
    # Why not all of the sample was asked.
    stopped: str | None = None
    asked: tuple[TriedUnit, ...] = ()
    # The pairs of answers that were asked about again, if the judge compared some.
    pairs: tuple[TriedPair, ...] = ()


class JudgePairs(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/judge-pairs/1"):
    """What a judge said of pairs of answers, and what that says of each comparison; `pairs` of `planned` were asked."""

    id: str
    at: str
    run: str
    suite: str
    whet_version: str
    seed: str
    judge: Mapping[str, Any] = field(default_factory=dict)
    judge_id: str = ""
    # None if it is what the cases say, or else the usual one.
    question: str | None = None
    planned: int
    figures: tuple[PairFigures, ...]
    exit_code: int
    spending: TrySpending = TrySpending()
    notes: tuple[str, ...] = ()
    stopped: str | None = None
    pairs: tuple[JudgedPair, ...] = ()


Finding = TypeVar("Finding", JudgeTry, JudgePairs)
_PREFIXES: Mapping[type[JudgeTry | JudgePairs], str] = {JudgeTry: "try-", JudgePairs: "pairs-"}


def place_of(run_dir: Path, name: str, kind: type[JudgeTry | JudgePairs] = JudgeTry) -> Path:
    """Return the file of the try *name*, or of another *kind* of what was asked."""
    return run_dir / FOLDER / f"{_PREFIXES[kind]}{name}{_ENDING}"


def keep(run_dir: Path, finding: JudgeTry | JudgePairs, mask: Callable[[str], str] = str) -> Path:
    """Write what was found into the folder of the run, without the secrets that *mask* takes out; return the file."""
    path = place_of(run_dir, finding.id, type(finding))
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, mask(codec.encode_pretty(finding).decode()).encode(), mode=PRIVATE)
    return path


def with_leaks_only(judge_try: JudgeTry) -> JudgeTry:
    """Return *judge_try* as pages show it: of what was asked, only the first units with a leak."""
    leaks = list(dict.fromkeys(unit for _, unit in leaks_of(judge_try.asked)))
    return structs.replace(judge_try, asked=tuple(leaks[:_MOST]), pairs=())


def read_tries(run_dir: Path) -> Iterator[JudgeTry]:
    """Yield the tries of a run, the newest first."""
    return _read(run_dir, JudgeTry)


def read_pairs(run_dir: Path) -> Iterator[JudgePairs]:
    """Yield what a judge said of pairs of a run, the newest first."""
    return _read(run_dir, JudgePairs)


def pairs_at(run_dir: Path, looks: int) -> tuple[PairFigures, ...]:
    """Return what a judge said last of the pairs of a run, unless that was at another look than this one."""
    newest = next(read_pairs(run_dir), None)
    return tuple(figures for figures in newest.figures if figures.looks == looks) if newest else ()


def _read(run_dir: Path, kind: type[Finding]) -> Iterator[Finding]:
    """Yield what is there of *kind*; passes over what is none, because a run may be anybody's."""
    try:
        names = sorted((run_dir / FOLDER).glob(f"{_PREFIXES[kind]}*{_ENDING}"), reverse=True)
    except OSError:
        return
    for path in names[:_MOST]:
        try:
            if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
                continue
            yield codec.decode(read_file(path), kind)
        except (OSError, StoreError, codec.WireError):
            continue
