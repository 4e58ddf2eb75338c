"""Which checks of today are behind judged statements of a record, and what has changed since, so that they are not."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from whet.decide.judging.units import JudgedUnit
from whet.errors import UsageError
from whet.grade.judge.identity import facts_of, statement_id
from whet.grade.judge.questions import Question
from whet.grade.judge_settings import judge_settings, with_usual_model
from whet.model.eval_cases import LlmRubric
from whet.model.run import Execution, Plan, Trial
from whet.model.suite import Check
from whet.plan.judge import judged_checks
from whet.reading.text import count


class StatementTarget(Struct, frozen=True, kw_only=True):
    """A judged statement, its trial and its check."""

    unit: JudgedUnit
    trial: Trial
    check: Check


def find_targets(
    plan: Plan, sample: Sequence[JudgedUnit], run: str, *, of_any_judge: bool = False
) -> tuple[list[StatementTarget], list[str]]:
    """Return what of *sample* can be asked again, and notes on what cannot.

    Raises if another judge would answer, unless it is *of_any_judge*.
    """
    executions = {execution.key: execution for execution in plan.executions}
    targets: list[StatementTarget] = []
    change_count = 0
    for unit in sample:
        key = unit.key
        execution = executions.get((key.case, key.runner, key.arm))
        check = None if execution is None else _check_of(unit, execution)
        if execution is None or check is None:
            change_count += 1
            continue
        if not of_any_judge:
            _refuse_other_judge(plan, unit, check, run)
        trial = Trial(key=plan.key(execution, key.trial), execution=execution)
        targets.append(StatementTarget(unit=unit, trial=trial, check=check))
    if not targets:
        raise UsageError(
            f"no statement of {run} is in the suite as it is now",
            hint=f"regrade it, and try that run: whet regrade {run}",
        )
    notes = [f"{count(change_count, 'statement')} of the sample left out: changed since, or no longer in the suite"]
    return targets, notes if change_count else []


def _check_of(unit: JudgedUnit, execution: Execution) -> Check | None:
    """Return the check of *unit*, unless its statement is another by now, or it is about an earlier turn."""
    candidates = [check for check in judged_checks([execution]) if check.label == unit.key.check]
    check = next((check for check in candidates if check.turn is None), None)
    rubric = None if check is None else check.params.get("case")
    if not isinstance(rubric, LlmRubric):
        # Of other graders only they know the question.
        return check
    statements = {
        statement_id(Question(name=item.id, criteria=item.description, answer="", reference=rubric.reference))
        for item in rubric.rubric
    }
    return check if unit.statement_id in statements else None


def _refuse_other_judge(plan: Plan, unit: JudgedUnit, check: Check, run: str) -> None:
    rubric = check.params.get("case")
    if not isinstance(rubric, LlmRubric):
        return
    usual = judge_settings(plan.suite.judge)
    hints = rubric.judge
    judge = with_usual_model(replace(usual, model=hints.model or usual.model), os.environ)
    facts = facts_of(judge, hints.votes or usual.votes, threshold=rubric.pass_threshold, majority=hints.majority)
    if facts.judge_id == unit.judge_id:
        return
    names = [name for name in facts.__struct_fields__ if unit.judge.get(name) != getattr(facts, name)]
    raise UsageError(
        f"{run} was judged by another judge than that of the settings: {', '.join(names)} changed",
        hint=f"restore the settings, or ask the judge of today and try that run: whet regrade {run}",
    )
