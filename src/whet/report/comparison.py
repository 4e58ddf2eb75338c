"""Say what a comparison found: in words for people, and as the document `whet/comparison/1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import to_builtins

from whet.model.benchmark import Interval
from whet.model.comparison import Amount, AmountChange, CaseChange, Comparison, Decision
from whet.reading.text import count, duration, money, number, percent

SCHEMA = "whet/comparison/1"
_CASES_SHOWN = 10
_TITLES: dict[Amount, str] = {"cost_usd": "cost", "seconds": "time", "tokens": "tokens", "steps": "steps"}


def points(value: float, *, sign: bool = True) -> str:
    """Return a share as percentage points."""
    rounded = round(100 * value, 1) + 0.0
    return f"{rounded:+.3g}" if sign else f"{rounded:.3g}"


def sentence(found: Comparison) -> str:
    """Return the decision in one sentence, with its interval."""
    level = f"{100 * found.level:.3g} % interval"
    moved = f"{points(found.difference)} points ({level} {points(found.low)} to {points(found.high)})"
    return f"{_decided(found)}{f' on {found.runner}' if found.runner else ''}: {moved}"


def _decided(found: Comparison) -> str:
    margin = points(found.margin, sign=False)
    words: dict[Decision, str] = {
        "better": f"{found.candidate} is better than {found.baseline}",
        "not-worse": f"{found.candidate} is not worse than {found.baseline} by {margin} points or more",
        "worse": f"{found.candidate} is worse than {found.baseline}",
        "inconclusive": f"not known yet whether {found.candidate} is better or worse than {found.baseline}",
    }
    return words[found.verdict]


def comparison_lines(found: Comparison) -> Iterator[str]:
    """Yield all that a comparison says, the decision first."""
    yield f"{found.candidate} against {found.baseline}" + (f", on {found.runner}" if found.runner else "")
    yield f"  decision    {sentence(found)}"
    yield f"  rates       {_rate(found.baseline, found.baseline_rate)}; {_rate(found.candidate, found.candidate_rate)}"
    yield f"  like these  {_like_these(found)}"
    for label, text in (("cases", line) for line in _case_lines(found.cases)):
        yield f"  {label:10}  {text}" if not text.startswith(" ") else f"              {text.strip()}"
    for change in found.amounts:
        yield f"  {_TITLES[change.amount]:10}  {_amount(change, found)}"
    yield f"  errored     {_errored(found)}"
    yield f"  looks       {_looks(found)}"
    yield from (f"  note        {note}" for note in found.notes)


def _rate(name: str, rate: Interval) -> str:
    return f"{name} {percent(rate.value)} ({points(rate.low, sign=False)} to {percent(rate.high)})"


def _like_these(found: Comparison) -> str:
    if found.like_these is None:
        return "one case says nothing about other cases"
    low, high = found.like_these.low, found.like_these.high
    known = "holds" if low > 0 or high < 0 else "not known"
    return f"{points(low)} to {points(high)} points on other cases like these: {known}; only more cases narrow this"


def _case_lines(cases: Sequence[CaseChange]) -> Iterator[str]:
    alone = [case for case in cases if case.baseline is None or case.candidate is None]
    better = sum(case.value > 0 for case in cases)
    worse = sum(case.value < 0 for case in cases)
    sure = sum(not case.may_be_chance for case in cases if case.value)
    same = len(cases) - better - worse - len(alone)
    rest = f"; {len(alone)} without a value in both arms" if alone else ""
    chance = "each may be chance" if not sure else f"{sure} of them not by chance"
    yield f"{better} better, {worse} worse, {same} the same" + (f"; {chance}" if better + worse else "") + rest
    moved = sorted((case for case in cases if case.value), key=lambda case: (case.may_be_chance, -abs(case.value)))
    for case in moved[:_CASES_SHOWN]:
        mark = ", may be chance" if case.may_be_chance else ""
        yield f"  {case.case}: {_share(case.baseline)} to {_share(case.candidate)}{mark}"
    if len(moved) > _CASES_SHOWN:
        yield f"  and {count(len(moved) - _CASES_SHOWN, 'more case')}"


def _share(value: float | None) -> str:
    return "nothing" if value is None else percent(value)


def _amount(change: AmountChange, found: Comparison) -> str:
    unit = {"cost_usd": money, "seconds": duration, "tokens": number}.get(change.amount, _tenths)
    both = f"{found.baseline} {unit(change.baseline)}, {found.candidate} {unit(change.candidate)} per trial"
    if change.ratio is None:
        return both
    ratio = change.ratio
    return f"{both}: {ratio.value:.2f} times as much ({ratio.low:.2f} to {ratio.high:.2f})"


def _tenths(value: float) -> str:
    return f"{value:,.1f}"


def _errored(found: Comparison) -> str:
    errored = found.errored
    if not errored.baseline + errored.candidate:
        return "none"
    holds = (
        "leaving them out would say otherwise, so they count both ways"
        if errored.decisive
        else "the decision is the same if they all failed or all passed"
    )
    counts = f"{errored.baseline} in {found.baseline}, {errored.candidate} in {found.candidate}"
    contaminated = f"; {found.contaminated} contaminated" if found.contaminated else ""
    return f"{counts}{contaminated}; {holds}"


def _looks(found: Comparison) -> str:
    mixed = "interleaved" if found.interleaved else "not interleaved: the arms ran at different times"
    return f"looked at {'once' if found.looks == 1 else f'{found.looks} times'}, {mixed}"


def comparison_document(found: Comparison) -> dict[str, Any]:
    """Return one comparison as JSON; shares are from -1 to 1."""
    return {"schema": SCHEMA, **to_builtins(found)}


def comparisons_document(found: Sequence[Comparison]) -> dict[str, Any]:
    """Return one comparison, or several under `comparisons`."""
    if len(found) == 1:
        return comparison_document(found[0])
    return {"schema": SCHEMA, "comparisons": [comparison_document(each) for each in found]}
