"""The accounts of a session at the gateway: every request with its time, tokens and cost, and what may still be asked.

What happens after the time limit of the session does not count: a request that whet interrupts is not an outage.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from whet.agents.prices import load_prices, priced
from whet.errors import BudgetSpent, MoneySpent
from whet.gateway.wire.formats import RequestSummary
from whet.model.events import Trouble, TroubleKind
from whet.model.session import ROUNDING_USD, Usage, from_gateway, tokens_of
from whet.model.suite import Limits
from whet.secrets import Masker

REQUESTS = "requests.jsonl"
# How a request ended: answered, with an error of the provider, not at all, or the agent did not wait for the end.
Outcome = Literal["answered", "failed", "cut", "unreachable", "left", "refused"]
_LONGEST_WORD = 200
_LONGEST_MESSAGE = 500
# An agent that asks without end must not fill the disk.
_MOST_LINES = 100_000
# How a request ended that a provider was paid for, or may have been.
_ANSWERED = ("answered", "left", "cut")
# The figures that make up what a request took, and their parts.
_PARTS = {"input_tokens": ("cached_tokens", "cache_write_tokens"), "output_tokens": ("reasoning_tokens",)}
_NEEDED = tuple(_PARTS)
# An agent that kept its answer waiting for longer than this may have had it cut off.
_LONGEST_HELD_UP_S = 5.0
# How long a request waits so that what its agent printed before is read, and how often is looked whether an answer that
# is under way has come to its end.
_READ_WITHIN_S = 0.1
_PAUSE_S = 0.05
_MOST_LOOKS = 40


class LoggedRequest(Struct, kw_only=True):
    """One request on its way."""

    number: int
    method: str
    path: str
    at: str
    began: float
    asked: RequestSummary = field(default_factory=RequestSummary)
    # Who answered, if it was not the provider: a cassette, the cache, or a fault on purpose.
    by: str | None = None
    # Whether the provider was asked, and so is paid.
    paid: bool = False
    status: int | None = None
    # Whether all of it was there when it was handed on: otherwise the provider may wait for the agent.
    is_whole: bool = True
    # When it was handed on, when its answer began, and since when the provider has said nothing.
    sent: float | None = None
    first: float | None = None
    heard: float = 0.0
    # Whether the agent has yet to take what the provider said, and for how long it kept the provider waiting.
    held_up: bool = False
    held_up_s: float = 0.0
    retries: int = 0
    digest: bytes = b""


class ProviderObservation(Struct, frozen=True, kw_only=True):
    """What the gateway saw of the provider until the end of a session, or until its time limit.

    `trouble` came after the last good answer, `troubles` times. `silent_s` is for how long the provider had said
    nothing although it was asked.
    """

    asked: int = 0
    answered: int = 0
    trouble: Trouble | None = None
    troubles: int = 0
    silent_s: float = 0.0


class RequestLog:
    """What one session asked for and got."""

    def __init__(
        self,
        path: Path,
        *,
        masker: Masker,
        limits: Limits | None = None,
        silence_s: float = 30.0,
        trusted: bool = True,
        allowance: Callable[[], str | None] = lambda: None,
        spend: Callable[[int], object] = lambda _: None,
    ) -> None:
        self._spend = spend
        self._path, self._masker, self._limits = path, masker, limits or Limits()
        self._silence_s, self._allowance = silence_s, allowance
        # Whether the agent is a program that whet knows, and not the one under test.
        self.trusted = trusted
        timeout_s = self._limits.timeout_s
        self._until = time.monotonic() + timeout_s if timeout_s else None
        self._file: int | None = None
        self._open: dict[int, LoggedRequest] = {}
        self._failed: dict[bytes, int] = {}
        self._waited_s, self._waiting_since = 0.0, 0.0
        self._numbers = self._lines = 0
        self._firsts: list[float] = []
        self._trouble: Trouble | None = None
        self._troubles = self._answered = 0
        # A silence that a program under test did not wait for, and may have asked for.
        self._doubtful_trouble: Trouble | None = None
        # What was used, and the part of it that no provider was asked for.
        self.usage = self.unpaid = Usage()
        # What answers took that did not say so, for budgets alone: by their text, which is no more than a guess.
        self.guessed = Usage()
        self._paid = self._faulted = 0
        # Requests to models, those of them whose cost is not known, and those whose answer the agent did not wait for.
        self.asked = self.unpriced = self.abandoned = 0
        # The figures that some answer did not tell, so that no sum of them was measured.
        self._untold: set[str] = set()
        load_prices()

    def begin(self, method: str, path: str, *, model: bool) -> LoggedRequest:
        """Note that a request has come; of a *model*, if it is one."""
        self._numbers += 1
        self.asked += model
        now = time.monotonic()
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return LoggedRequest(number=self._numbers, method=method, path=path, at=at, began=now, heard=now)

    def refusal(self) -> BudgetSpent | None:
        """Return why no other request may be made, if a budget is spent."""
        limits, usage = self._limits, self.usage + self.guessed
        qualifier = "about " if self.guessed.total_tokens else ""
        if limits.budget_usd is not None and (usage.cost_usd or 0.0) >= limits.budget_usd - ROUNDING_USD:
            return MoneySpent(
                f"has spent {qualifier}${usage.cost_usd or 0.0:.6g} of a budget of ${limits.budget_usd:g}"
            )
        if limits.budget_tokens is not None and (usage.total_tokens or 0) >= limits.budget_tokens:
            return BudgetSpent(f"has used {qualifier}{usage.total_tokens or 0} of {limits.budget_tokens} tokens")
        if limits.budget_requests is not None and self.asked > limits.budget_requests:
            return BudgetSpent(f"has made {self.asked - 1} of {limits.budget_requests} requests to its model")
        return None

    def no_allowance(self) -> str | None:
        """Return why no other request of the whole run may be made, if its money is spent."""
        return self._allowance()

    def sent(self, entry: LoggedRequest, *, is_whole: bool = True) -> None:
        """Note that the provider is being asked."""
        entry.is_whole = is_whole
        if not self._open:
            self._waiting_since = entry.began
        entry.sent = entry.heard = time.monotonic()
        self._open[entry.number] = entry

    def heard(self, entry: LoggedRequest) -> None:
        """Note a piece of an answer, which the agent has yet to take."""
        now = time.monotonic()
        if self._late(now):
            return
        entry.heard, entry.held_up = now, True
        if entry.first is None:
            entry.first = now

    def taken(self, entry: LoggedRequest) -> None:
        """Note that the agent has taken what there was: now it is the provider's turn."""
        now = time.monotonic()
        if entry.held_up and not self._late(now):
            entry.held_up_s += now - entry.heard
            entry.heard, entry.held_up = now, False

    def done(
        self,
        entry: LoggedRequest,
        outcome: Outcome,
        *,
        tokens: Mapping[str, int] | None = None,
        model: str | None = None,
        kind: TroubleKind | None = None,
        message: str = "",
        text: tuple[int, int] = (0, 0),
        is_complete: bool = True,
    ) -> None:
        """Note how a request ended, and write its line; *text* is how many characters were asked and answered.

        The output tokens of an answer that is not complete count only its beginning.
        """
        now = time.monotonic()
        is_late = self._late(now)
        if entry.asked.format is not None:
            reported_usage = from_gateway(tokens or {})
            usage = self._count(
                entry, outcome, reported_usage if is_complete else _without_output(reported_usage), model
            )
            if outcome in _ANSWERED and entry.paid:
                self._guess(usage, reported_usage, text, model=model or entry.asked.model)
            if not is_late:
                self._judge(entry, outcome, kind, message, now)
        else:
            usage = Usage()
        if not is_late or outcome != "left":
            self._close(entry, now)
        self._write(entry, outcome, usage, model, kind, now)

    def _late(self, now: float) -> bool:
        return self._until is not None and now > self._until

    def _close(self, entry: LoggedRequest, now: float) -> None:
        if self._open.pop(entry.number, None) is not None and not self._open:
            self._waited_s += now - self._waiting_since

    def _count(self, entry: LoggedRequest, outcome: Outcome, reported_usage: Usage, model: str | None) -> Usage:
        """Add what a request took; one that failed as a whole took nothing, nor one that the cache answered."""
        if entry.by == "cache":
            return Usage()
        self._paid += entry.paid
        self._faulted += outcome != "answered" and _is_fault(entry)
        usage = priced(reported_usage, model or entry.asked.model)
        if usage.cost_usd is None and model != entry.asked.model:
            # A provider may answer with a name of its own for the model.
            usage = priced(usage, entry.asked.model)
        if usage.total_tokens is not None:
            self.unpriced += usage.cost_usd is None
            self._spend(usage.total_tokens)
        elif outcome in _ANSWERED and (entry.paid or entry.first is not None):
            self.abandoned += outcome != "answered"
            self._untold |= {name for name in _NEEDED if getattr(usage, name) is None}
        self.usage = self.usage + usage
        self.unpaid = self.unpaid if entry.paid else self.unpaid + usage
        return usage

    def _guess(self, usage: Usage, reported_usage: Usage, text: tuple[int, int], *, model: str | None) -> None:
        """Guess what is not *known*: an agent that does not wait for the figures of an answer pays for it as well."""
        if usage.total_tokens is not None:
            return
        input_tokens, output_tokens = map(tokens_of, text)
        # What is guessed has no mark, because a guess has no price.
        estimate = Usage(
            input_tokens=input_tokens if usage.input_tokens is None else usage.input_tokens,
            output_tokens=max(output_tokens, reported_usage.output_tokens or 0),
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )
        self._spend(estimate.total_tokens or 0)
        # The cost is that of the whole answer, also of the part that is known: a part of a cost is in no sum.
        unreported = replace(
            estimate, cached_tokens=None, cache_write_tokens=None, cost_usd=priced(estimate, model).cost_usd
        )
        self.guessed = self.guessed + (
            unreported if usage.input_tokens is None else replace(unreported, input_tokens=0)
        )

    def _judge(self, entry: LoggedRequest, outcome: Outcome, kind: TroubleKind | None, said: str, now: float) -> None:
        """A good answer ends all trouble; an agent that stops waiting for a silent provider tells of one."""
        if outcome == "answered" and kind is None:
            self._answered += 1
            self._trouble, self._doubtful_trouble, self._troubles = None, None, 0
            self._failed.pop(entry.digest, None)
            if entry.first is not None:
                self._firsts.append(entry.first - entry.began)
            return
        if (outcome == "cut" and entry.held_up_s >= _LONGEST_HELD_UP_S) or not (self.trusted or entry.is_whole):
            # A provider does not wait for ever for an agent that does not take its answer, or does not end its request.
            kind = None
        is_doubtful = False
        if outcome == "left" and self._is_silent(entry) and now - entry.heard >= self._silence_s:
            kind, said = "network", f"the provider said nothing for {now - entry.heard:.0f} s, and the agent hung up"
            is_doubtful = self._is_doubtful(entry)
        if kind is None:
            return
        self._failed[entry.digest] = self._failed.get(entry.digest, 0) + 1
        message = self._masker.text(said[:_LONGEST_MESSAGE]) or kind
        trouble = Trouble(message=message, kind=kind, status=entry.status)
        self._troubles += 1
        if is_doubtful:
            self._doubtful_trouble = trouble
        else:
            self._trouble, self._doubtful_trouble = trouble, None

    def _is_silent(self, entry: LoggedRequest) -> bool:
        """Return whether it is the provider's turn to speak.

        A program under test may ask for an answer that takes long, and have it as a whole: then it is no silence.
        """
        has_begun = entry.is_whole and (entry.status is not None or entry.asked.streams)
        return entry.sent is not None and not entry.held_up and (self.trusted or has_begun)

    def _is_doubtful(self, entry: LoggedRequest) -> bool:
        """Return whether its silence may be what a program under test asked for; a fault on purpose is ours."""
        return entry.paid and not self.trusted

    def uploaded(self, entry: LoggedRequest, digest: bytes) -> None:
        """Note that all of a request has come, and how often the same one had failed before."""
        entry.heard = time.monotonic()
        entry.digest, entry.retries = digest, self._failed.get(digest, 0)

    def observation(self, *, with_doubtful: bool = True) -> ProviderObservation:
        """Return what was seen until now, or until the time limit; what is doubtful may be left out."""
        now = time.monotonic()
        until = min(now, self._until) if self._until is not None else now
        open_entries = [entry for entry in self._open.values() if entry.asked.format is not None]
        silent_since = [
            entry.heard if self._is_silent(entry) and (with_doubtful or not self._is_doubtful(entry)) else until
            for entry in open_entries
        ]
        return ProviderObservation(
            asked=self.asked,
            answered=self._answered,
            trouble=(self._doubtful_trouble if with_doubtful else None) or self._trouble,
            troubles=self._troubles,
            silent_s=max(0.0, until - max(silent_since)) if silent_since else 0.0,
        )

    @property
    def is_asking(self) -> bool:
        """Whether a request has been passed on and is not answered yet."""
        return bool(self._open)

    @property
    def measured(self) -> Usage:
        """What was used, as far as all answers tell; a part of a sum is no sum."""
        under_way = any(entry.paid and entry.asked.format is not None for entry in self._open.values())
        missing_figures = set(_NEEDED) if under_way else self._untold
        missing_names = {part for name in missing_figures for part in (name, *_PARTS[name])}
        sources = {name: source for name, source in self.usage.sources.items() if name not in missing_names}
        if missing_figures:
            sources.pop("total_tokens", None)
        usage = replace(self.usage, **dict.fromkeys(missing_names), sources=sources) if missing_names else self.usage
        return replace(usage, cost_usd=None, cost_source=None) if missing_figures or self.unpriced else usage

    @property
    def free(self) -> bool:
        """Whether the model was asked, and no provider."""
        return self.asked > 0 and not self._paid and not any(entry.paid for entry in self._open.values())

    @property
    def only_faults(self) -> bool:
        """Whether the model was asked, and faults on purpose are all that came."""
        faults = self._faulted + sum(_is_fault(entry) for entry in self._open.values())
        return 0 < self.asked <= faults

    @property
    def waited_s(self) -> float:
        """The time in which at least one request was under way."""
        since = time.monotonic() - self._waiting_since if self._open else 0.0
        return self._waited_s + since

    @property
    def first_token_s(self) -> float | None:
        """The usual time from a request to the beginning of its answer."""
        return sorted(self._firsts)[len(self._firsts) // 2] if self._firsts else None

    def _write(
        self,
        entry: LoggedRequest,
        outcome: Outcome,
        usage: Usage,
        model: str | None,
        kind: TroubleKind | None,
        now: float,
    ) -> None:
        self._lines += 1
        if self._lines > _MOST_LINES:
            return
        line: dict[str, Any] = {
            "at": entry.at,
            "method": entry.method[:_LONGEST_WORD],
            "path": entry.path[:_LONGEST_WORD],
            "format": entry.asked.format,
            "model": (model or entry.asked.model or "")[:_LONGEST_WORD] or None,
            "outcome": outcome,
            "status": entry.status,
            "trouble": kind,
            "by": entry.by,
            "retries": entry.retries,
            "first_token_s": None if entry.first is None else round(entry.first - entry.began, 4),
            "duration_s": round(now - entry.began, 4),
            **{name: getattr(usage, name) for name in usage.sources if name != "total_tokens"},
            "cost_usd": usage.cost_usd,
        }
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(self._file, self._masker.data(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace")) + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _without_output(usage: Usage) -> Usage:
    """Return what an answer said about its input."""
    sources = {
        name: source for name, source in usage.sources.items() if name in ("input_tokens", *_PARTS["input_tokens"])
    }
    return replace(usage, output_tokens=None, reasoning_tokens=None, sources=sources)


def _is_fault(entry: LoggedRequest) -> bool:
    return entry.by is not None and entry.by.startswith("fault ")


class LastRequests:
    """Holds the requests of an agent that what it prints may end; *asks_again* hears of each, and *stop* ends it."""

    def __init__(self, log: RequestLog, stop: Callable[[], object], asks_again: Callable[[], object]) -> None:
        self._log, self._stop, self._asks_again = log, stop, asks_again
        self._settling: asyncio.Task[None] | None = None

    async def hold(self) -> None:
        """Wait until what the agent has printed is read; if that has decided all, for ever: it is being ended."""
        if self._log.asked:
            await asyncio.sleep(_READ_WITHIN_S)
            self._asks_again()
        if self._settling is not None:
            await asyncio.Event().wait()

    def settle(self) -> None:
        """Let no other request pass, and end the agent as soon as those under way are answered."""
        self._settling = self._settling or asyncio.ensure_future(self._stop_when_answered())

    async def _stop_when_answered(self) -> None:
        await asyncio.sleep(_READ_WITHIN_S)
        for _ in range(_MOST_LOOKS):
            if not self._log.is_asking:
                break
            await asyncio.sleep(_PAUSE_S)
        self._stop()

    def close(self) -> None:
        """End nothing any more."""
        if self._settling is not None:
            self._settling.cancel()
