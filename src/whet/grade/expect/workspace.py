"""Expectations over what the agent did to its workspace."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from whet.grade.expect.group import Group, characters, nearest, shorten
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


class FilesGroup(Group):
    """Paths are relative to the workspace and may be patterns such as `src/*.py`, where `*` also crosses folders."""

    def created(self, ctx: HasChanges, path: str, *, message: str | None = None, explain: str | None = None) -> None:
        """A file of this name was created."""
        self._among(ctx, path, _changes(ctx).created, "created", message, explain)

    def modified(self, ctx: HasChanges, path: str, *, message: str | None = None, explain: str | None = None) -> None:
        """A file of this name was modified."""
        self._among(ctx, path, _changes(ctx).modified, "modified", message, explain)

    def deleted(self, ctx: HasChanges, path: str, *, message: str | None = None, explain: str | None = None) -> None:
        """A file of this name was deleted."""
        self._among(ctx, path, _changes(ctx).deleted, "deleted", message, explain)

    def unchanged(self, ctx: HasChanges, path: str, *, message: str | None = None, explain: str | None = None) -> None:
        """No file of this name was created, modified or deleted."""
        found = [name for name in _changes(ctx).paths if _names(path, name)]
        if found:
            self._changed(f"{path} to be left alone, but {found[0]} changed", ctx, None, message, explain)

    def only_changed(
        self, ctx: HasChanges, paths: Sequence[str], *, message: str | None = None, explain: str | None = None
    ) -> None:
        """Nothing but these was created, modified or deleted."""
        if isinstance(paths, str) or not isinstance(paths, Sequence):
            raise TypeError(f"give a list of paths, not a {type(paths).__name__}")
        other = [name for name in _changes(ctx).paths if not any(_names(path, name) for path in paths)]
        if other:
            wanted = f"changes to {', '.join(paths)} only" if paths else "no changes at all"
            self._changed(f"{wanted}, but {other[0]} changed", ctx, None, message, explain)

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
        text = self._text(ctx, path, message, explain)
        if text is not None and not matches(matcher, text):
            shown_text = f"it has {characters(text)}: {shorten(text, _SHOWN)}"
            self._say(f"expected {path} to contain {shown(matcher)}\n{shown_text}", message=message, explain=explain)

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
        text = self._text(ctx, path, message, explain)
        wanted = matcher.strip() if isinstance(matcher, str) else matcher
        if text is not None and not equals(wanted, text.strip()):
            shown_text = f"it has {characters(text)}: {shorten(text, _SHOWN)}"
            self._say(f"expected {path} to be {shown(matcher)}\n{shown_text}", message=message, explain=explain)

    def _text(self, ctx: HasChanges, path: str, message: str | None, explain: str | None) -> str | None:
        _changes(ctx)
        try:
            return ctx.read(path)
        except OSError as error:
            reason = error.strerror or str(error)
            self._changed(f"{path} to be there, but: {reason}", ctx, path, message, explain)
            return None

    def _among(
        self,
        ctx: HasChanges,
        path: str,
        names: Sequence[str],
        how: str,
        message: str | None,
        explain: str | None,
    ) -> None:
        if not any(_names(path, name) for name in names):
            self._changed(f"{path} to be {how}", ctx, path, message, explain)

    def _changed(
        self, expected: str, ctx: HasChanges, near: str | None, message: str | None, explain: str | None
    ) -> None:
        changes = _changes(ctx)
        observed = [
            f"{name} ({how})"
            for how, names in (
                ("created", changes.created),
                ("modified", changes.modified),
                ("deleted", changes.deleted),
            )
            for name in names
        ]
        pointed = nearest(near, observed)
        self._broken(expected, "changed files", observed, pointed=pointed, message=message, explain=explain)


def _changes(ctx: HasChanges) -> Changes:
    if not hasattr(ctx, "changes"):
        raise TypeError(f"files need the context of the check, not a {type(ctx).__name__}: give ctx")
    return ctx.changes()


def _names(pattern: str, name: str) -> bool:
    if not isinstance(pattern, str):
        raise TypeError(f"a path is a string, not a {type(pattern).__name__}")
    plain = pattern.removeprefix("./")
    return name == plain or fnmatchcase(name, plain)
