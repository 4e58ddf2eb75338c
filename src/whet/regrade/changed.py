"""What a regrading changed, for a person to read: each verdict that is another one now, and the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from whet.model.grade import STATUSES
from whet.model.run import TrialResult
from whet.report.text import one_line

_WIDEST = 100


def describe_changes(run_id: str, seen: Iterable[tuple[TrialResult, TrialResult]]) -> list[str]:
    """A line of totals, a line for each verdict that changed, and the counts before and after."""
    pairs = sorted(seen, key=lambda pair: str(pair[0].key))
    changed = [(old, new) for old, new in pairs if old.status != new.status]
    trials = "verdict" if len(pairs) == 1 else "verdicts"
    lines = ["", f"regraded {run_id}: {len(changed) or 'none'} of {len(pairs)} {trials} changed"]
    if changed:
        lines += ["", *_table(changed)]
    before, after = (_counts(pair[side].status for pair in pairs) for side in (0, 1))
    return [*lines, "", f"  before  {before}", f"  after   {after}"]


def _table(changed: list[tuple[TrialResult, TrialResult]]) -> list[str]:
    names = [_name(new) for _, new in changed]
    moves = [f"{old.status} -> {new.status}" for old, new in changed]
    name_width, move_width = max(map(len, names)), max(map(len, moves))
    return [
        f"  {name.ljust(name_width)}  {move.ljust(move_width)}  {_reason(new)}".rstrip()
        for name, move, (_, new) in zip(names, moves, changed, strict=True)
    ]


def _name(result: TrialResult) -> str:
    key = result.key
    variant = "" if key.variant == "default" else f"/{key.variant}"
    return f"{key.case} @ {key.runner}{variant} #{key.number}"


def _reason(result: TrialResult) -> str:
    return one_line(result.failure.message, _WIDEST) if result.failure else ""


def _counts(statuses: Iterable[str]) -> str:
    found = Counter(statuses)
    return ", ".join(f"{found[status]} {status}" for status in STATUSES if found[status])
