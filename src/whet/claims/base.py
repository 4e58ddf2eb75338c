"""What reading a claim gives: the claim with what should be said about it, or an error with the near miss."""

from __future__ import annotations

from dataclasses import dataclass

from whet.claims.forms import Claim
from whet.errors import UsageError


class ClaimError(UsageError):
    """Something that is no claim: what is wrong with it, and the nearest that would be right."""

    code = "claim"


@dataclass(frozen=True, slots=True)
class Reading:
    """A claim, and a sentence for whatever looks unlike what its author meant."""

    claim: Claim
    warnings: tuple[str, ...] = ()


def check_text(text: str, what: str) -> str:
    """*text*, if a program can be given it."""
    if "\0" in text:
        raise ClaimError(f"the {what} holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ClaimError(f"the {what} holds half a surrogate pair") from None
    return text
