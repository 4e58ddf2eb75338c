"""What `whet eval` was asked, as the command gives it and as the record of a run keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.errors import StoreError, UsageError
from whet.model.benchmark import EvaluatorKind
from whet.plan import RunRequest, Selection
from whet.store.request import recorded_selection

COMMAND = "eval"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalRequest:
    """Which skills on which tasks, and how; `flags` holds setting overrides, only those that were given."""

    skills: tuple[Path, ...] = ()
    benchmark: str | None = None
    benchmarks_dir: Path | None = None
    tasks: Path | None = None
    evaluator: EvaluatorKind | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    config_file: Path | None = None
    check_schemas: bool = False
    check_health: bool = True
    selection: Selection = field(default_factory=Selection)
    last_failed: bool = False
    resume: str | None = None
    dry_run: bool = False
    verbose: bool = False
    # What is made of the results; may be different when a run is resumed.
    formats: tuple[str, ...] = ("json", "markdown")
    reports_dir: Path = Path("reports")
    min_completion: float | None = None
    # As it was typed: see `RunRequest`.
    again: tuple[str, ...] = ()
    going_on: tuple[str, ...] = ()
    # Above the benchmark's own.
    k: int | None = None
    # Of the composite; those that were typed, above those of the settings.
    weights: Mapping[str, float] = field(default_factory=dict)

    def as_run(self, source: Path) -> RunRequest:
        """The same as a run of *source* is asked."""
        return RunRequest(
            command=COMMAND,
            suite=source,
            flags=self.flags,
            config_file=self.config_file,
            selection=self.selection,
            last_failed=self.last_failed,
            dry_run=self.dry_run,
            resume=self.resume,
            verbose=self.verbose,
            again=self.again,
            going_on=self.going_on,
        )

    def facts(self, source: Path) -> dict[str, Any]:
        """What goes into run.json, with every path absolute: a resume may come from another folder."""
        return {
            "command": COMMAND,
            "eval": {
                "skills": [str(place.resolve()) for place in self.skills],
                "benchmark": None if self.tasks else str(source),
                "tasks": str(source) if self.tasks else None,
                "evaluator": self.evaluator,
                "check_schemas": self.check_schemas,
            },
        }


def asked_before(facts: Mapping[str, Any], run: str) -> dict[str, Any]:
    """The fields of the request that the run in *facts* answers."""
    if facts.get("command") != COMMAND:
        raise UsageError(f"{run} is no evaluation of callable skills", hint=f"whet run --resume {run}")
    try:
        told = facts["eval"]
        return {
            "skills": tuple(Path(place) for place in told["skills"]),
            "benchmark": told["benchmark"],
            "tasks": Path(told["tasks"]) if told["tasks"] else None,
            "evaluator": told["evaluator"],
            "check_schemas": bool(told["check_schemas"]),
            "selection": recorded_selection(facts),
            "config_file": Path(facts["config_file"]) if facts["config_file"] else None,
        }
    except (KeyError, TypeError) as error:
        raise StoreError(f"{run}: run.json is not the record of an evaluation: {error!r}") from error
