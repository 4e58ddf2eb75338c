"""The deciding of claims, inside a worker: a file without end, or a pattern that never ends, can be stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from whet import wire
from whet.claims.forms import Changed, Claim, CommandClaim, Matches, path_of
from whet.claims.globs import Globs
from whet.errors import WorkspaceError
from whet.grade.claims import commands, files
from whet.grade.claims.outcome import Outcome, failed, shortened, undecided
from whet.grade.shell import Shell
from whet.model.suite import Suite
from whet.sandbox.workers import Printed
from whet.workspace.base import SHORTAGES
from whet.workspace.baseline import Baseline, Before, take_before
from whet.workspace.protecting import Protected, Wanted, keep_protected, put_back


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRequest:
    """Ask what the claims of a case find before its agent starts; copies of protected files go to `store`.

    Patterns are searched for only where `search` asks for it, because a search may never end.
    """

    case: str
    workspace: str
    store: str
    search: bool
    kind: Literal["survey"] = "survey"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Ask for claims of a case by their `numbers`, one after the other; `before` is by path."""

    case: str
    numbers: tuple[int, ...]
    workspace: str
    before: Mapping[str, Before]
    protected: tuple[Protected, ...]
    shell: Shell
    env: Mapping[str, str]
    timeout_s: float
    kind: Literal["claim"] = "claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswer:
    """What a claim came to, and what had to be put back before that."""

    outcome: Outcome
    restored: tuple[str, ...] = ()
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswers:
    """An answer for each claim that was asked for, in that order."""

    answers: tuple[ClaimAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyAnswer:
    """What was found, or why nothing could be."""

    baseline: Baseline | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    kind: str = field(default="claim")


class ClaimDecider:
    """Serves requests for one suite."""

    def __init__(self, suite: Suite) -> None:
        self._cases = {case.id: case for case in suite.cases}

    def serve(self, request: bytes, printed: Printed) -> bytes:
        """Answer one request."""
        del printed
        if wire.decode_exact(request, _Kind).kind == "survey":
            return wire.encode_exact(self._survey(wire.decode_exact(request, SurveyRequest)))
        asked = wire.decode_exact(request, ClaimRequest)
        claims = self._claims(asked.case)
        return wire.encode_exact(
            ClaimAnswers(answers=tuple(self._decide(asked, claims[each]) for each in asked.numbers))
        )

    def _survey(self, asked: SurveyRequest) -> SurveyAnswer:
        claims, workspace = self._claims(asked.case), Path(asked.workspace)
        paths = [path for path in map(path_of, claims) if path is not None]
        changed = [claim.path for claim in claims if isinstance(claim, Changed)]
        try:
            before = take_before(workspace, dict.fromkeys(paths), digests=changed)
            protected = self._kept(asked, workspace)
        except OSError as error:
            return SurveyAnswer(trouble=str(error))
        held = tuple(_held(claim, workspace, before, search=asked.search) for claim in claims)
        return SurveyAnswer(baseline=Baseline(before=before, protected=protected, held=held))

    def _kept(self, asked: SurveyRequest, workspace: Path) -> tuple[Protected, ...]:
        globs = Globs(self._cases[asked.case].protect)
        return keep_protected(workspace, _wanted(globs), Path(asked.store)) if globs else ()

    def _decide(self, asked: ClaimRequest, claim: Claim) -> ClaimAnswer:
        began = time.monotonic()
        workspace = Path(asked.workspace)
        restored: tuple[str, ...] = ()
        if isinstance(claim, CommandClaim):
            try:
                restored = self._restore(asked, workspace)
            except (OSError, WorkspaceError) as error:
                outcome = _not_put_back(error)
            else:
                outcome = commands.decide(claim, workspace, asked.shell, asked.env, asked.timeout_s)
        else:
            outcome = files.decide(claim, workspace, asked.before[claim.path])
        return ClaimAnswer(outcome=outcome, restored=restored, duration_s=round(time.monotonic() - began, 6))

    def _restore(self, asked: ClaimRequest, workspace: Path) -> tuple[str, ...]:
        globs = Globs(self._cases[asked.case].protect)
        return put_back(workspace, _wanted(globs), asked.protected) if globs else ()

    def _claims(self, case: str) -> list[Claim]:
        return [check.params["claim"] for check in self._cases[case].checks if check.grader == "claim"]


def _not_put_back(error: OSError | WorkspaceError) -> Outcome:
    """No command is run beside files that are not what they were; whoever left them so does not get away with it."""
    why = f"protected files could not be put back: {shortened(str(error))}"
    ours = isinstance(error, OSError) and error.errno in SHORTAGES
    return undecided(why) if ours else failed(why)


def _wanted(globs: Globs) -> Wanted:
    return Wanted(globs.holds, globs.guards, globs.leads_to)


def _held(claim: Claim, workspace: Path, before: Mapping[str, Before], *, search: bool) -> bool | None:
    """Whether a claim held before; what compares with before never does."""
    if isinstance(claim, CommandClaim) or (isinstance(claim, Matches) and not search):
        return None
    return files.decide(claim, workspace, before[claim.path]).state == "passed"
