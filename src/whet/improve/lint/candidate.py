"""Look at a candidate beside the skill that it was made from, and say why it is refused.

Held-out cases are looked at here and nowhere else: what a proposer is told names no case and repeats no word of one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from whet.improve.lint.additions import added_powers
from whet.improve.lint.shape import wrong_places, wrong_shape
from whet.improve.lint.size import too_much
from whet.improve.lint.version import SkillVersion, read_version
from whet.model.suite import Suite
from whet.reading.text import count, listed
from whet.record.improve.document import ImproveOptions, LintFinding, SkillPart
from whet.secrets import Masker, secret_values
from whet.suites.skills.leaks import GRAM, find_leaks

_STRICT_GRAM = 5
_NAMES = ("name", "file")


def lint_candidate(
    old: Path, new: Path, suite: Suite, options: ImproveOptions, masker: Masker | None = None
) -> tuple[LintFinding, ...]:
    """Return why the skill in *new*, made from the one in *old*, is refused; nothing if it may race.

    *masker* knows the secrets of a run; without one, those of the environment count.
    """
    if misplaced := tuple(wrong_places(old, new)):
        # Nothing of a folder with links and devices is read.
        return misplaced
    before, after = read_version(old), read_version(new)
    shape = tuple(wrong_shape(before, after))
    if after.front is None:
        return shape
    return (
        *shape,
        *_outside_of_part(before, after, options.part),
        *too_much(before, after),
        *(() if options.allow_scripts else added_powers(before, after)),
        *_leaks(before, after, suite, strict=options.strict_leak),
        *_secrets(before, after, masker or Masker(secret_values(dict(os.environ)))),
    )


def _outside_of_part(before: SkillVersion, after: SkillVersion, part: SkillPart) -> Iterator[LintFinding]:
    """Yield what was changed beside the part that may change."""
    if part == "all":
        return
    names = before.fields.keys() | after.fields.keys()
    fields = (name for name in names if before.fields.get(name) != after.fields.get(name))
    changes = [f"`{name}` of the front matter" for name in fields if not part == name == "description"]
    if part == "description" and before.body.split() != after.body.split():
        changes.append("the text below the front matter")
    changes += after.files_unlike(before)
    if changes:
        message = f"changes more than the {part}: {listed(sorted(changes))}"
        yield LintFinding(rule="part", message=message, told=message)


def _leaks(before: SkillVersion, after: SkillVersion, suite: Suite, *, strict: bool) -> Iterator[LintFinding]:
    names = {str(version.fields.get("name", "")) for version in (before, after)}
    gram = _STRICT_GRAM if strict else GRAM
    leaks = find_leaks(suite, after.folder, names, gram=gram, earlier=before.folder)
    for leak in leaks:
        where = f"{leak.file.relative_to(after.folder)}, line {leak.line}"
        whose = leak.cases[0] if len(leak.cases) == 1 else f"{leak.cases[0]} and {count(len(leak.cases) - 1, 'more')}"
        if leak.part in _NAMES:
            message = f"names the case {whose} or a file of it ({where}): {leak.words}"
            yield LintFinding(rule="case-names", message=message, told="names a case, or a file of one")
        else:
            message = f"repeats the {leak.part} of {whose} ({where}): {leak.words}"
            yield LintFinding(rule="leak", message=message, told="repeats text of a case")


def _secrets(before: SkillVersion, after: SkillVersion, masker: Masker) -> Iterator[LintFinding]:
    """Yield each file that has a secret, and had none before."""
    for path in sorted(after.files):
        data = after.data(path)
        if masker.finds(data) and not (path in before.files and masker.finds(before.data(path))):
            message = f"{path} has a secret of this machine"
            yield LintFinding(rule="secrets", message=message, told=message)
