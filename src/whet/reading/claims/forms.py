"""The forms that a claim can have: one frozen record each, in the order of the reference."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from whet.reading.patterns import Pattern


class Exists(Struct, frozen=True):
    """`file:<path> exists`: something is there, new or not."""

    path: str


class Created(Struct, frozen=True):
    """`file:<path> created`: something is there that was not there before."""

    path: str


class Contains(Struct, frozen=True):
    """`file:<path> contains '<text>'`."""

    path: str
    text: str


class Matches(Struct, frozen=True):
    """`file:<path> matches /<pattern>/`."""

    path: str
    pattern: Pattern


class Changed(Struct, frozen=True):
    """`diff:<path>`: other content than before."""

    path: str


class Absent(Struct, frozen=True):
    """`no-file:<path>`: nothing is there."""

    path: str


class Passes(Struct, frozen=True):
    """`test:<command>`: exit code 0."""

    command: str


class Fails(Struct, frozen=True):
    """`test:<command> fails`: any other exit code."""

    command: str


class Quits(Struct, frozen=True):
    """`test:<command> exits <code>`: exactly this exit code."""

    command: str
    code: int


class Prints(Struct, frozen=True):
    """`test:<command> prints '<text>'`, with any exit code."""

    command: str
    text: str


PathClaim: TypeAlias = Exists | Created | Contains | Matches | Changed | Absent
CommandClaim: TypeAlias = Passes | Fails | Quits | Prints
Claim: TypeAlias = PathClaim | CommandClaim

# What error messages list, and the documentation explains.
FORMS = (
    "file:<path> exists",
    "file:<path> created",
    "file:<path> contains '<text>'",
    "file:<path> matches /<pattern>/",
    "diff:<path>",
    "no-file:<path>",
    "test:<command>",
    "test:<command> fails",
    "test:<command> exits <code>",
    "test:<command> prints '<text>'",
)


def path_of(claim: Claim) -> str | None:
    """Return the path that *claim* is about, if there is one."""
    return None if isinstance(claim, CommandClaim) else claim.path


def command_of(claim: Claim) -> str | None:
    """Return the command that *claim* runs, if it runs one."""
    return claim.command if isinstance(claim, CommandClaim) else None


class ParsedClaim(Struct, frozen=True):
    """A claim, and a warning for everything in it that its author probably did not mean."""

    claim: Claim
    warnings: tuple[str, ...] = ()
