"""Decide claims inside a worker, where a file without end or a pattern that never ends can be stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.checks.context import Ran, Shell
from whet.errors import WhetError, WorkspaceError
from whet.grade.claims import files
from whet.grade.claims.files import Outcome, abbreviate, failed, passed, undecided
from whet.model import codec
from whet.model.suite import Suite
from whet.reading.claims.forms import Changed, Claim, CommandClaim, Fails, Matches, Passes, Prints, Quits, path_of
from whet.reading.paths import Globs
from whet.sandbox.process.workers import PrintedOutput
from whet.workspace.protected import (
    Before,
    ProtectedItem,
    ProtectedPaths,
    WorkspaceSurvey,
    keep_protected,
    put_back,
    take_before,
)
from whet.workspace.walk import SHORTAGES

_SHELL = ("/bin/sh", "-c")
_NOT_RUN = {126: "the command cannot be executed", 127: "the command was not found"}
_OUTPUT_KEPT = 2000
# As much of it as the reason of a failure shows.
_LINES_SHOWN = 6


def decide(claim: CommandClaim, workspace: Path, shell: Shell, env: Mapping[str, str], timeout_s: float) -> Outcome:
    """Run the command of *claim*; it has no input, and what it leaves running is ended."""
    inside = replace(shell, env={"CI": "1", **env})
    try:
        ran = inside.run(workspace, (*_SHELL, claim.command), timeout_s)
    except (WhetError, OSError, ValueError) as error:
        return undecided(f"the command could not be run: {error}")
    holds, reason = _decide_by_exit(claim, ran, timeout_s)
    evidence = _output_evidence(ran)
    return passed(reason, evidence) if holds else failed(f"{reason}{_last_lines(ran)}", evidence)


def _decide_by_exit(claim: CommandClaim, ran: Ran, timeout_s: float) -> tuple[bool, str]:
    if ran.timed_out:
        return False, f"the command was still running after {timeout_s:g} s and was stopped"
    if ran.exit_code in _NOT_RUN and not isinstance(claim, Quits):
        # Even if it should fail: use `exits 127` to ask for this.
        problem = _NOT_RUN[ran.exit_code]
        return False, f"{problem} (exit code {ran.exit_code}): check its name in the suite"
    ending = "was ended by a signal" if ran.exit_code is None else f"ended with exit code {ran.exit_code}"
    if isinstance(claim, Prints):
        has_text = claim.text in ran.stdout or claim.text in ran.stderr
        action = "printed it" if has_text else f"did not print '{abbreviate(claim.text)}'; it {ending}"
        return has_text, f"the command {action}"
    match claim:
        case Passes():
            holds = ran.exit_code == 0
        case Fails():
            holds = ran.exit_code != 0
        case Quits(code=code):
            holds = ran.exit_code == code
    return holds, f"the command {ending}"


def _output_evidence(ran: Ran) -> str | None:
    """Return the end of what it printed: that is where tools say what is wrong."""
    parts = [f"{name}:\n{text.strip()}" for name, text in _streams(ran) if text.strip()]
    return "\n".join(parts) or None


def _last_lines(ran: Ran) -> str:
    """Return the last lines that it printed, for the reason of a failure."""
    lines = [line.rstrip() for _, text in _streams(ran) for line in text.splitlines() if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-_LINES_SHOWN:])


def _streams(ran: Ran) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("stdout", _end(ran.stdout)), ("stderr", _end(ran.stderr))


def _end(text: str) -> str:
    """Return the last whole lines of *text*: half a line could be half a secret, which masking would miss."""
    tail = text[-_OUTPUT_KEPT:]
    return tail if tail == text or "\n" not in tail else tail.partition("\n")[2]


class SurveyRequest(Struct, frozen=True, kw_only=True, tag="survey"):
    """Ask what the claims of a case find before its agent starts; copies of protected files go to `store`.

    Patterns are searched for only where `search` asks for it, because a search may never end.
    """

    case: str
    workspace: str
    store: str
    search: bool


class ClaimRequest(Struct, frozen=True, kw_only=True, tag="claim"):
    """Ask for claims of a case by their `numbers`, one after the other; `before` is by path."""

    case: str
    numbers: tuple[int, ...]
    workspace: str
    before: Mapping[str, Before]
    protected: tuple[ProtectedItem, ...]
    shell: Shell
    env: Mapping[str, str]
    timeout_s: float


_REQUESTS: Any = SurveyRequest | ClaimRequest


class ClaimAnswer(Struct, frozen=True, kw_only=True):
    """The outcome of a claim, and what was put back before it was decided."""

    outcome: Outcome
    restored: tuple[str, ...] = ()
    duration_s: float = 0.0


class SurveyAnswer(Struct, frozen=True, kw_only=True):
    """What was found, or why nothing was."""

    surveyed: WorkspaceSurvey | None = None
    trouble: str = ""


class ClaimDecider:
    """Serves requests for one suite."""

    def __init__(self, suite: Suite) -> None:
        self._cases = {case.id: case for case in suite.cases}

    def serve(self, request: bytes, output: PrintedOutput) -> bytes:
        """Answer one request."""
        del output
        message = codec.decode_exact(request, _REQUESTS)
        claims = self._claims(message.case)
        if isinstance(message, SurveyRequest):
            return codec.encode_exact(self._survey(message, claims))
        return codec.encode_exact(tuple(self._decide(message, claims[number]) for number in message.numbers))

    def _survey(self, request: SurveyRequest, claims: list[Claim]) -> SurveyAnswer:
        workspace = Path(request.workspace)
        paths = [path for path in map(path_of, claims) if path is not None]
        changed_paths = [claim.path for claim in claims if isinstance(claim, Changed)]
        try:
            before = take_before(workspace, dict.fromkeys(paths), digests=changed_paths)
            selection = self._selection_of(request.case)
            copies = keep_protected(workspace, selection, Path(request.store)) if selection else ()
        except OSError as error:
            return SurveyAnswer(trouble=str(error))
        states = tuple(_held_before(claim, workspace, before, search=request.search) for claim in claims)
        return SurveyAnswer(surveyed=WorkspaceSurvey(before=before, protected=copies, held=states))

    def _decide(self, request: ClaimRequest, claim: Claim) -> ClaimAnswer:
        started_at = time.monotonic()
        workspace = Path(request.workspace)
        restored_paths: tuple[str, ...] = ()
        if isinstance(claim, CommandClaim):
            try:
                selection = self._selection_of(request.case)
                restored_paths = put_back(workspace, selection, request.protected) if selection else ()
            except (OSError, WorkspaceError) as error:
                outcome = _not_put_back(error)
            else:
                outcome = decide(claim, workspace, request.shell, request.env, request.timeout_s)
        else:
            outcome = files.decide(claim, workspace, request.before[claim.path])
        return ClaimAnswer(outcome=outcome, restored=restored_paths, duration_s=round(time.monotonic() - started_at, 6))

    def _selection_of(self, case: str) -> ProtectedPaths | None:
        """Return which files are protected, if any are."""
        globs = Globs(self._cases[case].protect)
        return ProtectedPaths(globs.holds, globs.guards, globs.leads_to) if globs else None

    def _claims(self, case: str) -> list[Claim]:
        return [check.params["claim"] for check in self._cases[case].checks if check.grader == "claim"]


def _not_put_back(error: OSError | WorkspaceError) -> Outcome:
    """Return the outcome if protected files cannot be restored: a failure, unless the machine lacks something."""
    why = f"protected files could not be put back: {abbreviate(str(error))}"
    ours = isinstance(error, OSError) and error.errno in SHORTAGES
    return undecided(why) if ours else failed(why)


def _held_before(claim: Claim, workspace: Path, before: Mapping[str, Before], *, search: bool) -> bool | None:
    """Return whether a claim held before the agent started, if that is known."""
    if isinstance(claim, CommandClaim) or (isinstance(claim, Matches) and not search):
        return None
    return files.decide(claim, workspace, before[claim.path]).state == "passed"
