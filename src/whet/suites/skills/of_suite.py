"""The skills that a suite is about, in the folders where their authors write them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from whet.model.suite import Suite
from whet.reading.plugin_folder import skills_of
from whet.suites.skills.rules import wrong_manifest
from whet.workspace.make import MANIFEST


def skills_of_suite(suite: Suite) -> tuple[Path, ...]:
    """Return the folders of the skills that *suite* is about: those that it names, or the one around it."""
    usual_skill = suite.usual_skill or next(_around(suite.source), None)
    return tuple(skill for skill in skills_of(usual_skill) if _is_skill(skill)) if usual_skill is not None else ()


def _around(source: Path) -> Iterator[Path]:
    yield from filter(_is_skill, source.parents)


def _is_skill(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() or wrong_manifest(folder) is not None
