"""What a trial is carried out with: made by the pipeline, used by everything in this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from whet.engine.unpack import Unpacked
from whet.grade.base import Grader
from whet.mask import Masker
from whet.model.ceilings import Ceilings
from whet.model.grade import FailureClass
from whet.model.naming import folder_name
from whet.model.run import Plan, Trial, TrialKey, TrialResult
from whet.model.session import Event
from whet.model.suite import NO_SKILL, Case
from whet.model.usage import Usage
from whet.packages.prepare import Packages
from whet.sandbox.base import Sandbox
from whet.workspace import Workspaces


class Classifier(Protocol):
    """Asks a case's author what class a failure belongs to."""

    async def classify(self, case: Case, result: TrialResult, *, timeout_s: float) -> FailureClass | None:
        """The class, or none; a `GraderError` where it fails to say anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The sandbox, the folders, the graders and the facts that every attempt of a run shares."""

    plan: Plan
    run_id: str
    run_dir: Path
    scratch: Path
    sandbox: Sandbox
    workspaces: Workspaces
    packages: Packages
    graders: Mapping[str, Grader]
    classifier: Classifier | None
    masker: Masker
    environ: Mapping[str, str]
    settings_dir: Path | None
    mounts: tuple[Path, ...]
    hidden: tuple[Path, ...]
    max_output_bytes: int
    model_silence_s: float
    unpacked: Unpacked
    ceilings: Ceilings = field(default_factory=Ceilings)
    # Who wants to see sessions while they happen.
    listen: Callable[[Trial, Event], None] | None = None
    # Told what an attempt had taken that a signal cut short.
    cut_short: Callable[[TrialKey, Usage], None] = lambda _key, _usage: None
    # Why the model of a runner was rejected, by runner: its other trials need not find out again.
    rejected: dict[str, str] = field(default_factory=dict)
    # Whether a check decides on an untouched workspace, by case, variant and number, as far as that had to be known.
    decides: dict[str, bool] = field(default_factory=dict)

    def listener(self, trial: Trial) -> Callable[[Event], None] | None:
        """Who is to be told what happens in the session of *trial*."""
        return None if self.listen is None else partial(self.listen, trial)

    def hidden_from(self, trial: Trial) -> tuple[Path, ...]:
        """What nobody may see in *trial*; without the skill, that is also the skill itself."""
        skill = self.plan.suite.skill
        if skill is None or trial.key.variant != NO_SKILL:
            return self.hidden
        # The manifest by itself as well: a folder that an agent is shown cannot be hidden as a whole.
        return (*self.hidden, *(place for root in skill.places for place in (root, root / "SKILL.md")))

    def keep_text(self, path: Path, text: str) -> None:
        """Put a text into the record, without secrets."""
        path.write_bytes(self.masker.data(text.encode("utf-8", "backslashreplace")))


def trial_folder(key: TrialKey) -> str:
    """Where the artifacts of a trial lie, below `trials/` or `workspaces/` of the run folder."""
    return f"{folder_name(key.case)}/{folder_name(key.runner)}/{folder_name(key.variant)}/{key.number}"
