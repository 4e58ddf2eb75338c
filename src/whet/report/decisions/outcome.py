"""What a gate answers: the decision of all its parts, and what would decide what is not known yet."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from whet.decide.gate import EXIT_CODES, Answer, GateAnswer, MoreTrials, worst
from whet.model.callable import Interval
from whet.reading.text import duration, money
from whet.report.decisions.between_runs import RunComparison
from whet.report.decisions.documents import GateDocument
from whet.report.decisions.words import ANSWER_STYLES
from whet.report.screen import Screen, plain_screen

HARDLY = "more trials of this run would hardly decide it"


class GateOutcome(Struct, frozen=True, kw_only=True):
    """What a gate answers, and why."""

    gated: tuple[GateAnswer, ...]
    compared: RunComparison | None = None
    # The shares of trials that pass, and the mean scores, if they were asked for.
    rates: dict[str, Interval] | None = None
    scores: dict[str, Interval] | None = None
    more: MoreTrials | None = None
    # If no more trials of the run would decide, what would.
    otherwise: str = HARDLY
    run: str | None = None
    # What makes it longer: `whet run` or `whet eval`.
    command: str = "run"
    # What a reader must know before relying on it, and the runs of which trials are missing.
    notes: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    # Whether money may have ended it.
    limited: bool = False
    # The command of a new run, for one until decided that has made its looks.
    afresh: str | None = None

    @property
    def answer(self) -> Answer:
        """The answer of everything together; a run that was cut short lets nothing pass: no look was planned there."""
        answer = worst(part.answer for part in self.gated)
        return "unknown" if answer == "pass" and self.unfinished else answer

    @property
    def code(self) -> int:
        """The exit code."""
        return EXIT_CODES[self.answer]

    def lines(self, screen: Screen | None = None) -> Iterator[str]:
        """Yield the answer, why, and what would decide it."""
        paint = (screen or plain_screen()).paint
        words: dict[Answer, str] = {"pass": "pass", "fail": "fail", "unknown": "not known yet"}
        yield f"gate: {paint(words[self.answer], ANSWER_STYLES[self.answer])}"
        # Both the answer and the sentence begin with that.
        reasons = (part.reason.removeprefix(f"{words['unknown']} ") for part in self.gated)
        for part, why in zip(self.gated, reasons, strict=True):
            yield f"  {paint(f'{words[part.answer]:13}', ANSWER_STYLES[part.answer])}  {why}"
        note_label = paint(f"{'note':13}", "warn")
        yield from (f"  {note_label}  {note}" for note in self.notes)
        if self.answer == "unknown":
            yield f"  {self.advice}"

    @property
    def advice(self) -> str:
        """What would decide it, and what that costs."""
        if self.unfinished:
            limit = " --max-cost USD" if self.limited else ""
            return f"finish the run first: whet {self.command} --resume {self.unfinished[0]}{limit}"
        if self.more is None or self.run is None:
            return self.otherwise
        cost = "" if self.more.cost_usd is None else f", about {money(self.more.cost_usd)}"
        hours = "" if self.more.hours is None else f", about {duration(self.more.hours * 3600)}"
        if self.afresh is not None:
            return f"to decide it in 8 of 10 such runs, start a new one: {self.afresh}{cost}{hours}"
        longer = f"whet {self.command} --resume {self.run} --add-trials {self.more.trials}"
        return f"to decide it in 8 of 10 such runs: {longer}{cost}{hours}"

    def document(self) -> GateDocument:
        """Return the whole decision as a document."""
        return GateDocument(
            answer=self.answer,
            exit_code=self.code,
            gated=self.gated,
            rates=self.rates,
            scores=self.scores,
            comparison=self.compared.document() if self.compared else None,
            more=self.more,
            notes=self.notes,
        )
