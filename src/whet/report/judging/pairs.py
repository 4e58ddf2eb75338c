"""What a judge said of pairs of answers, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from whet.decide.gate import Answer, GateAnswer
from whet.model.comparison import Comparison, PairFigures, PairsVerdict
from whet.reading.text import count, money, one_line, path_for_people, percent, points
from whet.record.judging.tries import JudgePairs, read_pairs


def with_pairs(comparisons: Sequence[Comparison], run_dir: Path) -> tuple[Comparison, ...]:
    """Return *comparisons* of a run with what its judge said of pairs last, unless the run was looked at since then."""
    found = next(read_pairs(run_dir), None)
    figures = found.figures if found else ()
    return tuple(
        replace(comparison, pairs=next((entry for entry in figures if _is_of(entry, comparison)), None))
        for comparison in comparisons
    )


def _is_of(figures: PairFigures, comparison: Comparison) -> bool:
    same_arms = (figures.candidate, figures.baseline) == (comparison.candidate, comparison.baseline)
    return same_arms and comparison.runner in (None, figures.runner) and figures.looks == comparison.looks


def gate_pairs(comparison: Comparison) -> GateAnswer:
    """Return whether a judge found the candidate's answers better."""
    figures = comparison.pairs
    names = f"pairwise: {comparison.candidate} against {comparison.baseline}"
    if figures is None:
        return GateAnswer(answer="unknown", reason=f"{names}: no judge was asked at this look", about="pairs")
    words: dict[PairsVerdict, Answer] = {"better": "pass", "worse": "fail"}
    answer = words.get(figures.verdict, "unknown")
    return GateAnswer(answer=answer, reason=f"{names}: {pairs_text(figures)}", about="pairs")


def pairs_lines(found: JudgePairs, path: Path) -> Iterator[str]:
    """Yield the figures of each comparison, and what it took."""
    judge = one_line(str(found.judge.get("model") or "the judge"), 60)
    yield f"{judge} on {found.run}: {count(len(found.pairs), 'pair')} of {found.planned}, each in both orders"
    yield from (f"  {pairs_line(figures)}" for figures in found.figures)
    problem = next((pair.problem for pair in found.pairs if pair.problem), None)
    if problem is not None:
        yield f"note: pairs are left out: {one_line(problem, 200)}"
    yield from (f"note: {one_line(note, 200)}" for note in found.notes)
    if found.stopped:
        yield f"stopped: {one_line(found.stopped, 200)}"
    cost = "" if found.spending.cost_usd is None else f"Spent {money(found.spending.cost_usd)}. "
    yield f"{cost}Kept in {path_for_people(path, Path.cwd())}"


def pairs_line(figures: PairFigures) -> str:
    """Return what the pairs of two arms say, on one line."""
    names = f"{figures.candidate} against {figures.baseline} on {figures.runner}"
    return f"pairwise: {names}: {pairs_text(figures)}"


def pairs_text(figures: PairFigures) -> str:
    """Return the verdict and the figures behind it."""
    parts = [f"{count(figures.wins, 'win')}, {count(figures.losses, 'loss', 'losses')}, {count(figures.ties, 'tie')}"]
    if figures.difference is not None:
        ends = f"{points(figures.difference.low)} to {points(figures.difference.high)}"
        parts.append(f"{points(figures.difference.value)} ({ends})")
    if figures.pairs:
        parts.append(f"{percent(figures.depend_on_order / figures.pairs)} depend on the order")
    if figures.left_out:
        parts.append(f"{figures.left_out} left out")
    return f"{figures.verdict}: {'; '.join(parts)}; {figures.reason}"
