"""How a session ended: what its exit code, its own last words and its troubles mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.agents.agent import AgentCommand
from whet.agents.observing import Observer
from whet.agents.turns import refused_login
from whet.errors import (
    AgentCrashed,
    AgentError,
    AgentNotStarted,
    AgentTimedOut,
    CeilingReached,
    KeyRefused,
    ModelRejected,
    ProviderFailed,
    SessionUnfinished,
)
from whet.ground.sandbox import Ended
from whet.model.seen import PROVIDER_TROUBLE, Trouble, TroubleKind

if TYPE_CHECKING:
    # Most agents have no gateway.
    from whet.agents.gateway_ledger import Witness

_SIGNALLED = 128
_NOT_PAID = 402
# What no request of an agent can bring about.
_UNPROVOKED: frozenset[TroubleKind] = frozenset({"overloaded", "server", "network"})


def judge_ending(
    ended: Ended,
    observer: Observer,
    asked: AgentCommand,
    *,
    timeout_s: float,
    silence_s: float,
    tail: bytes,
    witness: Witness | None = None,
) -> None:
    """Raise unless the session ended well; trouble with the provider is not blamed on the agent.

    What the gateway saw outweighs what the agent says.
    """
    seen = witness if witness is not None and witness.asked else None
    if ended.timed_out:
        raise (_seen_at_limit(seen, asked, timeout_s, silence_s) if seen else None) or _timed_out(
            observer, asked, timeout_s, silence_s, witnessed=seen is not None
        )
    if ended.stopped:
        raise CeilingReached(f"ran into its ceiling of {ended.reached}")
    said = observer.ended
    finished = said.ok if said is not None else not asked.announces_end
    if finished and (ended.exit_code == 0 or ended.dismissed):
        return
    trouble = observer.trouble
    if seen is not None and _counts(seen, asked):
        assert seen.trouble is not None
        raise _provider_failed(seen.trouble, _how_often(seen))
    if trouble is not None and asked.trusted and seen is None and _is_providers(trouble, begun=observer.turn.came):
        raise _failed_directly(trouble, observer.turn.login)
    if trouble is not None and asked.trusted and trouble.kind == "context":
        raise observer.turn.no_room(trouble)
    reason = (said.reason if said else None) or (trouble.message if trouble else None) or ""
    if ended.reached is not None:
        raise CeilingReached(f"ran into its ceiling of {ended.reached}, and {_crash(ended, reason, tail)}")
    if asked.shows_model and not observer.turn.came and not (seen and seen.answered):
        raise _never_began(ended, asked, reason, tail, observer.turn.login)
    if ended.exit_code != 0 and not ended.dismissed:
        raise AgentCrashed(_crash(ended, reason, tail))
    how = "" if ended.dismissed else "ended with exit code 0 and "
    raise SessionUnfinished(f"{how}did not finish: {reason or 'its session has no end'}")


def silence_at_limit(observer: Observer, asked: AgentCommand, timeout_s: float, silence_s: float) -> Trouble | None:
    """Return the trouble of a model that said nothing until the time limit, although it was its turn."""
    turn, limit = observer.turn, f"at its time limit of {timeout_s:g} s"
    no_room = observer.trouble is not None and observer.trouble.kind == "context"
    if not asked.shows_model or turn.unanswered or no_room:
        return None
    if not turn.came:
        return Trouble(message=f"no model had answered {limit}, and no retry was reported", kind="network")
    # If the time limit is short, half of it is a long silence.
    if turn.silent_s >= min(silence_s, timeout_s / 2):
        said = f"the model had said nothing for {turn.silent_s:.0f} s in the middle of an answer {limit}"
        more = "no tool was running, and no retry was reported (defaults.model_silence_ms is how long it may be silent)"
        return Trouble(message=f"{said}; {more}", kind="network")
    return None


def _counts(witness: Witness, asked: AgentCommand) -> bool:
    """Return whether trouble that the gateway saw is the provider's; a program under test can provoke some of it."""
    if witness.trouble is None:
        return False
    if not asked.trusted:
        return witness.trouble.kind in _UNPROVOKED
    return _is_providers(witness.trouble, begun=witness.answered > 0)


