"""The truth about endings: what an exit code, the agent's own last words and its troubles come to together."""

from __future__ import annotations

from whet.agents.base import AgentCommand
from whet.engine.observe import Observer
from whet.errors import (
    AgentCrashed,
    AgentError,
    AgentNotStarted,
    AgentTimedOut,
    CeilingReached,
    ModelRejected,
    ProviderFailed,
    SessionUnfinished,
)
from whet.model.session import PROVIDER_TROUBLE, Trouble
from whet.sandbox.base import Ended

_SIGNALLED = 128


def judge_ending(
    ended: Ended, observer: Observer, asked: AgentCommand, *, timeout_s: float, silence_s: float, tail: bytes
) -> None:
    """Raise unless the session came to a good end; what went wrong with the provider is not the agent's doing."""
    if ended.timed_out:
        raise _timed_out(observer, asked, timeout_s, silence_s)
    said = observer.ended
    finished = said.ok if said is not None else not asked.announces_end
    if finished and ended.exit_code == 0:
        return
    trouble = observer.trouble
    if trouble is not None and asked.trusted and trouble.kind in PROVIDER_TROUBLE:
        raise _provider_failed(trouble)
    if trouble is not None and asked.trusted and trouble.kind == "context":
        raise observer.turn.no_room(trouble)
    reason = (said.reason if said else None) or (trouble.message if trouble else None) or ""
    if ended.reached is not None:
        raise CeilingReached(f"ran into its ceiling of {ended.reached}, and {_crash(ended, reason, tail)}")
    if asked.shows_model and not observer.turn.came:
        raise _never_began(ended, asked, reason, tail)
    if ended.exit_code != 0:
        raise AgentCrashed(_crash(ended, reason, tail))
    raise SessionUnfinished(f"ended with exit code 0 and did not finish: {reason or 'its session has no end'}")


def silence_at_limit(observer: Observer, asked: AgentCommand, timeout_s: float, silence_s: float) -> Trouble | None:
    """The trouble that nobody told of: a model that said nothing until the time limit, although it was its turn."""
    turn, limit = observer.turn, f"at its time limit of {timeout_s:g} s"
    told = turn.unanswered or (observer.trouble if observer.trouble and observer.trouble.kind == "context" else None)
    if not asked.shows_model or told:
        return None
    if not turn.came:
        return Trouble(message=f"no model had answered {limit}, and no retry was told of", kind="network")
    # Where all of the time is little, half of it is long.
    if turn.silent_s >= min(silence_s, timeout_s / 2):
        said = f"the model had said nothing for {turn.silent_s:.0f} s in the middle of an answer {limit}"
        more = "no tool was running, and no retry was told of (defaults.model_silence_ms is how long it may be silent)"
        return Trouble(message=f"{said}; {more}", kind="network")
    return None


def _timed_out(observer: Observer, asked: AgentCommand, timeout_s: float, silence_s: float) -> AgentError:
    """Whether the agent took too long, or waited for a provider that did not answer."""
    turn, limit = observer.turn, f"at its time limit of {timeout_s:g} s"
    if not asked.trusted:
        return AgentTimedOut(f"was still running after {timeout_s:g} s and was stopped")
    if (trouble := turn.unanswered) is not None:
        times = "once" if turn.troubles == 1 else f"{turn.troubles} times"
        return _provider_failed(trouble, f"the provider had failed {times}, and the agent was trying again {limit}")
    if observer.trouble is not None and observer.trouble.kind == "context":
        return turn.no_room(observer.trouble)
    if (silent := silence_at_limit(observer, asked, timeout_s, silence_s)) is not None:
        return _provider_failed(silent)
    return AgentTimedOut(f"was still running after {timeout_s:g} s and was stopped")


def _never_began(ended: Ended, asked: AgentCommand, reason: str, tail: bytes) -> AgentError:
    """The program ended before any model answered, which says nothing about what it would have done."""
    words = _crash(ended, reason, tail)
    if asked.no_login is not None and asked.no_login.search(f"{reason}\n{tail.decode('utf-8', 'replace')}"):
        return ProviderFailed(f"auth: {words}", hint='"whet doctor" says what could log it in')
    return AgentNotStarted(f"no model had answered when it {words}", hint="see whether it works by hand")


def _provider_failed(trouble: Trouble, how: str = "") -> ProviderFailed:
    status = f" (status {trouble.status})" if trouble.status else ""
    text = f"{trouble.kind}{status}: {trouble.message}" + (f"; {how}" if how else "")
    return ModelRejected(text) if trouble.kind == "model-rejected" else ProviderFailed(text)


def _crash(ended: Ended, reason: str, tail: bytes) -> str:
    """How it ended, why it says it did, and its last words."""
    if ended.signal is not None:
        how = f"was ended by signal {ended.signal}"
    elif (ended.exit_code or 0) > _SIGNALLED:
        how = f"ended with exit code {ended.exit_code} (as after signal {(ended.exit_code or 0) - _SIGNALLED})"
    else:
        how = f"ended with exit code {ended.exit_code}"
    words = tail.decode("utf-8", "replace").strip()
    said = "\n".join(part for part in (reason.strip(), words) if part)
    return f"{how}:\n{said}" if said else how
