"""The document of a search: which sessions of a run have something, and how many of them in each arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from whet.model.grade import Status
from whet.reading.text import aligned, count, one_line, percent
from whet.record.read.search import SearchedTrial, read_query, search
from whet.report.screen import Screen
from whet.report.terminal.progress import STATUS_STYLES
from whet.view.run import RunView

_MOST_TRIALS = 500
_SHOWN = 20


class ArmMatches(Struct, frozen=True, kw_only=True):
    """How many sessions of an arm on a runner fit, and how many trials passed with it and without it."""

    arm: str
    runner: str
    trials: int
    matched: int
    passed_with: int
    passed_without: int


class TrialMatch(Struct, frozen=True, kw_only=True):
    """A trial whose session fits: how many of its events do, at most 20, the place of the first, and what it says."""

    case: str
    runner: str
    arm: str
    number: int
    baseline: bool
    status: Status
    events: int
    first: int | None
    excerpt: str
    artifact_dir: str


class SearchDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/search/1"):
    """What `whet search --json` prints: counts by arm, and the first trials that fit; `left_out` are not listed.

    `unread` trials have ended and have no session that can be read.
    """

    run: str
    query: str
    arms: tuple[ArmMatches, ...]
    trials: tuple[TrialMatch, ...]
    left_out: int
    unread: int


def search_document(view: RunView, text: str, *, most: int = _MOST_TRIALS) -> SearchDocument:
    """Return what a search for *text* finds in the sessions of a run."""
    query = read_query(text)
    rows = [row for key, row in view.rows.rows.items() if key.case not in view.asked.voided]
    searched = list(search(view.run_dir, rows, query))
    matches = [trial for trial in searched if trial.found is not None]
    return SearchDocument(
        run=view.id,
        query=text,
        arms=tuple(_arms(view, searched)),
        trials=tuple(_matches(view, matches[:most])),
        left_out=max(0, len(matches) - most),
        unread=len(rows) - len(searched),
    )


def _arms(view: RunView, searched: Sequence[SearchedTrial]) -> Iterator[ArmMatches]:
    groups: dict[tuple[str, str], list[SearchedTrial]] = {}
    for trial in searched:
        groups.setdefault((trial.key.runner, trial.key.arm), []).append(trial)
    order = {arm: number for number, arm in enumerate(view.arms)}
    for runner, arm in sorted(groups, key=lambda group: (group[0], order.get(group[1], len(order)))):
        trials = groups[runner, arm]
        matches = [trial for trial in trials if trial.found is not None]
        yield ArmMatches(
            arm=arm,
            runner=runner,
            trials=len(trials),
            matched=len(matches),
            passed_with=_passed(matches),
            passed_without=_passed(trials) - _passed(matches),
        )


def _passed(trials: Sequence[SearchedTrial]) -> int:
    return sum(trial.passed for trial in trials)


def _matches(view: RunView, trials: Sequence[SearchedTrial]) -> Iterator[TrialMatch]:
    for trial in trials:
        if trial.found is not None:
            key, found = trial.key, trial.found
            yield TrialMatch(
                case=key.case,
                runner=key.runner,
                arm=key.arm,
                number=key.number,
                baseline=key.arm == view.baseline,
                status=trial.status,
                events=found.events,
                first=found.first,
                excerpt=found.excerpt,
                artifact_dir=trial.artifact_dir,
            )


def search_lines(document: SearchDocument, screen: Screen) -> Iterator[str]:
    """Yield the counts of each arm, and the first trials that fit."""
    yield f"{screen.paint(one_line(document.query), 'bold')} in {one_line(document.run)}"
    head, *lines = aligned([_HEAD, *map(_arm_row, document.arms)])
    yield f"  {screen.paint(head, 'dim')}"
    yield from (f"  {line}" for line in lines)
    if document.unread:
        yield screen.paint(f"  {count(document.unread, 'trial')} without a session that can be read", "warn")
    if document.trials:
        yield ""
    for trial in document.trials[:_SHOWN]:
        name = f"{one_line(trial.case, 80)}@{one_line(trial.runner, 40)}/{one_line(trial.arm, 40)}#{trial.number}"
        yield f"  {name}  {screen.paint(trial.status, STATUS_STYLES[trial.status])}"
        place = "" if trial.first is None else f"event {trial.first + 1}: "
        yield f"    {screen.paint(screen.fit('│'), 'dim')} {place}{screen.fit(trial.excerpt)}"
    more = len(document.trials) - _SHOWN + document.left_out
    if more > 0:
        yield screen.paint(f"  and {count(more, 'more trial')}", "dim")


_HEAD = ("arm", "runner", "found in", "passed with it", "passed without it")


def _arm_row(arm: ArmMatches) -> tuple[str, ...]:
    others = arm.trials - arm.matched
    return (
        one_line(arm.arm, 40),
        one_line(arm.runner, 40),
        f"{arm.matched} of {count(arm.trials, 'session')}",
        f"{arm.passed_with} of {arm.matched}  {percent(arm.passed_with / arm.matched)}" if arm.matched else "-",
        f"{arm.passed_without} of {others}  {percent(arm.passed_without / others)}" if others else "-",
    )
