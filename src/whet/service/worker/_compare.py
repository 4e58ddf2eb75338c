"""The comparison of a run with the one before: what newly fails and passes, and whether that is more than chance."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection, select

from whet.decide.comparison import MARGIN
from whet.errors import WhetError
from whet.model import codec
from whet.model.comparison import CaseChange, Comparison, RunSamples
from whet.model.eval_cases import EvalCase
from whet.model.grade import UNEXPECTED
from whet.reading.files import read_file
from whet.record.read.run import read_run
from whet.report.decisions.between_runs import compare_across
from whet.report.decisions.words import sentence
from whet.service.database import runs
from whet.service.service import Service
from whet.service.store.run_folder import RunFolder
from whet.service.store.runs import Decided, Moved, Previous, Run
from whet.suites.evals.documents import read_suite
from whet.suites.evals.format import case_ids

log = logging.getLogger("whet.service")
# How many earlier runs to look at for one that was asked the same.
_LOOKED_AT = 50
_MOST_MOVED = 20
_BEFORE, _NOW = "the run before", "this run"


def find_previous(connection: Connection, run: Run) -> Run | None:
    """Return the last completed run of the same suite before *run*, on the same runner and with the same arms."""
    earlier = (
        select(runs)
        .where(runs.c.suite_id == run.suite_id, runs.c.kind == run.kind)
        .where(runs.c.status == "completed", runs.c.deleted_us.is_(None))
        .where(runs.c.created_us < select(runs.c.created_us).where(runs.c.id == run.id).scalar_subquery())
        .order_by(runs.c.created_us.desc(), runs.c.id.desc())
        .limit(_LOOKED_AT)
    )
    request = _asked(run)
    return next(
        (earlier_run for row in connection.execute(earlier) if _asked(earlier_run := Run.of(row)) == request), None
    )


def _asked(run: Run) -> tuple[object, ...]:
    """Return what two runs must have in common to be compared; the skill is what changes between them."""
    return run.runner, run.arm, run.skill is None, [(arm.name, arm.runner) for arm in run.arms or ()]


def compare_with_previous(service: Service, run: Run) -> Previous | None:
    """Compare *run*, which is complete, with the one before; None if there is none."""
    with service.database.reading() as connection:
        before = find_previous(connection, run)
    if before is None:
        return None
    try:
        changes = _compared(RunFolder.of(service.data_dir, before.id), RunFolder.of(service.data_dir, run.id))
        failing, passing, decisions, moves, refusal = changes
    except (WhetError, OSError, msgspec.MsgspecError) as error:
        log.warning("run %s cannot be compared with run %s: %s", run.id, before.id, type(error).__name__)
        # Callers do not know our paths.
        reason = str(error).replace(str(service.data_dir), "") if isinstance(error, WhetError) else "files are missing"
        failing, passing, decisions, moves, refusal = [], [], [], [], reason
    return Previous(
        run_id=before.id,
        suite_version=before.suite_version,
        skill=before.skill,
        newly_failing=failing,
        newly_passing=passing,
        decisions=decisions,
        moved=moves,
        refused=refusal,
    )


def _compared(old: RunFolder, new: RunFolder) -> tuple[list[str], list[str], list[Decided], list[Moved], str | None]:
    cases = _same_cases(old, new)
    if not cases:
        return [], [], [], [], "no case is the same in both versions of the suite"
    failing, passing = _newly(_ends(old, cases), _ends(new, cases))
    if old.record is None or new.record is None:
        return failing, passing, [], [], "one of the runs has no record"
    before, after = (
        _candidates(replace(read_run(record).samples(), name=name), cases)
        for record, name in ((old.record, _BEFORE), (new.record, _NOW))
    )
    comparisons = compare_across(before, after, margin=MARGIN, shared=True).comparisons
    # With one arm only, it is named as its run.
    arms = [comparison.candidate.removeprefix(_NOW).strip() or after.names[0] for comparison in comparisons]
    decisions = [_decided(comparison, arm) for comparison, arm in zip(comparisons, arms, strict=True)]
    moves = [case for comparison, arm in zip(comparisons, arms, strict=True) for case in _moved(comparison, arm)]
    return failing, passing, decisions, moves, None


def _same_cases(old: RunFolder, new: RunFolder) -> frozenset[str]:
    """Return the ids of cases that both runs have, and that did not change between their versions of the suite."""
    first, second = (_cases(folder) for folder in (old, new))
    return frozenset(name for name, case in second.items() if first.get(name) == case)


def _cases(folder: RunFolder) -> dict[str, EvalCase]:
    suite = read_suite(msgspec.json.decode(read_file(folder.suite)))
    return dict(zip(case_ids(suite.cases), suite.cases, strict=True))


class _ExecutionEnd(msgspec.Struct):
    status: str


class _CaseEnd(msgspec.Struct):
    id: str
    passed: bool
    executions: list[_ExecutionEnd]


class _RunEnds(msgspec.Struct):
    cases: list[_CaseEnd]


def _ends(folder: RunFolder, same: frozenset[str]) -> dict[str, bool]:
    """Return which cases passed, of those that passed or failed; the others say nothing."""
    path = folder.results
    if path is None:
        return {}
    cases = codec.decode_file(path, _RunEnds).cases
    return {
        case.id: case.passed
        for case in cases
        if case.id in same and (case.passed or any(execution.status in UNEXPECTED for execution in case.executions))
    }


def _newly(before: dict[str, bool], after: dict[str, bool]) -> tuple[list[str], list[str]]:
    changes = [case for case, is_pass in after.items() if before.get(case, is_pass) is not is_pass]
    return [case for case in changes if not after[case]], [case for case in changes if after[case]]


def _candidates(samples: RunSamples, cases: frozenset[str]) -> RunSamples:
    """Return the trials of these cases, without the baseline: it is there to compare arms of one run."""
    names = samples.names[1:] or samples.names
    arms = (replace(arm, trials=tuple(trial for trial in arm.trials if trial.case in cases)) for arm in samples.arms)
    return replace(samples, arms=tuple(arm for arm in arms if arm.arm in names and arm.trials))


def _decided(pair: Comparison, arm: str) -> Decided:
    alone = pair.candidate == _NOW
    comparison = pair if alone else replace(pair, candidate=arm, baseline=f"{arm} in {_BEFORE}")
    return Decided(
        arm=arm,
        runner=pair.runner,
        verdict=pair.verdict,
        difference=pair.difference,
        low=pair.low,
        high=pair.high,
        said=sentence(comparison),
    )


def _moved(pair: Comparison, arm: str) -> Iterator[Moved]:
    def weighed(case: CaseChange) -> tuple[bool, float]:
        return case.may_be_chance, -abs(case.value) * case.weight

    cases = [case for case in pair.cases if case.value]
    for case in sorted(cases, key=weighed)[:_MOST_MOVED]:
        yield Moved(
            case=case.case,
            arm=arm,
            runner=pair.runner,
            weight=case.weight,
            before=case.baseline or 0.0,
            after=case.candidate or 0.0,
            may_be_chance=case.may_be_chance,
        )
