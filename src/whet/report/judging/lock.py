"""`judge.lock.json` beside the labels: what they said of a judge, for a gate that needs no labels."""

from __future__ import annotations

from pathlib import Path

from whet.decide.judging.units import JudgedUnit
from whet.errors import StoreError, UsageError
from whet.model import codec
from whet.reading.files import read_file
from whet.record.folder import write_atomically, writing
from whet.record.judging.labels_file import now
from whet.record.judging.runs import JudgedRuns
from whet.report.judging.documents import LOCK_FORMAT, JudgeLock, JudgeReport

LOCK_FILE = "judge.lock.json"
_MOST_BYTES = 1024 * 1024


def lock_path(labels: Path) -> Path:
    """Return where the lock is that belongs to a file of labels."""
    return labels.with_name(LOCK_FILE)


def save_lock(runs: JudgedRuns, report: JudgeReport) -> Path:
    """Write what *report* says of the judge, and return the file."""
    if report.agreement is None:
        raise UsageError("no label counts yet, so there is nothing to save", hint="whet judge label RUN")
    path = lock_path(runs.labels)
    lock = JudgeLock(
        schema=LOCK_FORMAT,
        at=now(),
        judges=report.judges,
        labels=report.agreement.true + report.agreement.false,
        tpr=report.agreement.tpr,
        tpr_limits=report.agreement.tpr_limits,
        tnr=report.agreement.tnr,
        tnr_limits=report.agreement.tnr_limits,
        policy=report.policy,
        statements=tuple(sorted({unit.statement_id for unit in runs.units})),
    )
    with writing(path):
        write_atomically(path, codec.encode_pretty(lock))
    return path


def read_lock(labels: Path) -> JudgeLock | None:
    """Return what was saved beside *labels*; None without a file. Raises `StoreError` if it is something else."""
    path = lock_path(labels)
    try:
        return codec.decode(read_file(path, _MOST_BYTES), JudgeLock)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except codec.WireError as error:
        hint = "write it again: whet judge report --save"
        raise StoreError(f"{path} is no lock of a judge: {error.message}", hint=hint) from error


def staleness_of(lock: JudgeLock, units: list[JudgedUnit], policy: str | None) -> str | None:
    """Return what has changed since *lock* was saved; None if it is still about the judge of *units*."""
    changed = [unit.judge for unit in units if unit.judge_id not in lock.judges]
    if changed:
        known = next(iter(lock.judges.values()), {})
        names = [name for name, value in changed[0].items() if known.get(name) != value]
        return f"judge changed ({', '.join(names)})"
    if any(unit.statement_id not in lock.statements for unit in units):
        return "statement changed"
    return "labelling.md changed" if lock.policy != policy else None
