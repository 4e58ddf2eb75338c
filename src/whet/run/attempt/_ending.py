"""How a session ended: what its exit code, its own last words and its troubles mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.agents.contract import AgentCommand
from whet.agents.observe.model_activity import refused_login
from whet.agents.observe.observer import Observer
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
from whet.model.events import PROVIDER_TROUBLE, Trouble, TroubleKind
from whet.sandbox.contract import Ended

if TYPE_CHECKING:
    # Most agents have no gateway.
    from whet.gateway.request_log import ProviderObservation

_SIGNALLED = 128
_NOT_PAID = 402
# What no request of an agent can bring about.
_UNPROVOKED: frozenset[TroubleKind] = frozenset({"overloaded", "server", "network"})


def judge_ending(
    ending: Ended,
    observer: Observer,
    agent_command: AgentCommand,
    *,
    timeout_s: float,
    silence_s: float,
    tail: bytes,
    observation: ProviderObservation | None = None,
) -> None:
    """Raise unless the session ended well; trouble with the provider is not blamed on the agent.

    What the gateway saw outweighs what the agent says; *observation* is None if the agent asked nothing through it.
    """
    if ending.timed_out:
        raise (_seen_at_limit(observation, agent_command, timeout_s, silence_s) if observation else None) or _timed_out(
            observer, agent_command, timeout_s, silence_s, is_observed=observation is not None
        )
    if ending.stopped:
        raise CeilingReached(f"ran into its ceiling of {ending.reached}")
    session_end = observer.ended
    is_complete = session_end.ok if session_end is not None else not agent_command.announces_end
    if is_complete and (ending.exit_code == 0 or ending.dismissed):
        return
    trouble = observer.trouble
    if observation is not None and _counts(observation, agent_command):
        assert observation.trouble is not None
        raise _provider_failed(observation.trouble, _how_often(observation))
    if (
        trouble is not None
        and agent_command.trusted
        and observation is None
        and _is_providers(trouble, model_answered=observer.turn.came)
    ):
        raise _failed_directly(trouble, observer.turn.login)
    if trouble is not None and agent_command.trusted and trouble.kind == "context":
        raise observer.turn.no_room(trouble)
    reason = (session_end.reason if session_end else None) or (trouble.message if trouble else None) or ""
    if ending.reached is not None:
        raise CeilingReached(f"ran into its ceiling of {ending.reached}, and {_crash(ending, reason, tail)}")
    if agent_command.shows_model and not observer.turn.came and not (observation and observation.answered):
        raise _never_began(ending, agent_command, reason, tail, observer.turn.login)
    if ending.exit_code != 0 and not ending.dismissed:
        raise AgentCrashed(_crash(ending, reason, tail))
    how = "" if ending.dismissed else "ended with exit code 0 and "
    raise SessionUnfinished(f"{how}did not finish: {reason or 'its session has no end'}")


def silence_at_limit(
    observer: Observer, agent_command: AgentCommand, timeout_s: float, silence_s: float
) -> Trouble | None:
    """Return the trouble of a model that said nothing until the time limit, although it was its turn."""
    turn, limit = observer.turn, f"at its time limit of {timeout_s:g} s"
    no_room = observer.trouble is not None and observer.trouble.kind == "context"
    if not agent_command.shows_model or turn.unanswered or no_room:
        return None
    if not turn.came:
        return Trouble(message=f"no model had answered {limit}, and no retry was reported", kind="network")
    # If the time limit is short, half of it is a long silence.
    if turn.silent_s >= min(silence_s, timeout_s / 2):
        message = f"the model had said nothing for {turn.silent_s:.0f} s in the middle of an answer {limit}"
        more = "no tool was running, and no retry was reported (defaults.model_silence_ms is how long it may be silent)"
        return Trouble(message=f"{message}; {more}", kind="network")
    return None


def _counts(observation: ProviderObservation, agent_command: AgentCommand) -> bool:
    """Return whether trouble that the gateway saw is the provider's; a program under test can provoke some of it."""
    if observation.trouble is None:
        return False
    if not agent_command.trusted:
        return observation.trouble.kind in _UNPROVOKED
    return _is_providers(observation.trouble, model_answered=observation.answered > 0)


