"""An improve run as the worker sees it: `whet improve` in a folder of its own, and what its record says at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection

from whet import exit_codes
from whet.record.improve.document import ImproveDocument, Outcome
from whet.run.children import child_command
from whet.service.service import Service
from whet.service.store.improve_folder import ImproveRunFolder, ImproveTail, keep_lock
from whet.service.store.improve_runs import AskedOptions, get_improve_run, split_of
from whet.service.store.proposals import ProposedVersion, add_proposal, read_proposal
from whet.service.store.runs import Ending, ImproveOutcome, Run
from whet.service.worker._job import Job

# What counts as a success: that nothing was better is a healthy answer.
_COMPLETED: dict[Outcome | None, ImproveOutcome] = {
    "succeeded": "succeeded",
    "no_winner": "no_winner",
    "undecided": "undecided",
}
_FAILURES: dict[Outcome | None, ImproveOutcome] = {"refused": "failed_terminal", "failed": "failed_transient"}
# After these, another try would end the same way.
_FINAL_CODES = (exit_codes.USAGE, exit_codes.INTERNAL)
_COMMANDS = ("whet ", "git ")
_MORE_MONEY = "start another improve run with a larger options.max_cost_usd"


class ImproveJob(Job):
    """A run that improves a skill."""

    folder: ImproveRunFolder

    def __init__(self, service: Service, run: Run) -> None:
        super().__init__(service, run, ImproveRunFolder.of(service.data_dir, run.id))
        self._proposed: ProposedVersion | None = None

    def tail(self) -> ImproveTail:
        """Return what follows the record."""
        return ImproveTail(self.service.database, self.run.id, self.run.suite_id, self.folder)

    def prepare(self, document: object) -> None:
        """Write the suite, and beside it the lock of its split as the last improve run has left it."""
        super().prepare(document)
        with self.service.database.reading() as connection:
            lock = split_of(connection, self.run.suite_id)
        self.folder.prepare_split(lock, msgspec.convert(document, _Named).name)

    def command(self, skills: Sequence[Path | None]) -> list[str]:
        """Return the command that starts the improve run, or resumes it."""
        (archive,) = skills
        assert archive is not None
        skill = self.folder.unpack_skill(archive, self.service.bundle_limits)
        record = self.folder.record
        with self.service.database.reading() as connection:
            asked = get_improve_run(connection, self.run.organisation_id, self.run.id)
        options: list[tuple[str, object]] = [
            ("--config", self.service.config_file),
            # Its records are beside the folder of runs that this names.
            ("--output-dir", self.folder.runs_dir),
        ]
        if record is not None:
            options.append(("--resume", record.name))
        else:
            options += [
                # A run that is resumed keeps these.
                ("--sandbox", self.service.sandbox),
                ("--suite", self.folder.suite.name),
                ("--runner", asked.runner),
                ("--proposer", asked.proposer),
                *_chosen(asked.options),
            ]
        words = [part for name, value in options if value is not None for part in (name, str(value))]
        place = [] if record is not None else [str(skill.relative_to(self.folder.path))]
        return child_command(["improve", *place, *words, "--yes"], most_bytes=self.service.run_memory_bytes)

    def conclude(self, code: int, *, cancelled: bool) -> Ending | None:
        """Return how the improve run ended after its process did; None if it can be resumed."""
        improvement = self.folder.document
        summary = msgspec.json.encode(self._summary(improvement)) if improvement is not None else None
        outcome = improvement.outcome if improvement is not None else None
        # First, because cancelling what is complete changes nothing.
        if outcome in _COMPLETED:
            return Ending(status="completed", outcome=_COMPLETED[outcome], summary=summary)
        if cancelled:
            return Ending(status="cancelled", summary=summary)
        failure = "failed_terminal" if code in _FINAL_CODES else _FAILURES.get(outcome)
        if failure is None:
            return None
        error = _reasons(improvement) or self.folder.last_words() or f"whet ended with exit code {code}"
        return Ending(status="failed", outcome=failure, summary=summary, error=error)

    def complete(self, ending: Ending) -> Ending:
        """Read what the improve run proposes."""
        improvement = self.folder.document
        if improvement is not None and ending.outcome == "succeeded":
            self._proposed = read_proposal(improvement, self.folder)
        return ending

    def store(self, connection: Connection, ending: Ending) -> None:
        """Store how the improve run ended, with its proposal and the split."""
        keep_lock(connection, self.run.suite_id, self.folder)
        if self._proposed is not None:
            add_proposal(connection, self.run.organisation_id, self.run.id, self._proposed)
        # What the service itself could not carry out may be possible later.
        is_vague = ending.status == "failed" and ending.outcome is None
        super().store(connection, replace(ending, outcome="failed_transient") if is_vague else ending)

    def _summary(self, improvement: ImproveDocument) -> dict[str, object]:
        versions = [round_.accepted for round_ in improvement.rounds if round_.accepted is not None]
        return {
            "reason": improvement.reason and self.service.without_places(improvement.reason),
            "hint": _hint(improvement),
            "rounds": len(improvement.rounds),
            "candidates": sum(len(round_.candidates) for round_ in improvement.rounds),
            "accepted": versions[-1] if versions else None,
            "error_spent": improvement.error_spent,
            "cost_usd": improvement.cost_usd,
            "trials": sum(step.trials for step in improvement.steps),
        }


class _Named(msgspec.Struct):
    name: str


def _chosen(options: AskedOptions) -> list[tuple[str, object]]:
    """Return the options of `whet improve`, which have the names of those of the service."""
    return [
        ("--part", options.part),
        ("--goal", options.goal),
        ("--candidates", options.candidates),
        ("--rounds", options.rounds),
        ("--max-cost", f"{options.max_cost_usd:f}"),
        ("--accept", options.accept),
    ]


def _reasons(improvement: ImproveDocument | None) -> str:
    texts = (improvement.reason, _hint(improvement)) if improvement is not None else ()
    return "\n  ".join(text for text in texts if text)


def _hint(improvement: ImproveDocument) -> str | None:
    """Return what to do next, unless that is a command: it would be one for this machine."""
    hint = improvement.hint
    if hint is None or not any(program in hint for program in _COMMANDS):
        return hint
    return _MORE_MONEY if improvement.outcome == "undecided" else None
