"""Say in words what a comparison found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import floor

from whet.decide.comparison import comparisons_in, lifts_of, missing_of
from whet.decide.gate import Answer, gate_comparison
from whet.model.callable import Interval
from whet.model.comparison import Amount, AmountChange, CaseChange, Comparison, Decision, Judging, Stop, notes_on
from whet.model.grade import Lift
from whet.model.run import RunInfo
from whet.model.run_events import Looked, Results
from whet.reading.text import count, duration, money, number, percent, percent_range, points
from whet.record.contents.differences import ContentDifference, changed_lines, difference_line
from whet.report.decisions._aims import decided_aim, hardly_reached, ratio_in_words, ratio_so_far
from whet.report.decisions.case_table import Reasons, case_table
from whet.report.judging.checked import checked_in_folder
from whet.report.judging.pairs import pairs_text
from whet.report.judging.words import judge_line
from whet.report.screen import Screen, Style

_CASES_SHOWN = 10
_CHANGE_STYLES: dict[str, Style] = {"+": "good", "-": "bad"}
# The width of a label, with the blanks around it.
_LABEL = 14
ANSWER_STYLES: dict[Answer, Style] = {"pass": "good", "fail": "bad", "unknown": "warn"}
# With fewer cases, a headline says on how many it is.
_FEW_CASES = 5
_NEARLY_ALWAYS = 0.995
_CHECKED_ALIKE = "the decision is the same without them, and if all of them failed or all passed"
_USUAL_LEVEL = 0.95
_SURER = "; the interval is wider than one of 95 %, because several looks, candidates or runners share one error"
_NOTHING = "no case has a trial in both arms that did not error"
# The table at the end of a run counts what grading takes too.
_PER: dict[Amount, str] = {"seconds": "per session, without its checks"}
_TITLES: dict[Amount, str] = {"cost_usd": "cost", "seconds": "time", "tokens": "tokens", "steps": "steps"}


def sentence(comparison: Comparison, *, is_summary: bool = False) -> str:
    """Return the decision in one sentence, with its interval, and what it takes for granted of a judge.

    A summary has trials that count, and tells no cases.
    """
    judge = f"; {_reliance(comparison.judging, comparison)}" if comparison.judging else ""
    return f"{_headline(comparison, is_summary=is_summary)}{_on_practice(comparison)}{judge}"


def _on_practice(comparison: Comparison) -> str:
    """Return that a decision is on cases which the candidate may have been made for, if it is."""
    practice, total = comparison.splits.get("practice", 0), sum(comparison.splits.values())
    if not practice:
        return ""
    return "; these are practice cases" if practice == total else f"; {practice} of {total} cases are practice"


def _headline(comparison: Comparison, *, is_summary: bool = False) -> str:
    level = f"{100 * comparison.level:.3g} % interval"
    interval = f"({level} {points(comparison.low)} to {points(comparison.high)})"
    is_known = comparison.trials > 0 if is_summary else counts(comparison)
    movement = (
        f"{points(comparison.difference)} points{_few(comparison)} {interval}" if is_known else f"{_NOTHING} {interval}"
    )
    saving = f"{ratio_in_words(comparison.aim, level)}; " if comparison.aim else ""
    return f"{_decision_text(comparison)}{f' on {comparison.runner}' if comparison.runner else ''}: {saving}{movement}"


def _few(comparison: Comparison) -> str:
    """Return on how many cases a decision is, if they are so few that others may well go otherwise."""
    shared_cases = sum(case.baseline is not None and case.candidate is not None for case in comparison.cases)
    if not 0 < shared_cases < _FEW_CASES:
        return ""
    return " on this 1 case" if shared_cases == 1 else f" on these {shared_cases} cases"


def meaning(comparison: Comparison) -> str:
    """Return what a decision means, in a sentence for people who know no intervals."""
    low, high, movement = (
        points(abs(value), sign=False) for value in (comparison.low, comparison.high, comparison.difference)
    )
    share = _score if comparison.scored else percent
    rates = f"{share(comparison.baseline_rate.value)} to {share(comparison.candidate_rate.value)}"
    sure = f"sure in {_in_words(comparison.level)} runs"
    if comparison.low > 0 or comparison.high < 0:
        is_gain = comparison.low > 0
        if comparison.scored:
            verb = f"scores {movement} points {'higher' if is_gain else 'lower'}"
        else:
            verb = f"passes {movement} points {'more' if is_gain else 'less'} often"
        ends = f"{low} and {high}" if is_gain else f"{high} and {low}"
        where = f"on these cases the true {'gain' if is_gain else 'loss'} is between {ends}, {sure}"
        return f"{comparison.candidate} {verb} ({rates}); {where}"
    if movement == "0":
        looks = "looks alike"
    else:
        looks = f"looks {movement} {'better' if comparison.difference > 0 else 'worse'}"
    return f"{looks} ({rates}), but anything from {low} worse to {high} better fits, {sure}"


def _in_words(level: float) -> str:
    """Return a level as "19 of 20", or "99 of 100"."""
    if round(level, 2) == _USUAL_LEVEL:
        of = 20
    elif level < _NEARLY_ALWAYS:
        of = 100
    else:
        of = 1000
    return f"{floor(of * level + 0.001):,} of {of:,}"


def counts(comparison: Comparison) -> bool:
    """Return whether some case has a trial in both arms that did not error."""
    return any(case.baseline is not None and case.candidate is not None for case in comparison.cases)


def analysis_line(event: Looked) -> str:
    """Return what was seen after a round: intervals, the chance to decide, and the money so far."""
    look, until = event.look, event.until
    runners = {estimate.runner for estimate in look.seen}
    estimates = "; ".join(
        f"{estimate.candidate}{f' on {estimate.runner}' if len(runners) > 1 else ''} "
        f"{points(estimate.difference)} points "
        f"({points(estimate.low)} to {points(estimate.high)}){ratio_so_far(estimate.ratio)}"
        for estimate in look.seen
    )
    open_ones = [estimate.chance for estimate in look.seen if estimate.is_open]
    effect = points(until.effect, sign=False)
    real = f"if {effect} points are real" if until.goal is None else f"if it is as good and takes {effect} % less"
    ahead = f"{percent(min(open_ones))} chance to decide by the end {real}" if open_ones else "decided"
    outlook = {"hopeless": "gives up", "rounds": "that was the last one"}.get(look.stop or "", ahead)
    cost = "" if event.cost_usd is None else f", {money(event.cost_usd)} spent"
    # What may be cut off on a narrow screen comes last.
    return f"round {look.round} of {until.rounds}{cost}: {estimates}: {outlook}"


def read_decisions(results: Results, info: RunInfo) -> tuple[tuple[Lift, ...], tuple[Comparison, ...], str]:
    """Return the lifts and the comparisons of a run, with what people say of its judge, and why it ended."""
    comparisons = checked_in_folder(comparisons_in(results), info.run_dir, info.suite_path)
    return lifts_of(results), comparisons, why_stopped(results)


def why_stopped(results: Results) -> str:
    """Return why a run until decided ended, in a sentence; of other runs only that they did not end."""
    until = results.plan.until
    if until is None:
        return next(notes_on(voided=(), missing=missing_of(results)), "")
    hardly = (
        f"a difference of {points(until.effect, sign=False)} points would probably not show by the end; "
        "this does not mean that the arms are alike"
    )
    words: dict[Stop | None, str] = {
        "decided": "it is decided",
        "hopeless": hardly if until.goal is None else hardly_reached(until.goal),
        "rounds": "that was the last round",
        "money": "the money is spent; --resume with a larger --max-cost continues",
        None: "it did not end",
    }
    looks = results.looks
    where = f"after round {looks[-1].round} of {until.rounds}" if looks else "before its first look"
    return f"stopped {where}: {words[results.stopped]}"


def _decision_text(comparison: Comparison) -> str:
    margin = points(comparison.margin, sign=False)
    if comparison.aim is not None:
        return decided_aim(comparison.aim, comparison, margin)
    if comparison.verdict == "not-worse" and comparison.high < 0:
        worse = f"{comparison.candidate} is worse than {comparison.baseline}"
        return f"{worse}, but by less than the {margin} points that you allow"
    words: dict[Decision, str] = {
        "better": f"{comparison.candidate} is better than {comparison.baseline}",
        "not-worse": f"{comparison.candidate} is not worse than {comparison.baseline} by {margin} points or more",
        "worse": f"{comparison.candidate} is worse than {comparison.baseline}",
        "inconclusive": f"not known yet whether {comparison.candidate} is better or worse than {comparison.baseline}",
    }
    return words[comparison.verdict]


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Yield all that a comparison says, the decision first."""
    yield f"{comparison.candidate} against {comparison.baseline}" + (
        f", on {comparison.runner}" if comparison.runner else ""
    )
    yield f"  decision    {_headline(comparison)}"
    if counts(comparison):
        yield f"  means       {meaning(comparison)}"
    share = _score if comparison.scored else percent
    yield f"  {'mean score' if comparison.scored else 'rates':10}  {rates_text(comparison)}"
    yield f"  like these  {_like_these(comparison)}"
    together = comparison.low > 0 or comparison.high < 0
    for label, text in (("cases", line) for line in _case_lines(comparison.cases, share, together=together)):
        yield f"  {label:10}  {text}" if not text.startswith(" ") else f"              {text.strip()}"
    if comparison.loads:
        yield f"  loads       {'; '.join(f'{loads.arm} {loads.text}' for loads in comparison.loads)}"
    yield from taken_lines(comparison)
    yield f"  errored     {_errors_text(comparison)}"
    if comparison.judging:
        yield f"  judge       {_judge(comparison.judging, comparison)}"
    if comparison.pairs:
        yield f"  pairwise    {pairs_text(comparison.pairs)}"
    if comparison.stretch > 1:
        yield f"  rounds      {_rounds(comparison)}"
    yield f"  looks       {_looks(comparison)}"
    yield from (f"  note        {note}" for note in comparison.notes)


