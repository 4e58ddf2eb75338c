"""Say in words what became of an improve run, of its candidates, and of the decision on held-out cases.

The terminal, report.md and the lists of pages take their words from here, so that none contradicts another.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from whet.model.callable import Interval
from whet.reading.text import count, money, one_line, percent, points
from whet.record.improve.document import (
    CURRENT,
    CandidateRecord,
    ConfirmRecord,
    Fate,
    ImproveDocument,
    ImproveGoal,
    Outcome,
    Phase,
    PracticeScore,
    RoundRecord,
)
from whet.report.screen import Style

PHASES: dict[Phase, str] = {
    "ready": "ready",
    "split": "split",
    "eval_current": "baseline",
    "generating": "candidates",
    "linting": "lint",
    "racing": "race",
    "confirming": "confirm",
    "sealed": "sealed",
    "done": "done",
}
OUTCOMES: dict[Outcome, str] = {
    "succeeded": "accepted",
    "no_winner": "no winner",
    "undecided": "not known yet",
    "refused": "not ready",
    "failed": "failed",
    "interrupted": "interrupted",
    "proposed": "proposed",
}
OUTCOME_STYLES: dict[Outcome, Style] = {
    "succeeded": "good",
    "no_winner": "bold",
    "undecided": "warn",
    "refused": "bad",
    "failed": "bad",
    "interrupted": "warn",
    "proposed": "bold",
}
FATES: dict[Fate, str] = {
    "proposed": "made",
    "dud": "unusable",
    "same": "left out",
    "refused": "refused",
    "fit": "waits for the race",
    "raced": "raced",
    "chosen": "chosen",
    "accepted": "accepted",
    "rejected": "not accepted",
}
PARTS = {"description": "its description", "body": "its text", "all": "all of it"}
ACCEPTS = {"these": "on the held-out cases", "like-these": "on the held-out cases, and on others like them"}
# What the first round starts from.
START = "the skill as it was"
_ERROR_IN_ALL = 0.05
_LONGEST_CHANGE = 160


class AcceptedVersion(Struct, frozen=True, kw_only=True):
    """What came of all rounds together: the last version that was accepted, and how much better each one was."""

    id: str
    # Of the content of its folder.
    digest: str
    token_growth: int
    # The sum over rounds, in rates; with several rounds it is no interval's middle.
    gain: float
    rounds: int
    # What the whole run cost for each point; null if it gained none, as when the goal is to be cheaper.
    cost_of_point: float | None


def accepted_version(document: ImproveDocument) -> AcceptedVersion | None:
    """Return what was accepted; None if nothing was."""
    accepting = [
        (round_record, round_record.confirm)
        for round_record in document.rounds
        if round_record.accepted and round_record.confirm
    ]
    if not accepting:
        return None
    gain = sum(confirm.difference for _, confirm in accepting)
    cost = None
    if gain > 0 and document.cost_usd > 0:
        cost = document.cost_usd / (100 * gain)
    winners = [
        winner
        for round_record, _ in accepting
        for winner in round_record.candidates
        if winner.id == round_record.accepted
    ]
    return AcceptedVersion(
        id=str(accepting[-1][0].accepted),
        digest=winners[-1].digest if winners else "",
        token_growth=sum(winner.token_growth for winner in winners),
        gain=gain,
        rounds=len(accepting),
        cost_of_point=cost,
    )


def headline(document: ImproveDocument, *, is_running: bool = True) -> str:
    """Return what came of the run in one sentence; one that has not ended may not run either, because it was killed."""
    name = one_line(document.skill_name)
    version = accepted_version(document)
    if document.outcome is None:
        phase = phase_text(document.phase or "done", current_round(document))
        return f"{name}: {phase} under way" if is_running else f"{name}: killed in {phase}, and can be resumed"
    if document.outcome == "succeeded" and version is not None:
        return f"{name}: {version.id} is accepted{_after_rounds(version)}"
    endings: dict[Outcome, str] = {
        "succeeded": "a version is accepted",
        "no_winner": "no winner: the skill stays as it is",
        "undecided": "not known yet whether a candidate is better",
        "refused": "not ready to be improved",
        "failed": "the run failed",
        "interrupted": "the run was interrupted",
        "proposed": f"{count(len(_candidates(document)), 'candidate')} written, and none was tried",
    }
    return f"{name}: {endings[document.outcome]}"


def _after_rounds(version: AcceptedVersion) -> str:
    if version.rounds == 1:
        return ""
    return f", the last of {count(version.rounds, 'version')} that gain {points(version.gain)} points together"


def _candidates(document: ImproveDocument) -> list[CandidateRecord]:
    return [
        candidate
        for round_record in document.rounds
        for candidate in round_record.candidates
        if candidate.fate in ("proposed", "fit")
    ]


def current_round(document: ImproveDocument) -> int | None:
    """Return the number of the round under way, if one is."""
    if document.phase not in ("generating", "linting", "racing", "confirming") or not document.rounds:
        return None
    return document.rounds[-1].number


def phase_text(phase: Phase, round_number: int | None) -> str:
    """Return the name of a phase, with its round: "race of round 2"."""
    return PHASES[phase] if round_number is None else f"{PHASES[phase]} of round {round_number}"


def level_of(confirm: ConfirmRecord) -> str:
    """Return the level of the intervals of a confirm step, such as "97 % interval"."""
    return f"{100 * (1 - confirm.error):.3g} % interval"


def decision_text(candidate: str, confirm: ConfirmRecord, goal: ImproveGoal) -> str:
    """Return what a confirm step decided, with its interval."""
    movement = f"{points(confirm.difference)} points ({level_of(confirm)} {_range(confirm)})"
    words = {
        "better": f"{candidate} is better than {CURRENT}",
        "not-worse": f"{candidate} is not worse than {CURRENT}",
        "worse": f"{candidate} is worse than {CURRENT}",
        "inconclusive": f"not known yet whether {candidate} is better than {CURRENT}",
    }
    if goal == "cheaper" and confirm.cost_ratio is not None:
        return f"{words[confirm.verdict]}, {_cost_text(confirm.cost_ratio, confirm)}: {movement}"
    return f"{words[confirm.verdict]}: {movement}"


def _range(confirm: ConfirmRecord) -> str:
    return f"{points(confirm.low)} to {points(confirm.high)}"


def _cost_text(ratio: Interval, confirm: ConfirmRecord) -> str:
    return f"{ratio.value:.2f} times the cost ({level_of(confirm)} {ratio.low:.2f} to {ratio.high:.2f})"


def like_these_text(confirm: ConfirmRecord) -> str:
    """Return what is known of other cases like these."""
    if confirm.like_these is None:
        return "not known: one case says nothing about other cases"
    low, high = confirm.like_these.low, confirm.like_these.high
    status = "not known"
    if low > 0 or high < 0:
        status = "holds"
    return f"{points(low)} to {points(high)} points on other cases like these: {status}"


def moved_text(confirm: ConfirmRecord) -> str:
    """Return how many held-out cases went better and worse."""
    better = sum(case.after > case.before for case in confirm.cases)
    worse = sum(case.after < case.before for case in confirm.cases)
    return f"{better} better, {worse} worse, {len(confirm.cases) - better - worse} the same"


def effort_text(confirm: ConfirmRecord) -> str:
    """Return what the step took: trials and looks, which step on this split it is, and why it stopped."""
    stops = {
        "decided": "it is decided",
        "hopeless": "more rounds would hardly decide it",
        "rounds": "that was the last round",
        "money": "the money is spent",
        None: "it did not end",
    }
    looks = count(confirm.looks, "look")
    step = f"step {confirm.step} on this split, which may err in {percent_text(confirm.error)}"
    return f"{count(confirm.trials, 'trial')}, {looks}, {step}; stopped: {stops[confirm.stop]}"


def percent_text(share: float) -> str:
    """Return a small share with as many digits as tell it apart: 3.04 %, 5 %."""
    return f"{100 * share:.3g} %"


def practice_text(score: PracticeScore | None) -> str:
    """Return a practice score, such as "58 % in 36 trials, $0.012 each"; "-" if it was not tried."""
    if score is None:
        return "-"
    cost = ""
    if score.cost_usd:
        cost = f", {money(score.cost_usd)} each"
    return f"{percent(score.score)} in {count(score.trials, 'trial')}{cost}"


def growth_text(tokens: int) -> str:
    """Return how many tokens longer a version is."""
    if tokens == 0:
        return "as long as before"
    return f"{count(abs(tokens), 'token')} {'longer' if tokens > 0 else 'shorter'}"


def why_text(candidate: CandidateRecord) -> str:
    """Return why a candidate went no further; nothing if it did."""
    if candidate.lint:
        return "; ".join(one_line(finding.message) for finding in candidate.lint)
    return one_line(candidate.reason or "")


def change_text(candidate: CandidateRecord) -> str:
    """Return the first of the changes that a proposer tells, in one line."""
    lines = (line.strip().lstrip("-*0123456789. ") for line in candidate.changes.splitlines())
    return one_line(next(filter(None, lines), ""), _LONGEST_CHANGE)


def parent_text(round_record: RoundRecord, document: ImproveDocument) -> str:
    """Return what a round started from: the skill as it was, or the candidate that was accepted before."""
    earlier = [before.accepted for before in document.rounds if before.number < round_record.number and before.accepted]
    return earlier[-1] if earlier else START


def spent_rows(document: ImproveDocument) -> Iterator[tuple[str, str]]:
    """Yield what was spent, as names and values: money, what a point cost, and the error of this split."""
    version = accepted_version(document)
    cap = ""
    if document.options.max_cost_usd is not None:
        cap = f" of {money(document.options.max_cost_usd)}"
    per_point = ""
    if version is not None and version.cost_of_point is not None:
        per_point = f", {money(version.cost_of_point)} for each point"
    if any(step.trials for step in document.steps) and all(step.cost_usd is None for step in document.steps):
        yield "cost", "not known: no session says what it cost"
    else:
        yield "cost", f"{money(document.cost_usd)}{cap}{per_point}"
    if document.error_spent:
        shares = f"{percent_text(document.error_spent)} of the {percent_text(_ERROR_IN_ALL)}"
        yield "error", f"{shares} that all improve runs on this split share"
