"""The eval format: cases for a skill, each lowered to what the agent is asked and which grader decides."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from whet.errors import SuiteError
from whet.model.eval_cases import (
    BooleanAssertion,
    EvalCase,
    EvalSuite,
    EvalTurn,
    ExactMatch,
    JsonSchema,
    LlmRubric,
    TaskPackage,
    TriggerQuery,
    competitor_of,
)
from whet.model.grade import Location
from whet.model.run import folder_name
from whet.model.suite import NO_SKILL, SKILL, TRIGGERED, Case, Check, Limits, MadeSkill, Suite, User
from whet.packages.task_packages import package_problems, package_workspace, sources_of
from whet.reading.fields import Fields, Findings
from whet.reading.yaml import checked_root
from whet.suites.conversation import SATISFIED
from whet.suites.document_formats import document_format, eval_suite_in, is_manifest
from whet.suites.evals.documents import read_manifest, read_suite
from whet.suites.split.fields import source_of

USUAL_TIMEOUT_S = 600.0
# A service has a lower limit.
_MOST_CASES = 100_000
_VERIFIER_TIMEOUT_MS = 120_000.0


class EvalsFormat:
    """A JSON or YAML file with `cases_json`, or an import manifest."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* has such cases."""
        return document_format(path) == "evals"

    def lower(self, path: Path) -> Suite:
        """Read the file, and check all that can be checked before anything starts."""
        root = eval_suite_in(checked_root(path))
        assert root is not None
        read = read_manifest if is_manifest(root) else read_suite
        findings = Findings(str(path), root)
        suite = read(root.plain(), most_cases=_MOST_CASES, findings=findings)
        key = "cases" if is_manifest(root) else "cases_json"
        cases = tuple(
            lower_case(case, suite, path.parent, Fields({}, findings, f"{key}[{index}]", case=name))
            for index, (name, case) in enumerate(zip(case_ids(suite.cases), suite.cases, strict=True))
        )
        if findings.problems:
            raise SuiteError(findings.problems)
        return Suite(
            name=suite.name,
            cases=cases,
            source=path,
            digest=hashlib.sha256(path.read_bytes()).hexdigest(),
            arms=(SKILL, NO_SKILL) if suite.supports_no_skill else (SKILL,),
            usual_timeout_s=USUAL_TIMEOUT_S,
            held_out=_held_out(path, cases),
        )


def _held_out(path: Path, cases: tuple[Case, ...]) -> tuple[Path, ...]:
    """Return what no agent may see: the suite and all of its packages, because one may hold the answer of another."""
    packages = (case.workspace.package for case in cases if case.workspace is not None)
    sources = (source for package in packages if package is not None for source in sources_of(package))
    return tuple(dict.fromkeys((path, *sources)))


def case_ids(cases: Sequence[EvalCase]) -> tuple[str, ...]:
    """Return the id of each case: its own, or its kind with its number in the suite."""
    folder_names = {folder_name(case.task_id).casefold() for case in cases if case.task_id}
    names: list[str] = []
    for number, case in enumerate(cases, 1):
        name = case.task_id or f"{case.kind}-{number}"
        while case.task_id is None and folder_name(name).casefold() in folder_names:
            name += "-unnamed"
        names.append(name)
    return tuple(names)


def lower_case(case: EvalCase, suite: EvalSuite, folder: Path, fields: Fields) -> Case:
    """Return the case of the model; notes in *fields* what is wrong with it.

    *folder* is where relative paths start.
    """
    turns: tuple[EvalTurn, ...] = getattr(case, "turns", ())
    user: User | None = getattr(case, "user", None)
    user_checks = () if user is None else (SATISFIED,)
    common = Case(
        id=fields.case or "",
        prompt="",
        checks=tuple(check for number, turn in enumerate(turns, 1) for check in _turn_checks(number, turn)),
        then=tuple(turn.instruction for turn in turns[1:]),
        user=user,
        tags=case.tags,
        weight=case.weight,
        scored=True,
        limits=Limits(timeout_s=suite.timeout_ms / 1000 if suite.timeout_ms else None),
        location=Location(file=fields.findings.file, line=fields.findings.line(fields.path)),
        split=case.split,
        source=source_of(case.source),
        pairwise=getattr(case, "pairwise", None),
    )
    match case:
        case TriggerQuery():
            return _trigger(common, case, folder, fields)
        case TaskPackage():
            return _package(common, case, suite, folder, fields)
        case LlmRubric():
            check = Check(grader="rubric", params={"case": case}, label=case.kind)
            return replace(
                common, prompt=_with_inputs(case), checks=(*common.checks, check, *user_checks), solution=case.solution
            )
        case BooleanAssertion():
            return replace(
                common,
                prompt=case.instruction,
                checks=(*common.checks, *_assertion_checks(case), *user_checks),
                solution=case.solution,
            )
        case ExactMatch() | JsonSchema():
            check = Check(grader="answer", params={"case": case}, label=case.kind)
            return replace(
                common, prompt=case.instruction, checks=(*common.checks, check, *user_checks), solution=case.solution
            )


