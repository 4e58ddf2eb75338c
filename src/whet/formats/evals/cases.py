"""Lowering cases of an eval suite: what the agent is asked, and which grader decides with what."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from whet.evals import (
    BooleanAssertion,
    EvalCase,
    EvalSuite,
    ExactMatch,
    JsonSchema,
    LlmRubric,
    TaskPackage,
    TriggerQuery,
)
from whet.evals.competing import competitor_of
from whet.model.suite import SKILL, TRIGGERED, Case, Check, Limits, MadeSkill
from whet.packages.spec import package_problems, package_workspace

# Notes what is wrong with a field of a case.
Trouble = Callable[[str, str, str], None]
_VERIFIER_TIMEOUT_MS = 120_000.0


def lower_case(name: str, case: EvalCase, suite: EvalSuite, folder: Path, trouble: Trouble) -> Case:
    """The case of the model; *folder* is where its relative paths begin."""
    match case:
        case TriggerQuery():
            return _trigger(name, case, suite, folder, trouble)
        case LlmRubric():
            return _asked(name, case, suite, "rubric", prompt=_with_inputs(case))
        case BooleanAssertion():
            return replace(_asked(name, case, suite, "answer", prompt=case.instruction), checks=_asserted(case))
        case ExactMatch() | JsonSchema():
            return _asked(name, case, suite, "answer", prompt=case.instruction)
        case TaskPackage():
            return _package(name, case, suite, folder, trouble)


def _asked(
    name: str,
    case: LlmRubric | ExactMatch | JsonSchema | BooleanAssertion,
    suite: EvalSuite,
    grader: str,
    *,
    prompt: str,
) -> Case:
    return Case(
        id=name,
        prompt=prompt,
        checks=(Check(grader=grader, params={"case": case}, label=case.kind),),
        tags=case.tags,
        weight=case.weight,
        limits=_limits(suite),
    )


def _asserted(case: BooleanAssertion) -> tuple[Check, ...]:
    """Whether the skill was triggered is a check of its own, so that a comparison can leave it out."""
    about = tuple(each for each in case.assertions if each.op == TRIGGERED)
    others = tuple(each for each in case.assertions if each.op != TRIGGERED)
    if not about:
        return (Check(grader="answer", params={"case": case}, label=case.kind),)
    if not others or case.match == "any":
        return (Check(grader="answer", params={"case": case}, label=TRIGGERED, compared=False),)
    parts = ((case.kind, others, True), (TRIGGERED, about, False))
    # By their numbers, so that together they come to the same score.
    return tuple(
        Check(
            grader="answer",
            params={"case": replace(case, assertions=part)},
            label=label,
            weight=float(len(part)),
            compared=compared,
        )
        for label, part, compared in parts
    )


def _with_inputs(case: LlmRubric) -> str:
    """The instruction, and what it is about."""
    if not case.inputs:
        return case.instruction
    return f"{case.instruction}\n\n{json.dumps(dict(case.inputs), ensure_ascii=False, indent=2)}"


def _trigger(name: str, case: TriggerQuery, suite: EvalSuite, folder: Path, trouble: Trouble) -> Case:
    """Without the skill there is nothing to load, so it means nothing there."""
    made: list[MadeSkill] = []
    places: list[Path] = []
    for index, text in enumerate(case.competing_skills):
        described = competitor_of(text)
        if described is not None:
            made.append(MadeSkill(name=described[0], description=described[1]))
            continue
        place = (folder / text).resolve()
        if (place / "SKILL.md").is_file():
            places.append(place)
        else:
            trouble(
                name,
                f"competing_skills[{index}]",
                f'"{text}" is neither the folder of a skill nor a name with a description, such as "deploy: Ships it."',
            )
    return Case(
        id=name,
        prompt=case.query,
        checks=(Check(grader="trigger", params={"case": case}, label=case.expectation),),
        tags=case.tags,
        weight=case.weight,
        limits=_limits(suite),
        trials=case.runs,
        variants=(SKILL,),
        needs_agent=False,
        skills=tuple(places),
        made_skills=tuple(made),
    )


def _package(name: str, case: TaskPackage, suite: EvalSuite, folder: Path, trouble: Trouble) -> Case:
    for field, message in package_problems(case, folder):
        trouble(name, field, message)
    timeout_ms = case.resource_hints.timeout_ms or suite.timeout_ms or _VERIFIER_TIMEOUT_MS
    return Case(
        id=name,
        prompt=case.instruction or "",
        checks=(
            Check(
                grader="task-package",
                params={"package": case, "timeout_s": timeout_ms / 1000},
                label=case.verifier_ref,
            ),
        ),
        tags=case.tags,
        weight=case.weight,
        workspace=package_workspace(case, folder),
        needs_agent=False,
        skill_place=case.skill_bundle_ref,
    )


def _limits(suite: EvalSuite) -> Limits:
    return Limits(timeout_s=suite.timeout_ms / 1000 if suite.timeout_ms else None)
