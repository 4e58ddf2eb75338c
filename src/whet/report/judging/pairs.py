"""What a judge said of pairs of answers, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.decide.comparison import analyses_of
from whet.decide.gate import Answer, GateAnswer
from whet.model.comparison import Comparison, PairFigures, PairsVerdict
from whet.reading.text import count, money, one_line, path_for_people, percent, points
from whet.record.batches import RecordedBatch
from whet.record.judging.tries import JudgePairs, pairs_at
from whet.record.read.run import RecordedRun

NOT_ASKED = "no judge was asked at this look"


def gate_all_pairs(comparisons: Sequence[Comparison], run: RecordedRun | None) -> Iterator[GateAnswer]:
    """Yield whether a judge found each candidate better than its baseline, and than stored answers of *run*."""
    references = [] if run is None else _reference_figures(run)
    for comparison in comparisons:
        beside = [
            figures
            for figures in references
            if figures.candidate == comparison.candidate and comparison.runner in (None, figures.runner)
        ]
        if comparison.pairs is not None or not beside:
            yield _gate_pairs(comparison)
        yield from map(gate_figures, beside)


def gate_references(run: RecordedRun | RecordedBatch) -> tuple[GateAnswer, ...]:
    """Return whether a judge found the answers of each arm better than stored ones; not known if it was not asked."""
    figures = _reference_figures(run) if isinstance(run, RecordedRun) else []
    return tuple(map(gate_figures, figures)) or (
        _about_pairs("unknown", f"pairwise: {NOT_ASKED} about stored answers"),
    )


def _reference_figures(run: RecordedRun) -> list[PairFigures]:
    looks, _ = analyses_of(run.samples())
    return [figures for figures in pairs_at(run.run_dir, looks) if figures.reference]


def _gate_pairs(comparison: Comparison) -> GateAnswer:
    """Return whether a judge found the candidate's answers better."""
    if comparison.pairs is None:
        return _about_pairs("unknown", f"pairwise: {comparison.candidate} against {comparison.baseline}: {NOT_ASKED}")
    return gate_figures(comparison.pairs)


def gate_figures(figures: PairFigures) -> GateAnswer:
    """Return whether a judge found the answers of a candidate better than what they were compared with."""
    words: dict[PairsVerdict, Answer] = {"better": "pass", "worse": "fail"}
    answer = words.get(figures.verdict, "unknown")
    return _about_pairs(answer, f"pairwise: {_names(figures)}: {pairs_text(figures)}")


def _about_pairs(answer: Answer, reason: str) -> GateAnswer:
    return GateAnswer(answer=answer, reason=reason, about="pairs")


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
    """Return what the pairs of two arms say, or those of an arm and of stored answers, on one line."""
    return f"pairwise: {_names(figures)} on {figures.runner}: {pairs_text(figures)}"


def _names(figures: PairFigures) -> str:
    beside = "its stored answers" if figures.reference else figures.baseline
    return f"{figures.candidate} against {beside}"


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
