"""Find the arms of a run: what you type with `--arm`, tables `[arms.NAME]` of the settings, or the suite's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.errors import UnknownName, UsageError
from whet.ground.git import folder_at_commit
from whet.model.arm import Arm, ArmSpec
from whet.model.request import Settings
from whet.model.run import id_problem
from whet.model.suite import SKILL, SkillUnderTest, Suite
from whet.plan.skill import find_skill
from whet.plan.skill_copies import made_alike, skill_store
from whet.reading.text import did_you_mean

_KEYS = ("skill", "model", "runner", "env", "prompt")
WITHOUT, GIT = "none", "git:"
_EXAMPLE = "write it like new=skill:./v2,model:large"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_PROMPT = 1_000_000


def bind_arms(
    suite: Suite,
    typed: Sequence[str],
    settings: Settings,
    skill: Path | None,
    commits: Mapping[str, str] | None = None,
) -> tuple[Suite, tuple[Arm, ...]]:
    """Return the arms that were asked for, and the suite with the skill that they are about.

    *skill* is what `--skill` names. Without any `--arm`, the arms are the suite's own. *commits* are those that arms of
    a run to go on with were taken from: since then, a branch may have moved.
    """
    specs = [_parse(text, settings) for text in typed]
    pinned = [_pinned(spec, commits or {}) if isinstance(spec, ArmSpec) else spec for spec in specs]
    own = [Arm(name=name, skill=suite.skill if name == SKILL else None) for name in suite.arms]
    defined = [spec for spec in specs if isinstance(spec, ArmSpec)]
    if not defined:
        return suite, tuple(own)
    _refuse_same_names(defined)
    known = {arm.name: arm for arm in own}
    arms = [_found(spec, suite, settings, skill) if isinstance(spec, ArmSpec) else known.get(spec) for spec in pinned]
    missing = [spec for spec, arm in zip(specs, arms, strict=True) if arm is None and isinstance(spec, str)]
    if missing:
        raise UnknownName(f'no arm is called "{missing[0]}"', hint=_known(missing[0], known, settings))
    suite, found = _alike(suite, [arm for arm in arms if arm is not None], settings)
    return replace(suite, skill=_tested(suite.skill, found)), found


def parse_arms(typed: Sequence[str], settings: Settings) -> Iterator[ArmSpec]:
    """Yield each arm that was typed; raises for a name that the settings do not define."""
    specs = [_parse(text, settings) for text in typed]
    _refuse_same_names([spec for spec in specs if isinstance(spec, ArmSpec)])
    for spec in specs:
        if not isinstance(spec, ArmSpec):
            raise UnknownName(f'no arm is called "{spec}"', hint=_known(spec, {}, settings))
        yield spec


def _refuse_same_names(specs: Sequence[ArmSpec]) -> None:
    if len({spec.name for spec in specs}) < len(specs):
        raise UsageError("--arm: two arms have the same name")


def _pinned(spec: ArmSpec, commits: Mapping[str, str]) -> ArmSpec:
    commit = commits.get(spec.name)
    return spec if commit is None else replace(spec, skill=f"{GIT}{commit}")


def _parse(text: str, settings: Settings) -> ArmSpec | str:
    """Return the arm that was typed, or that the settings define; else the name of one of the suite's own."""
    name, equals, spec = text.partition("=")
    if problem := id_problem(name):
        raise UsageError(f'--arm: the name "{name}" {problem}', hint=_EXAMPLE)
    if equals:
        return _typed(name, spec)
    if name in settings.arms:
        base = settings.file.parent if settings.file else Path.cwd()
        return _spec(name, settings.arms[name], base)
    return name


