"""How long a candidate may be: what an agent reads each time grows easily, and shrinks never."""

from __future__ import annotations

from collections.abc import Iterator

from whet.improve.lint.version import LARGEST_FILE, SkillVersion
from whet.record.improve.document import LintFinding

_LONGEST_DESCRIPTION = 1024
_SHARE, _MORE_WORDS = 1.5, 200
# So many characters are a word, in a language that has no blanks.
_LONGEST_WORD = 8
_MORE_BYTES = 256 * 1024


def too_much(before: SkillVersion, after: SkillVersion) -> Iterator[LintFinding]:
    """Yield what has become too long."""
    description = after.fields.get("description")
    if isinstance(description, str) and len(description) > _LONGEST_DESCRIPTION:
        yield _finding(f"its description has {len(description):,} characters, and may have {_LONGEST_DESCRIPTION:,}")
    old_words, new_words = _words(before.body), _words(after.body)
    most_words = int(_SHARE * old_words) + _MORE_WORDS
    if new_words > most_words:
        yield _finding(
            f"its text has {new_words:,} words, and may have {most_words:,}: half as many again as the "
            f"{old_words:,} of the skill, and {_MORE_WORDS}"
        )
    changed_files = after.files_unlike(before)
    for path in changed_files:
        if len(after.data(path)) > LARGEST_FILE:
            yield _finding(f"{path} has more than {LARGEST_FILE // 1024**2} MiB")
    more_bytes = sum(len(after.data(path)) - len(before.data(path)) for path in changed_files)
    if more_bytes > _MORE_BYTES:
        yield _finding(f"its other files grow by {more_bytes // 1024:,} KiB, and may grow by {_MORE_BYTES // 1024}")


def _words(text: str) -> int:
    return max(len(text.split()), len(text) // _LONGEST_WORD)


def _finding(message: str) -> LintFinding:
    return LintFinding(rule="size", message=message, told=message)
