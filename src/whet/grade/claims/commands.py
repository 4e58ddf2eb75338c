"""Claims about commands, decided by running them in the sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from whet.claims.forms import CommandClaim, Fails, Passes, Prints, Quits
from whet.errors import WhetError
from whet.grade.claims.outcome import Outcome, failed, passed, shortened, undecided
from whet.grade.shell import Ran, Shell

_SHELL = ("/bin/sh", "-c")
_NOT_RUN = {126: "the command cannot be executed", 127: "the command was not found"}
_OUTPUT_KEPT = 2000
# As much of it as the reason of a failure shows.
_LINES_TOLD = 6


def decide(claim: CommandClaim, workspace: Path, shell: Shell, env: Mapping[str, str], timeout_s: float) -> Outcome:
    """Run the command of *claim*; it has no input, and what it leaves running is ended."""
    inside = replace(shell, env={"CI": "1", **env})
    try:
        ran = inside.run(workspace, (*_SHELL, claim.command), timeout_s)
    except (WhetError, OSError) as error:
        return undecided(f"the command could not be run: {error}")
    return _judged(claim, ran, timeout_s)


def _judged(claim: CommandClaim, ran: Ran, timeout_s: float) -> Outcome:
    holds, reason = _decided(claim, ran, timeout_s)
    evidence = _printed(ran)
    return passed(reason, evidence) if holds else failed(f"{reason}{_last_lines(ran)}", evidence)


def _decided(claim: CommandClaim, ran: Ran, timeout_s: float) -> tuple[bool, str]:
    if ran.timed_out:
        return False, f"the command was still running after {timeout_s:g} s and was stopped"
    if ran.exit_code in _NOT_RUN and not isinstance(claim, Quits):
        # Also where it should fail: an author who wants this says so with `exits 127`.
        what = _NOT_RUN[ran.exit_code]
        return False, f"{what} (exit code {ran.exit_code}): see whether the suite names it right"
    ended = "was ended by a signal" if ran.exit_code is None else f"ended with exit code {ran.exit_code}"
    if isinstance(claim, Prints):
        printed = claim.text in ran.stdout or claim.text in ran.stderr
        said = "printed it" if printed else f"did not print '{shortened(claim.text)}'; it {ended}"
        return printed, f"the command {said}"
    return _ended_so(claim, ran.exit_code), f"the command {ended}"


def _ended_so(claim: Passes | Fails | Quits, exit_code: int | None) -> bool:
    match claim:
        case Passes():
            return exit_code == 0
        case Fails():
            return exit_code != 0
        case Quits(code=code):
            return exit_code == code


def _printed(ran: Ran) -> str | None:
    """The end of what it printed: that is where tools say what is wrong."""
    parts = [f"{name}:\n{text.strip()}" for name, text in _streams(ran) if text.strip()]
    return "\n".join(parts) or None


def _last_lines(ran: Ran) -> str:
    """The last of what it printed, a line each, for whoever reads why it failed."""
    lines = [line.rstrip() for _, text in _streams(ran) for line in text.splitlines() if line.strip()]
    return "".join(f"\n  {line}" for line in lines[-_LINES_TOLD:])


def _streams(ran: Ran) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("stdout", _end(ran.stdout)), ("stderr", _end(ran.stderr))


def _end(text: str) -> str:
    """The last whole lines of *text*: half a line could be half a secret, which nobody would know to mask."""
    kept = text[-_OUTPUT_KEPT:]
    return kept if kept == text or "\n" not in kept else kept.partition("\n")[2]
