"""Keep improve.json while a loop runs: each step is added to its chain, and the file is written in one go."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from whet.improve.contract import EndedEarly
from whet.improve.loop import LoopEnd
from whet.improve.workbench import PhaseSpending
from whet.record.improve.chain import chained
from whet.record.improve.document import (
    ImproveDocument,
    ImproveStep,
    Outcome,
    Phase,
    PracticeScore,
    RoundRecord,
    SealedRecord,
    SplitFacts,
)
from whet.record.improve.folder import ImproveFolder, utc_now

# A run with these outcomes may go on: nothing was decided.
OPEN_OUTCOMES: frozenset[Outcome] = frozenset(("interrupted", "failed"))


class ImproveKeeper:
    """Knows the document of an improve run as it is on disk, and shows it to who watches."""

    def __init__(
        self, folder: ImproveFolder, document: ImproveDocument, watch: Callable[[ImproveDocument], object]
    ) -> None:
        self.folder = folder
        self.document = document
        self.spending = PhaseSpending()
        self._watch = watch
        self._began_at = utc_now()

    @property
    def spent_usd(self) -> float:
        """What the steps that have ended took."""
        return sum(step.cost_usd or 0.0 for step in self.document.steps)

    def begin(self, phase: Phase, _: int | None = None) -> None:
        """Note that a phase begins, or goes on."""
        self._began_at = utc_now()
        self.spending.start_anew()
        self._write(replace(self.document, phase=phase))

    def keep_split(self, split: SplitFacts) -> None:
        """Keep the parts of the suite."""
        self._write(self._with_step(replace(self.document, split=split), "split"))

    def keep_ready(self, warnings: tuple[str, ...]) -> None:
        """Keep that nothing speaks against the run, and what its reader has to know."""
        document = replace(self.document, warnings=tuple(dict.fromkeys((*self.document.warnings, *warnings))))
        self._write(self._with_step(document, "ready"))

    def keep_baseline(self, score: PracticeScore) -> None:
        """Keep the score of the current version."""
        self._write(self._with_step(replace(self.document, baseline=score), "eval_current"))

    def keep_round(self, phase: Phase, record: RoundRecord, *, ended: bool = True) -> None:
        """Keep what is known of a round now."""
        rounds = (*(other for other in self.document.rounds if other.number != record.number), record)
        document = replace(
            self.document,
            rounds=tuple(sorted(rounds, key=lambda item: item.number)),
            error_spent=sum(item.error or 0.0 for item in rounds),
        )
        self._write(self._with_step(document, phase, record.number) if ended else document)

    def keep_sealed(self, record: SealedRecord) -> None:
        """Keep the comparison on sealed cases."""
        self._write(self._with_step(replace(self.document, sealed=record), "sealed"))

    def finish(self, end: LoopEnd, hint: str | None) -> None:
        """Keep what came of the run, which ends it."""
        self._began_at = utc_now()
        self.spending.start_anew()
        document = replace(
            self.document,
            phase=None,
            outcome=end.outcome,
            reason=end.reason,
            hint=hint,
            ended_at=utc_now(),
            cost_usd=self.spent_usd,
        )
        self._write(self._with_step(document, "done"))

    def stop(self, outcome: Outcome, reason: str, hint: str | None) -> None:
        """Keep why the run cannot go on for now."""
        self._write(
            replace(
                self.document,
                outcome=outcome,
                reason=reason,
                hint=hint,
                ended_at=utc_now(),
                cost_usd=self.spent_usd + self.spending.cost_usd,
            )
        )

    def end_early(self, end: EndedEarly, hint: str | None) -> None:
        """Keep how the run ended before its time; one that is refused is not gone on with."""
        if end.outcome == "refused":
            self.finish(LoopEnd(outcome="refused", reason=end.reason, rounds=self.document.rounds), end.hint)
        else:
            self.stop(end.outcome, end.reason, end.hint or hint)

    def _with_step(self, document: ImproveDocument, phase: Phase, round_number: int | None = None) -> ImproveDocument:
        step = ImproveStep(
            phase=phase,
            round=round_number,
            began_at=self._began_at,
            ended_at=utc_now(),
            cost_usd=self.spending.cost_usd or None,
            trials=self.spending.trials,
            run=self.spending.run,
        )
        return chained(document, step)

    def _write(self, document: ImproveDocument) -> None:
        steps_usd = sum(step.cost_usd or 0.0 for step in document.steps)
        if document.ended_at is None:
            document = replace(document, cost_usd=steps_usd)
        self.document = document
        self.folder.write(document)
        self._watch(document)
