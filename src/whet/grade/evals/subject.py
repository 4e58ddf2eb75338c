"""What the assertions of an eval suite look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.model.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A session, the workspace it left, and the names of the skill under test."""

    session: Session
    workspace: Path
    skill_names: frozenset[str] = frozenset()

    @property
    def output(self) -> str:
        """The agent's answer."""
        return self.session.final_output
