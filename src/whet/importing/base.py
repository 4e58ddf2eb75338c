"""What importing comes to: a suite, and what could not be carried over into it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from whet.evals import EvalSuite


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Something of a task that the suite does not say; *task* is empty where it concerns all of them."""

    task: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The suite, what it lacks, and the tasks that could not become cases at all, by name with the reason."""

    suite: EvalSuite
    lost: tuple[Lost, ...] = ()
    left_out: tuple[Lost, ...] = ()


@dataclass(slots=True)
class Losses:
    """Collects what is lost of one task."""

    task: str
    found: list[Lost] = field(default_factory=list)

    def add(self, what: str) -> None:
        """Note something that is not carried over."""
        self.found.append(Lost(task=self.task, what=what))


def seen_from(path: Path, folder: Path) -> str:
    """*path* as a suite in *folder* refers to it."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
