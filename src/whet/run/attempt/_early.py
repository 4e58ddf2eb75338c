"""The early end of a session whose case only asks which skills load: as soon as that is known."""

from __future__ import annotations

import time

import anyio

from whet.agents.contract import AgentCommand
from whet.agents.observe.loading import LoadFollower, question_of
from whet.gateway.sessions import ProxySession
from whet.run.attempt.attempt import Attempt
from whet.sandbox.contract import Ended

# How long to read on, because what decides may not be the last that is printed of a round.
_READ_ON_S = 0.2
# How long an agent may take to end by itself after its answer.
_LINGERING_S = 5.0


class EarlyEnding:
    """Ends the agent of one session; the scope that it runs in is known only when it starts."""

    def __init__(self, attempt: Attempt, proxy_session: ProxySession | None) -> None:
        execution = attempt.trial.execution
        question = question_of(execution.case, attempt.context.suite.skill)
        assert question is not None
        # Through the gateway, how often the model was asked.
        asked = (lambda: proxy_session.asked) if proxy_session else None
        self.follower = LoadFollower(question, self._decided, self._answered, asked=asked)
        self._proxy_session = proxy_session
        self._scope: anyio.CancelScope | None = None
        self._began = 0.0

    def begin(self, scope: anyio.CancelScope) -> None:
        """Note that the agent starts within *scope*."""
        self._scope, self._began = scope, time.monotonic()

    def _decided(self) -> None:
        if self._proxy_session is not None:
            self._proxy_session.settle()
        else:
            self._end_within(_READ_ON_S)

    def _answered(self) -> None:
        self._end_within(_LINGERING_S)

    def _end_within(self, seconds: float) -> None:
        if self._scope is not None:
            self._scope.deadline = min(self._scope.deadline, anyio.current_time() + seconds)

    @property
    def has_ended(self) -> bool:
        """Whether the agent was ended here, and neither by itself before nor by the gateway for a reason of its own."""
        is_ended_by_gateway = self._proxy_session is not None and self._proxy_session.verdict is not None
        return self._scope is not None and self._scope.cancelled_caught and not is_ended_by_gateway

    def ending(self) -> Ended:
        """Return how the agent ended if it was ended here."""
        took_s = time.monotonic() - self._began
        return Ended(exit_code=None, signal=None, timed_out=False, duration_s=took_s, dismissed=True)


def early_ending(
    attempt: Attempt, agent_command: AgentCommand, proxy_session: ProxySession | None
) -> EarlyEnding | None:
    """Return what ends the agent of *attempt* early; None if its case asks for more, or nothing tells what it loads."""
    context = attempt.context
    # A recording is played as it is.
    if context.run_to_end or agent_command.output == "text" or not agent_command.timed:
        return None
    if question_of(attempt.trial.execution.case, context.suite.skill) is None:
        return None
    return EarlyEnding(attempt, proxy_session)
