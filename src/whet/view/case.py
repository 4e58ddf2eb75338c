"""The document of a case: how its checks did in each arm, why its trials failed, and which two are worth comparing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from whet.model.grade import PASSED
from whet.record.read.ratings import item_ratings
from whet.record.read.rows import RowGrade, RowKey, TrialRow
from whet.report.finding import message_of
from whet.report.reason import parted_reason
from whet.view.documents import CaseByArms, CheckCount, ReasonGroup, ShownCaseExecution, trial_key
from whet.view.run import RunView

_LONGEST_REASON = 300
_MOST_REASONS = 20
_MOST_CHECKS = 200


def case_document(view: RunView, case: str) -> CaseByArms | None:
    """Return the document of a case; None if none of its trials has ended."""
    executions: dict[tuple[str, str], list[TrialRow]] = {}
    for row in view.rows_by_case.get(case, ()):
        executions.setdefault((row.key.arm, row.key.runner), []).append(row)
    if not executions:
        return None
    arms = (*view.arms, *dict.fromkeys(arm for arm, _ in executions))
    ordered = sorted(executions.items(), key=lambda item: (arms.index(item[0][0]), item[0][1]))
    for _, rows in ordered:
        rows.sort(key=lambda row: row.key.number)
    return CaseByArms(
        run=view.id,
        suite=view.asked.suite,
        case=case,
        executions=tuple(_execution(view, rows) for _, rows in ordered),
        beside=_passed_beside_failed(list(chain.from_iterable(rows for _, rows in ordered)), view.baseline),
    )


def _execution(view: RunView, rows: Sequence[TrialRow]) -> ShownCaseExecution:
    return ShownCaseExecution(
        runner=rows[0].key.runner,
        arm=rows[0].key.arm,
        baseline=rows[0].key.arm == view.baseline,
        trials=len(rows),
        checks=tuple(_check_counts(rows))[:_MOST_CHECKS],
        reasons=tuple(_reason_groups(rows))[:_MOST_REASONS],
        typical=trial_key(_typical(rows).key),
        items=item_ratings(view.run_dir, rows),
    )


def _check_counts(rows: Iterable[TrialRow]) -> Iterator[CheckCount]:
    """Yield each check with how often it held, in the order in which trials have them."""
    held: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for row in rows:
        for check, grades in _by_check(row.grades).items():
            total[check] += 1
            held[check] += all(grade.passed for grade in grades)
    for check, count in total.items():
        yield CheckCount(check=check, held=held[check], total=count)


def _by_check(grades: Iterable[RowGrade]) -> dict[str, list[RowGrade]]:
    checks: dict[str, list[RowGrade]] = {}
    for grade in grades:
        checks.setdefault(grade.check, []).append(grade)
    return checks


def _reason_groups(rows: Iterable[TrialRow]) -> list[ReasonGroup]:
    """Return why trials did not pass, the most frequent reason first, each with its first trial."""
    groups: dict[tuple[str, str], ReasonGroup] = {}
    for row in rows:
        if row.status == "passed":
            continue
        # Trials of one reason often differ in what was seen, so only the line that says most is compared.
        reason, seen = parted_reason(message_of(row))
        made = ReasonGroup(reason=reason[:_LONGEST_REASON], seen=seen, status=row.status, first=trial_key(row.key))
        group = groups.setdefault((made.reason, made.status), made)
        group.count += 1
    return sorted(groups.values(), key=lambda group: -group.count)


def _typical(rows: Sequence[TrialRow]) -> TrialRow:
    """Return the first trial that ended as most of them did; an errored one only if no trial came to a verdict."""
    ended = [row for row in rows if row.status != "errored"] or rows
    most, _ = Counter(row.status for row in ended).most_common(1)[0]
    return next(row for row in ended if row.status == most)


def _passed_beside_failed(rows: Sequence[TrialRow], baseline: str | None) -> tuple[str, str] | None:
    """Return a trial of the baseline and one of another arm that ended otherwise, or two of one arm that did."""
    of_baseline = list(filter(lambda row: row.key.arm == baseline, rows))
    others = list(filter(lambda row: row.key.arm != baseline, rows))
    pair = differing(of_baseline, others) if of_baseline and others else differing(rows, rows)
    return None if pair is None else (trial_key(pair[0]), trial_key(pair[1]))


def differing(first: Sequence[TrialRow], second: Sequence[TrialRow]) -> tuple[RowKey, RowKey] | None:
    """Return a passed one of the first beside a failed one of the second, or else the other way round."""
    for wanted in (True, False):
        left = next((row.key for row in first if _passed(row) is wanted), None)
        right = next((row.key for row in second if _passed(row) is not wanted and row.status != "errored"), None)
        if left is not None and right is not None:
            return left, right
    return None


def _passed(row: TrialRow) -> bool | None:
    """Return whether it passed; None if it errored, which says nothing."""
    return None if row.status == "errored" else row.status in PASSED
