"""What a variant changes of a case: which skills are there, and what of them lies in its workspace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from whet.model.run import Execution, Runner
from whet.model.suite import NO_SKILL, SKILL, Case, Placed, SkillUnderTest, Suite, WorkspaceSpec


def in_variant(suite: Suite, execution: Execution) -> Execution:
    """*execution* with the skill where it belongs, or absent everywhere; other variants change nothing."""
    case, variant = execution.case, execution.variant
    if variant not in {SKILL, NO_SKILL}:
        return execution
    skill = suite.skill if variant == SKILL else None
    return replace(
        execution,
        runner=replace(execution.runner, skills=_skills(suite.skill, skill, case, execution.runner)),
        workspace=_workspace(suite.skill, skill, case, execution.workspace),
        skill=skill.path if skill else None,
    )


def _skills(
    tested: SkillUnderTest | None, there: SkillUnderTest | None, case: Case, runner: Runner
) -> tuple[Path, ...]:
    """The skill under test, its competitors, and the runner's own, of which none may pass for the one under test."""
    names = tested.names if tested else frozenset()
    others = [path for path in (*case.skills, *runner.skills) if path.name not in names]
    return tuple(dict.fromkeys((*((there.path,) if there else ()), *others)))


def _workspace(
    tested: SkillUnderTest | None, there: SkillUnderTest | None, case: Case, spec: WorkspaceSpec
) -> WorkspaceSpec:
    if tested is not None and there is None:
        spec = replace(spec, without_skills=tuple(sorted(tested.names)))
    if case.skill_place is None:
        return spec
    # Also without the skill: a package may have brought something to that place.
    return replace(spec, placed=(Placed(path=case.skill_place, source=there.path if there else None),))
