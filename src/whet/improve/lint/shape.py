"""The shape of a candidate: files and folders only, a manifest by the rules for skills, the same name, whole links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from whet.errors import Problem
from whet.improve.lint.version import SkillVersion
from whet.reading.text import listed, shown
from whet.record.improve.document import LintFinding
from whet.suites.left_out import left_out
from whet.suites.skills.files import link_findings
from whet.suites.skills.rules import check_skill

_MOST_NAMED = 5


def finding_of_shape(message: str) -> LintFinding:
    """Return the finding; the proposer may know all of it, since it wrote what is wrong."""
    return LintFinding(rule="shape", message=message, told=message)


def wrong_places(old: Path, new: Path) -> Iterator[LintFinding]:
    """Yield what in the folder *new* is no file of a skill: links, devices, suites and settings."""
    links: list[str] = []
    odd: list[str] = []
    for path in _all_below(new):
        name = path.relative_to(new).as_posix()
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            earlier = old / name
            if not earlier.is_symlink() or earlier.readlink() != path.readlink():
                links.append(name)
        elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            odd.append(name)
    if links:
        yield finding_of_shape(f"has links where the skill had none: {listed(links, _MOST_NAMED)}")
    if odd:
        yield finding_of_shape(f"has what is neither a file nor a folder: {listed(odd, _MOST_NAMED)}")
    elif foreign := sorted(left_out(new)):
        yield finding_of_shape(f"has what no agent is given with a skill: {listed(foreign, _MOST_NAMED)}")


def _all_below(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        yield from (Path(root, name) for name in sorted((*folders, *names)))


def wrong_shape(before: SkillVersion, after: SkillVersion) -> Iterator[LintFinding]:
    """Yield what the rules for skills call an error, another name, and new links that lead nowhere."""
    for problem in check_skill(after.folder).of_level("error"):
        if not _is_of_size(problem, after):
            yield finding_of_shape(_words(problem))
    old_name, new_name = before.fields.get("name"), after.fields.get("name")
    if after.front is not None and new_name != old_name:
        yield finding_of_shape(f"is called {shown(new_name)}, and the skill is called {shown(old_name)}")
    earlier = {message for _, _, message in link_findings(before.folder, before.body)}
    for _, _, message in link_findings(after.folder, after.body):
        if message not in earlier:
            yield finding_of_shape(message)


def _is_of_size(problem: Problem, version: SkillVersion) -> bool:
    """Return whether a problem is about a description that is too long, which `too_much` says."""
    return problem.rule == "description" and isinstance(version.fields.get("description"), str)


def _words(problem: Problem) -> str:
    place = f" ({problem.field})" if problem.field else ""
    return f"{problem.message}{place}"