def painted_lines(comparison: Comparison, reasons: Reasons, screen: Screen) -> Iterator[str]:
    """Yield all that a comparison says, its cases as a table, and its decision in the colour of the verdict."""
    heading, *lines = comparison_lines(comparison)
    yield screen.paint(heading, "bold")
    for line in lines:
        label, text = line[:_LABEL], line[_LABEL:]
        if not label.strip():
            # The table has each case.
            continue
        style: Style | None = None
        if label.strip() == "decision":
            style = ANSWER_STYLES[gate_comparison(comparison)]
        elif label.strip() == "note":
            style = "warn"
        yield f"{screen.paint(label, 'dim')}{screen.paint(text, style)}"
        if label.strip() == "cases":
            yield from case_table([comparison], reasons, screen)


def rates_text(comparison: Comparison) -> str:
    """Return the rates or mean scores of both arms, with their intervals."""
    rates = (
        (comparison.baseline, comparison.baseline_rate, sum(case.baseline_trials for case in comparison.cases)),
        (comparison.candidate, comparison.candidate_rate, sum(case.candidate_trials for case in comparison.cases)),
    )
    return "; ".join(
        _rate(name, rate, is_score=comparison.scored) if trials else f"{name} not known" for name, rate, trials in rates
    )


def rate_words(rate: Interval, least: float) -> str:
    """Return the share of trials that pass, and what is asked for."""
    text = f"{percent(rate.value)} of trials pass ({percent_range(rate.low, rate.high)} on these cases)"
    return f"{text}, and {percent(least)} is asked for"


