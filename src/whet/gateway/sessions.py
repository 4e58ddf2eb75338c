"""The sessions that go through the gateway: their accounts, and what their record has from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from whet.agents.contract import Task
from whet.errors import AgentError, MoneySpent
from whet.model.run import Trial
from whet.model.session import ROUNDING_USD, Usage
from whet.sandbox.contract import Boundary, Inlet

if TYPE_CHECKING:
    from whet.gateway._server import AgentProxy
    from whet.gateway.request import Responder
    from whet.gateway.request_log import LastRequests, ProviderObservation, RequestLog
    from whet.gateway.routes import ProxyCredentials

_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_NO_PROXY = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")


class ProxySession:
    """The way of one agent through the gateway, with the accounts of the session that it is in."""

    def __init__(self, proxy: AgentProxy, credentials: ProxyCredentials, inlet: Inlet | None) -> None:
        self._proxy, self._given, self._inlet = proxy, credentials, inlet
        self._log: RequestLog | None = None

    def task(self, task: Task) -> Task:
        """Return *task* with made-up keys."""
        return self._given.task(task)

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a case without what would lead around the gateway."""
        return self._given.case_env(env)

    def boundary(self, boundary: Boundary) -> Boundary:
        """Return *boundary* with the gateway as the only address, if that was asked for."""
        return boundary if self._inlet is None else replace(boundary, network=False, inlet=self._inlet)

    def begin(
        self, log: RequestLog, stop: Callable[[], object], *, trusted: bool, last_requests: LastRequests | None
    ) -> None:
        """Account to *log* from now on; *stop* ends the agent, and *last_requests* one that what it prints may end."""
        if self._log is not None:
            self._log.close()
        self._log = log
        self._proxy.begin(log, stop, trusted=trusted)
        self._proxy.last_requests = last_requests

    def answer_from(self, sources: tuple[Responder, ...]) -> None:
        """Ask *sources* before the provider."""
        self._proxy.sources = sources

    @property
    def places(self) -> dict[str, str]:
        """What of the gateway differs from attempt to attempt."""
        return {"gateway": self._given.address, "secret": self._given.secret}

    @property
    def url(self) -> str:
        """Where the provider is."""
        return self._given.route.url

    def settle(self) -> None:
        """Let no other request of a followed agent pass, and end it as soon as those under way are answered."""
        if self._proxy.last_requests is not None:
            self._proxy.last_requests.settle()

    def miss(self, error: AgentError) -> None:
        """End the agent, because a cassette has no answer."""
        self._proxy.end_with(error)

    @property
    def verdict(self) -> AgentError | None:
        """Why the gateway ended the agent, if it did."""
        return self._proxy.verdict

    async def wait_until_quiet(self) -> None:
        """Wait a moment for requests that are under way."""
        await self._proxy.wait_until_quiet()

    async def reach(self) -> None:
        """Raise if the provider cannot be reached; if that is in doubt, wait until it is known."""
        await self._proxy.reach()
        if self.verdict is not None:
            raise self.verdict

    async def provider_answers(self) -> bool:
        """Return whether the provider answers whet itself, so that its silence may be what the agent asked for."""
        return await self._proxy.provider_answers()

    @property
    def asked(self) -> int:
        """How often the model was asked in this session."""
        return self._log.asked if self._log else 0

    @property
    def spent_usd(self) -> float:
        """What this session has spent so far, as far as it is known."""
        return (self._log.usage.cost_usd if self._log else None) or 0.0

    @property
    def paid_usd(self) -> float:
        """What of that a provider was asked for, and about what else it may have been paid for."""
        known = (self._log.usage - self._log.unpaid).cost_usd if self._log else None
        return (known or 0.0) + self.guessed_usd

    @property
    def guessed_usd(self) -> float:
        """About what answers cost that did not say what they took."""
        return (self._log.guessed.cost_usd if self._log else None) or 0.0

    def unpaid(self, usage: Usage) -> Usage:
        """Return the part of *usage*, that of the session, which no provider was asked for."""
        if self._log is None:
            return Usage()
        return usage if self._log.free else self._log.unpaid

    @property
    def free(self) -> bool:
        """Whether no provider was asked in this session."""
        return self._log is not None and self._log.free

    @property
    def only_faults(self) -> bool:
        """Whether faults on purpose are all that the agent got."""
        return self._log is not None and self._log.only_faults

    def observation(self, *, with_doubtful: bool = True) -> ProviderObservation | None:
        """Return what the gateway saw of the provider; None if the agent asked nothing.

        A silence is doubtful if a program under test may have asked for it.
        """
        observation = self._log.observation(with_doubtful=with_doubtful) if self._log else None
        return observation if observation is not None and observation.asked else None

    def usage(self, reported: Usage) -> Usage:
        """Return what the session used: as the gateway read in answers, or as the agent *reported*, if that is more.

        A figure that was not measured is unknown. A program under test may not fill it in by hanging up.
        """
        log = self._log
        if log is None or not log.asked:
            return reported
        measured = log.measured
        if measured.total_tokens is None:
            has_report = reported.total_tokens is not None and not reported.tokens_guessed
            return reported if has_report and (log.trusted or not log.abandoned) else measured
        if log.unpriced and reported.cost_usd is not None:
            return replace(measured, cost_usd=reported.cost_usd, cost_source=reported.cost_source)
        return measured

    @property
    def figures(self) -> dict[str, Any]:
        """What a session says of the gateway."""
        log = self._log
        if log is None:
            return {}
        first = log.first_token_s
        return {
            "requests": log.asked,
            "model_s": round(log.waited_s, 4),
            "first_token_s": None if first is None else round(first, 4),
        }

    def require_budget(self, budget_usd: float | None) -> None:
        """Raise if the last answer went beyond the budget."""
        spent_usd = self.spent_usd + self.guessed_usd
        if budget_usd is not None and spent_usd > budget_usd + ROUNDING_USD:
            about = "about " if self.guessed_usd else ""
            raise MoneySpent(f"has spent {about}${spent_usd:.6g} of a budget of ${budget_usd:g}")

    async def close(self) -> None:
        """End everything that is under way."""
        if self._proxy.last_requests is not None:
            self._proxy.last_requests.close()
        await self._proxy.close()
        if self._log is not None:
            self._log.close()


