"""The arms of an evaluation: versions of a callable skill, or different ones, each with the skills that it calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from whet.agents.callable_reading import SKIPPED, LoadedSkill, find_skills
from whet.errors import UnknownName, UsageError
from whet.ground.git import folder_at_commit
from whet.model.arm import DEFAULT, Arm, ArmSpec
from whet.model.benchmark import CallableSkill
from whet.model.request import Settings
from whet.model.suite import SkillUnderTest
from whet.plan.arms import GIT, WITHOUT, parse_arms
from whet.plan.skill_copies import skill_store, tree_digest
from whet.reading.text import count, did_you_mean

# A skill by its arm and its id.
Called: TypeAlias = dict[tuple[str, str], LoadedSkill]


def callable_arms(
    places: Sequence[str], typed: Sequence[str], settings: Settings, commits: Mapping[str, str]
) -> tuple[tuple[Arm, ...], Called]:
    """Return the arms that were asked for, and the skills that each one calls; without any, all are in one.

    *places* are what `--skills` names, and *commits* those that arms of a run to go on with were taken from.
    """
    specs = list(parse_arms(typed, settings))
    for spec in specs:
        _refuse(spec)
    named = find_skills(map(Path, places)) if places else []
    if not specs:
        return (), {(DEFAULT, each.skill.id): each for each in named}
    arms: list[Arm] = []
    called: Called = {}
    for spec in specs:
        found, commit = _skills(spec, named, settings, commits.get(spec.name))
        for each in found:
            skill = replace(each.skill, env={**each.skill.env, **_env(spec, each.skill)})
            called[spec.name, skill.id] = replace(each, skill=skill)
        tested = _tested(spec, found)
        arms.append(Arm(name=spec.name, skill=tested, commit=commit, runner=spec.runner, env=spec.env, defined=True))
    return tuple(arms), called


def _refuse(spec: ArmSpec) -> None:
    """Refuse what only agents have."""
    for key in ("model", "prompt"):
        if getattr(spec, key) is not None:
            raise UsageError(
                f"arm {spec.name}: a callable skill has no {key} that whet could change",
                hint="change it with skill:PATH, skill:git:REF, runner:ID or env:KEY=VALUE",
            )
    if spec.skill == WITHOUT:
        raise UsageError(f"arm {spec.name}: without a skill there is nothing to call", hint="compare with another one")


def _skills(
    spec: ArmSpec, named: Sequence[LoadedSkill], settings: Settings, commit: str | None
) -> tuple[Sequence[LoadedSkill], str | None]:
    """Return the skills of an arm, and the commit that they were taken from."""
    where = f"arm {spec.name}"
    if spec.skill is None:
        if not named:
            raise UsageError(f"{where}: which skill?", hint="name its folder with --skills, or with skill:PATH")
        return _chosen(spec, named), None
    if not spec.skill.startswith(GIT):
        return _one(find_skills([Path(spec.skill)]), where, spec), None
    if len(named) != 1:
        hint = "name the folder of one skill with --skills"
        raise UsageError(f"{where}: {spec.skill} needs to know which skill", hint=hint)
    ref = commit or spec.skill.removeprefix(GIT)
    folder, commit = folder_at_commit(named[0].skill.root, ref, skill_store(settings))
    return _one(find_skills([folder]), where, spec), commit


def _chosen(spec: ArmSpec, named: Sequence[LoadedSkill]) -> Sequence[LoadedSkill]:
    found = [each for each in named if spec.runner in (None, each.skill.id)]
    if not found:
        known = [each.skill.id for each in named]
        hint = did_you_mean(spec.runner or "", known) or f"known: {', '.join(known)}"
        raise UnknownName(f'arm {spec.name}: no skill is called "{spec.runner}"', hint=hint)
    return found


def _one(found: Sequence[LoadedSkill], where: str, spec: ArmSpec) -> Sequence[LoadedSkill]:
    if len(found) != 1:
        raise UsageError(f"{where}: {spec.skill} holds {count(len(found), 'skill')}", hint="name the folder of one")
    return _chosen(spec, found)


def _env(spec: ArmSpec, skill: CallableSkill) -> Mapping[str, str]:
    """Return the variables of an arm; refuses them if no program of ours would see them."""
    if spec.env and skill.url is not None:
        raise UsageError(
            f"arm {spec.name}: env has no effect on {skill.id}, which is called by HTTP",
            hint="start another server for that arm, and name a skill with its address",
        )
    return spec.env


def _tested(spec: ArmSpec, found: Sequence[LoadedSkill]) -> SkillUnderTest | None:
    """Return the skill by which an arm differs from others, if it names one."""
    if spec.skill is None and spec.runner is None:
        return None
    skill = found[0].skill
    return SkillUnderTest(path=skill.root, source=skill.root, name=skill.id, digest=_digest(skill.root))


def _digest(root: Path) -> str:
    return tree_digest(root, frozenset(_not_of_it(root)))


def _not_of_it(root: Path) -> Iterator[str]:
    names = (*SKIPPED, ".git", ".whet")
    yield from (path.relative_to(root).as_posix() for name in names for path in root.rglob(name))
