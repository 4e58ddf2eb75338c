"""Expectations over what the agent did to the files of its workspace."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, Protocol

from whet.grade.expect.group import Pointed, Words, characters, nearest, shorten
from whet.grade.expect.items import Items, ItemsGroup
from whet.grade.expect.matching import TextMatcher, check_matcher, equals, matches, shown
from whet.model.grade import Changes

_SHOWN = 1000


class HasChanges(Protocol):
    """A check's context, as far as files go."""

    @property
    def workspace(self) -> Path:
        """Where the agent worked."""

    def changes(self) -> Changes:
        """What it did there."""

    def read(self, path: str) -> str:
        """The text of a file below the workspace."""


class FilesGroup(ItemsGroup):
    """Paths are relative to the workspace and may be patterns such as `src/*.py`, where `*` also crosses folders."""

    def created(self, ctx: HasChanges, path: str, *, message: str | None = None, explain: str | None = None) -> None:
        """A file of this name was created."""
        self._has(_Files(ctx, "created"), path, Words(message, explain))

    def modified(self, ctx: HasChanges, path: str, *, message: str | None = None, explain: str | None = None) -> None:
        """A file of this name was modified."""
        self._has(_Files(ctx, "modified"), path, Words(message, explain))

    def deleted(self, ctx: HasChanges, path: str, *, message: str | None = None, explain: str | None = None) -> None:
        """A file of this name was deleted."""
        self._has(_Files(ctx, "deleted"), path, Words(message, explain))

    def unchanged(self, ctx: HasChanges, path: str, *, message: str | None = None, explain: str | None = None) -> None:
        """No file of this name was created, modified or deleted."""
        self._has_not(_Files(ctx, "changed"), path, Words(message, explain))

    def only_changed(
        self, ctx: HasChanges, paths: Sequence[str], *, message: str | None = None, explain: str | None = None
    ) -> None:
        """Nothing but these was created, modified or deleted."""
        self._only(_Files(ctx, "changed"), paths, Words(message, explain))

    def contains(
        self,
        ctx: HasChanges,
        path: str,
        matcher: TextMatcher,
        *,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """The file is there and its text matches."""
        check_matcher(matcher)
        text = self._text(ctx, path, Words(message, explain))
        if text is not None and not matches(matcher, text):
            self._say(f"expected {path} to contain {shown(matcher)}\n{_it_has(text)}", Words(message, explain))

    def matches(
        self,
        ctx: HasChanges,
        path: str,
        matcher: TextMatcher,
        *,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """The file is there and its text as a whole, but for white space around it, is this."""
        check_matcher(matcher, may_be_empty=True)
        text = self._text(ctx, path, Words(message, explain))
        wanted = matcher.strip() if isinstance(matcher, str) else matcher
        if text is not None and not equals(wanted, text.strip()):
            self._say(f"expected {path} to be {shown(matcher)}\n{_it_has(text)}", Words(message, explain))

    def _text(self, ctx: HasChanges, path: str, words: Words) -> str | None:
        files = _Files(ctx, "changed")
        try:
            return ctx.read(path)
        except OSError as error:
            reason = error.strerror or str(error)
            self._miss(files, f"{path} to be there, but: {reason}", words, files.nearest(path))
            return None


class _Files(Items[str, str]):
    """The paths of files that were changed in one way, or in any; messages show all changes."""

    many = "changed files"
    matchers = "paths"

    def __init__(self, ctx: HasChanges, how: Literal["created", "modified", "deleted", "changed"]) -> None:
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

    def lines(self) -> Sequence[str]:
        kinds = ("created", "modified", "deleted")
        return [f"{name} ({how})" for how in kinds for name in getattr(self._changes, how)]

    def line(self, item: str) -> str:
        return item

    def nearest(self, matcher: str) -> Pointed | None:
        return nearest(matcher, self.lines())

    def wanted(self, matcher: str) -> str:
        return f"{matcher} to be {self._how}"

    def unwanted(self, matcher: str, found: Sequence[int]) -> str:
        return f"{matcher} to be left alone, but {self.all[found[0]]} changed"

    def only(self, matchers: Sequence[str], other: Sequence[int]) -> str:
        wanted = f"changes to {', '.join(matchers)} only" if matchers else "no changes at all"
        return f"{wanted}, but {self.all[other[0]]} changed"


def _it_has(text: str) -> str:
    return f"it has {characters(text)}: {shorten(text, _SHOWN)}"
