"""Say what a comparison found: in words for people, and as the document `whet/comparison/1`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import floor
from typing import Any

from msgspec import to_builtins

from whet.grade.comparison import missing_of
from whet.model.benchmark import Interval
from whet.model.comparison import Amount, AmountChange, CaseChange, Comparison, Decision, Judging, Stop, notes_on
from whet.model.event import Looked, Results
from whet.reading.text import count, duration, money, number, percent

SCHEMA = "whet/comparison/1"
_CASES_SHOWN = 10
# With fewer cases, a headline says on how many it is.
_FEW_CASES = 5
_NEARLY_ALWAYS = 0.995
_CHECKED_ALIKE = "the decision is the same without them, and if all of them failed or all passed"
_USUAL_LEVEL = 0.95
_SURER = "; the interval is wider than one of 95 %, because several looks, candidates or runners share one error"
_NOTHING = "no case has a trial in both arms that did not error"
_TITLES: dict[Amount, str] = {"cost_usd": "cost", "seconds": "time", "tokens": "tokens", "steps": "steps"}


def points(value: float, *, sign: bool = True) -> str:
    """Return a share as percentage points."""
    rounded = round(100 * value, 1) + 0.0
    return f"{rounded:+.3g}" if sign else f"{rounded:.3g}"


def sentence(found: Comparison, *, is_summary: bool = False) -> str:
    """Return the decision in one sentence, with its interval; a summary has trials that count, and tells no cases."""
    level = f"{100 * found.level:.3g} % interval"
    interval = f"({level} {points(found.low)} to {points(found.high)})"
    known = found.trials > 0 if is_summary else counts(found)
    moved = f"{points(found.difference)} points{_few(found)} {interval}" if known else f"{_NOTHING} {interval}"
    return f"{_decided(found)}{f' on {found.runner}' if found.runner else ''}: {moved}"


def _few(found: Comparison) -> str:
    """Return on how many cases a decision is, if they are so few that others may well go otherwise."""
    both = sum(case.baseline is not None and case.candidate is not None for case in found.cases)
    return f" on {'this 1 case' if both == 1 else f'these {both} cases'}" if 0 < both < _FEW_CASES else ""


def meaning(found: Comparison) -> str:
    """Return what a decision means, in a sentence for people who know no intervals."""
    low, high, moved = (points(abs(each), sign=False) for each in (found.low, found.high, found.difference))
    share = _score if found.scored else percent
    rates = f"{share(found.baseline_rate.value)} to {share(found.candidate_rate.value)}"
    sure = f"sure in {_in_words(found.level)} runs"
    if found.low > 0 or found.high < 0:
        often = f"{moved} points {'more' if found.low > 0 else 'less'} often"
        verb = f"scores {moved} points {'higher' if found.low > 0 else 'lower'}" if found.scored else f"passes {often}"
        ends = (low, high) if found.low > 0 else (high, low)
        what = "gain" if found.low > 0 else "loss"
        where = f"on these cases the true {what} is between {ends[0]} and {ends[1]}, {sure}"
        return f"{found.candidate} {verb} ({rates}); {where}"
    looks = "looks alike" if moved == "0" else f"looks {moved} {'better' if found.difference > 0 else 'worse'}"
    return f"{looks} ({rates}), but anything from {low} worse to {high} better fits, {sure}"


def _in_words(level: float) -> str:
    """Return a level as "19 of 20", or "99 of 100"."""
    of = 20 if round(level, 2) == _USUAL_LEVEL else 100 if level < _NEARLY_ALWAYS else 1000
    return f"{floor(of * level + 0.001):,} of {of:,}"


def counts(found: Comparison) -> bool:
    """Return whether some case has a trial in both arms that did not error."""
    return any(case.baseline is not None and case.candidate is not None for case in found.cases)


def look_line(looked: Looked) -> str:
    """Return what was seen after a round: intervals, the chance to decide, and the money so far."""
    look, until = looked.look, looked.until
    runners = {each.runner for each in look.seen}
    seen = "; ".join(
        f"{each.candidate}{f' on {each.runner}' if len(runners) > 1 else ''} {points(each.difference)} points "
        f"({points(each.low)} to {points(each.high)})"
        for each in look.seen
    )
    open_ones = [each.chance for each in look.seen if each.verdict == "inconclusive"]
    real = f"if {points(until.effect, sign=False)} points are real"
    ahead = f"{percent(min(open_ones))} chance to decide by the end {real}" if open_ones else "decided"
    outlook = {"hopeless": "gives up", "rounds": "that was the last one"}.get(look.stop or "", ahead)
    cost = "" if looked.cost_usd is None else f", {money(looked.cost_usd)} spent"
    # What may be cut off on a narrow screen comes last.
    return f"round {look.round} of {until.rounds}{cost}: {seen}: {outlook}"


def why_stopped(results: Results) -> str:
    """Return why a run until decided ended, in a sentence; of other runs only that they did not end."""
    until = results.plan.until
    if until is None:
        return next(notes_on(voided=(), missing=missing_of(results)), "")
    words: dict[Stop | None, str] = {
        "decided": "it is decided",
        "hopeless": f"a difference of {points(until.effect, sign=False)} points would hardly be found by the end; "
        "this does not mean that the arms are alike",
        "rounds": "that was the last round",
        "money": "the money is spent; --resume with a larger --max-cost continues",
        None: "it did not end",
    }
    looks = results.looks
    where = f"after round {looks[-1].round} of {until.rounds}" if looks else "before its first look"
    return f"stopped {where}: {words[results.stopped]}"


def _decided(found: Comparison) -> str:
    margin = points(found.margin, sign=False)
    if found.verdict == "not-worse" and found.high < 0:
        return f"{found.candidate} is worse than {found.baseline}, but by less than the {margin} points that you allow"
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
    if counts(found):
        yield f"  means       {meaning(found)}"
    share = _score if found.scored else percent
    rates = (
        (found.baseline, found.baseline_rate, sum(case.baseline_trials for case in found.cases)),
        (found.candidate, found.candidate_rate, sum(case.candidate_trials for case in found.cases)),
    )
    words = "; ".join(
        _rate(name, rate, scored=found.scored) if trials else f"{name} not known" for name, rate, trials in rates
    )
    yield f"  {'mean score' if found.scored else 'rates':10}  {words}"
    yield f"  like these  {_like_these(found)}"
    together = found.low > 0 or found.high < 0
    for label, text in (("cases", line) for line in _case_lines(found.cases, share, together=together)):
        yield f"  {label:10}  {text}" if not text.startswith(" ") else f"              {text.strip()}"
    for change in found.amounts:
        yield f"  {_TITLES[change.amount]:10}  {_amount(change, found)}"
    yield f"  errored     {_errored(found)}"
    if found.judging:
        yield f"  judge       {_judge(found.judging, found)}"
    if found.stretch > 1:
        yield f"  rounds      {_rounds(found)}"
    yield f"  looks       {_looks(found)}"
    yield from (f"  note        {note}" for note in found.notes)


def _rate(name: str, rate: Interval, *, scored: bool) -> str:
    if scored:
        return f"{name} {_score(rate.value)} ({_score(rate.low)} to {_score(rate.high)})"
    return f"{name} {percent(rate.value)} ({points(rate.low, sign=False)} to {percent(rate.high)})"


def _like_these(found: Comparison) -> str:
    if found.like_these is None:
        if not counts(found):
            return _NOTHING
        return "one case says nothing about other cases"
    low, high = found.like_these.low, found.like_these.high
    known = "holds" if low > 0 or high < 0 else "not known"
    return f"{points(low)} to {points(high)} points on other cases like these: {known}; more cases narrow this most"


def _score(value: float) -> str:
    return f"{value:.2f}"


def _case_lines(cases: Sequence[CaseChange], share: Callable[[float], str], *, together: bool) -> Iterator[str]:
    alone = [case for case in cases if case.baseline is None or case.candidate is None]
    better = sum(case.value > 0 for case in cases)
    worse = sum(case.value < 0 for case in cases)
    sure = sum(not case.may_be_chance for case in cases if case.value)
    same = len(cases) - better - worse - len(alone)
    rest = f"; {len(alone)} without a value in both arms" if alone else ""
    alone_or_not = "; together they are" if together else ""
    chance = f"no single case is certain by itself{alone_or_not}" if not sure else f"{sure} of them not by chance"
    yield f"{better} better, {worse} worse, {same} the same" + (f"; {chance}" if better + worse else "") + rest
    moved = sorted((case for case in cases if case.value), key=lambda case: (case.may_be_chance, -abs(case.value)))
    for case in moved[:_CASES_SHOWN]:
        mark = ", may be chance" if case.may_be_chance else ""
        yield f"  {case.case}: {share(case.baseline or 0.0)} to {share(case.candidate or 0.0)}{mark}"
    if len(moved) > _CASES_SHOWN:
        yield f"  and {count(len(moved) - _CASES_SHOWN, 'more case')}"


def _amount(change: AmountChange, found: Comparison) -> str:
    unit = {"cost_usd": money, "seconds": duration, "tokens": number}.get(change.amount, _tenths)
    both = f"{found.baseline} {unit(change.baseline)}, {found.candidate} {unit(change.candidate)} per trial"
    if change.ratio is None:
        return both
    ratio = change.ratio
    level = f"{100 * found.level:.3g} % interval"
    return f"{both}: {ratio.value:.2f} times as much ({level} {ratio.low:.2f} to {ratio.high:.2f})"


def _tenths(value: float) -> str:
    return f"{value:,.1f}"


def _errored(found: Comparison) -> str:
    errored = found.errored
    if not errored.baseline + errored.candidate:
        return "none"
    holds = (
        "nothing counts without them"
        if not counts(found)
        else "leaving them out would say otherwise, so they count both ways"
        if errored.decisive
        else _CHECKED_ALIKE
        if errored.blameless == errored.baseline + errored.candidate
        else f"{_CHECKED_ALIKE}, or failed in one arm only"
    )
    how_many = f"{errored.baseline} in {found.baseline}, {errored.candidate} in {found.candidate}"
    contaminated = f"; {found.contaminated} contaminated" if found.contaminated else ""
    blameless = f"; {errored.blameless} beyond suspicion: the provider or the machine" if errored.blameless else ""
    return f"{how_many}{contaminated}{blameless}; {holds}"


def _judge(judging: Judging, found: Comparison) -> str:
    """Return what a judge has to do with a decision: what was judged, and how wrong it may be."""
    said = f"{count(judging.verdicts, 'verdict')} on {count(judging.answers, 'answer')}"
    if judging.error is None:
        known = "how often the judge is wrong is not known, and not counted (judge.error)"
    else:
        known = f"{percent(judging.error)} of verdicts wrong is allowed for"
    if judging.favour is None:
        return f"{said}; {known}"
    favoured = found.baseline if found.verdict == "worse" else found.candidate
    held = f"holds unless the judge favours {favoured} by more than {points(judging.favour, sign=False)} points"
    return f"{said}; {held}; {known}"


def _rounds(found: Comparison) -> str:
    wider = f"so the interval is {found.stretch:.2g} times as wide"
    return f"trials of a round went alike, as if a provider were in another mood in each, {wider}"


def _looks(found: Comparison) -> str:
    mixed = "the arms took turns" if found.interleaved else "the arms ran at different times"
    look = "first look" if found.looks == 1 else f"look {found.looks} at this run"
    return f"{mixed}; {look}{_SURER if round(found.level, 3) > _USUAL_LEVEL else ''}"


def comparison_document(found: Comparison) -> dict[str, Any]:
    """Return one comparison as JSON; shares are from -1 to 1."""
    return {"schema": SCHEMA, **to_builtins(found)}


def comparisons_document(found: Sequence[Comparison]) -> dict[str, Any]:
    """Return one comparison, or several under `comparisons`."""
    if len(found) == 1:
        return comparison_document(found[0])
    return {"schema": SCHEMA, "comparisons": [comparison_document(each) for each in found]}
