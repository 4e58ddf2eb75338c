"""The forms that a claim can have: one frozen record each, in the order of the reference."""

from __future__ import annotations

from typing import TypeAlias

from whet.dataclass import dataclass
from whet.reading.patterns import Pattern


@dataclass(frozen=True, slots=True)
class Exists:
    """`file:<path> exists`: something is there, new or not."""

    path: str


@dataclass(frozen=True, slots=True)
class Created:
    """`file:<path> created`: something is there that was not there before."""

    path: str


@dataclass(frozen=True, slots=True)
class Contains:
    """`file:<path> contains '<text>'`."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Matches:
    """`file:<path> matches /<pattern>/`."""

    path: str
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Changed:
    """`diff:<path>`: other content than before."""

    path: str


@dataclass(frozen=True, slots=True)
class Absent:
    """`no-file:<path>`: nothing is there."""

    path: str


@dataclass(frozen=True, slots=True)
class Passes:
    """`test:<command>`: exit code 0."""

    command: str


@dataclass(frozen=True, slots=True)
class Fails:
    """`test:<command> fails`: any other exit code."""

    command: str


@dataclass(frozen=True, slots=True)
class Quits:
    """`test:<command> exits <code>`: exactly this exit code."""

    command: str
    code: int


@dataclass(frozen=True, slots=True)
class Prints:
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


@dataclass(frozen=True, slots=True)
class Reading:
    """A claim, and a warning for everything in it that its author probably did not mean."""

    claim: Claim
    warnings: tuple[str, ...] = ()
