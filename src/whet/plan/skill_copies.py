"""The copies of skills that agents are given: without suites and settings, and the same in every arm but for its skill.

Whatever way a skill comes by, from a folder, an archive, a commit or the settings of a runner, its copy is made here.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from whet.errors import UsageError
from whet.model.request import Settings
from whet.model.run import Runner
from whet.model.suite import SkillUnderTest
from whet.reading.plugin_folder import can_be_given
from whet.workspace.copy import remove_tree
from whet.workspace.make import MANIFEST, named_in

_ELSEWHERE = "choose another folder for runs with --output-dir: copies of skills are kept beside them"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def skill_store(settings: Settings) -> Path:
    """Return the folder for what is unpacked, copied or made of skills."""
    return settings.store / "skills"


def given_skill(skill: SkillUnderTest, suite: Path, settings: Settings) -> SkillUnderTest:
    """Return *skill* with the copy of its source that agents are given, and the digest of that."""
    run_paths = _of_run(skill.source, suite, (settings.output_dir, skill_store(settings)))
    return _copy_skill(skill, _of_any_run(skill.source) | run_paths, skill.source.name, settings)


def given_runner(runner: Runner, settings: Settings) -> Runner:
    """Return *runner* with such copies of its own skills."""
    return replace(runner, skills=tuple(given_folder(skill, settings) for skill in runner.skills))


def given_folder(skill: Path, settings: Settings) -> Path:
    """Return the copy of a skill that is not under test; the folder itself if nothing has to be left out of it."""
    # Not by `pathlib`, which fails at folders that we may not look into; the check of the runner says so.
    leave = _of_any_run(skill) if can_be_given(skill) else frozenset()
    return _copy_without(skill, leave, tree_digest(skill, leave), skill.name, settings) if leave else skill


def align_skills(skills: Sequence[SkillUnderTest], settings: Settings) -> list[SkillUnderTest]:
    """Return the skills of all arms so that an agent sees nothing but what is different in the skills themselves.

    What is left out of one is left out of all: a version may have a suite where another has something else.
    Skills that say the same name, or none, are in folders of the same name.
    """
    leave = frozenset(path for skill in skills for path in skill.left_out)
    return [_copy_skill(skill, leave, _folder_name(skill, skills), settings) for skill in skills]


def _folder_name(skill: SkillUnderTest, skills: Sequence[SkillUnderTest]) -> str:
    """Return the name for the folder of *skill*: the one that all have who say the same, or else what they say."""
    skill_name = named_in(skill.source)
    namesakes = [skill_copy for skill_copy in skills if named_in(skill_copy.source) == skill_name]
    folders = list(dict.fromkeys(skill_copy.source.name for skill_copy in namesakes))
    if len(folders) == 1 or skill_name is None or not NAME.fullmatch(skill_name):
        return folders[0]
    return skill_name


def _of_any_run(folder: Path) -> frozenset[str]:
    from whet.suites.left_out import left_out  # most runs have no skill

    return left_out(folder)


def _of_run(folder: Path, suite: Path, run_folders: tuple[Path, ...]) -> frozenset[str]:
    """Return what is in *folder* and of this run: its suite, wherever that is, and folders of our *run_folders*."""
    inside = {path.relative_to(folder) for path in run_folders if path != folder and path.is_relative_to(folder)}
    # A suite lies at the same place in copies of the skill that it is in.
    for skill in (above for above in suite.parents if above == folder or can_be_given(above)):
        inside.add(suite.relative_to(skill))
        if suite.parent != skill:
            # Packages, scripts and settings of a suite are beside it. At the top of a skill, only the file is left out.
            inside.add(suite.parent.relative_to(skill))
    return frozenset(path.as_posix() for path in inside if os.path.lexists(folder / path))


def _copy_skill(skill: SkillUnderTest, leave: frozenset[str], name: str, settings: Settings) -> SkillUnderTest:
    """Return *skill* as it is without the paths of *leave*, in a folder called *name*."""
    digest = tree_digest(skill.source, leave)
    as_it_is = name == skill.source.name and not any(os.path.lexists(skill.source / path) for path in leave)
    path = skill.source if as_it_is else _copy_without(skill.source, leave, digest, name, settings)
    return replace(skill, path=path, digest=digest, left_out=_outermost(leave))


def _outermost(paths: frozenset[str]) -> tuple[str, ...]:
    inner = {path for path in paths if any(str(above) in paths for above in PurePosixPath(path).parents)}
    return tuple(sorted(paths - inner))


def _copy_without(folder: Path, leave: frozenset[str], digest: str, name: str, settings: Settings) -> Path:
    """Copy *folder* to the store without the paths of *leave*; a copy that is there already is the same."""
    store = skill_store(settings)
    copy = store / digest[:16] / name
    if can_be_given(copy):
        return copy
    draft = store / f"{digest[:16]}-{os.getpid()}"

    def ignored(root: str, names: list[str]) -> list[str]:
        return [file_name for file_name in names if Path(root, file_name).relative_to(folder).as_posix() in leave]

    try:
        shutil.copytree(folder, draft / name, symlinks=True, ignore=ignored)
        if not can_be_given(draft / name):
            raise UsageError(
                f"--skill: {folder / MANIFEST} is a link to what agents are not given of a skill",
                hint=f"put the text into {MANIFEST} itself, or link it to a file outside of the suites",
            )
        # Another skill may have the same content under another name.
        copy.parent.mkdir(exist_ok=True)
        if not copy.exists():
            _move_folder(draft / name, copy)
    except OSError as error:
        # What copies a folder gathers what it could not copy: from where, to where, and why.
        why = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        raise UsageError(f"the skill {folder} cannot be copied to {store}: {why}", hint=_ELSEWHERE) from error
    finally:
        remove_tree(draft)
    return copy


def _move_folder(folder: Path, place: Path) -> None:
    """Move *folder*, which may be read-only: the system writes into a folder that gets another parent."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod(mode | stat.S_IRWXU)
    folder.rename(place)
    place.chmod(mode)


def tree_digest(folder: Path, leave: frozenset[str]) -> str:
    """Return a digest of what a copy of *folder* without *leave* holds: names, contents, and what can be executed.

    A link counts as its target's path. Empty folders do not count: copies have none, because git keeps none.
    """
    digest = hashlib.sha256()
    for path in _files(folder, leave):
        name = path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
        digest.update(b"%d:%s" % (len(name), name))
        digest.update(_content_digest(path))
    return digest.hexdigest()


def _files(folder: Path, leave: frozenset[str]) -> Iterator[Path]:
    """Yield the files and links below *folder*, sorted folder by folder."""
    for root, folders, names in os.walk(folder):
        parent = Path(root)

        def kept(name: str, parent: Path = parent) -> bool:
            return (parent / name).relative_to(folder).as_posix() not in leave

        folders[:] = sorted(filter(kept, folders))
        links = [name for name in folders if (parent / name).is_symlink()]
        yield from (parent / name for name in sorted((*filter(kept, names), *links)))


def _content_digest(path: Path) -> bytes:
    if path.is_symlink():
        return hashlib.sha256(b"link " + os.fsencode(path.readlink())).digest()
    if not path.is_file():
        raise UsageError(
            f"--skill: {path} is a pipe, a socket or a device, which no agent can be given",
            hint="a skill has only files and folders: remove it",
        )
    try:
        with path.open("rb") as file:
            executable = os.fstat(file.fileno()).st_mode & stat.S_IXUSR
            return hashlib.file_digest(file, "sha256").digest() + (b"x" if executable else b"")
    except OSError as error:
        raise UsageError(f"--skill: {path} cannot be read: {error.strerror}") from error