def _turn_checks(number: int, turn: EvalTurn) -> Iterator[Check]:
    if turn.assertions:
        assertion = BooleanAssertion(instruction=turn.instruction, assertions=turn.assertions)
        yield from (replace(check, turn=number, soft=turn.soft) for check in _assertion_checks(assertion))


def _assertion_checks(case: BooleanAssertion) -> tuple[Check, ...]:
    """Return the checks; whether the skill was triggered is one of its own, so that a comparison can leave it out."""
    trigger_assertions = tuple(assertion for assertion in case.assertions if assertion.op == TRIGGERED)
    other_assertions = tuple(assertion for assertion in case.assertions if assertion.op != TRIGGERED)
    if not trigger_assertions:
        return (Check(grader="answer", params={"case": case}, label=case.kind),)
    if not other_assertions or case.match == "any":
        return (Check(grader="answer", params={"case": case}, label=TRIGGERED, compared=False),)
    parts = ((case.kind, other_assertions, True), (TRIGGERED, trigger_assertions, False))
    # Weighted by their numbers, so that the score stays the same.
    return tuple(
        Check(
            grader="answer",
            params={"case": replace(case, assertions=part)},
            label=label,
            weight=float(len(part)),
            compared=is_compared,
        )
        for label, part, is_compared in parts
    )


def _with_inputs(case: LlmRubric) -> str:
    """Return the instruction with its inputs."""
    if not case.inputs:
        return case.instruction
    return f"{case.instruction}\n\n{json.dumps(dict(case.inputs), ensure_ascii=False, indent=2)}"


def _trigger(common: Case, case: TriggerQuery, folder: Path, fields: Fields) -> Case:
    """Lower a trigger query; it runs with the skill only, because without it there is nothing to load."""
    made_skills: list[MadeSkill] = []
    places: list[Path] = []
    for index, text in enumerate(case.competing_skills):
        competitor = competitor_of(text)
        place = (folder / text).resolve()
        if competitor is not None:
            made_skills.append(MadeSkill(name=competitor[0], description=competitor[1]))
        elif (place / "SKILL.md").is_file():
            places.append(place)
        else:
            fields.problem(
                f"competing_skills[{index}]",
                f'"{text}" is neither the folder of a skill nor a name with a description, such as "deploy: Ships it."',
            )
    return replace(
        common,
        prompt=case.query,
        checks=(Check(grader="trigger", params={"case": case}, label=case.expectation),),
        trials=case.runs,
        arms=(SKILL,),
        needs_agent=False,
        skills=tuple(places),
        made_skills=tuple(made_skills),
    )


def _package(common: Case, case: TaskPackage, suite: EvalSuite, folder: Path, fields: Fields) -> Case:
    for field, message in package_problems(case, folder):
        fields.problem(field, message)
    timeout_ms = case.resource_hints.timeout_ms or suite.timeout_ms or _VERIFIER_TIMEOUT_MS
    params = {"package": case, "timeout_s": timeout_ms / 1000}
    return replace(
        common,
        prompt=case.instruction or "",
        checks=(Check(grader="task-package", params=params, label=case.verifier_ref),),
        # The time limit of the suite is that of the verifier.
        limits=Limits(),
        workspace=package_workspace(case, folder),
        needs_agent=False,
        skill_place=case.skill_bundle_ref,
    )
