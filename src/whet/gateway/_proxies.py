"""Open ways through the gateway: the proxy of an agent, its accounts, and what may answer before the provider.

Only `gateways` imports it, for the first agent that goes through: the HTTP library takes long to import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import replace

from whet.agents.contract import Options
from whet.errors import CassetteMissed
from whet.gateway._rules import Rules
from whet.gateway._server import AgentProxy
from whet.gateway._tunnel import Tunnels
from whet.gateway._upstream import Upstream
from whet.gateway.rate_limit import LocalRateLimiter, RateLimiter, SharedLimits, SharedRateLimiter
from whet.gateway.refusals import ProviderChecks
from whet.gateway.request_log import REQUESTS, LastRequests, RequestLog
from whet.gateway.routes import Route, network_of
from whet.gateway.sessions import ProxySession, SessionInfo
from whet.gateway.sources.cassettes import Player, Recorder, cassette_path, find_cassette, read_cassette, require_inside
from whet.gateway.sources.faults import Cache, Faults
from whet.gateway.wire.normal_form import Forms
from whet.model.request import Settings
from whet.model.run import Trial, folder_name
from whet.sandbox.contract import Inlet, Sandbox

if TYPE_CHECKING:
    from whet.gateway.request import Responder
    from whet.secrets import Masker

_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_NO_PROXY = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")


class Proxies:
    """Opens the proxy of each agent; all of a run share the connections to providers, and what these refused."""

    def __init__(
        self,
        settings: Settings,
        sandbox: Sandbox,
        masker: Masker,
        *,
        allowance: Callable[[], str | None],
        notice: Callable[[str], object],
        shared: SharedLimits | None,
    ) -> None:
        self._settings, self._sandbox, self._masker = settings, sandbox, masker
        self._allowance, self._notice, self._shared = allowance, notice, shared
        self._upstream, self._refusals = Upstream(self._rate_limiter), ProviderChecks()
        self._told_of_turns = False

    def _rate_limiter(self, host: str) -> RateLimiter:
        settings = self._settings.gateway
        most, tokens = settings.get("max_requests"), settings.get("max_tokens_per_minute")
        if self._shared is not None and (most is not None or tokens is not None):
            return SharedRateLimiter(host, self._shared)
        return LocalRateLimiter(most, tokens, lambda what: self._notice(f"{host} {what}"))

    def open(self, trial: Trial, route: Route) -> ProxySession:
        """Open a way for the agent of *trial*."""
        runner = trial.execution.runner
        is_confined = self._is_confined(trial)
        allowed_hosts = Options(runner.options).texts("allow") if is_confined and network_of(runner) == "model" else ()
        takes_turns = self._settings.gateway.get("max_requests") is not None
        agent_proxy = AgentProxy(
            route,
            self._upstream,
            rules=self._rules(trial, route),
            tunnels=Tunnels(allowed_hosts),
            refusals=self._refusals,
            takes_turns=takes_turns,
        )
        if not is_confined:
            return ProxySession(agent_proxy, agent_proxy.given(agent_proxy.listen()), None)
        port = Inlet(take=agent_proxy.accept)
        proxy_variables = (
            {**dict.fromkeys(_PROXIES, port.address), **_NO_PROXY, "NODE_USE_ENV_PROXY": "1"} if allowed_hosts else {}
        )
        return ProxySession(agent_proxy, agent_proxy.given(port.address, proxy_variables), port)

    def _rules(self, trial: Trial, route: Route) -> Rules:
        """Return what passes; tools of the provider are ways out of a network that has the model alone."""
        options = {**self._settings.gateway, **trial.execution.runner.options}
        return Rules(
            provider=route.provider.name,
            requests=tuple(options.get("allow_requests", ())),
            hosted_tools=tuple(options.get("allow_hosted_tools", ())) if _has_model_alone(trial) else None,
        )

    def _is_confined(self, trial: Trial) -> bool:
        """Return whether the gateway is all that the agent reaches."""
        return _has_model_alone(trial) and self._sandbox.has_inlets

    def begin(self, proxy_session: ProxySession, session: SessionInfo, stop: Callable[[], object]) -> None:
        """Open the accounts of a session; raises `CassetteMissed` if it has no cassette to be played."""
        log = RequestLog(
            session.folder / REQUESTS,
            masker=self._masker,
            limits=session.trial.execution.limits,
            silence_s=self._settings.model_silence_s,
            trusted=session.trusted,
            allowance=self._allowance,
            spend=partial(_spend, self._upstream, proxy_session.url),
        )
        last_requests = LastRequests(log, stop, session.asks_again) if session.asks_again else None
        proxy_session.begin(log, stop, trusted=session.trusted, last_requests=last_requests)
        proxy_session.answer_from(tuple(self._sources(proxy_session, session)))

    def _sources(self, proxy_session: ProxySession, session: SessionInfo) -> Iterator[Responder]:
        """Yield what may answer before the provider, the first one first."""
        settings, runner = self._settings, session.trial.execution.runner
        faults = runner.options.get("faults") or settings.gateway.get("faults")
        if faults:
            key = replace(session.trial.key, arm="")
            yield Faults(faults, f"{key}/{session.folder.name}")
        if settings.cassette or settings.record_to:
            yield from self._cassette_responders(proxy_session, session)
        if "cache_dir" in settings.gateway:
            judges = session.trial.key.arm == "judge"
            forms = Forms({**session.places, **proxy_session.places})
            yield Cache(settings.gateway["cache_dir"], proxy_session.url, self._masker, forms, judges=judges)

    def _cassette_responders(self, proxy_session: ProxySession, session: SessionInfo) -> Iterator[Responder]:
        settings, suite = self._settings, folder_name(session.trial.key.suite)
        forms = Forms({**session.places, **proxy_session.places}, settings.gateway.get("ignore", ()))
        if settings.cassette is not None:
            path, is_borrowed = find_cassette(settings.cassette, suite, session.place)
            asks = settings.cassette_mode == "new"
            if path is None and not asks:
                raise CassetteMissed(
                    f"there is no cassette for {session.trial.key} in {settings.cassette}",
                    hint="record one with --record-to, or use --cassette-mode new",
                )
            if is_borrowed and not self._told_of_turns:
                self._told_of_turns = True
                self._notice(f"more trials than {settings.cassette} has cassettes of: they are taken in turn")
            yield Player(
                path or settings.cassette,
                read_cassette(path) if path else [],
                forms,
                miss=proxy_session.miss,
                asks=asks,
                real_time=settings.cassette_speed == "real",
            )
            if asks:
                path = path or cassette_path(settings.cassette, suite, session.place)
                require_inside(path, settings.cassette)
                yield Recorder(path, forms, self._masker, proxy_session.miss)
        if settings.record_to is not None:
            path = cassette_path(settings.record_to, suite, session.place)
            require_inside(path, settings.record_to)
            yield Recorder(path, forms, self._masker, proxy_session.miss, anew=True)

    async def close(self) -> None:
        """Close the connections to providers."""
        await self._refusals.close()
        await self._upstream.close()


def _has_model_alone(trial: Trial) -> bool:
    """Return whether the agent is to reach its model and nothing else; a task may say that there is no network."""
    task = trial.execution.case.task
    return network_of(trial.execution.runner) == "model" or (task is not None and not task.agent_network)


def _spend(upstream: Upstream, url: str, tokens: int) -> None:
    upstream.rate_limiter(urlsplit(url).hostname or "").spend(tokens)
