"""What the author of a Python suite writes: `Case`, `case`, `Turn`, `User`, `Workspace` and `Bootstrap`.

`Case` and the others accept anything and remember where it was written, so that the format can report every mistake at
once, with its place. Type checkers and editors see the strict signatures.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    from whet.model.grade import FailureClass
    from whet.model.run import TrialResult
    from whet.model.suite import CaseSource, Part


# A check takes the session, and the context if it has a parameter for it. It may be async. It holds if it returns.
CheckFunction = Callable[..., "Awaitable[None] | None"]
Classify = Callable[["TrialResult"], "FailureClass | str | None"]

# The cases that `@case` made, by module, so that two functions of one name are seen as two.
marked_cases: dict[str, list[Case]] = {}


class _AuthorObject:
    """Something written down by an author: its fields as given, and where."""

    known: tuple[str, ...] = ()

    if not TYPE_CHECKING:

        def __init__(self, *args: Any, **fields: Any) -> None:
            self.positional = args
            self.fields = fields
            frame = sys._getframe(1)  # noqa: SLF001 - the author's line belongs into every message
            self.file, self.line = frame.f_code.co_filename, frame.f_lineno
    else:
        positional: tuple[Any, ...]
        fields: dict[str, Any]
        file: str
        line: int


class Case(_AuthorObject):
    """One task and the check that decides how it went."""

    known = (
        "id",
        "prompt",
        "turns",
        "user",
        "check",
        "tags",
        "timeout_ms",
        "max_steps",
        "budget_usd",
        "expected_fail",
        "classify_failure",
        "solution",
        "pairwise",
        "image",
        "check_files",
        "split",
        "source",
    )
    # Whether `@case` made it.
    by_mark = False

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            prompt: str | None = None,
            turns: Sequence[str | Turn] = (),
            user: User | None = None,
            check: CheckFunction | None = None,
            id: str = ...,  # noqa: A002 - the author's word
            tags: Sequence[str] = (),
            timeout_ms: int | None = None,
            max_steps: int | None = None,
            budget_usd: float | None = None,
            expected_fail: bool = False,
            classify_failure: Classify | None = None,
            solution: str | Mapping[str, str | Sequence[str]] | None = None,
            pairwise: Mapping[str, str | Mapping[str, str]] | None = None,
            image: str | None = None,
            check_files: Sequence[str | Path] = (),
            split: Part | None = None,
            source: CaseSource | None = None,
        ) -> None: ...


class Turn(_AuthorObject):
    """One prompt of a conversation, and a check of what the agent did until it answered.

    If the check fails, no further turn is taken, unless the turn is `soft`.
    """

    known = ("prompt", "check", "soft")

    if TYPE_CHECKING:

        def __init__(self, prompt: str, *, check: CheckFunction | None = None, soft: bool = False) -> None: ...


class User(_AuthorObject):
    """A person that a model plays: it answers the agent until it has what it wants, gives up or takes no more turns."""

    known = ("goal", "facts", "max_turns", "model")

    if TYPE_CHECKING:

        def __init__(
            self, *, goal: str, facts: Sequence[str] = (), max_turns: int = 8, model: str | None = None
        ) -> None: ...


class Bootstrap(_AuthorObject):
    """A command that prepares a fresh workspace."""

    known = ("command", "args", "timeout_ms", "env")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            command: str,
            args: Sequence[str] = (),
            timeout_ms: int | None = None,
            env: Mapping[str, str] | None = None,
        ) -> None: ...


class Workspace(_AuthorObject):
    """Where the cases of a suite work; relative paths are taken from the suite's folder."""

    known = ("mode", "cwd", "template_dir", "bootstrap")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            mode: Literal["shared", "isolated"],
            cwd: str | Path | None = None,
            template_dir: str | Path | None = None,
            bootstrap: Bootstrap | None = None,
        ) -> None: ...


@overload
def case(check: CheckFunction, /) -> Case: ...
@overload
def case(
    *,
    prompt: str = ...,
    id: str | None = None,
    tags: Sequence[str] = (),
    **others: Any,
) -> Callable[[CheckFunction], Case]: ...
def case(
    check: CheckFunction | None = None,
    /,
    *,
    id: str | None = None,  # noqa: A002 - the author's word
    tags: Sequence[str] = (),
    **others: Any,
) -> Callable[[CheckFunction], Case] | Case:
    """Mark a function as the check of a case; its name is the id unless one is given.

    Without parentheses it has no prompt, which is reported with everything else.

    Takes every field of `Case` but the check; an unknown one is reported with the others when the suite is loaded.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - as above
    file, line = frame.f_code.co_filename, frame.f_lineno

    def mark(check: CheckFunction) -> Case:
        name = getattr(check, "__name__", "case")
        marked_case = Case(id=id if id is not None else name, check=check, tags=tags, **others)
        marked_case.file, marked_case.line, marked_case.by_mark = file, line, True
        marked_cases.setdefault(getattr(check, "__module__", ""), []).append(marked_case)
        return marked_case

    return mark if check is None else mark(check)
