"""The arms of an evaluation: versions of a callable skill, or different ones, each with the skills that it calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from whet.callable.manifest import SKIPPED, LoadedSkill, find_skills
from whet.errors import UnknownName, UsageError
from whet.model.arm import DEFAULT, Arm, ArmSpec
from whet.model.callable import CallableSkill
from whet.model.request import Settings
from whet.model.suite import SkillUnderTest
from whet.packages.git import folder_at_commit
from whet.plan.arms import GIT, WITHOUT, parse_arms
from whet.plan.skill_copies import skill_store, tree_digest
from whet.reading.text import count, did_you_mean

# A skill by its arm and its id.
Called: TypeAlias = dict[tuple[str, str], LoadedSkill]


def callable_arms(
    places: Sequence[str], texts: Sequence[str], settings: Settings, commits: Mapping[str, str]
) -> tuple[tuple[Arm, ...], Called]:
    """Return the arms that were asked for, and the skills that each one calls; without any, all are in one.

    *places* are what `--skill` names, and *commits* those that arms of a run to go on with were taken from.
    """
    specs = list(parse_arms(texts, settings))
    for spec in specs:
        _refuse(spec)
    all_skills = find_skills(map(Path, places)) if places else []
    if not specs:
        return (), {(DEFAULT, loaded_skill.skill.id): loaded_skill for loaded_skill in all_skills}
    arms: list[Arm] = []
    calls: Called = {}
    for spec in specs:
        arm_skills, commit = _skills(spec, all_skills, settings, commits.get(spec.name))
        for loaded_skill in arm_skills:
            skill = replace(loaded_skill.skill, env={**loaded_skill.skill.env, **_env(spec, loaded_skill.skill)})
            calls[spec.name, skill.id] = replace(loaded_skill, skill=skill)
        arm_skill = _skill_under_test(spec, arm_skills)
        arms.append(Arm(name=spec.name, skill=arm_skill, commit=commit, runner=spec.runner, env=spec.env, defined=True))
    return tuple(arms), calls


def _refuse(spec: ArmSpec) -> None:
    """Refuse what only agents have."""
    for key in ("model", "prompt"):
        if getattr(spec, key) is not None:
            raise UsageError(
                f"arm {spec.name}: a callable skill has no {key} that whet could change",
                hint="change it with skill:PATH, skill:git:REF, runner:ID or env:KEY=VALUE",
            )
    if spec.more_skills:
        raise UsageError(f"arm {spec.name}: skill is given twice")
    if spec.skill == WITHOUT:
        raise UsageError(f"arm {spec.name}: without a skill there is nothing to call", hint="compare with another one")


def _skills(
    spec: ArmSpec, all_skills: Sequence[LoadedSkill], settings: Settings, commit: str | None
) -> tuple[Sequence[LoadedSkill], str | None]:
    """Return the skills of an arm, and the commit that they were taken from."""
    where = f"arm {spec.name}"
    if spec.skill is None:
        if not all_skills:
            raise UsageError(f"{where}: which skill?", hint="name its folder, or with skill:PATH")
        return _select_skills(spec, all_skills), None
    if not spec.skill.startswith(GIT):
        return _require_one(find_skills([Path(spec.skill)]), where, spec), None
    if len(all_skills) != 1:
        hint = "name the folder of one skill"
        raise UsageError(f"{where}: {spec.skill} needs to know which skill", hint=hint)
    ref = commit or spec.skill.removeprefix(GIT)
    folder, commit = folder_at_commit(all_skills[0].skill.root, ref, skill_store(settings))
    return _require_one(find_skills([folder]), where, spec), commit


def _select_skills(spec: ArmSpec, all_skills: Sequence[LoadedSkill]) -> Sequence[LoadedSkill]:
    matches = [loaded_skill for loaded_skill in all_skills if spec.runner in (None, loaded_skill.skill.id)]
    if not matches:
        skill_ids = [loaded_skill.skill.id for loaded_skill in all_skills]
        hint = did_you_mean(spec.runner or "", skill_ids) or f"known: {', '.join(skill_ids)}"
        raise UnknownName(f'arm {spec.name}: no skill is called "{spec.runner}"', hint=hint)
    return matches


def _require_one(candidates: Sequence[LoadedSkill], where: str, spec: ArmSpec) -> Sequence[LoadedSkill]:
    if len(candidates) != 1:
        raise UsageError(
            f"{where}: {spec.skill} holds {count(len(candidates), 'skill')}", hint="name the folder of one"
        )
    return _select_skills(spec, candidates)


def _env(spec: ArmSpec, skill: CallableSkill) -> Mapping[str, str]:
    """Return the variables of an arm; refuses them if no program of ours would see them."""
    if spec.env and skill.url is not None:
        raise UsageError(
            f"arm {spec.name}: env has no effect on {skill.id}, which is called by HTTP",
            hint="start another server for that arm, and name a skill with its address",
        )
    return spec.env


def _skill_under_test(spec: ArmSpec, arm_skills: Sequence[LoadedSkill]) -> SkillUnderTest | None:
    """Return the skill by which an arm differs from others, if it names one."""
    if spec.skill is None and spec.runner is None:
        return None
    skill = arm_skills[0].skill
    return SkillUnderTest(path=skill.root, source=skill.root, name=skill.id, digest=_digest(skill.root))


def _digest(root: Path) -> str:
    return tree_digest(root, frozenset(_not_of_it(root)))


def _not_of_it(root: Path) -> Iterator[str]:
    names = (*SKIPPED, ".git", ".whet")
    yield from (path.relative_to(root).as_posix() for name in names for path in root.rglob(name))
