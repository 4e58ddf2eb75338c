"""The document of two runs beside each other: what is decided, which cases moved, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from whet.decide.comparison import MARGIN
from whet.errors import WhetError
from whet.model.comparison import Comparison
from whet.model.grade import UNEXPECTED
from whet.record.contents.differences import ContentDifference, difference_line, differences_of_runs
from whet.record.read.rows import TrialRow
from whet.record.read.run import read_trials
from whet.report.decisions.between_runs import compare_across
from whet.view.case import differing
from whet.view.documents import CompareDocument, MovedCase, RunDocument, trial_key
from whet.view.run import RunView

_BEFORE, _AFTER = "before", "after"
_OTHER_SUITE = "these are runs of two suites: only the cases that both have are compared"
_OTHER_CONTENT = "the suite has changed between the two runs: only the cases that both have are compared"


def compare_document(before: RunView, after: RunView) -> CompareDocument:
    """Return what two runs say beside each other."""
    a, b = before.document(), after.document()
    comparisons, refusal = _compare(before, after)
    was, now = (_outcomes(document, arms) for document, arms in zip((a, b), _arms_in_common(a, b), strict=True))
    shared_cases = [case for case in now if case in was]
    differences = _differences(before, after)
    return CompareDocument(
        a=a.run,
        b=b.run,
        comparisons=comparisons,
        refused=refusal,
        newly_failing=tuple(case for case in shared_cases if was[case] and not now[case]),
        newly_passing=tuple(case for case in shared_cases if now[case] and not was[case]),
        moved=tuple(_moved_cases(comparisons, before, after)),
        differs=difference_line(differences),
        differences=differences,
        costs={
            "cost_usd": [a.run.cost_usd, b.run.cost_usd],
            "duration_s": [a.run.duration_s, b.run.duration_s],
            "amounts": [amount for comparison in comparisons[:1] for amount in comparison.amounts],
        },
        notes=tuple(dict.fromkeys((*_otherness(before, after), *_notes(comparisons)))),
    )


def _compare(before: RunView, after: RunView) -> tuple[tuple[Comparison, ...], str | None]:
    if before.run_dir == after.run_dir:
        return (), "it is one run: choose another one to compare it with"
    try:
        old, new = (
            replace(read_trials(view.run_dir).samples(), name=name)
            for view, name in ((before, _BEFORE), (after, _AFTER))
        )
        return compare_across(old, new, margin=MARGIN, shared=True).comparisons, None
    except WhetError as error:
        return (), error.message
    except OSError as error:
        return (), f"a run cannot be read: {error.strerror}"


def _otherness(before: RunView, after: RunView) -> Iterator[str]:
    """Yield that both did not run the same."""
    if before.asked.suite_digest != after.asked.suite_digest:
        yield _OTHER_CONTENT if before.asked.suite == after.asked.suite else _OTHER_SUITE


def _notes(comparisons: tuple[Comparison, ...]) -> Iterator[str]:
    for comparison in comparisons:
        yield from comparison.notes


def _arms_in_common(before: RunDocument, after: RunDocument) -> tuple[set[str], set[str]]:
    """Return the arms of each that the other has too; two runs of one arm each are compared whatever its name is."""
    old, new = (
        {execution.arm for case in document.cases for execution in case.executions} for document in (before, after)
    )
    return (old, new) if len(old) == len(new) == 1 else (old & new, old & new)


def _outcomes(document: RunDocument, arms: set[str]) -> dict[str, bool]:
    """Return whether each case passed in *arms*; a case of which nothing ended, or everything errored, is left out."""
    outcomes: dict[str, bool] = {}
    for case in document.cases:
        executions = [execution for execution in case.executions if execution.arm in arms]
        if case.id in document.voided or not any(execution.trials for execution in executions):
            continue
        passed = all(execution.passed for execution in executions)
        failed = any(execution.status in UNEXPECTED for execution in executions)
        if passed or failed:
            outcomes[case.id] = passed
    return outcomes


def _moved_cases(comparisons: tuple[Comparison, ...], before: RunView, after: RunView) -> Iterator[MovedCase]:
    for comparison in comparisons:
        for case in comparison.cases:
            if case.baseline is not None and case.candidate is not None and case.value:
                yield MovedCase(
                    case=case.case,
                    runner=comparison.runner,
                    arm=comparison.candidate.removeprefix(_AFTER).strip() or None,
                    before=case.baseline,
                    after=case.candidate,
                    may_be_chance=case.may_be_chance,
                    beside=_beside(comparison, case.case, before, after),
                )


def _beside(comparison: Comparison, case: str, before: RunView, after: RunView) -> tuple[str, str] | None:
    """Return a trial of each run that ended differently, by which you see what changed."""
    pair = differing(
        _rows(before, case, comparison.runner, comparison.baseline.removeprefix(_BEFORE).strip()),
        _rows(after, case, comparison.runner, comparison.candidate.removeprefix(_AFTER).strip()),
    )
    return None if pair is None else (trial_key(pair[0]), trial_key(pair[1]))


def _rows(view: RunView, case: str, runner: str | None, arm: str) -> list[TrialRow]:
    def fits(row: TrialRow) -> bool:
        return runner in (None, row.key.runner) and arm in ("", row.key.arm)

    return list(filter(fits, view.rows_by_case.get(case, ())))


def _differences(before: RunView, after: RunView) -> tuple[ContentDifference, ...]:
    """Return what differs between arms of the same name; without any, between the last ones."""
    same = [(arm, arm) for arm in after.arms if arm in before.arms]
    pairs = same or list(zip(before.arms[-1:], after.arms[-1:], strict=False))
    return differences_of_runs((before.run_dir, before.asked), (after.run_dir, after.asked), pairs)
