"""What the doctor finds: one line each, with what to do where it is not good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# "problem" keeps a configured runner from starting; "warning" is worth knowing; "absent" is nothing to worry about.
State = Literal["ok", "absent", "warning", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    part: Literal["settings", "machine", "agents", "runners"]
    name: str
    state: State
    message: str
    hint: str | None = None
