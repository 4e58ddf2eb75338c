"""Bind the skill under test to its suite: find it in a folder, or unpack it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from msgspec.structs import replace

from whet.errors import PackageError, UsageError
from whet.model.eval_cases import BooleanAssertion
from whet.model.request import Settings
from whet.model.suite import NO_SKILL, SKILL, TRIGGERED, Case, Check, MadeSkill, SkillUnderTest, Suite
from whet.packages.settings import PackageLimits, package_settings
from whet.plan.skill_copies import NAME, given_folder, given_skill, skill_store
from whet.reading.plugin_folder import can_be_given, skills_of
from whet.workspace.copy import remove_tree
from whet.workspace.make import MANIFEST, described

_WHOLE = ".whole"
_ENDINGS = re.compile(r"(\.tar)?\.(gz|bz2|xz|tgz|tar|zip)$", re.IGNORECASE)


def bind_skill(suite: Suite, place: Path | None, settings: Settings, *, arms: bool = False) -> Suite:
    """Add the judge of the settings and the skill at *place*; without a skill, only the arm `no_skill` is left.

    With *arms* of your own, any suite can be about a skill.
    """
    suite = replace(suite, judge=settings.judging, user=settings.playing)
    if SKILL not in suite.arms:
        if place is None:
            return suite
        arm_names = suite.arms if arms else (SKILL, NO_SKILL)
        return replace(suite, skill=find_skill(place, suite.source, settings), arms=arm_names)
    place = place or suite.usual_skill
    suite = replace(suite, cases=tuple(_with_competitors(case, place, settings) for case in suite.cases))
    if place is None:
        return replace(suite, cases=tuple(map(_without_skill, suite.cases)), arms=(NO_SKILL,))
    skill = find_skill(place, suite.source, settings)
    return replace(suite, skill=skill, cases=tuple(_with_fixtures(case, skill, suite) for case in suite.cases))


def _without_skill(case: Case) -> Case:
    """Return *case* without the checks of the skill, unless it has no other; those of its own skills stay."""
    names = {skill.name for skill in case.skills}
    about_others = tuple(check for check in case.checks if check.compared or not names.isdisjoint(_skills_named(check)))
    return replace(case, checks=about_others or case.checks)


def _skills_named(check: Check) -> set[str]:
    """Return the skills that a check asks about by name."""
    case = check.params.get("case")
    assertions = case.assertions if isinstance(case, BooleanAssertion) else ()
    return {str(assertion.value) for assertion in assertions if assertion.op == TRIGGERED}


def _with_fixtures(case: Case, skill: SkillUnderTest, suite: Suite) -> Case:
    """Return *case* with the fixtures that are found in the skill."""
    if all(item.wanted is None for item in case.placed):
        return case
    from whet.suites.other_tools.shared import resolve_in_skill  # only suites of others have fixtures

    return resolve_in_skill(case, (skill.source, suite.source.parent))


def find_skill(place: Path, suite: Path, settings: Settings, where: str = "--skill") -> SkillUnderTest:
    """Find the skill in a folder, or in an archive, which is unpacked under its digest."""
    folder, store = place.resolve(), skill_store(settings)
    is_archive = folder.is_file() and folder.name != MANIFEST
    if is_archive:
        folder = unpacked_skill(folder, store, package_settings(settings.packages).limits)
    elif folder.is_file():
        folder = folder.parent
    if not can_be_given(folder):
        why = "there is no such file or folder" if not place.exists() else f"it has no {MANIFEST}"
        raise UsageError(f"{where}: {place} is not a skill: {why}")
    manifest = described(folder)
    skill = SkillUnderTest(
        path=folder,
        source=folder,
        name=manifest.name,
        description=manifest.description,
        other_names=tuple(name for skill in skills_of(folder) if skill != folder for name in _names(skill)),
        digest="",
        copies=(store, *((place.resolve(),) if is_archive else ())),
    )
    return given_skill(skill, suite, settings)


def _names(skill: Path) -> tuple[str, str]:
    """Return what agents may call a skill of a plug-in."""
    return skill.name, described(skill).name


def _with_competitors(case: Case, place: Path | None, settings: Settings) -> Case:
    """Return *case* with the folders of its other skills; one that is only described gets one, named by its digest.

    The one at *place* is under test, and so no other skill, whatever the case says.
    """
    if not case.skills and not case.made_skills:
        return case
    under_test = None if place is None else place.resolve()
    competitors = tuple(given_folder(skill, settings) for skill in case.skills if skill.resolve() != under_test)
    new_skills = tuple(_make_skill(skill, skill_store(settings)) for skill in case.made_skills)
    return replace(case, skills=(*competitors, *new_skills), made_skills=())


def _make_skill(skill: MadeSkill, store: Path) -> Path:
    text = f"---\nname: {skill.name}\ndescription: {json.dumps(skill.description)}\n---\n\n{skill.description}\n"
    folder = store / hashlib.sha256(text.encode()).hexdigest()[:16] / skill.name
    manifest = folder / MANIFEST
    if not manifest.is_file():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            manifest.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{manifest} cannot be written: {error.strerror}") from error
    return folder


def unpacked_skill(archive: Path, store: Path, limits: PackageLimits) -> Path:
    """Unpack the skill in *archive* below *store* and return its folder."""
    with archive.open("rb") as file:
        target = store / hashlib.file_digest(file, "sha256").hexdigest()[:16]
    if (skill_folder := _skill_in(target)) is not None:
        return skill_folder
    draft = target.with_name(f"{target.name}-{os.getpid()}")
    # Only here: the readers of archives take long to import.
    from whet.packages.unpack import unpack

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        unpack(archive, draft / _WHOLE, limits)
        _name_folder(draft, archive)
        if not target.exists():
            draft.rename(target)
    except PackageError as error:
        raise UsageError(f"--skill: {archive}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise UsageError(f"--skill: {archive} cannot be unpacked to {target}: {error.strerror}") from error
    finally:
        remove_tree(draft)
    skill_folder = _skill_in(target)
    if skill_folder is None:
        raise UsageError(f"--skill: {archive} holds no skill", hint=f"{MANIFEST} must be at its top, or in one folder")
    return skill_folder


def _name_folder(draft: Path, archive: Path) -> None:
    """Give the skill a folder to be known by; an archive without one gets the name that its manifest says."""
    content = draft / _WHOLE
    inner = [path for path in content.iterdir() if (path / MANIFEST).is_file()]
    if (content / MANIFEST).is_file():
        names = (described(content).name, _ENDINGS.sub("", archive.name), "skill")
        content.rename(draft / next(name for name in names if NAME.fullmatch(name)))
    elif len(inner) == 1:
        inner[0].rename(draft / inner[0].name)
        remove_tree(content)


def _skill_in(folder: Path) -> Path | None:
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    return next((place for place in places if (place / MANIFEST).is_file()), None)
