"""The version and the name to install by, as constants, so that saying them costs nothing."""

from __future__ import annotations

__version__ = "0.1.0"
# The package and the command are called whet. On the index, that name belongs to somebody else.
DISTRIBUTION = "whet-eval"


def install_command(extra: str) -> str:
    """Return what installs the libraries of an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
