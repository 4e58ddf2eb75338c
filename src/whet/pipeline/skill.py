"""The skill under test: found, read and digested, so that a suite for one knows what it is about."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from whet.config import Settings
from whet.errors import UsageError
from whet.model.suite import NO_SKILL, SKILL, Case, MadeSkill, SkillUnderTest, Suite
from whet.pipeline.skill_archive import unpacked_skill
from whet.pipeline.skill_folder import apart, left_out, tree_digest
from whet.workspace.skill_text import MANIFEST, described


def bind_skill(suite: Suite, place: Path | None, settings: Settings) -> Suite:
    """*suite* with the skill at *place*; without one, only the variant that has none is left."""
    if SKILL not in suite.variants:
        if place is not None:
            raise UsageError(
                f"{suite.source} has no variants with and without a skill",
                hint="--skill is for eval suites; elsewhere runners have skills in the settings",
            )
        return suite
    store = settings.output_dir.parent / "skills"
    made = tuple(_with_made(case, store) for case in suite.cases)
    suite = replace(suite, cases=made, judge={"cache_dir": settings.output_dir.parent / "judge", **settings.judge})
    if place is None:
        return replace(suite, variants=(NO_SKILL,))
    return replace(suite, skill=_find_skill(place, suite.source, store, settings))


def _find_skill(place: Path, suite: Path, store: Path, settings: Settings) -> SkillUnderTest:
    """The skill in a folder, or in an archive, which is unpacked into *store* under its digest."""
    folder = place.resolve()
    packed = folder.is_file() and folder.name != MANIFEST
    if packed:
        folder = unpacked_skill(folder, store, settings)
    elif folder.is_file():
        folder = folder.parent
    if not (folder / MANIFEST).is_file():
        found = "there is no such file or folder" if not place.exists() else f"it has no {MANIFEST}"
        raise UsageError(f"--skill: {place} is not a skill: {found}")
    told, leave = described(folder), left_out(folder, suite, (settings.output_dir, store))
    digest = tree_digest(folder, leave)
    return SkillUnderTest(
        path=apart(folder, leave, digest, store),
        source=folder,
        name=told.name,
        description=told.description,
        digest=digest,
        copies=(store, *((place.resolve(),) if packed else ())),
    )


def _with_made(case: Case, store: Path) -> Case:
    """*case* with folders for the skills that it only describes; they lie under the digest of what they say."""
    made = tuple(_made(skill, store) for skill in case.made_skills)
    return replace(case, skills=(*case.skills, *made), made_skills=()) if made else case


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
