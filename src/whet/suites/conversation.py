"""The fields of a conversation, which all formats share: `turns`, or a `user` after the first prompt."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from whet.model.suite import Check, User
from whet.reading.fields import Fields

USER = ("goal", "facts", "max_turns", "model")
_MOST_TURNS = 100


class WrittenTurn(Struct, frozen=True, kw_only=True):
    """One turn as an author wrote it; nothing is left of a prompt that is wrong."""

    prompt: str
    checks: tuple[Check, ...] = ()


def conversation_prompts(
    fields: Fields, turns: Sequence[WrittenTurn], *, name: str = "prompt", hint: str | None = None
) -> tuple[str, ...]:
    """Return the prompts of a case, of which there is at least one: that of *name*, or those of its *turns*."""
    if fields.given("turns") is None:
        return (fields.text(name, required=True, hint=hint) or "",)
    if fields.given("user") is not None:
        fields.problem("user", "cannot be used together with turns: it says what comes after the first prompt")
    if fields.given(name) is not None:
        fields.problem("turns", f"cannot be used together with {name}: make that the first turn")
    if fields.given("turns") in ([], ()):
        fields.problem("turns", "is empty: there is nothing to ask")
    if len(turns) > _MOST_TURNS:
        fields.problem("turns", f"are {len(turns)}, and may be at most {_MOST_TURNS}")
    return tuple(turn.prompt for turn in turns) or ("",)


# In suites without code, it is a check of its own whether the user was satisfied.
SATISFIED = Check(grader="user", label="user satisfied")


def read_user(fields: Fields) -> User:
    """Read the fields of a user; the format notes unknown ones."""
    usual = User(goal="")
    return User(
        goal=fields.text("goal", required=True) or "",
        facts=fields.texts("facts"),
        max_turns=fields.whole("max_turns", least=1, most=_MOST_TURNS) or usual.max_turns,
        model=fields.text("model"),
    )
