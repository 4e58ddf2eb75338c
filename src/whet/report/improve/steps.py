"""The lines of an improve run under way: what each phase found and took, and how far its trials are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from whet.model.run_events import Looked, Notice, RunEvent, RunStarted, TrialEnded
from whet.reading.text import aligned, count, duration, money, number, one_line, percent, points
from whet.record.improve.document import (
    CURRENT,
    ConfirmRecord,
    ImproveDocument,
    ImproveStep,
    Phase,
    RoundRecord,
    SealedRecord,
    SplitFacts,
)
from whet.report.decisions.words import analysis_line
from whet.report.improve.words import (
    FATES,
    PHASES,
    change_text,
    decision_text,
    effort_text,
    growth_text,
    like_these_text,
    moved_text,
    parent_text,
    practice_text,
    why_text,
)
from whet.report.screen import Screen, Style
from whet.report.terminal.progress import notice_line

_LABEL_WIDTH = 11
_OBJECTIONS_SHOWN = 10
# Of a run of a phase, so many lines say how far it is.
_LINES_OF_RUN = 4


class ImproveProgress:
    """Prints what is new in the document of an improve run, each time it is written."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._steps_told = 0

    def __call__(self, document: ImproveDocument) -> None:
        """Print the steps that were done since the last call."""
        for step in document.steps[self._steps_told :]:
            for line in step_lines(step, document, self._screen):
                self._screen.line(line)
        self._steps_told = len(document.steps)

    def skip(self, document: ImproveDocument) -> None:
        """Tell nothing of what a resumed run has done before."""
        self._steps_told = len(document.steps)


class PhaseReporter:
    """Prints how far the run of a phase is: a reporter of that run."""

    def __init__(self, phase: Phase, screen: Screen) -> None:
        self._phase = phase
        self._screen = screen
        self._done = 0
        self._total = 0

    def __call__(self, event: RunEvent) -> None:
        """Print each look at a run until decided, of other runs each quarter, and all warnings."""
        if isinstance(event, RunStarted):
            self._done, self._total = event.done, event.plan.trial_count
        elif isinstance(event, TrialEnded):
            self._done += 1
            if self._is_quarter():
                self._tell(f"{number(self._done)} of {count(self._total, 'trial')}")
        elif isinstance(event, Looked):
            self._tell(analysis_line(event))
        elif isinstance(event, Notice) and event.level == "warning":
            self._screen.line(notice_line(event, self._screen))

    def _is_quarter(self) -> bool:
        """Return whether a quarter has just ended; of few trials, each of which may take minutes, whether one has."""
        if self._done >= self._total:
            return False
        parts = max(_LINES_OF_RUN, self._total * (self._total < 2 * _LINES_OF_RUN))
        return self._done * parts // self._total > (self._done - 1) * parts // self._total

    def _tell(self, text: str) -> None:
        self._screen.line(self._screen.paint(labeled_line(PHASES[self._phase], text), "dim"))


def labeled_line(label: str, text: str) -> str:
    """Return a line with its label before it, in columns."""
    return f"  {label:{_LABEL_WIDTH}}  {text}"


def step_lines(step: ImproveStep, document: ImproveDocument, screen: Screen) -> Iterator[str]:
    """Yield what a phase found, and what it took."""
    if step.phase == "done":
        return
    if step.phase == "generating":
        round_record = round_of(step, document)
        if round_record is not None:
            yield screen.paint(f"round {round_record.number}, from {parent_text(round_record, document)}", "bold")
    first, *others = [*_findings(step, document, screen), ""]
    yield labeled_line(PHASES[step.phase], f"{first}  {screen.paint(_taken(step), 'dim')}".lstrip())
    yield from (labeled_line("", line) for line in others if line)


def round_of(step: ImproveStep, document: ImproveDocument) -> RoundRecord | None:
    """Return the round of a step."""
    return next((round_record for round_record in document.rounds if round_record.number == step.round), None)


def _taken(step: ImproveStep) -> str:
    parts = [duration(seconds_between(step.began_at, step.ended_at))]
    if step.trials:
        parts.append(count(step.trials, "trial"))
    if step.cost_usd:
        parts.append(money(step.cost_usd))
    return f"({', '.join(parts)})"