def _is_providers(trouble: Trouble, *, begun: bool) -> bool:
    """Return whether trouble is the provider's, or that of your settings.

    A model that answered understands the requests of this agent. If it refuses one later, the session brought that
    about, as with a picture that nobody can read.
    """
    return trouble.kind in PROVIDER_TROUBLE and not (begun and trouble.kind == "bad-request")


def _how_often(witness: Witness) -> str:
    return "" if witness.troubles == 1 else f"the provider had failed {witness.troubles} times"


def _seen_at_limit(witness: Witness, asked: AgentCommand, timeout_s: float, silence_s: float) -> AgentError | None:
    """Return the error of a provider that, as the gateway saw, kept an agent waiting until its time limit."""
    limit = f"at its time limit of {timeout_s:g} s"
    if _counts(witness, asked):
        assert witness.trouble is not None
        times = "once" if witness.troubles == 1 else f"{witness.troubles} times"
        return _provider_failed(
            witness.trouble, f"the provider had failed {times}, and the agent was trying again {limit}"
        )
    if witness.silent_s >= min(silence_s, timeout_s / 2):
        said = f"the provider was asked and had said nothing for {witness.silent_s:.0f} s {limit}"
        return _provider_failed(Trouble(message=f"{said}; no retry was reported", kind="network"))
    return None


def _timed_out(
    observer: Observer, asked: AgentCommand, timeout_s: float, silence_s: float, *, witnessed: bool
) -> AgentError:
    """Tell an agent that took too long from one that waited for a provider."""
    turn, limit = observer.turn, f"at its time limit of {timeout_s:g} s"
    if not asked.trusted or (witnessed and not (observer.trouble and observer.trouble.kind == "context")):
        return AgentTimedOut(f"was still running after {timeout_s:g} s and was stopped")
    if (trouble := turn.unanswered) is not None and _is_providers(trouble, begun=turn.came):
        times = "once" if turn.troubles == 1 else f"{turn.troubles} times"
        return _provider_failed(trouble, f"the provider had failed {times}, and the agent was trying again {limit}")
    if observer.trouble is not None and observer.trouble.kind == "context":
        return turn.no_room(observer.trouble)
    if (silent := silence_at_limit(observer, asked, timeout_s, silence_s)) is not None:
        return _provider_failed(silent)
    return AgentTimedOut(f"was still running after {timeout_s:g} s and was stopped")


def _never_began(ended: Ended, asked: AgentCommand, reason: str, tail: bytes, login: str | None) -> AgentError:
    """Return the error of a program that ended before any model answered."""
    words = _crash(ended, reason, tail)
    if asked.no_login is not None and asked.no_login.search(f"{reason}\n{tail.decode('utf-8', 'replace')}"):
        failed = ProviderFailed if login is None else KeyRefused
        return failed(f"auth: {words}", hint='"whet doctor" says what could log it in')
    return AgentNotStarted(f"no model had answered when it {words}", hint="see whether it works by hand")


def _failed_directly(trouble: Trouble, login: str | None) -> ProviderFailed:
    """Return the error for trouble that an agent tells of, which asked its provider with *login*."""
    if login is not None and trouble.kind == "auth" and trouble.status != _NOT_PAID:
        return refused_login(trouble, login)
    return _provider_failed(trouble)


def _provider_failed(trouble: Trouble, how: str = "") -> ProviderFailed:
    status = f" (status {trouble.status})" if trouble.status else ""
    text = f"{trouble.kind}{status}: {trouble.message}" + (f"; {how}" if how else "")
    return ModelRejected(text) if trouble.kind == "model-rejected" else ProviderFailed(text)


def _crash(ended: Ended, reason: str, tail: bytes) -> str:
    """Say how it ended, the reason that it gives, and its last words."""
    if ended.dismissed:
        how = "gave up"
    elif ended.signal is not None:
        how = f"was ended by signal {ended.signal}"
    elif (ended.exit_code or 0) > _SIGNALLED:
        how = f"ended with exit code {ended.exit_code} (as after signal {(ended.exit_code or 0) - _SIGNALLED})"
    else:
        how = f"ended with exit code {ended.exit_code}"
    words = tail.decode("utf-8", "replace").strip()
    said = "\n".join(part for part in (reason.strip(), words) if part)
    return f"{how}:\n{said}" if said else how
