"""The gateway in a run: which sessions go through it, and what their record has from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from whet.agents.agent import Options, Task
from whet.agents.gateway_routes import Route, network_of, route_of, route_words, unrouted
from whet.dataclass import dataclass
from whet.errors import AgentError, BudgetSpent, CassetteMissed, UsageError
from whet.ground.sandbox import Boundary, Inlet, Sandbox
from whet.model.request import Settings
from whet.model.run import Runner, Trial, folder_name
from whet.model.session import Usage

if TYPE_CHECKING:
    from whet.agents.gateway import Passage
    from whet.agents.gateway_asking import Source
    from whet.agents.gateway_ledger import Ledger, Witness
    from whet.agents.gateway_refusals import Refusals
    from whet.agents.gateway_routes import Pass
    from whet.agents.gateway_rules import Rules
    from whet.agents.gateway_upstream import Upstream
    from whet.agents.turnstile import Passing
    from whet.ground.secrets import Masker

# The rounding error of a sum of dollars: spending exactly the budget is allowed.
_ROUNDING_USD = 1e-9
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_NO_PROXY = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")


class Through:
    """The way of one agent through the gateway, with the accounts of the session that it is in."""

    def __init__(self, passage: Passage, given: Pass, inlet: Inlet | None) -> None:
        self._passage, self._given, self._inlet = passage, given, inlet
        self._ledger: Ledger | None = None

    def task(self, task: Task) -> Task:
        """Return *task* with made-up keys."""
        return self._given.task(task)

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a case without what would lead around the gateway."""
        return self._given.case_env(env)

    def boundary(self, boundary: Boundary) -> Boundary:
        """Return *boundary* with the gateway as the only address, if that was asked for."""
        return boundary if self._inlet is None else replace(boundary, network=False, inlet=self._inlet)

    def begin(self, ledger: Ledger, stop: Callable[[], object], *, trusted: bool) -> None:
        """Account to *ledger* from now on; *stop* ends the agent."""
        if self._ledger is not None:
            self._ledger.close()
        self._ledger = ledger
        self._passage.begin(ledger, stop, trusted=trusted)

    def answer_from(self, sources: tuple[Source, ...]) -> None:
        """Ask *sources* before the provider."""
        self._passage.sources = sources

    @property
    def places(self) -> dict[str, str]:
        """What of the gateway differs from attempt to attempt."""
        return {"gateway": self._given.address, "secret": self._given.secret}

    @property
    def url(self) -> str:
        """Where the provider is."""
        return self._given.route.url

    def miss(self, error: AgentError) -> None:
        """End the agent, because a cassette has no answer."""
        self._passage.end_with(error)

    @property
    def verdict(self) -> AgentError | None:
        """Why the gateway ended the agent, if it did."""
        return self._passage.verdict

    async def settle(self) -> None:
        """Wait a moment for what is under way."""
        await self._passage.settle()

    async def reach(self) -> None:
        """Raise if nobody can reach the provider; if that is in doubt, wait until it is known."""
        await self._passage.reach()
        if self.verdict is not None:
            raise self.verdict

    @property
    def asked(self) -> int:
        """How often the model was asked in this session."""
        return self._ledger.asked if self._ledger else 0

    @property
    def spent_usd(self) -> float:
        """What this session has spent so far, as far as it is known."""
        return (self._ledger.usage.cost_usd if self._ledger else None) or 0.0

    @property
    def paid_usd(self) -> float:
        """What of that a provider was asked for, and about what else it may have been paid for."""
        known = (self._ledger.usage - self._ledger.unpaid).cost_usd if self._ledger else None
        return (known or 0.0) + self.guessed_usd

    @property
    def guessed_usd(self) -> float:
        """About what answers cost that did not say what they took."""
        return (self._ledger.guessed.cost_usd if self._ledger else None) or 0.0

    def unpaid(self, usage: Usage) -> Usage:
        """Return the part of *usage*, that of the session, which no provider was asked for."""
        if self._ledger is None:
            return Usage()
        return usage if self._ledger.free else self._ledger.unpaid

    @property
    def free(self) -> bool:
        """Whether no provider was asked in this session."""
        return self._ledger is not None and self._ledger.free

    @property
    def only_faults(self) -> bool:
        """Whether faults on purpose are all that the agent got."""
        return self._ledger is not None and self._ledger.only_faults

    def witness(self) -> Witness | None:
        """Return what the gateway saw of the provider; None if the agent was not started."""
        return self._ledger.witness() if self._ledger else None

    def usage(self, reported: Usage) -> Usage:
        """Return what the session used: as the gateway read in answers, or as the agent *reported*, if that is more.

        A figure that nobody measured is unknown. A program under test may not fill it in by hanging up.
        """
        ledger = self._ledger
        if ledger is None or not ledger.asked:
            return reported
        measured = ledger.measured
        if measured.total_tokens is None:
            told = reported.total_tokens is not None and not reported.tokens_guessed
            return reported if told and (ledger.trusted or not ledger.abandoned) else measured
        if ledger.unpriced and reported.cost_usd is not None:
            return replace(measured, cost_usd=reported.cost_usd, cost_source=reported.cost_source)
        return measured

    @property
    def figures(self) -> dict[str, Any]:
        """What a session says of the gateway."""
        ledger = self._ledger
        if ledger is None:
            return {}
        first = ledger.first_token_s
        return {
            "requests": ledger.asked,
            "model_s": round(ledger.waited_s, 4),
            "first_token_s": None if first is None else round(first, 4),
        }

    def hold_budget(self, budget_usd: float | None) -> None:
        """Raise if the last answer went beyond the budget."""
        spent_usd = self.spent_usd + self.guessed_usd
        if budget_usd is not None and spent_usd > budget_usd + _ROUNDING_USD:
            about = "about " if self.guessed_usd else ""
            raise BudgetSpent(f"has spent {about}${spent_usd:.6g} of a budget of ${budget_usd:g}")

    async def close(self) -> None:
        """End everything that is under way."""
        await self._passage.close()
        if self._ledger is not None:
            self._ledger.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session: of which trial, where its record is, and which texts in it differ from attempt to attempt."""

    trial: Trial
    folder: Path
    # Where the record is below `trials` of the run folder, or below the scratch folder if it is not kept.
    place: Path
    places: Mapping[str, str]
    # Whether its agent is believed about what takes a trial out of the rate.
    trusted: bool


class Shared(Protocol):
    """Asks the limits that all nodes of a cluster share, and tells them what needs no answer."""

    async def ask(self, want: str, *of: Any) -> Any:
        """Return the answer to *want*."""

    def pass_on(self, want: str, *of: Any) -> None:
        """Pass *want* on."""


class _SharedTurnstile:
    """The limit of a provider, as a node sees it."""

    def __init__(self, host: str, shared: Shared) -> None:
        self._host, self._shared = host, shared
        self._was_busy = False

    async def enter(self) -> None:
        """Wait until there is room."""
        await self._shared.ask("enter", self._host)

    def leave(self) -> None:
        """Make room for the next one."""
        self._shared.pass_on("leave", self._host)

    def heard(self, status: int, retry_after: str | None) -> None:
        """Tell of a provider that is too busy, and of the first answer after that."""
        from whet.agents.turnstile import BUSY  # noqa: PLC0415 - with the gateway

        if status in BUSY or self._was_busy:
            self._shared.pass_on("heard", self._host, status, retry_after)
        self._was_busy = status in BUSY

    def spend(self, tokens: int) -> None:
        """Tell what an answer took."""
        self._shared.pass_on("spend", self._host, tokens)


class Gateways:
    """Opens ways through the gateway for the sessions of a run; loads what it needs with the first."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], sandbox: Sandbox, masker: Masker) -> None:
        self._settings, self._environ, self._sandbox, self._masker = settings, environ, sandbox, masker
        self._upstream: Upstream | None = None
        self._refusals: Refusals | None = None
        self._open: set[Through] = set()
        # The runners whose provider has answered in this run, also without the gateway.
        self.heard: set[str] = set()
        # Says why the whole run may ask no more, if its money is spent.
        self.allowance: Callable[[], str | None] = lambda: None
        # Shows a message to people.
        self.notice: Callable[[str], object] = lambda _: None
        self._told_of_turns = False
        # The limits that all nodes share, if this is one of several.
        self.shared: Shared | None = None
        # What sessions on other nodes have spent so far.
        self.elsewhere_usd: Callable[[], float] = lambda: 0.0
        self._trials: dict[str, asyncio.Semaphore] = {}
        # What sessions before cost that is in no record, because it is a guess.
        self._guessed_usd = 0.0

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

    def _turnstile(self, host: str) -> Passing:
        from whet.agents.turnstile import Turnstile  # noqa: PLC0415 - with the gateway

        given = self._settings.gateway
        most, tokens = given.get("max_requests"), given.get("max_tokens_per_minute")
        if self.shared is not None and (most is not None or tokens is not None):
            return _SharedTurnstile(host, self.shared)
        return Turnstile(most, tokens, lambda what: self.notice(f"{host} {what}"))

    @property
    def under_way_usd(self) -> float:
        """What sessions under way have paid for so far, with what is only guessed of those before."""
        return sum(through.paid_usd for through in self._open) + self._guessed_usd + self.elsewhere_usd()

    def route(self, trial: Trial) -> Route | None:
        """Return the way of *trial* to its provider; None if its agent goes there directly, or nowhere."""
        found = self._found(trial)
        return found if isinstance(found, Route) else None

    def words(self, trial: Trial) -> str | None:
        """Return the same in words, for the record."""
        return route_words(self._found(trial), trial.execution.runner)

    def _found(self, trial: Trial) -> Route | str:
        runner = trial.execution.runner
        if network_of(runner) == "none":
            return "it has no network"
        return route_of(runner, self._environ, trial.execution.case.env, played=self._settings.cassette is not None)

    async def open(self, trial: Trial) -> Through | None:
        """Open a way for the agent of *trial*, if it has one; close it after its last session."""
        route = self.route(trial)
        if route is None:
            return None
        # Only here: the HTTP library takes long to import.
        from whet.agents.gateway import Passage  # noqa: PLC0415
        from whet.agents.gateway_refusals import Refusals  # noqa: PLC0415
        from whet.agents.gateway_tunnel import Tunnels  # noqa: PLC0415
        from whet.agents.gateway_upstream import Upstream  # noqa: PLC0415

        runner = trial.execution.runner
        if self._upstream is None:
            self._upstream = Upstream(self._turnstile)
        self._refusals = self._refusals or Refusals()
        confined = self._is_confined(trial)
        allowed = Options(runner.options).texts("allow") if confined and network_of(runner) == "model" else ()
        takes_turns = self._settings.gateway.get("max_requests") is not None
        passage = Passage(
            route,
            self._upstream,
            rules=self._rules(trial, route),
            tunnels=Tunnels(allowed),
            refusals=self._refusals,
            takes_turns=takes_turns,
        )
        if not confined:
            return Through(passage, passage.given(passage.listen()), None)
        inlet = Inlet(take=passage.accept)
        proxy = {**dict.fromkeys(_PROXIES, inlet.address), **_NO_PROXY, "NODE_USE_ENV_PROXY": "1"} if allowed else {}
        return Through(passage, passage.given(inlet.address, proxy), inlet)

    def _rules(self, trial: Trial, route: Route) -> Rules:
        """Return what passes; tools of the provider are ways out of a network that has the model alone."""
        from whet.agents.gateway_rules import Rules  # noqa: PLC0415 - as above

        lent = {**self._settings.gateway, **trial.execution.runner.options}
        return Rules(
            provider=route.provider.name,
            requests=tuple(lent.get("allow_requests", ())),
            hosted_tools=tuple(lent.get("allow_hosted_tools", ())) if _has_model_alone(trial) else None,
        )

    def _is_confined(self, trial: Trial) -> bool:
        """Return whether the gateway is all that the agent reaches."""
        return _has_model_alone(trial) and bool(getattr(self._sandbox, "has_inlets", False))

    def begin(self, through: Through, session: Session, stop: Callable[[], object]) -> None:
        """Open the accounts of a session; raises `CassetteMissed` if it has no cassette to be played."""
        from whet.agents.gateway_ledger import REQUESTS, Ledger  # noqa: PLC0415 - as above

        assert self._upstream is not None
        ledger = Ledger(
            session.folder / REQUESTS,
            masker=self._masker,
            limits=session.trial.execution.limits,
            silence_s=self._settings.model_silence_s,
            trusted=session.trusted,
            allowance=self.allowance,
            spend=partial(_spend, self._upstream, through.url),
        )
        through.begin(ledger, stop, trusted=session.trusted)
        self._open.add(through)
        through.answer_from(tuple(self._sources(through, session)))

    def _sources(self, through: Through, session: Session) -> Iterator[Source]:
        """Yield what may answer before the provider, the first one first."""
        settings, runner = self._settings, session.trial.execution.runner
        faults = runner.options.get("faults") or settings.gateway.get("faults")
        if faults:
            from whet.agents.gateway_faults import Faults  # noqa: PLC0415 - as above

            key = replace(session.trial.key, arm="")
            yield Faults(faults, f"{key}/{session.folder.name}")
        if settings.cassette or settings.record_to:
            yield from self._tapes(through, session)
        if "cache_dir" in settings.gateway:
            from whet.agents.gateway_faults import Cache  # noqa: PLC0415
            from whet.agents.gateway_forms import Forms  # noqa: PLC0415

            judges = session.trial.key.arm == "judge"
            forms = Forms({**session.places, **through.places})
            yield Cache(settings.gateway["cache_dir"], through.url, self._masker, forms, judges=judges)

    def _tapes(self, through: Through, session: Session) -> Iterator[Source]:
        from whet.agents.gateway_forms import Forms  # noqa: PLC0415 - as above
        from whet.agents.gateway_tapes import Player, Recorder, hold_inside, read_tape, tape_path, tape_to_play  # noqa: PLC0415

        settings, suite = self._settings, folder_name(session.trial.key.suite)
        forms = Forms({**session.places, **through.places}, settings.gateway.get("ignore", ()))
        if settings.cassette is not None:
            path, borrowed = tape_to_play(settings.cassette, suite, session.place)
            asks = settings.cassette_mode == "new"
            if path is None and not asks:
                raise CassetteMissed(
                    f"there is no cassette for {session.trial.key} in {settings.cassette}",
                    hint="record one with --record-to, or use --cassette-mode new",
                )
            if borrowed and not self._told_of_turns:
                self._told_of_turns = True
                self.notice(f"more trials than {settings.cassette} has cassettes of: they are taken in turn")
            yield Player(
                path or settings.cassette,
                read_tape(path) if path else [],
                forms,
                miss=through.miss,
                asks=asks,
                real_time=settings.cassette_speed == "real",
            )
            if asks:
                path = path or tape_path(settings.cassette, suite, session.place)
                hold_inside(path, settings.cassette)
                yield Recorder(path, forms, self._masker, through.miss)
        if settings.record_to is not None:
            path = tape_path(settings.record_to, suite, session.place)
            hold_inside(path, settings.record_to)
            yield Recorder(path, forms, self._masker, through.miss, anew=True)

    def end(self, through: Through, recorded: Usage) -> None:
        """Count what a session has spent no longer: its record does, but for what is not known for sure."""
        if through in self._open:
            told_usd = (recorded - through.unpaid(recorded)).cost_usd or 0.0
            self._guessed_usd += max(0.0, through.paid_usd - told_usd)
        self._open.discard(through)

    async def close(self) -> None:
        """Close the connections to providers."""
        if self._refusals is not None:
            await self._refusals.close()
        if self._upstream is not None:
            await self._upstream.close()
            self._upstream = None


