"""The fields of a conversation, which all formats share: `turns`, or a `user` after the first prompt."""

from __future__ import annotations

from collections.abc import Sequence

from whet.dataclass import dataclass
from whet.model.suite import Check, User
from whet.reading.fields import Fields

USER = ("goal", "facts", "max_turns", "model")
_MOST_TURNS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTurn:
    """One turn as an author wrote it; nothing is left of a prompt that is wrong."""

    prompt: str
    checks: tuple[Check, ...] = ()


def conversation_prompts(
    given: Fields, turns: Sequence[WrittenTurn], *, name: str = "prompt", hint: str | None = None
) -> tuple[str, ...]:
    """Return the prompts of a case, of which there is at least one: that of *name*, or those of its *turns*."""
    if given.given("turns") is None:
        return (given.text(name, required=True, hint=hint) or "",)
    if given.given("user") is not None:
        given.problem("user", "cannot be used together with turns: it says what comes after the first prompt")
    if given.given(name) is not None:
        given.problem("turns", f"cannot be used together with {name}: make that the first turn")
    if given.given("turns") in ([], ()):
        given.problem("turns", "is empty: there is nothing to ask")
    if len(turns) > _MOST_TURNS:
        given.problem("turns", f"are {len(turns)}, and may be at most {_MOST_TURNS}")
    return tuple(turn.prompt for turn in turns) or ("",)


# In suites without code, it is a check of its own whether the user was satisfied.
SATISFIED = Check(grader="user", label="user satisfied")


def read_user(given: Fields) -> User:
    """Read the fields of a user; the format notes unknown ones."""
    usual = User(goal="")
    return User(
        goal=given.text("goal", required=True) or "",
        facts=given.texts("facts"),
        max_turns=given.whole("max_turns", least=1, most=_MOST_TURNS) or usual.max_turns,
        model=given.text("model"),
    )
