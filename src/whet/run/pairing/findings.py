"""What came of asking about pairs, as it is kept beside the record: so far, and in the end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from whet import exit_codes
from whet.decide.judging.pairs import JudgedPair, figures_of_pairs
from whet.grade.judge.identity import facts_of_pairs
from whet.grade.judge_settings import JudgeSettings
from whet.model.comparison import PairFigures
from whet.model.run import Plan
from whet.record.judging.tries import JudgePairs, TrySpending, place_of, read_pairs
from whet.record.read.run import RecordedRun
from whet.run.pairing.asking import AskingPairs
from whet.run.pairing.targets import PairTargets
from whet.version import __version__

UNFINISHED = "it did not end"


class PairFinding(Struct, frozen=True, kw_only=True):
    """What is known of a finding before the judge has said anything."""

    head: JudgePairs
    record: RecordedRun
    targets: PairTargets

    @classmethod
    def begin(
        cls,
        record: RecordedRun,
        plan: Plan,
        judge: JudgeSettings,
        targets: PairTargets,
        seed: str,
        question: str | None = None,
    ) -> PairFinding:
        """Return a finding on *record* that begins now."""
        facts = facts_of_pairs(judge)
        head = JudgePairs(
            id=datetime.now(UTC).strftime("%Y%m%dT%H%M%S-%f"),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            run=record.run_dir.name,
            suite=str(plan.suite.name),
            whet_version=__version__,
            seed=seed,
            judge={name: value for name, value in asdict(facts).items() if value is not None},
            judge_id=facts.judge_id,
            question=question,
            planned=len(targets.targets),
            figures=(),
            exit_code=exit_codes.ERRORED,
            stopped=UNFINISHED,
        )
        return cls(head=head, record=record, targets=targets)

    @property
    def folder(self) -> Path:
        """Where the sessions of an agent that judges are kept."""
        return place_of(self.record.run_dir, self.head.id, JudgePairs).with_suffix("")

    def earlier(self) -> dict[tuple[str, ...], JudgedPair]:
        """Return what the same judge said before of answers of this run, by what it was asked."""
        findings = [entry for entry in read_pairs(self.record.run_dir) if entry.judge_id == self.head.judge_id]
        return {pair.identity: pair for entry in reversed(findings) for pair in entry.pairs if pair.winner is not None}

    def so_far(self, pairs: Sequence[JudgedPair]) -> JudgePairs:
        """Return what is kept while the judge is asked: no figures, because it is no look."""
        return replace(self.head, pairs=tuple(pairs))

    def of(self, asking: AskingPairs) -> JudgePairs:
        """Return what came of it in the end; what was not asked about has no winner."""
        pairs = asking.pairs()
        weights = self.record.asked.weights
        figures = figures_of_pairs(asking.all_pairs(), weights, self.targets.level, self.targets.looks)
        return replace(
            self.head,
            figures=figures,
            exit_code=_exit_code(asking, figures),
            spending=TrySpending(cost_usd=asking.bill.cost_usd, unknown=asking.bill.unknown),
            notes=tuple(asking.notes()),
            stopped=asking.stopped,
            pairs=pairs,
        )


def _exit_code(asking: AskingPairs, figures: Sequence[PairFigures]) -> int:
    if asking.interrupted:
        return exit_codes.INTERRUPTED
    is_errored = any(entry.verdict == "errored" for entry in figures)
    return exit_codes.ERRORED if is_errored else exit_codes.DONE
