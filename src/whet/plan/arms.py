"""Find the arms of a run: what you type with `--arm`, tables `[arms.NAME]` of the settings, or the suite's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whet.errors import UnknownName, UsageError
from whet.model.arm import Arm, ArmSpec
from whet.model.request import Settings
from whet.model.run import id_problem
from whet.model.suite import SKILL, SkillUnderTest, Suite
from whet.packages.git import folder_at_commit
from whet.plan.skill import find_skill
from whet.plan.skill_copies import align_skills, given_folder, skill_store, tree_digest
from whet.reading.plugin_folder import can_be_given, skill_hint
from whet.reading.text import did_you_mean
from whet.workspace.make import MANIFEST

_KEYS = ("skill", "model", "runner", "env", "prompt")
WITHOUT, GIT = "none", "git:"
# The arm that changes nothing: as the suite and the settings say.
AS_IS = "as-is"
_EXAMPLE = "write it like new=skill:./v2,model:large"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_PROMPT = 1_000_000


def bind_arms(
    suite: Suite,
    texts: Sequence[str],
    settings: Settings,
    skill: Path | None,
    commits: Mapping[str, str] | None = None,
) -> tuple[Suite, tuple[Arm, ...]]:
    """Return the arms that were asked for, and the suite with the skill that they are about.

    *skill* is what `--skill` names. Without any `--arm`, the arms are the suite's own. *commits* are those that arms of
    a run to go on with were taken from: since then, a branch may have moved.
    """
    specs = [_parse(text, settings) for text in texts]
    pinned_specs = [_pin_commit(spec, commits or {}) if isinstance(spec, ArmSpec) else spec for spec in specs]
    suite_arms = [Arm(name=name, skill=suite.skill if name == SKILL else None) for name in suite.arms]
    arm_specs = [spec for spec in specs if isinstance(spec, ArmSpec)]
    if not arm_specs:
        return suite, tuple(suite_arms)
    _refuse_same_names(arm_specs)
    arms_by_name = {arm.name: arm for arm in suite_arms}
    arms = [
        _find_arm(spec, suite, settings, skill) if isinstance(spec, ArmSpec) else arms_by_name.get(spec)
        for spec in pinned_specs
    ]
    missing = [spec for spec, arm in zip(specs, arms, strict=True) if arm is None and isinstance(spec, str)]
    if missing:
        raise UnknownName(f'no arm is called "{missing[0]}"', hint=_arm_hint(missing[0], arms_by_name, settings))
    suite, alike_arms = _align_skills(suite, [arm for arm in arms if arm is not None], settings)
    return replace(suite, skill=_skill_under_test(suite.skill, alike_arms)), alike_arms


def parse_arms(texts: Sequence[str], settings: Settings) -> Iterator[ArmSpec]:
    """Yield each arm that was typed; raises for a name that the settings do not define."""
    specs = [_parse(text, settings) for text in texts]
    _refuse_same_names([spec for spec in specs if isinstance(spec, ArmSpec)])
    for spec in specs:
        if not isinstance(spec, ArmSpec):
            raise UnknownName(f'no arm is called "{spec}"', hint=_arm_hint(spec, {}, settings))
        yield spec


def _refuse_same_names(specs: Sequence[ArmSpec]) -> None:
    if len({spec.name for spec in specs}) < len(specs):
        raise UsageError("--arm: two arms have the same name")


def _pin_commit(spec: ArmSpec, commits: Mapping[str, str]) -> ArmSpec:
    commit = commits.get(spec.name)
    return spec if commit is None else replace(spec, skill=f"{GIT}{commit}")


def _parse(text: str, settings: Settings) -> ArmSpec | str:
    """Return the arm that was typed, or that the settings define; else the name of one of the suite's own."""
    name, equals, spec = text.partition("=")
    if problem := id_problem(name):
        raise UsageError(f'--arm: the name "{name}" {problem}', hint=_EXAMPLE)
    if equals:
        return _parse_pairs(name, spec)
    if name in settings.arms:
        base = settings.file.parent if settings.file else Path.cwd()
        return _spec(name, settings.arms[name], base)
    return name


def _parse_pairs(name: str, text: str) -> ArmSpec:
    values: dict[str, Any] = {}
    env: dict[str, str] = {}
    more_skills: list[str] = []
    pieces = [] if text.strip() == AS_IS else text.split(",")
    for piece in pieces:
        key, colon, value = (part.strip() for part in piece.partition(":"))
        if not colon or key not in _KEYS:
            what = f'"{key}" is not a key of an arm' if colon else f'"{piece}" is not of the form key:value'
            key_hint = f"the keys are {', '.join(_KEYS)}; a value with a comma goes into [arms.{name}] of the settings"
            hint = skill_hint(name, piece) or did_you_mean(key, _KEYS) or key_hint
            raise UsageError(f"--arm {name}: {what}", hint=hint)
        if not value:
            raise UsageError(f'--arm {name}: "{key}" has no value', hint=_EXAMPLE)
        if key == "env":
            variable, equals, content = value.partition("=")
            if not equals or not _VARIABLE.fullmatch(variable):
                raise UsageError(f'--arm {name}: "{piece}" is not of the form env:KEY=VALUE')
            if variable in env:
                raise UsageError(f"--arm {name}: {variable} is given twice")
            env[variable] = content
        elif key == "skill" and key in values:
            more_skills.append(value)
        elif key in values:
            raise UsageError(f'--arm {name}: "{key}" is given twice')
        else:
            values[key] = value
    return _spec(name, values | {"env": env, "more_skills": more_skills}, Path.cwd())


