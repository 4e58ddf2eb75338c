"""The snapshot file: one usage figure for each execution, compared with the usage of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, field

from whet.decide.scores import mean
from whet.errors import StoreError, UsageError
from whet.model import codec
from whet.model.run import Execution, ExecutionKey, Metric, Plan, Snapshot, SnapshotOutcome, TrialResult, figure
from whet.model.run_events import Results
from whet.record.folder import alone_in, write_atomically

VERSION = 1


class _StoredSnapshots(Struct, kw_only=True):
    version: int
    entries: dict[str, Snapshot] = field(default_factory=dict)


class SnapshotRule(Struct, frozen=True, kw_only=True):
    """What is compared, how much more is allowed, and whether the file may be written."""

    path: Path
    # The folder of the settings: suites are named by their path from there.
    base: Path
    metric: Metric
    absolute: float | None
    percent: float | None
    update: bool
    create: bool

    def limit_for(self, value: float) -> float:
        """Return the largest value within every tolerance that is given."""
        limits = []
        if self.absolute is not None:
            limits.append(value + self.absolute)
        if self.percent is not None:
            limits.append(value * (1 + self.percent / 100))
        return min(limits, default=value)


def snapshot_rule(
    settings: Mapping[str, Any] | None, *, default_dir: Path, update: bool, environ: Mapping[str, str]
) -> SnapshotRule | None:
    """Return the rule that `[snapshots]` asks for; in CI no missing snapshot is created."""
    if settings is None:
        if update:
            raise UsageError("--update-snapshots needs [snapshots] in the settings", hint="add [snapshots.tolerance]")
        return None
    tolerance = settings["tolerance"]
    return SnapshotRule(
        path=Path(settings.get("path") or default_dir / "whet.snapshots.json"),
        base=default_dir,
        metric=cast(Metric, settings.get("metric") or "total_tokens"),
        absolute=tolerance.get("absolute"),
        percent=tolerance.get("percent"),
        update=update,
        create=update or environ.get("CI", "").lower() in {"", "0", "false"},
    )


class SnapshotFile:
    """The snapshots of one project."""

    def __init__(self, rule: SnapshotRule) -> None:
        self._rule = rule
        self._entries = _load(rule.path)
        self._taken: dict[str, Snapshot] = {}

    def compare(self, plan: Plan, execution: Execution, results: list[TrialResult]) -> SnapshotOutcome:
        """Compare the mean over the trials of an execution; takes a new figure if that is allowed."""
        rule, key = self._rule, f"{self._suite(plan)}::{execution}"
        snapshot = self._entries.get(key)
        outcome = partial(self._outcome, key)
        values = [_figure(result, rule.metric) for result in results]
        if not values or any(value is None for value in values):
            return outcome("unavailable", None, snapshot, f"{execution.runner.agent} does not report {rule.metric}")
        value = mean(value for value in values if value is not None) or 0.0
        if snapshot is not None and not rule.update:
            return self._check_snapshot(key, execution, snapshot, value)
        if not rule.create:
            return outcome("missing", value, None, "there is no snapshot; run with --update-snapshots and commit it")
        self._take(key, execution, value, len(results))
        return outcome("updated" if snapshot else "created", value, snapshot, f"{rule.metric} is now {figure(value)}")

    def _suite(self, plan: Plan) -> str:
        return Path(os.path.relpath(plan.suite.source, self._rule.base)).as_posix()

    def _check_snapshot(self, key: str, execution: Execution, snapshot: Snapshot, value: float) -> SnapshotOutcome:
        for what, then, now in (
            ("metric", snapshot.metric, self._rule.metric),
            ("agent", snapshot.agent, execution.runner.agent),
            ("model", snapshot.model, execution.runner.model),
        ):
            if then != now:
                text = (
                    f"the snapshot is of {what} {then or 'none'}, this run of {now or 'none'}: they cannot be compared"
                )
                return self._outcome(key, "mismatch", value, snapshot, f"{text} (--update-snapshots takes a new one)")
        limit = self._rule.limit_for(snapshot.value)
        if value <= limit:
            return self._outcome(key, "held", value, snapshot, "")
        more = f"+{figure(value - snapshot.value)}"
        share = f" ({(value / snapshot.value - 1) * 100:+.1f} %)" if snapshot.value else ""
        text = f"{self._rule.metric} is {figure(value)}, allowed {figure(limit)}"
        text += f": {more}{share} over the snapshot of {figure(snapshot.value)} (--update-snapshots takes the new one)"
        return self._outcome(key, "exceeded", value, snapshot, text)

    def _outcome(
        self, key: str, status: Any, value: float | None, snapshot: Snapshot | None, message: str
    ) -> SnapshotOutcome:
        return SnapshotOutcome(
            key=key,
            status=status,
            metric=self._rule.metric,
            value=value,
            stored=snapshot.value if snapshot else None,
            allowed=self._rule.limit_for(snapshot.value) if snapshot else None,
            message=message,
        )

    def _take(self, key: str, execution: Execution, value: float, trials: int) -> None:
        self._taken[key] = self._entries[key] = Snapshot(
            metric=self._rule.metric,
            value=value,
            agent=execution.runner.agent,
            model=execution.runner.model,
            trials=trials,
            updated_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def find_unused(self, plan: Plan, runners: frozenset[str]) -> Iterator[str]:
        """Yield the entries of this suite whose case or runner no longer exists."""
        cases = {case.id for case in plan.suite.cases}
        suite = self._suite(plan)
        for key in self._entries:
            name, _, execution = key.partition("::")
            case, _, target = execution.rpartition("@")
            if name == suite and (case not in cases or target.partition("/")[0] not in runners):
                yield key

    def save(self) -> None:
        """Write the file if a figure is new; keeps entries that were not run, also those that another run wrote."""
        if not self._taken:
            return
        path = self._rule.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with alone_in(path.parent):
                entries = _load(path) | self._taken
                document = _StoredSnapshots(version=VERSION, entries=dict(sorted(entries.items())))
                write_atomically(path, codec.encode_pretty(document))
        except OSError as error:
            raise StoreError(f"{path}: the snapshots cannot be written: {error.strerror}") from error
        except UsageError as error:
            # The file could be read when the run began, so something else changed it since: do not overwrite it.
            raise StoreError(str(error), hint=error.hint) from error


def _load(path: Path) -> dict[str, Snapshot]:
    if not path.exists():
        return {}
    try:
        document = codec.decode_file(path, _StoredSnapshots)
    except (OSError, codec.WireError) as error:
        raise UsageError(
            f"{path}: is not a snapshot file: {error}", hint="fix it, or delete it and take new snapshots"
        ) from error
    if document.version != VERSION:
        raise UsageError(f"{path}: has version {document.version}, and this whet reads {VERSION}")
    return dict(document.entries)


def _figure(result: TrialResult, metric: Metric) -> float | None:
    if metric == "duration_s":
        # Of the deciding attempt, as for tokens: a retry does not count as growth.
        return result.attempts[-1].duration_s if result.attempts else result.duration_s
    # A guess is not compared.
    return result.usage.reported(metric)


def compare_all(file: SnapshotFile, results: Results) -> dict[ExecutionKey, SnapshotOutcome]:
    """Compare every execution whose trials all went as expected to their own end; other usage means nothing."""
    outcomes: dict[ExecutionKey, SnapshotOutcome] = {}
    for summary in results.summaries():
        if summary.passed:
            trials = list(results.trials(summary.execution))
            if any(trial.ended_early is not None for trial in trials):
                continue
            outcomes[summary.execution.key] = file.compare(results.plan, summary.execution, trials)
    return outcomes