def seconds_between(began_at: str, ended_at: str) -> float:
    """Return the seconds between two moments; a clock that was set back counts as none."""
    return max(0.0, (datetime.fromisoformat(ended_at) - datetime.fromisoformat(began_at)).total_seconds())


def _findings(step: ImproveStep, document: ImproveDocument, screen: Screen) -> Iterator[str]:
    match step.phase:
        case "split":
            yield from _split_lines(document.split)
        case "eval_current":
            yield f"{practice_text(document.baseline)} on practice cases"
        case "sealed" if document.sealed is not None:
            yield sealed_text(document.sealed)
    round_record = round_of(step, document)
    if round_record is None:
        return
    match step.phase:
        case "generating":
            yield from _candidate_lines(round_record, document)
        case "linting":
            yield from _lint_lines(round_record)
        case "racing":
            yield from _race_lines(round_record)
        case "confirming" if round_record.confirm is not None:
            yield from confirm_lines(round_record, round_record.confirm, document, screen)


def _split_lines(split: SplitFacts | None) -> Iterator[str]:
    if split is not None:
        sealed = f", {len(split.sealed)} sealed" * bool(split.sealed)
        yield f"{count(len(split.practice), 'practice case')}, {len(split.held_out)} held out{sealed}"


def _candidate_lines(round_record: RoundRecord, document: ImproveDocument) -> Iterator[str]:
    is_linted = any(step.phase == "linting" and step.round == round_record.number for step in document.steps)
    # What is refused is said where candidates are linted; where nothing is left to lint, it is said here.
    is_left = is_linted or any(candidate.fate == "proposed" for candidate in round_record.candidates)
    fates = ("dud", "same") if is_left else ("dud", "same", "refused")
    unusable = [candidate for candidate in round_record.candidates if candidate.fate in fates]
    usable = [candidate for candidate in round_record.candidates if candidate not in unusable]
    yield f"{len(usable)} of {count(len(round_record.candidates), 'candidate')} can be used"
    for candidate in usable:
        change = change_text(candidate)
        yield f"{candidate.id}: {growth_text(candidate.token_growth)}{change and f': {change}'}"
    yield from (f"{candidate.id}: {FATES[candidate.fate]}: {why_text(candidate)}" for candidate in unusable)


def _lint_lines(round_record: RoundRecord) -> Iterator[str]:
    refusals = [candidate for candidate in round_record.candidates if candidate.fate == "refused"]
    yield f"{len(refusals) or 'none'} refused"
    yield from (f"{candidate.id}: {why_text(candidate)}" for candidate in refusals)


def _race_lines(round_record: RoundRecord) -> Iterator[str]:
    if round_record.chosen is None:
        yield f"none is better than {CURRENT} on practice cases"
    else:
        yield f"{round_record.chosen} goes on to the held-out cases"
    scores = [(candidate.id, candidate.practice) for candidate in round_record.candidates]
    rows = [(name, score) for name, score in [*scores, (CURRENT, round_record.current)] if score is not None]
    rows.sort(key=lambda row: -row[1].score)
    if rows:
        yield from aligned([(name, practice_text(score)) for name, score in rows])


def confirm_lines(
    round_record: RoundRecord, confirm: ConfirmRecord, document: ImproveDocument, screen: Screen
) -> Iterator[str]:
    """Yield what a confirm step decided, and what it rests on."""
    name = round_record.chosen or "the candidate"
    style: Style = "bad" if confirm.verdict == "worse" else "warn"
    if round_record.accepted:
        style = "good"
    yield screen.paint(decision_text(name, confirm, document.options.goal), style)
    yield like_these_text(confirm)
    yield f"of {count(len(confirm.cases), 'held-out case')}, {moved_text(confirm)}"
    yield effort_text(confirm)
    yield from (f"not accepted: {one_line(objection, 300)}" for objection in confirm.objections[:_OBJECTIONS_SHOWN])


def sealed_text(sealed: SealedRecord) -> str:
    """Return how the last version did on sealed cases."""
    rates = f"{percent(sealed.before)} to {percent(sealed.after)}"
    interval = f"{points(sealed.low)} to {points(sealed.high)}"
    return f"{points(sealed.difference)} points on sealed cases ({interval}), {rates}; nothing is decided by it"
