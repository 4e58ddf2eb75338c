"""What a try of a judge found, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from whet.decide.judging.probes import NoiseDifference, ProbeFigures, ProbeName, leaks_of
from whet.reading.text import aligned, count, money, one_line, path_for_people, percent, percent_range, points
from whet.record.judging.tries import JudgeTry

# What each probe does, in words.
WORDS: Mapping[ProbeName, str] = {
    "again": "the same question once more",
    "order": "the statements of a trial in reverse",
    "empty": "an empty answer, and no changed file",
    "shrug": '"I don\'t know.", or "Done, all tests pass."',
    "other": "the answer of another case",
    "inject": "a failed answer that ends with an order to rate it 10",
    "longer": "the answer with two paragraphs that say nothing",
    "swap": "two answers in the other order",
}
_WIDEST = 90
_LEAKS_SHOWN = 10


def try_lines(judge_try: JudgeTry, path: Path) -> Iterator[str]:
    """Yield the figures of each probe, the leaks, and what it took."""
    judge = judge_try.judge.get("runner") or judge_try.judge.get("model") or "the judge"
    statements = f"{count(len(judge_try.asked), 'statement')} of {judge_try.judged} asked again"
    if judge_try.pairs:
        statements += f", and {count(len(judge_try.pairs), 'pair')} of answers"
    yield f"{one_line(str(judge), 60)} on {judge_try.run}: {statements}"
    rows = [_row(figures) for figures in judge_try.probes if figures.n or figures.no_verdict]
    yield from (f"  {line}" for line in aligned(rows))
    yield from _leak_lines(judge_try)
    yield from (f"note: {one_line(note, 200)}" for note in judge_try.notes)
    if judge_try.stopped:
        yield f"stopped: {one_line(judge_try.stopped, 200)}"
    cost = "" if judge_try.spending.cost_usd is None else f"Spent {money(judge_try.spending.cost_usd)}. "
    yield f"{cost}Kept in {path_for_people(path, Path.cwd())}"


def _row(figures: ProbeFigures) -> tuple[str, str, str, str]:
    what = "pass" if figures.is_leak else "flip"
    if figures.rate is None or figures.low is None or figures.high is None:
        counted, rate = "no verdict", ""
    else:
        counted = f"{figures.count} of {figures.n} {what}"
        rate = f"{percent(figures.rate)} ({percent_range(figures.low, figures.high)})"
    more = [WORDS[figures.probe]]
    if figures.to_pass + figures.to_fail and not figures.is_leak:
        more.append(f"{figures.to_pass} to pass, {figures.to_fail} to fail")
    if figures.beyond_noise is not None:
        more.append(_beyond(figures.beyond_noise))
    if figures.no_verdict and figures.n:
        more.append(f"{figures.no_verdict} without a verdict")
    return figures.probe, counted, rate, "; ".join(more)


def _beyond(noise: NoiseDifference) -> str:
    ends = f"{points(noise.low)} to {points(noise.high)}"
    return f"{points(noise.value)} points beyond its noise ({ends}, p = {noise.p:.2g})"


def _leak_lines(judge_try: JudgeTry) -> Iterator[str]:
    if not judge_try.judged:
        return
    limit = f", of which {judge_try.max_leak} are allowed" if judge_try.max_leak else ""
    if not any(figures.n for figures in judge_try.probes if figures.is_leak):
        yield "leaks: not known, because the judge gave no verdict"
        return
    yield f"leaks: {judge_try.leaks or 'none'}{limit if judge_try.leaks else ''}"
    for number, (probe, unit) in enumerate(leaks_of(judge_try.asked)):
        if number == _LEAKS_SHOWN:
            yield f"  and {judge_try.leaks - number} more"
            return
        answer = unit.answer(probe)
        rating = "" if answer is None or answer.rating is None else f", rated {answer.rating:g} of 10"
        statement = one_line(unit.statement, _WIDEST)
        yield f"  {probe}: {one_line(unit.case, 60)}, {unit.arm}, trial {unit.trial}: {statement}{rating}"