def score_words(rate: Interval, least: float) -> str:
    """Return a mean score, and what is asked for."""
    text = f"the mean score is {rate.value:.2f} ({rate.low:.2f} to {rate.high:.2f} on these cases)"
    return f"{text}, and {least:g} is asked for"


def taken_lines(comparison: Comparison) -> Iterator[str]:
    """Yield what a trial takes in both arms: its cost, the time of its session, tokens, steps."""
    for change in comparison.amounts:
        yield f"  {_TITLES[change.amount]:10}  {_amount(change, comparison)}"


def _rate(name: str, rate: Interval, *, is_score: bool) -> str:
    if is_score:
        return f"{name} {_score(rate.value)} ({_score(rate.low)} to {_score(rate.high)})"
    return f"{name} {percent(rate.value)} ({percent_range(rate.low, rate.high)})"


def _like_these(comparison: Comparison) -> str:
    if comparison.like_these is None:
        if not counts(comparison):
            return _NOTHING
        return "one case says nothing about other cases"
    low, high = comparison.like_these.low, comparison.like_these.high
    status = "holds" if low > 0 or high < 0 else "not known"
    return f"{points(low)} to {points(high)} points on other cases like these: {status}; more cases narrow this most"


def _score(value: float) -> str:
    return f"{value:.2f}"