def _spec(name: str, values: Mapping[str, Any], base: Path) -> ArmSpec:
    skill, prompt = values.get("skill"), values.get("prompt")
    for variable in values.get("env") or {}:
        if variable.startswith("WHET_"):
            raise UsageError(f"arm {name}: {variable} is set by whet", hint="choose another name for the variable")
    if skill is not None and skill != WITHOUT and not skill.startswith(GIT):
        skill = str(base / Path(skill).expanduser())
    more_skills = values.get("more_skills") or ()
    if more_skills and any(map(_is_no_folder, (skill or WITHOUT, *more_skills))):
        raise UsageError(f"arm {name}: several skills are folders, not {WITHOUT} or {GIT}REF", hint=_EXAMPLE)
    return ArmSpec(
        name=name,
        skill=skill,
        more_skills=tuple(base / Path(text).expanduser() for text in more_skills),
        model=values.get("model"),
        runner=values.get("runner"),
        env=values.get("env") or {},
        prompt=None if prompt is None else base / Path(prompt).expanduser(),
    )


def _is_no_folder(skill: str) -> bool:
    return skill == WITHOUT or skill.startswith(GIT)


def _find_arm(spec: ArmSpec, suite: Suite, settings: Settings, skill: Path | None) -> Arm:
    """Find everything that an arm names."""
    where = f"arm {spec.name}"
    if spec.runner is not None and spec.runner not in (names := [runner.id for runner in settings.runners]):
        hint = did_you_mean(spec.runner, names) or f"known: {', '.join(names) or 'none'}"
        raise UnknownName(f'{where}: no runner is called "{spec.runner}"', hint=hint)
    arm_skill, commit = _skill(spec, suite, settings, skill)
    return Arm(
        name=spec.name,
        skill=arm_skill,
        more_skills=dict(_more_skills(spec, settings)),
        commit=commit,
        model=spec.model,
        runner=spec.runner,
        env=spec.env,
        prompt=None if spec.prompt is None else _prompt(spec.prompt, where),
        defined=True,
    )


def _more_skills(spec: ArmSpec, settings: Settings) -> Iterator[tuple[Path, str]]:
    """Yield the folder that agents are given of each skill beside the one under test, and its digest."""
    for place in spec.more_skills:
        if not can_be_given(place):
            why = f"it has no {MANIFEST}" if place.exists() else "there is no such folder"
            raise UsageError(f"arm {spec.name}: {place} is not a skill: {why}")
        folder = given_folder(place.resolve(), settings)
        yield folder, tree_digest(folder, frozenset())


def _skill(
    spec: ArmSpec, suite: Suite, settings: Settings, skill: Path | None
) -> tuple[SkillUnderTest | None, str | None]:
    """Return the skill of an arm, and the commit that it was taken from."""
    where = f"arm {spec.name}"
    match spec.skill:
        case None:
            return suite.skill, None
        case "none":
            return None, None
        case text if text.startswith(GIT):
            if skill is None:
                raise UsageError(f"{where}: {text} needs to know which skill", hint="name its folder with --skill")
            folder, commit = folder_at_commit(skill.resolve(), text.removeprefix(GIT), skill_store(settings))
            return find_skill(folder, suite.source, settings, where), commit
        case text:
            return find_skill(Path(text), suite.source, settings, where), None


def _align_skills(suite: Suite, arms: Sequence[Arm], settings: Settings) -> tuple[Suite, tuple[Arm, ...]]:
    """Return the suite and its arms with skills that differ in nothing but themselves."""
    skills = [skill for skill in (suite.skill, *(arm.skill for arm in arms)) if skill is not None]
    alike = dict(zip(skills, align_skills(skills, settings), strict=True))
    alike_arms = tuple(replace(arm, skill=alike[arm.skill]) if arm.skill else arm for arm in arms)
    return replace(suite, skill=alike[suite.skill] if suite.skill else None), alike_arms


def _prompt(path: Path, where: str) -> str:
    if not path.exists():
        raise UsageError(f"{where}: there is no file {path}")
    try:
        # Not a pipe, which would wait for somebody to write.
        text = path.read_text("utf-8") if path.is_file() else ""
    except UnicodeDecodeError:
        raise UsageError(f"{where}: {path} is not a text file") from None
    if not path.is_file():
        raise UsageError(f"{where}: {path} is not a text file")
    if len(text) > _LONGEST_PROMPT:
        raise UsageError(f"{where}: {path} is longer than {_LONGEST_PROMPT:,} characters")
    return text


def _skill_under_test(suite_skill: SkillUnderTest | None, arms: Sequence[Arm]) -> SkillUnderTest | None:
    """Return the skill that the run is about, with the places and names that it has in all arms."""
    skills = [skill for skill in (suite_skill, *(arm.skill for arm in arms)) if skill is not None]
    if not skills:
        return None
    first = skills[0]
    return replace(
        first,
        copies=tuple(dict.fromkeys(place for skill in skills for place in skill.places)),
        other_names=tuple(
            sorted({name for skill in skills for name in skill.names} - (first.names - {*first.other_names}))
        ),
    )


def _arm_hint(name: str, suite_arms: Mapping[str, Arm], settings: Settings) -> str:
    names = [*suite_arms, *settings.arms]
    return (
        skill_hint(Path(name).name, name)
        or did_you_mean(name, names)
        or f"known: {', '.join(names)}; define one like {_EXAMPLE.removeprefix('write it like ')}"
    )