class SessionInfo(Struct, frozen=True, kw_only=True, weakref=True):
    """One session: of which trial, where its record is, and which texts in it differ from attempt to attempt."""

    trial: Trial
    folder: Path
    # Where the record is below `trials` of the run folder, or below the scratch folder if it is not kept.
    place: Path
    places: Mapping[str, str]
    # Whether its agent is believed about what takes a trial out of the rate.
    trusted: bool
    # Called before each further request of an agent that what it prints may end.
    asks_again: Callable[[], object] | None = None


class SessionSpending:
    """What sessions have spent that is not in the record yet, as far as the gateway knows."""

    def __init__(self) -> None:
        self._sessions: set[ProxySession] = set()
        # What sessions before cost that is in no record, because it is a guess.
        self._guessed_usd = 0.0
        # What sessions on other nodes have spent so far, by node.
        self.by_node: dict[str, float] = {}

    @property
    def usd(self) -> float:
        """What sessions under way have paid for so far, with what is only guessed of those before."""
        return sum(session.paid_usd for session in self._sessions) + self._guessed_usd + sum(self.by_node.values())

    def begin(self, session: ProxySession) -> None:
        """Count what this session spends."""
        self._sessions.add(session)

    def end(self, session: ProxySession, recorded_usage: Usage) -> None:
        """Count what a session has spent no longer: its record does, but for what is not known for sure."""
        if session in self._sessions:
            recorded_usd = (recorded_usage - session.unpaid(recorded_usage)).cost_usd or 0.0
            self._guessed_usd += max(0.0, session.paid_usd - recorded_usd)
        self._sessions.discard(session)
