"""The gateway in a run: which sessions go through it, and whether a run may begin with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from whet.errors import UsageError
from whet.gateway.rate_limit import SharedLimits
from whet.gateway.routes import Route, find_unrouted, is_covered, network_of, route_of, route_words
from whet.model.request import Settings
from whet.model.run import Runner, Trial
from whet.sandbox.contract import Sandbox

if TYPE_CHECKING:
    from whet.gateway._proxies import Proxies
    from whet.gateway.sessions import ProxySession, SessionInfo, SessionSpending
    from whet.secrets import Masker


class Gateways:
    """Opens ways through the gateway for the sessions of a run; loads what it needs with the first.

    *allowance* says why the whole run may ask no more; *shared* are the limits of all nodes, if there are several.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        sandbox: Sandbox,
        masker: Masker,
        *,
        allowance: Callable[[], str | None],
        notice: Callable[[str], object],
        under_way: SessionSpending,
        shared: SharedLimits | None,
    ) -> None:
        self._settings, self._environ, self._sandbox, self._masker = settings, environ, sandbox, masker
        self._allowance, self._notice, self._under_way, self._shared = allowance, notice, under_way, shared
        self._proxies: Proxies | None = None
        # The runners whose provider has answered in this run, also without the gateway.
        self.heard: set[str] = set()
        self._trials: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def admitted(self, trial: Trial) -> AsyncIterator[None]:
        """Wait until another trial may use its provider, if there is a limit on these."""
        most = self._settings.gateway.get("max_trials")
        route = self.route(trial) if most is not None else None
        if most is None or route is None:
            yield
            return
        async with self._trials.setdefault(urlsplit(route.url).netloc, asyncio.Semaphore(most)):
            yield

    def route(self, trial: Trial) -> Route | None:
        """Return the way of *trial* to its provider; None if its agent goes there directly, or nowhere."""
        route = self._found(trial)
        return route if isinstance(route, Route) else None

    def words(self, trial: Trial) -> str | None:
        """Return the route of *trial* in words, for the record."""
        return route_words(self._found(trial), trial.execution.runner)

    def _found(self, trial: Trial) -> Route | str:
        runner = trial.execution.runner
        if network_of(runner) == "none":
            return "it has no network"
        return route_of(runner, self._environ, trial.execution.case.env, played=self._settings.cassette is not None)

    async def open(self, trial: Trial) -> ProxySession | None:
        """Open a way for the agent of *trial*, if it has one; close it after its last session."""
        route = self.route(trial)
        if route is None:
            return None
        if self._proxies is None:
            # Only here: the HTTP library takes long to import.
            from whet.gateway._proxies import Proxies

            self._proxies = Proxies(
                self._settings,
                self._sandbox,
                self._masker,
                allowance=self._allowance,
                notice=self._notice,
                shared=self._shared,
            )
        return self._proxies.open(trial, route)

    def begin(self, proxy_session: ProxySession, session: SessionInfo, stop: Callable[[], object]) -> None:
        """Open the accounts of a session; raises `CassetteMissed` if it has no cassette to be played."""
        assert self._proxies is not None
        self._proxies.begin(proxy_session, session, stop)
        self._under_way.begin(proxy_session)

    async def close(self) -> None:
        """Close the connections to providers."""
        if self._proxies is not None:
            await self._proxies.close()
            self._proxies = None


def require_routes(
    runners: Sequence[Runner], environ: Mapping[str, str], sandbox: Sandbox, *, played: bool = False
) -> tuple[str, ...]:
    """Raise for runners that ask for the model alone and cannot have it; return notes on those without a boundary."""
    model_runners = {runner.id: runner for runner in runners if network_of(runner) == "model"}
    if problems := find_unrouted(model_runners.values(), environ, played=played):
        raise UsageError(
            "\n".join(f'runners.{name}.agent.network = "model": {why}' for name, why in problems),
            hint="only an agent with a key in a variable can go through the gateway (docs: gateway)",
        )
    bare_key_notes = () if played else tuple(_bare_keys({runner.id: runner for runner in runners}, environ))
    if sandbox.has_inlets:
        return bare_key_notes
    strict = [name for name, runner in model_runners.items() if runner.options.get("network_required") is True]
    if strict:
        raise UsageError(
            "\n".join(
                f'runners.{name}.agent.network = "model": the {sandbox.name} sandbox leaves the network open'
                for name in strict
            ),
            hint="use bubblewrap (`whet doctor` says what it needs), or leave out `network_required`",
        )
    return bare_key_notes + tuple(
        f'runner {name}: `network = "model"` is no boundary in the {sandbox.name} sandbox; its agent asks the model '
        "through the gateway, and can reach everything else as well"
        for name in model_runners
    )


def _bare_keys(runners: Mapping[str, Runner], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a note for each key that the gateway does not cover in answers."""
    for name, runner in runners.items():
        route = route_of(runner, environ) if network_of(runner) != "none" else None
        for variable, key in route.keys.items() if isinstance(route, Route) else ():
            if not is_covered(key):
                yield (
                    f"runner {name}: the key in {variable} could be an ordinary word, so its agent sees it "
                    "if the provider repeats it in an answer"
                )