def _has_model_alone(trial: Trial) -> bool:
    """Return whether the agent is to reach its model and nothing else; a task may say that there is no network."""
    task = trial.execution.case.task
    return network_of(trial.execution.runner) == "model" or (task is not None and not task.agent_network)


def _spend(upstream: Upstream, url: str, tokens: int) -> None:
    upstream.turnstile(urlsplit(url).hostname or "").spend(tokens)


def hold_routes(
    runners: Sequence[Runner], environ: Mapping[str, str], sandbox: Sandbox, *, played: bool = False
) -> tuple[str, ...]:
    """Raise for runners that ask for the model alone and cannot have it; return notes on those without a boundary."""
    asked = {runner.id: runner for runner in runners if network_of(runner) == "model"}
    if found := unrouted(asked.values(), environ, played=played):
        raise UsageError(
            "\n".join(f'runners.{name}.agent.network = "model": {why}' for name, why in found),
            hint="only an agent with a key in a variable can go through the gateway (docs: gateway)",
        )
    bare = () if played else tuple(_bare_keys({runner.id: runner for runner in runners}, environ))
    if getattr(sandbox, "has_inlets", False):
        return bare
    strict = [name for name, runner in asked.items() if runner.options.get("network_required") is True]
    if strict:
        raise UsageError(
            "\n".join(
                f'runners.{name}.agent.network = "model": the {sandbox.name} sandbox leaves the network open'
                for name in strict
            ),
            hint="use bubblewrap (`whet doctor` says what it needs), or leave out `network_required`",
        )
    return bare + tuple(
        f'runner {name}: `network = "model"` is no boundary in the {sandbox.name} sandbox; its agent asks the model '
        "through the gateway, and can reach everything else as well"
        for name in asked
    )


def _bare_keys(runners: Mapping[str, Runner], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a note for each key that the gateway does not cover in answers."""
    for name, runner in runners.items():
        route = route_of(runner, environ) if network_of(runner) != "none" else None
        for variable, key in route.keys.items() if isinstance(route, Route) else ():
            from whet.agents.gateway_mask import is_covered  # noqa: PLC0415 - most agents have no gateway

            if not is_covered(key):
                yield (
                    f"runner {name}: the key in {variable} could be an ordinary word, so its agent sees it "
                    "if the provider repeats it in an answer"
                )
