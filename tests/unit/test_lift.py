"""The lift of a run: what the skill adds, paired by case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import cast

import pytest
from msgspec import Struct

from whet.decide.comparison import lift_line, lifts_of
from whet.model.arm import Arm
from whet.model.grade import Status
from whet.model.run import AttemptResult, Execution, Plan, Runner, TrialResult
from whet.model.run_events import Results
from whet.model.suite import NO_SKILL, SKILL, Case, Limits, Suite, WorkspaceSpec


class Scored(Struct):
    """Results with one trial of each execution, which counts as given or errored, by case, arm and runner."""

    scores: dict[tuple[str, str, str], float | None]
    weights: dict[str, float]
    looks = ()
    pairwise = ()
    counts = MappingProxyType({"not-run": 0})

    @property
    def plan(self) -> Plan:
        suite = Suite(name="s", cases=(), source=Path("s.json"), digest="")
        arms = (Arm(name=SKILL, recorded={"skill": "1"}), Arm(name=NO_SKILL))
        executions = tuple(
            Execution(
                case=Case(id=case, prompt="p", checks=(), weight=self.weights.get(case, 1.0)),
                runner=Runner(id=runner, agent="scripted"),
                arm=arm,
                limits=Limits(),
                workspace=WorkspaceSpec(),
                trials=1,
            )
            for case, arm, runner in self.scores
        )
        return Plan(
            suite=suite,
            executions=executions,
            schedule="serial",
            max_parallel=1,
            retries=0,
            check_timeout_s=1.0,
            arms=tuple(arm for arm in arms if any(arm.name == name for _, name, _ in self.scores)),
            baseline=NO_SKILL if any(arm == NO_SKILL for _, arm, _ in self.scores) else None,
        )

    def trials(self, execution: Execution) -> Iterator[TrialResult]:
        value = self.scores[execution.case.id, execution.arm, execution.runner.id]
        status: Status = "errored" if value is None else "passed"
        yield TrialResult(
            key=self.plan.key(execution, 1),
            status=status,
            score=value,
            duration_s=1.0,
            started_at="",
            artifact_dir="",
            attempts=(AttemptResult(number=1, status=status, duration_s=1.0, artifact_dir="", value=value),),
        )


def results(pairs: dict[str, tuple[float | None, float | None]], **weights: float) -> Results:
    scores: dict[tuple[str, str, str], float | None] = {}
    for case, (with_it, without) in pairs.items():
        scores[case, SKILL, "r"] = with_it
        scores[case, NO_SKILL, "r"] = without
    return cast("Results", Scored(scores, weights))


def test_cases_count_by_their_weight() -> None:
    (lift,) = lifts_of(results({"a": (1.0, 0.0), "b": (0.5, 1.0)}, a=3.0))

    assert (lift.skill, lift.no_skill) == (pytest.approx(3.5 / 4), pytest.approx(1 / 4))
    assert lift.value == pytest.approx(2.5 / 4)
    assert (lift.better, lift.worse, lift.same) == (1, 1, 0)


def test_a_case_without_a_score_in_both_arms_is_named_and_not_counted() -> None:
    (lift,) = lifts_of(results({"a": (1.0, 0.0), "b": (1.0, 1.0), "broken": (1.0, None)}))

    assert lift.unpaired == ("broken",)
    assert lift.value == 0.5
    assert "1 without a score in both" in lift_line(lift)


def test_the_interval_holds_the_lift_and_narrows_with_cases_that_agree() -> None:
    (few,) = lifts_of(results({str(number): (1.0, float(number % 2)) for number in range(4)}))
    (many,) = lifts_of(results({str(number): (1.0, float(number % 2)) for number in range(40)}))

    assert few.low is not None
    assert few.high is not None
    assert many.low is not None
    assert many.high is not None
    assert few.low <= few.value <= few.high
    assert many.high - many.low < few.high - few.low


def test_a_single_case_has_a_lift_with_a_wide_interval() -> None:
    (lift,) = lifts_of(results({"a": (1.0, 0.5)}))

    assert lift.value == 0.5
    assert lift.low is not None
    assert lift.high is not None
    assert lift.low < 0 < lift.high
    assert lift_line(lift).startswith("+0.50 (-")


def test_where_nothing_ran_without_the_skill_there_is_nothing_to_compare() -> None:
    scored = cast("Results", Scored({("a", SKILL, "r"): 1.0, ("b", SKILL, "r"): 0.0}, {}))

    assert lifts_of(scored) == ()


def test_each_runner_has_a_lift_of_its_own() -> None:
    scores: dict[tuple[str, str, str], float | None] = {
        (case, arm, runner): score
        for case in ("a", "b")
        for runner, arm, score in (("x", SKILL, 1.0), ("x", NO_SKILL, 0.0), ("y", SKILL, 0.0), ("y", NO_SKILL, 1.0))
    }

    lifts = lifts_of(cast("Results", Scored(scores, {})))

    assert {lift.runner: lift.value for lift in lifts} == {"x": 1.0, "y": -1.0}
