"""Make the record of a run whose statements a judge decided, with grades as the grader makes them; nobody is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from large_run import write_record
from msgspec import Struct, field

from whet.grade.judge.judge import Judgement
from whet.grade.judge.questions import Question, Verdict, Vote
from whet.grade.judge_settings import JudgeSettings
from whet.model.arm import Arm
from whet.model.grade import Grade, Status
from whet.model.run import AttemptResult, Execution, Plan, Runner, Trial, TrialResult
from whet.model.session import Usage
from whet.model.suite import Case, Check, Limits, Suite, WorkspaceSpec

USUAL = JudgeSettings(model="a-judge")
THRESHOLD = 0.7


class JudgedTrial(Struct, frozen=True, kw_only=True):
    """What an agent answered in a trial, the ratings of each statement on it, and what other checks say."""

    case: str
    arm: str
    number: int
    answer: str
    ratings: Mapping[str, Sequence[float]]
    held: Mapping[str, bool] = field(default_factory=dict)


def make_judged_run(
    folder: Path,
    suite: Path,
    trials: Sequence[JudgedTrial],
    *,
    judge: JudgeSettings = USUAL,
    reference: str | None = None,
    runner: str = "agent",
) -> Path:
    """Make the record of a run of the file *suite* in *folder*, and return it; the first arm is the baseline."""
    by_name = {(trial.case, trial.arm, trial.number): trial for trial in trials}
    plan = _plan(suite, trials, runner)

    def outcome(trial: Trial, began: datetime) -> TrialResult:
        key = trial.key
        return _result(plan, trial, by_name[key.case, key.arm, key.number], began, judge, reference)

    session = json.dumps({"type": "final_output", "text": "Done."}).encode() + b"\n"
    return write_record(folder, plan, outcome, session, compares=len(plan.arms) > 1)


def _plan(suite: Path, trials: Sequence[JudgedTrial], runner: str) -> Plan:
    checks: dict[str, dict[str, None]] = {}
    for trial in trials:
        checks.setdefault(trial.case, {}).update(dict.fromkeys((*trial.ratings, *trial.held)))
    cases = tuple(
        Case(id=name, prompt=f"Do {name}.", checks=tuple(Check(grader="rubric", label=label) for label in labels))
        for name, labels in checks.items()
    )
    arms = tuple(dict.fromkeys(trial.arm for trial in trials))
    executions = tuple(
        Execution(
            case=case,
            runner=Runner(id=runner, agent="command"),
            arm=arm,
            limits=Limits(),
            workspace=WorkspaceSpec(),
            trials=max(trial.number for trial in trials if (trial.case, trial.arm) == (case.id, arm)),
            baseline=arm == arms[0],
        )
        for case in cases
        for arm in arms
    )
    return Plan(
        suite=Suite(name=suite.stem, cases=cases, source=suite, digest="0" * 64),
        executions=executions,
        schedule="parallel",
        max_parallel=8,
        retries=0,
        check_timeout_s=30.0,
        arms=tuple(Arm(name=name, recorded={"skill": f"{number}" * 64}) for number, name in enumerate(arms)),
        baseline=arms[0],
        seed=7,
    )


def _result(
    plan: Plan, trial: Trial, said: JudgedTrial, began: datetime, judge: JudgeSettings, reference: str | None
) -> TrialResult:
    grades = [
        *(statement_grade(text, said.answer, ratings, judge, reference) for text, ratings in said.ratings.items()),
        *(Grade(check=label, value=float(held), passed=held) for label, held in said.held.items()),
    ]
    passes = all(grade.passed for grade in grades)
    status: Status = "passed" if passes else ("expected-failed" if trial.execution.baseline else "failed")
    key = trial.key
    place = f"trials/{key.case}/{key.runner}/{key.arm}/{key.number}/1"
    attempt = AttemptResult(number=1, status=status, duration_s=1.0, artifact_dir=place, value=float(passes))
    return TrialResult(
        key=plan.key(trial.execution, key.number),
        status=status,
        score=float(passes),
        duration_s=1.0,
        started_at=began.isoformat(timespec="milliseconds"),
        artifact_dir=place,
        grades=tuple(grades),
        final_output=said.answer,
        session_s=1.0,
        attempts=(attempt,),
    )


def statement_grade(
    text: str, answer: str, ratings: Sequence[float], judge: JudgeSettings = USUAL, reference: str | None = None
) -> Grade:
    """Return the grade of a statement as the grader of rubrics makes it of such *ratings*."""
    question = Question(name="1", criteria=text, answer=answer, reference=reference)
    votes = [Vote(verdict=Verdict(rating=rating, rationale="Because."), usage=Usage()) for rating in ratings]
    grade = Judgement.of(judge, question, votes).grade(THRESHOLD)
    item = {
        "id": "1",
        "description": text,
        "value": grade.value,
        "reason": grade.reason,
        "judged": json.loads(grade.evidence or "null"),
    }
    return Grade(check=text, value=grade.value, passed=grade.passed, reason=grade.reason, evidence=json.dumps([item]))
