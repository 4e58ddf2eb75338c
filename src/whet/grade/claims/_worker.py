"""Decide claims inside a worker, where a file without end or a pattern that never ends can be stopped."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.dataclass import dataclass
from whet.errors import WhetError, WorkspaceError
from whet.grade import claim_files as files
from whet.grade.claim_files import Outcome, failed, passed, shortened, undecided
from whet.grade.context import Ran, Shell
from whet.ground.protecting import Before, Protected, Surveyed, Wanted, keep_protected, put_back, take_before
from whet.ground.tree import SHORTAGES
from whet.ground.workers import Printed
from whet.model import wire
from whet.model.suite import Suite
from whet.reading.claims import Changed, Claim, CommandClaim, Fails, Matches, Passes, Prints, Quits, path_of
from whet.reading.paths import Globs

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
    holds, reason = _decided(claim, ran, timeout_s)
    evidence = _printed(ran)
    return passed(reason, evidence) if holds else failed(f"{reason}{_last_lines(ran)}", evidence)


def _decided(claim: CommandClaim, ran: Ran, timeout_s: float) -> tuple[bool, str]:
    if ran.timed_out:
        return False, f"the command was still running after {timeout_s:g} s and was stopped"
    if ran.exit_code in _NOT_RUN and not isinstance(claim, Quits):
        # Even if it should fail: use `exits 127` to ask for this.
        what = _NOT_RUN[ran.exit_code]
        return False, f"{what} (exit code {ran.exit_code}): check its name in the suite"
    ended = "was ended by a signal" if ran.exit_code is None else f"ended with exit code {ran.exit_code}"
    if isinstance(claim, Prints):
        printed = claim.text in ran.stdout or claim.text in ran.stderr
        said = "printed it" if printed else f"did not print '{shortened(claim.text)}'; it {ended}"
        return printed, f"the command {said}"
    match claim:
        case Passes():
            holds = ran.exit_code == 0
        case Fails():
            holds = ran.exit_code != 0
        case Quits(code=code):
            holds = ran.exit_code == code
    return holds, f"the command {ended}"


def _printed(ran: Ran) -> str | None:
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
    kept = text[-_OUTPUT_KEPT:]
    return kept if kept == text or "\n" not in kept else kept.partition("\n")[2]


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
    protected: tuple[Protected, ...]
    shell: Shell
    env: Mapping[str, str]
    timeout_s: float


_REQUESTS: Any = SurveyRequest | ClaimRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswer:
    """The outcome of a claim, and what was put back before it was decided."""

    outcome: Outcome
    restored: tuple[str, ...] = ()
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyAnswer:
    """What was found, or why nothing was."""

    surveyed: Surveyed | None = None
    trouble: str = ""


class ClaimDecider:
    """Serves requests for one suite."""

    def __init__(self, suite: Suite) -> None:
        self._cases = {case.id: case for case in suite.cases}

    def serve(self, request: bytes, printed: Printed) -> bytes:
        """Answer one request."""
        del printed
        asked = wire.decode_exact(request, _REQUESTS)
        claims = self._claims(asked.case)
        if isinstance(asked, SurveyRequest):
            return wire.encode_exact(self._survey(asked, claims))
        return wire.encode_exact(tuple(self._decide(asked, claims[each]) for each in asked.numbers))

    def _survey(self, asked: SurveyRequest, claims: list[Claim]) -> SurveyAnswer:
        workspace = Path(asked.workspace)
        paths = [path for path in map(path_of, claims) if path is not None]
        changed = [claim.path for claim in claims if isinstance(claim, Changed)]
        try:
            before = take_before(workspace, dict.fromkeys(paths), digests=changed)
            wanted = self._protected(asked.case)
            protected = keep_protected(workspace, wanted, Path(asked.store)) if wanted else ()
        except OSError as error:
            return SurveyAnswer(trouble=str(error))
        held = tuple(_held(claim, workspace, before, search=asked.search) for claim in claims)
        return SurveyAnswer(surveyed=Surveyed(before=before, protected=protected, held=held))

    def _decide(self, asked: ClaimRequest, claim: Claim) -> ClaimAnswer:
        began = time.monotonic()
        workspace = Path(asked.workspace)
        restored: tuple[str, ...] = ()
        if isinstance(claim, CommandClaim):
            try:
                wanted = self._protected(asked.case)
                restored = put_back(workspace, wanted, asked.protected) if wanted else ()
            except (OSError, WorkspaceError) as error:
                outcome = _not_put_back(error)
            else:
                outcome = decide(claim, workspace, asked.shell, asked.env, asked.timeout_s)
        else:
            outcome = files.decide(claim, workspace, asked.before[claim.path])
        return ClaimAnswer(outcome=outcome, restored=restored, duration_s=round(time.monotonic() - began, 6))

    def _protected(self, case: str) -> Wanted | None:
        """Return which files are protected, if any are."""
        globs = Globs(self._cases[case].protect)
        return Wanted(globs.holds, globs.guards, globs.leads_to) if globs else None

    def _claims(self, case: str) -> list[Claim]:
        return [check.params["claim"] for check in self._cases[case].checks if check.grader == "claim"]


def _not_put_back(error: OSError | WorkspaceError) -> Outcome:
    """Return the outcome if protected files cannot be restored: a failure, unless the machine lacks something."""
    why = f"protected files could not be put back: {shortened(str(error))}"
    ours = isinstance(error, OSError) and error.errno in SHORTAGES
    return undecided(why) if ours else failed(why)


def _held(claim: Claim, workspace: Path, before: Mapping[str, Before], *, search: bool) -> bool | None:
    """Return whether a claim held before the agent started, if that is known."""
    if isinstance(claim, CommandClaim) or (isinstance(claim, Matches) and not search):
        return None
    return files.decide(claim, workspace, before[claim.path]).state == "passed"
