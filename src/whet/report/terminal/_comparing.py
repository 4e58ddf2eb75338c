"""What a run that compares arms says at its end: lifts, and the decision. Most runs compare nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.decide.comparison import lift_line
from whet.decide.gate import gate_comparison
from whet.errors import WhetError
from whet.model.comparison import Comparison, PairFigures
from whet.model.grade import Lift
from whet.model.run import RunInfo
from whet.reading.text import left, one_line
from whet.record.contents.differences import ContentDifference, differences_of_arms
from whet.record.run_file import read_run_file
from whet.report.decisions.case_table import case_table
from whet.report.decisions.words import ANSWER_STYLES, differing_lines, rates_text, sentence, taken_lines
from whet.report.digest import Digest, run_argument
from whet.report.judging.pairs import gate_figures, pairs_line
from whet.report.screen import Screen, Style


def arm_lines(digest: Digest, info: RunInfo, screen: Screen) -> Iterator[str]:
    """Yield the arms side by side: a table of cases, both rates, what a trial takes, and what differs."""
    for (runner, _), comparisons in _by_baseline(digest.comparisons).items():
        yield ""
        where = f" on {one_line(runner, 80)}" if runner else ""
        yield screen.paint(f"Arms{where}", "bold")
        yield from case_table(comparisons, digest.reasons.get(runner or "", {}), screen)
        for comparison in comparisons:
            if len(comparisons) > 1:
                # Intervals of one baseline differ, because candidates that share an error have wider ones.
                pair = f"{one_line(comparison.candidate, 40)} against {one_line(comparison.baseline, 40)}"
                yield f"  {screen.paint(screen.fit(pair), 'bold')}"
            label = "mean score" if comparison.scored else "rates"
            yield f"  {screen.paint(left(label, 10), 'dim')}  {screen.fit(rates_text(comparison))}"
            yield from map(screen.fit, taken_lines(comparison))
            yield from differing_lines(_differences(comparison, info), screen)


def _by_baseline(comparisons: Sequence[Comparison]) -> dict[tuple[str | None, str], list[Comparison]]:
    """Return *comparisons* by their runner and baseline: those of one stand in one table."""
    groups: dict[tuple[str | None, str], list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault((comparison.runner, comparison.baseline), []).append(comparison)
    return groups


def _differences(comparison: Comparison, info: RunInfo) -> tuple[ContentDifference, ...]:
    """Return what differs between two arms; nothing if the record does not say it."""
    try:
        run_file = read_run_file(info.run_dir)
        return differences_of_arms(info.run_dir, run_file, comparison.baseline, comparison.candidate)
    except (WhetError, OSError):
        return ()


def lift_lines(lifts: Sequence[Lift], screen: Screen) -> Iterator[str]:
    """Yield what the skill adds on each runner."""
    yield ""
    yield screen.paint("Lift: what the skill adds to the score", "bold")
    for lift in lifts:
        yield f"  {screen.fit(one_line(lift.runner, 80))}  {screen.paint(screen.fit(lift_line(lift)), _style(lift))}"


def _style(lift: Lift) -> Style:
    if lift.value > 0:
        return "good"
    return "bad" if lift.value < 0 else "dim"


def decision_lines(digest: Digest, info: RunInfo, screen: Screen, cwd: Path) -> Iterator[str]:
    """Yield what the run decides about its arms."""
    yield ""
    yield screen.paint("Decision", "bold")
    for comparison in digest.comparisons:
        yield f"  {screen.paint(screen.fit(sentence(comparison)), ANSWER_STYLES[gate_comparison(comparison)])}"
    if digest.stopped:
        yield f"  {digest.stopped}"
    run = run_argument(info, cwd)
    yield screen.paint(f"  whet compare{run} says more, and whet gate{run} decides", "dim")


def pairwise_lines(pairwise: Sequence[PairFigures], screen: Screen) -> Iterator[str]:
    """Yield which of two answers a judge found better, which no rate above counts."""
    yield ""
    yield screen.paint("Answers in pairs", "bold")
    for figures in pairwise:
        answer = gate_figures(figures).answer
        yield f"  {screen.paint(screen.fit(pairs_line(figures)), ANSWER_STYLES[answer])}"
