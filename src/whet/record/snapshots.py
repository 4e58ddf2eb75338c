"""The snapshot file: one usage figure for each execution, compared with the usage of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, field

from whet.dataclass import dataclass
from whet.errors import StoreError, UsageError
from whet.grade.scores import mean
from whet.model import wire
from whet.model.event import Results
from whet.model.run import Execution, ExecutionKey, Metric, Plan, Snapshot, SnapshotOutcome, TrialResult, figure
from whet.record.folder import alone_in, write_atomically

VERSION = 1
# Folders without suites of the project, and the endings of suites.
_NOT_OURS = frozenset(("node_modules", "site-packages", "__pycache__"))
_ENDINGS = frozenset((".py", ".json", ".yaml", ".yml"))


class _Document(Struct, kw_only=True):
    version: int
    entries: dict[str, Snapshot] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRule:
    """What is compared, how much more is allowed, and whether the file may be written."""

    path: Path
    # The folder of the settings: suites are named by their path from there.
    base: Path
    metric: Metric
    absolute: float | None
    percent: float | None
    update: bool
    create: bool

    def allowed(self, stored: float) -> float:
        """Return the largest value within every tolerance that is given."""
        limits = []
        if self.absolute is not None:
            limits.append(stored + self.absolute)
        if self.percent is not None:
            limits.append(stored * (1 + self.percent / 100))
        return min(limits, default=stored)


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
        self._moved: set[str] = set()

    def compare(self, plan: Plan, execution: Execution, results: list[TrialResult]) -> SnapshotOutcome:
        """Compare the mean over the trials of an execution; takes a new figure if that is allowed."""
        rule, key = self._rule, f"{self._suite(plan)}::{execution}"
        stored = self._stored(plan, execution, key)
        known = self._entries.get(stored)
        outcome = partial(self._outcome, key)
        values = [_figure(result, rule.metric) for result in results]
        if not values or any(value is None for value in values):
            return outcome("unavailable", None, known, f"{execution.runner.agent} does not report {rule.metric}")
        value = mean(value for value in values if value is not None) or 0.0
        if known is not None and not rule.update:
            return self._held(stored, execution, known, value)
        if not rule.create:
            return outcome("missing", value, None, "there is no snapshot; run with --update-snapshots and commit it")
        self._take(key, execution, value, len(results))
        if stored != key:
            self._moved.add(stored)
        return outcome("updated" if known else "created", value, known, f"{rule.metric} is now {figure(value)}")

    def _stored(self, plan: Plan, execution: Execution, key: str) -> str:
        """Return the name in the file of the entry *key*, such as `folder/suite.py::case@runner/arm`.

        Files of earlier versions have `suite::case@runner/arm`, which two suites of one name shared.
        """
        earlier = f"{plan.suite.name}::{execution}"
        if key not in self._entries and earlier in self._entries and self._alone(plan):
            return earlier
        return key

    def _suite(self, plan: Plan) -> str:
        return Path(os.path.relpath(plan.suite.source, self._rule.base)).as_posix()

    def _alone(self, plan: Plan) -> bool:
        """Return whether no other suite below the settings has the same name, and so the same old entries."""
        return not any(_namesakes(self._rule.base.resolve(), plan.suite.source.resolve()))

    def _held(self, key: str, execution: Execution, known: Snapshot, value: float) -> SnapshotOutcome:
        for what, then, now in (
            ("metric", known.metric, self._rule.metric),
            ("agent", known.agent, execution.runner.agent),
            ("model", known.model, execution.runner.model),
        ):
            if then != now:
                text = (
                    f"the snapshot is of {what} {then or 'none'}, this run of {now or 'none'}: they cannot be compared"
                )
                return self._outcome(key, "mismatch", value, known, f"{text} (--update-snapshots takes a new one)")
        allowed = self._rule.allowed(known.value)
        if value <= allowed:
            return self._outcome(key, "held", value, known, "")
        more = f"+{figure(value - known.value)}"
        share = f" ({(value / known.value - 1) * 100:+.1f} %)" if known.value else ""
        text = f"{self._rule.metric} is {figure(value)}, allowed {figure(allowed)}"
        text += f": {more}{share} over the snapshot of {figure(known.value)} (--update-snapshots takes the new one)"
        return self._outcome(key, "exceeded", value, known, text)

    def _outcome(
        self, key: str, status: Any, value: float | None, known: Snapshot | None, message: str
    ) -> SnapshotOutcome:
        return SnapshotOutcome(
            key=key,
            status=status,
            metric=self._rule.metric,
            value=value,
            stored=known.value if known else None,
            allowed=self._rule.allowed(known.value) if known else None,
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

    def unused(self, plan: Plan, runners: frozenset[str]) -> Iterator[str]:
        """Yield the entries of this suite whose case or runner no longer exists."""
        cases = {case.id for case in plan.suite.cases}
        own = self._suite(plan)
        gone = []
        for key in self._entries:
            suite, _, rest = key.partition("::")
            case, _, target = rest.rpartition("@")
            if suite in (own, plan.suite.name) and (case not in cases or target.partition("/")[0] not in runners):
                gone.append((suite, key))
        # Only if it matters: this walks through the project.
        alone = any(suite != own for suite, _ in gone) and self._alone(plan)
        yield from (key for suite, key in gone if suite == own or alone)

    def save(self) -> None:
        """Write the file if a figure is new; keeps entries that were not run, also those that another run wrote."""
        if not self._taken:
            return
        path = self._rule.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with alone_in(path.parent):
                entries = {key: entry for key, entry in _load(path).items() if key not in self._moved} | self._taken
                document = _Document(version=VERSION, entries=dict(sorted(entries.items())))
                write_atomically(path, wire.encode_pretty(document))
        except OSError as error:
            raise StoreError(f"{path}: the snapshots cannot be written: {error.strerror}") from error
        except UsageError as error:
            # It could be read when the run began, so something else changed it since: do not overwrite it.
            raise StoreError(str(error), hint=error.hint) from error


def _namesakes(base: Path, suite: Path) -> Iterator[Path]:
    """Yield other files below *base* with the name of *suite*, with any ending."""
    for place, folders, names in os.walk(base):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _NOT_OURS]
        for name in names:
            found = Path(place, name)
            if found.stem == suite.stem and found.suffix in _ENDINGS and found != suite:
                yield found


def _load(path: Path) -> dict[str, Snapshot]:
    if not path.exists():
        return {}
    try:
        document = wire.decode_file(path, _Document)
    except (OSError, wire.WireError) as error:
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
    """Compare every execution whose trials all went as expected; the usage of a failed one means nothing."""
    outcomes: dict[ExecutionKey, SnapshotOutcome] = {}
    for summary in results.summaries():
        if summary.passed:
            trials = list(results.trials(summary.execution))
            outcomes[summary.execution.key] = file.compare(results.plan, summary.execution, trials)
    return outcomes
