"""Expectations over what the agent did to the files of its workspace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, Unpack

from whet.checks.items import Items
from whet.checks.matching import TextMatcher, check_matcher, describe_matcher, equals, matches
from whet.checks.message import ExpectationOptions, Expectations, Pointer, nearest, with_length

if TYPE_CHECKING:
    from whet.checks.context import CheckContext


class FilesGroup(Expectations):
    """Paths are relative to the workspace and may be patterns such as `src/*.py`, where `*` also crosses folders."""

    def created(self, ctx: CheckContext, path: str, **words: Unpack[ExpectationOptions]) -> None:
        """A file of this name was created."""
        self._expect(_Files(ctx, "created").missing(path), words)

    def modified(self, ctx: CheckContext, path: str, **words: Unpack[ExpectationOptions]) -> None:
        """A file of this name was modified."""
        self._expect(_Files(ctx, "modified").missing(path), words)

    def deleted(self, ctx: CheckContext, path: str, **words: Unpack[ExpectationOptions]) -> None:
        """A file of this name was deleted."""
        self._expect(_Files(ctx, "deleted").missing(path), words)

    def unchanged(self, ctx: CheckContext, path: str, **words: Unpack[ExpectationOptions]) -> None:
        """No file of this name was created, modified or deleted."""
        self._expect(_Files(ctx, "changed").present(path), words)

    def only_changed(self, ctx: CheckContext, paths: Sequence[str], **words: Unpack[ExpectationOptions]) -> None:
        """Nothing but these was created, modified or deleted."""
        self._expect(_Files(ctx, "changed").others(paths), words)

    def contains(self, ctx: CheckContext, path: str, matcher: TextMatcher, **words: Unpack[ExpectationOptions]) -> None:
        """The file is there and its text matches."""
        check_matcher(matcher)
        problem = _unlike(ctx, path, f"contain {describe_matcher(matcher)}", lambda text: matches(matcher, text))
        self._expect(problem, words)

    def matches(self, ctx: CheckContext, path: str, matcher: TextMatcher, **words: Unpack[ExpectationOptions]) -> None:
        """The file is there and its text as a whole, but for white space around it, is this."""
        check_matcher(matcher, may_be_empty=True)
        target = matcher.strip() if isinstance(matcher, str) else matcher
        problem = _unlike(ctx, path, f"be {describe_matcher(matcher)}", lambda text: equals(target, text.strip()))
        self._expect(problem, words)


def _unlike(ctx: CheckContext, path: str, expectation: str, is_match: Callable[[str], bool]) -> str | None:
    """Return what is wrong unless the file is there with a text that *is_match*."""
    files = _Files(ctx, "changed")
    try:
        text = ctx.read(path)
    except OSError as error:
        reason = error.strerror or str(error)
        return files.describe(f"{path} to be there, but: {reason}", files.nearest(path))
    if is_match(text):
        return None
    return f"expected {path} to {expectation}\nit has {with_length(text)}"


class _Files(Items[str, str]):
    """The paths of files that were changed in one way, or in any; messages show all changes."""

    many = "changed files"
    matchers = "paths"

    def __init__(self, ctx: CheckContext, how: Literal["created", "modified", "deleted", "changed"]) -> None:
        if not hasattr(ctx, "changes"):
            raise TypeError(f"files need the context of the check, not a {type(ctx).__name__}: give ctx")
        self._changes, self._how = ctx.changes(), how
        super().__init__(self._changes.paths if how == "changed" else getattr(self._changes, how))

    def check(self, matcher: object) -> None:
        if not isinstance(matcher, str):
            raise TypeError(f"a path is a string, not a {type(matcher).__name__}")

    def matches(self, matcher: str, item: str) -> bool:
        plain = matcher.removeprefix("./")
        return item == plain or fnmatchcase(item, plain)

    @property
    def observed(self) -> Sequence[str]:
        kinds = ("created", "modified", "deleted")
        return [f"{name} ({how})" for how in kinds for name in getattr(self._changes, how)]

    def line(self, item: str) -> str:
        return item

    def nearest(self, matcher: str) -> Pointer | None:
        return nearest(matcher, self.observed)

    def describe_wanted(self, matcher: str) -> str:
        return f"{matcher} to be {self._how}"

    def describe_unwanted(self, matcher: str, indexes: Sequence[int]) -> str:
        return f"{matcher} to be left alone, but {self.all[indexes[0]]} changed"

    def describe_allowed(self, matchers: Sequence[str], indexes: Sequence[int]) -> str:
        limit = f"changes to {', '.join(matchers)} only" if matchers else "no changes at all"
        return f"{limit}, but {self.all[indexes[0]]} changed"
