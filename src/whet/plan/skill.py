"""Bind the skill under test to its suite: find it in a folder, or unpack it."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path

from whet.errors import PackageError, UsageError
from whet.ground.copying import remove_tree
from whet.ground.package_settings import package_settings
from whet.ground.workspaces import MANIFEST, described
from whet.model.request import Settings
from whet.model.suite import NO_SKILL, SKILL, Case, MadeSkill, SkillUnderTest, Suite
from whet.plan.skill_copies import NAME, given_folder, given_skill, skill_store

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
        own = suite.arms if arms else (SKILL, NO_SKILL)
        return replace(suite, skill=find_skill(place, suite.source, settings), arms=own)
    suite = replace(suite, cases=tuple(_with_competitors(case, settings) for case in suite.cases))
    place = place or suite.usual_skill
    if place is None:
        return replace(suite, cases=tuple(map(_without_skill, suite.cases)), arms=(NO_SKILL,))
    skill = find_skill(place, suite.source, settings)
    return replace(suite, skill=skill, cases=tuple(_with_fixtures(case, skill, suite) for case in suite.cases))


def _without_skill(case: Case) -> Case:
    """Return *case* without the checks of the skill, unless it has no other."""
    about_others = tuple(check for check in case.checks if check.compared)
    return replace(case, checks=about_others or case.checks)


def _with_fixtures(case: Case, skill: SkillUnderTest, suite: Suite) -> Case:
    """Return *case* with the fixtures that are found in the skill."""
    if all(item.wanted is None for item in case.placed):
        return case
    from whet.suites.foreign import found_in_skill  # noqa: PLC0415 - only suites of others have fixtures

    return found_in_skill(case, (skill.source, suite.source.parent))


def find_skill(place: Path, suite: Path, settings: Settings, where: str = "--skill") -> SkillUnderTest:
    """Find the skill in a folder, or in an archive, which is unpacked under its digest."""
    folder, store = place.resolve(), skill_store(settings)
    packed = folder.is_file() and folder.name != MANIFEST
    if packed:
        folder = unpacked_skill(folder, store, settings)
    elif folder.is_file():
        folder = folder.parent
    if not (folder / MANIFEST).is_file():
        why = "there is no such file or folder" if not place.exists() else f"it has no {MANIFEST}"
        raise UsageError(f"{where}: {place} is not a skill: {why}")
    manifest = described(folder)
    found = SkillUnderTest(
        path=folder,
        source=folder,
        name=manifest.name,
        description=manifest.description,
        digest="",
        copies=(store, *((place.resolve(),) if packed else ())),
    )
    return given_skill(found, suite, settings)


def _with_competitors(case: Case, settings: Settings) -> Case:
    """Return *case* with the folders of its other skills; one that is only described gets one, named by its digest."""
    if not case.skills and not case.made_skills:
        return case
    others = tuple(given_folder(skill, settings) for skill in case.skills)
    made = tuple(_made(skill, skill_store(settings)) for skill in case.made_skills)
    return replace(case, skills=(*others, *made), made_skills=())


def _made(skill: MadeSkill, store: Path) -> Path:
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


def unpacked_skill(archive: Path, store: Path, settings: Settings) -> Path:
    """Unpack the skill in *archive* below *store* and return its folder."""
    with archive.open("rb") as file:
        kept = store / hashlib.file_digest(file, "sha256").hexdigest()[:16]
    if (found := _skill_in(kept)) is not None:
        return found
    draft = kept.with_name(f"{kept.name}-{os.getpid()}")
    # Only here: the readers of archives take long to import.
    from whet.ground.unpacking import unpack  # noqa: PLC0415

    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        unpack(archive, draft / _WHOLE, package_settings(settings.packages).limits)
        _name_folder(draft, archive)
        if not kept.exists():
            draft.rename(kept)
    except PackageError as error:
        raise UsageError(f"--skill: {archive}: {error.message}", hint=error.hint) from error
    except OSError as error:
        raise UsageError(f"--skill: {archive} cannot be unpacked to {kept}: {error.strerror}") from error
    finally:
        remove_tree(draft)
    found = _skill_in(kept)
    if found is None:
        raise UsageError(f"--skill: {archive} holds no skill", hint=f"{MANIFEST} must be at its top, or in one folder")
    return found


def _name_folder(draft: Path, archive: Path) -> None:
    """Give the skill a folder to be known by; an archive without one gets the name that its manifest says."""
    whole = draft / _WHOLE
    inner = [path for path in whole.iterdir() if (path / MANIFEST).is_file()]
    if (whole / MANIFEST).is_file():
        names = (described(whole).name, _ENDINGS.sub("", archive.name), "skill")
        whole.rename(draft / next(name for name in names if NAME.fullmatch(name)))
    elif len(inner) == 1:
        inner[0].rename(draft / inner[0].name)
        remove_tree(whole)


def _skill_in(folder: Path) -> Path | None:
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    return next((place for place in places if (place / MANIFEST).is_file()), None)
