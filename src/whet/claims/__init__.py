"""Claims: the expectations of JSON and YAML suites, read from a line or an object, and written back."""

from whet.claims.base import ClaimError, Reading
from whet.claims.forms import (
    Absent,
    Changed,
    Claim,
    Contains,
    Created,
    Exists,
    Fails,
    Matches,
    Passes,
    Pattern,
    Prints,
    Quits,
    command_of,
    path_of,
)
from whet.claims.objects import read_object
from whet.claims.reading import read_claim
from whet.claims.writing import write_claim, write_object

__all__ = [
    "Absent",
    "Changed",
    "Claim",
    "ClaimError",
    "Contains",
    "Created",
    "Exists",
    "Fails",
    "Matches",
    "Passes",
    "Pattern",
    "Prints",
    "Quits",
    "Reading",
    "command_of",
    "path_of",
    "read_claim",
    "read_object",
    "write_claim",
    "write_object",
]