def _typed(name: str, text: str) -> ArmSpec:
    values: dict[str, Any] = {}
    env: dict[str, str] = {}
    for piece in text.split(","):
        key, colon, value = (part.strip() for part in piece.partition(":"))
        if not colon or key not in _KEYS:
            what = f'"{key}" is not a key of an arm' if colon else f'"{piece}" is not of the form key:value'
            other = f"the keys are {', '.join(_KEYS)}; a value with a comma goes into [arms.{name}] of the settings"
            raise UsageError(f"--arm {name}: {what}", hint=did_you_mean(key, _KEYS) or other)
        if not value:
            raise UsageError(f'--arm {name}: "{key}" has no value', hint=_EXAMPLE)
        if key == "env":
            variable, equals, content = value.partition("=")
            if not equals or not _VARIABLE.fullmatch(variable):
                raise UsageError(f'--arm {name}: "{piece}" is not of the form env:KEY=VALUE')
            if variable in env:
                raise UsageError(f"--arm {name}: {variable} is given twice")
            env[variable] = content
        elif key in values:
            raise UsageError(f'--arm {name}: "{key}" is given twice')
        else:
            values[key] = value
    return _spec(name, values | {"env": env}, Path.cwd())


def _spec(name: str, values: Mapping[str, Any], base: Path) -> ArmSpec:
    skill, prompt = values.get("skill"), values.get("prompt")
    for variable in values.get("env") or {}:
        if variable.startswith("WHET_"):
            raise UsageError(f"arm {name}: {variable} is set by whet", hint="choose another name for the variable")
    if skill is not None and skill != WITHOUT and not skill.startswith(GIT):
        skill = str(base / Path(skill).expanduser())
    return ArmSpec(
        name=name,
        skill=skill,
        model=values.get("model"),
        runner=values.get("runner"),
        env=values.get("env") or {},
        prompt=None if prompt is None else base / Path(prompt).expanduser(),
    )


def _found(spec: ArmSpec, suite: Suite, settings: Settings, skill: Path | None) -> Arm:
    """Find everything that an arm names."""
    where = f"arm {spec.name}"
    if spec.runner is not None and spec.runner not in (names := [runner.id for runner in settings.runners]):
        hint = did_you_mean(spec.runner, names) or f"known: {', '.join(names) or 'none'}"
        raise UnknownName(f'{where}: no runner is called "{spec.runner}"', hint=hint)
    found, commit = _skill(spec, suite, settings, skill)
    return Arm(
        name=spec.name,
        skill=found,
        commit=commit,
        model=spec.model,
        runner=spec.runner,
        env=spec.env,
        prompt=None if spec.prompt is None else _prompt(spec.prompt, where),
        defined=True,
    )


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


def _alike(suite: Suite, arms: Sequence[Arm], settings: Settings) -> tuple[Suite, tuple[Arm, ...]]:
    """Return the suite and its arms with skills that differ in nothing but themselves."""
    skills = [skill for skill in (suite.skill, *(arm.skill for arm in arms)) if skill is not None]
    alike = dict(zip(skills, made_alike(skills, settings), strict=True))
    given = tuple(replace(arm, skill=alike[arm.skill]) if arm.skill else arm for arm in arms)
    return replace(suite, skill=alike[suite.skill] if suite.skill else None), given


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


def _tested(suite_skill: SkillUnderTest | None, arms: Sequence[Arm]) -> SkillUnderTest | None:
    """Return the skill that the run is about, with the places and names that it has in all arms."""
    skills = [skill for skill in (suite_skill, *(arm.skill for arm in arms)) if skill is not None]
    if not skills:
        return None
    first = skills[0]
    return replace(
        first,
        copies=tuple(dict.fromkeys(place for skill in skills for place in skill.places)),
        other_names=tuple(sorted({name for skill in skills for name in skill.names} - first.names)),
    )


def _known(name: str, own: Mapping[str, Arm], settings: Settings) -> str:
    names = [*own, *settings.arms]
    return (
        did_you_mean(name, names)
        or f"known: {', '.join(names)}; define one like {_EXAMPLE.removeprefix('write it like ')}"
    )
