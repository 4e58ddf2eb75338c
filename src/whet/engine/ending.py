"""The truth about endings: what an exit code, the agent's own last words and its troubles come to together."""

from __future__ import annotations

from whet.engine.observe import Observer
from whet.errors import AgentCrashed, AgentTimedOut, CeilingReached, ModelRejected, ProviderFailed, SessionUnfinished
from whet.model.session import PROVIDER_TROUBLE, Trouble
from whet.sandbox.base import Ended

_SIGNALLED = 128


def judge_ending(ended: Ended, observer: Observer, *, announces_end: bool, timeout_s: float, tail: bytes) -> None:
    """Raise unless the session came to a good end; what went wrong with the provider is not the agent's doing."""
    if ended.timed_out:
        raise AgentTimedOut(f"was still running after {timeout_s:g} s and was stopped")
    said = observer.ended
    finished = said.ok if said is not None else not announces_end
    if finished and ended.exit_code == 0:
        return
    trouble = observer.trouble
    if trouble is not None and trouble.kind in PROVIDER_TROUBLE:
        raise _provider_failed(trouble)
    reason = (said.reason if said else None) or (trouble.message if trouble else None) or ""
    if ended.reached is not None:
        raise CeilingReached(f"ran into its ceiling of {ended.reached}, and {_crash(ended, reason, tail)}")
    if ended.exit_code != 0:
        raise AgentCrashed(_crash(ended, reason, tail))
    raise SessionUnfinished(f"ended with exit code 0 and did not finish: {reason or 'its session has no end'}")


def _provider_failed(trouble: Trouble) -> ProviderFailed:
    status = f" (status {trouble.status})" if trouble.status else ""
    text = f"{trouble.kind}{status}: {trouble.message}"
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