def _is_providers(trouble: Trouble, *, model_answered: bool) -> bool:
    """Return whether trouble is the provider's, or that of your settings.

    A model that answered understands the requests of this agent. If it refuses one later, the session brought that
    about, as with a picture that cannot be read.
    """
    return trouble.kind in PROVIDER_TROUBLE and not (model_answered and trouble.kind == "bad-request")


def _how_often(observation: ProviderObservation) -> str:
    return "" if observation.troubles == 1 else f"the provider had failed {observation.troubles} times"


def _seen_at_limit(
    observation: ProviderObservation, agent_command: AgentCommand, timeout_s: float, silence_s: float
) -> AgentError | None:
    """Return the error of a provider that, as the gateway saw, kept an agent waiting until its time limit."""
    limit = f"at its time limit of {timeout_s:g} s"
    if _counts(observation, agent_command):
        assert observation.trouble is not None
        times = "once" if observation.troubles == 1 else f"{observation.troubles} times"
        return _provider_failed(
            observation.trouble, f"the provider had failed {times}, and the agent was trying again {limit}"
        )
    if observation.silent_s >= min(silence_s, timeout_s / 2):
        message = f"the provider was asked and had said nothing for {observation.silent_s:.0f} s {limit}"
        return _provider_failed(Trouble(message=f"{message}; no retry was reported", kind="network"))
    return None


def _timed_out(
    observer: Observer, agent_command: AgentCommand, timeout_s: float, silence_s: float, *, is_observed: bool
) -> AgentError:
    """Tell an agent that took too long from one that waited for a provider."""
    turn, limit = observer.turn, f"at its time limit of {timeout_s:g} s"
    if not agent_command.trusted or (is_observed and not (observer.trouble and observer.trouble.kind == "context")):
        return AgentTimedOut(f"was still running after {timeout_s:g} s and was stopped")
    if (trouble := turn.unanswered) is not None and _is_providers(trouble, model_answered=turn.came):
        times = "once" if turn.troubles == 1 else f"{turn.troubles} times"
        return _provider_failed(trouble, f"the provider had failed {times}, and the agent was trying again {limit}")
    if observer.trouble is not None and observer.trouble.kind == "context":
        return turn.no_room(observer.trouble)
    if (silent := silence_at_limit(observer, agent_command, timeout_s, silence_s)) is not None:
        return _provider_failed(silent)
    return AgentTimedOut(f"was still running after {timeout_s:g} s and was stopped")


def _never_began(ending: Ended, agent_command: AgentCommand, reason: str, tail: bytes, login: str | None) -> AgentError:
    """Return the error of a program that ended before any model answered."""
    words = _crash(ending, reason, tail)
    if agent_command.no_login is not None and agent_command.no_login.search(
        f"{reason}\n{tail.decode('utf-8', 'replace')}"
    ):
        error_type = ProviderFailed if login is None else KeyRefused
        return error_type(f"auth: {words}", hint='"whet doctor" says what could log it in')
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


def _crash(ending: Ended, reason: str, tail: bytes) -> str:
    """Say how it ended, the reason that it gives, and its last words."""
    if ending.dismissed:
        how = "gave up"
    elif ending.signal is not None:
        how = f"was ended by signal {ending.signal}"
    elif (ending.exit_code or 0) > _SIGNALLED:
        how = f"ended with exit code {ending.exit_code} (as after signal {(ending.exit_code or 0) - _SIGNALLED})"
    else:
        how = f"ended with exit code {ending.exit_code}"
    words = tail.decode("utf-8", "replace").strip()
    last_words = "\n".join(part for part in (reason.strip(), words) if part)
    return f"{how}:\n{last_words}" if last_words else how
