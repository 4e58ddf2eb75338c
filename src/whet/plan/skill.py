"""Bind the skill under test to its suite: find or unpack it, and leave out what an agent must not see."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from whet.errors import PackageError, UsageError
from whet.ground.copying import remove_tree
from whet.ground.package_settings import package_settings
from whet.ground.workspaces import MANIFEST, described
from whet.model.request import Settings
from whet.model.suite import NO_SKILL, SKILL, Case, MadeSkill, SkillUnderTest, Suite

_WHOLE = ".whole"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENDINGS = re.compile(r"(\.tar)?\.(gz|bz2|xz|tgz|tar|zip)$", re.IGNORECASE)
_NEVER = frozenset((".git", ".whet"))


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
    made = tuple(_with_made(case, skill_store(settings)) for case in suite.cases)
    suite = replace(suite, cases=made)
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


def skill_store(settings: Settings) -> Path:
    """Return the folder for what is unpacked, copied or made of skills."""
    return settings.store / "skills"


def find_skill(place: Path, suite: Path, settings: Settings, where: str = "--skill") -> SkillUnderTest:
    """Find the skill in a folder, or in an archive, which is unpacked under its digest."""
    folder, store = place.resolve(), skill_store(settings)
    packed = folder.is_file() and folder.name != MANIFEST
    if packed:
        folder = unpacked_skill(folder, store, settings)
    elif folder.is_file():
        folder = folder.parent
    if not (folder / MANIFEST).is_file():
        found = "there is no such file or folder" if not place.exists() else f"it has no {MANIFEST}"
        raise UsageError(f"{where}: {place} is not a skill: {found}")
    manifest, leave = described(folder), left_out(folder, suite, (settings.output_dir, store))
    digest = tree_digest(folder, leave)
    return SkillUnderTest(
        path=copy_without(folder, leave, digest, store),
        source=folder,
        name=manifest.name,
        description=manifest.description,
        digest=digest,
        copies=(store, *((place.resolve(),) if packed else ())),
    )


def _with_made(case: Case, store: Path) -> Case:
    """Return *case* with a folder for each skill that it only describes, named by the digest of its text."""
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
        whole.rename(draft / next(name for name in names if _NAME.fullmatch(name)))
    elif len(inner) == 1:
        inner[0].rename(draft / inner[0].name)
        remove_tree(whole)


def _skill_in(folder: Path) -> Path | None:
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    return next((place for place in places if (place / MANIFEST).is_file()), None)


def left_out(folder: Path, suite: Path, own: tuple[Path, ...]) -> frozenset[Path]:
    """Return what is in *folder* and not part of the skill: the suite with its neighbours, and folders of our *own*.

    The suite holds the answers, so no agent may see it.
    """
    asked = {suite, *own}
    if suite.parent != folder and suite.is_relative_to(folder):
        # Its packages, scripts and settings are there too. Of a suite at the top of a skill, only its file is left out.
        asked.add(suite.parent)
    named = (folder / name for name in _NEVER)
    return frozenset(path for path in (*asked, *named) if path.is_relative_to(folder) and os.path.lexists(path))


def copy_without(folder: Path, leave: frozenset[Path], digest: str, store: Path) -> Path:
    """Return *folder*, or if something must be left out, a copy below *store* without that."""
    if not leave:
        return folder
    copy = store / digest[:16] / folder.name
    if copy.is_dir():
        return copy
    draft = store / f"{digest[:16]}-{os.getpid()}"
    try:
        shutil.copytree(
            folder, draft / folder.name, symlinks=True, ignore=lambda root, names: _ignored(root, names, leave)
        )
        # Another skill may have the same content under another name.
        copy.parent.mkdir(exist_ok=True)
        if not copy.exists():
            (draft / folder.name).rename(copy)
    except (OSError, shutil.Error) as error:
        raise UsageError(f"--skill: {folder} cannot be copied to {copy}: {error}") from error
    finally:
        remove_tree(draft)
    return copy


def _ignored(root: str, names: list[str], leave: frozenset[Path]) -> list[str]:
    return [name for name in names if Path(root, name) in leave]


def tree_digest(folder: Path, leave: frozenset[Path]) -> str:
    """Return a digest of the names and contents of all files below *folder*; a link counts as its target's path."""
    whole = hashlib.sha256()
    for path in _files(folder, leave):
        name = path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
        whole.update(b"%d:%s" % (len(name), name))
        whole.update(_content_digest(path))
    return whole.hexdigest()


def _files(folder: Path, leave: frozenset[Path]) -> Iterator[Path]:
    """Yield the files and links below *folder*, sorted folder by folder."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if Path(root, name) not in leave)
        links = [name for name in folders if Path(root, name).is_symlink()]
        yield from (path for name in sorted((*names, *links)) if (path := Path(root, name)) not in leave)


def _content_digest(path: Path) -> bytes:
    if path.is_symlink():
        return hashlib.sha256(b"link " + os.fsencode(path.readlink())).digest()
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise UsageError(f"--skill: {path} cannot be read: {error.strerror}") from error