def _case_lines(cases: Sequence[CaseChange], share: Callable[[float], str], *, together: bool) -> Iterator[str]:
    alone = [case for case in cases if case.baseline is None or case.candidate is None]
    better = sum(case.value > 0 for case in cases)
    worse = sum(case.value < 0 for case in cases)
    sure = sum(not case.may_be_chance for case in cases if case.value)
    unchanged_count = len(cases) - better - worse - len(alone)
    remainder = f"; {len(alone)} without a value in both arms" if alone else ""
    alone_or_not = "; together they are" if together else ""
    chance = f"no single case is certain by itself{alone_or_not}" if not sure else f"{sure} of them not by chance"
    yield (
        f"{better} better, {worse} worse, {unchanged_count} the same"
        + (f"; {chance}" if better + worse else "")
        + remainder
    )
    moved_cases = sorted(
        (case for case in cases if case.value), key=lambda case: (case.may_be_chance, -abs(case.value))
    )
    for case in moved_cases[:_CASES_SHOWN]:
        mark = ", may be chance" if case.may_be_chance else ""
        yield f"  {case.case}: {share(case.baseline or 0.0)} to {share(case.candidate or 0.0)}{mark}"
    if len(moved_cases) > _CASES_SHOWN:
        yield f"  and {count(len(moved_cases) - _CASES_SHOWN, 'more case')}"


def _amount(change: AmountChange, comparison: Comparison) -> str:
    unit = {"cost_usd": money, "seconds": duration, "tokens": number}.get(change.amount, _tenths)
    per = _PER.get(change.amount, "per trial")
    amounts = f"{comparison.baseline} {unit(change.baseline)}, {comparison.candidate} {unit(change.candidate)} {per}"
    if change.ratio is None:
        return amounts
    ratio = change.ratio
    level = f"{100 * comparison.level:.3g} % interval"
    return f"{amounts}: {ratio.value:.2f} times as much ({level} {ratio.low:.2f} to {ratio.high:.2f})"


def _tenths(value: float) -> str:
    return f"{value:,.1f}"


def _errors_text(comparison: Comparison) -> str:
    errors = comparison.errored
    if not errors.baseline + errors.candidate:
        return "none"
    if not counts(comparison):
        holds = "nothing counts without them"
    elif errors.decisive:
        holds = "leaving them out would say otherwise, so they count both ways"
    elif errors.blameless == errors.baseline + errors.candidate:
        holds = _CHECKED_ALIKE
    else:
        holds = f"{_CHECKED_ALIKE}, or failed in one arm only"
    how_many = f"{errors.baseline} in {comparison.baseline}, {errors.candidate} in {comparison.candidate}"
    contamination = f"; {comparison.contaminated} contaminated" if comparison.contaminated else ""
    blameless = f"; {errors.blameless} beyond suspicion: the provider or the machine" if errors.blameless else ""
    return f"{how_many}{contamination}{blameless}; {holds}"


def _judge(judging: Judging, comparison: Comparison) -> str:
    """Return what a judge has to do with a decision: what was judged, and how wrong it may be."""
    verdicts = f"{count(judging.verdicts, 'verdict')} on {count(judging.answers, 'answer')}"
    return f"{verdicts}; {judge_line(judging, comparison)}; {_reliance(judging, comparison)}"


def _reliance(judging: Judging, comparison: Comparison) -> str:
    """Return how wrong a judge may be for a decision to hold."""
    # Somebody may write 0.5: a rounded 0 % would say that the judge is never wrong.
    wrong = f"wrong about {100 * judging.error:.3g} % of answers"
    if judging.assumed:
        allowance = f"assumes that the judge is {wrong}; set judge.error once you know"
    elif judging.error == 0:
        allowance = "the judge is never wrong, as judge.error says"
    else:
        allowance = f"allows for a judge that is {wrong}, as judge.error says"
    if judging.favour is None:
        return allowance
    favourite = comparison.baseline if comparison.verdict == "worse" else comparison.candidate
    condition = f"holds unless the judge favours {favourite} by more than {points(judging.favour, sign=False)} points"
    return f"{condition}; {allowance}"


def _rounds(comparison: Comparison) -> str:
    wider = f"so the interval is {comparison.stretch:.2g} times as wide"
    return f"trials of a round went alike, as if a provider were in another mood in each, {wider}"


def _looks(comparison: Comparison) -> str:
    order = "the arms took turns" if comparison.interleaved else "the arms ran at different times"
    look = "first look" if comparison.looks == 1 else f"look {comparison.looks} at this run"
    return f"{order}; {look}{_SURER if round(comparison.level, 3) > _USUAL_LEVEL else ''}"


def differing_lines(differences: Sequence[ContentDifference], screen: Screen) -> Iterator[str]:
    """Yield what differs between two arms: names in a line, and below it the lines of texts."""
    line = difference_line(differences)
    if not line:
        return
    yield f"  {screen.paint('differs in', 'dim')}  {screen.fit(line)}"
    for changed_line in changed_lines(differences):
        style = _CHANGE_STYLES.get(changed_line[0], "dim")
        yield f"              {screen.paint(screen.fit(changed_line), style)}"
