"""The accounts of a session at the gateway: every request with its time, tokens and cost, and what may still be asked.

What happens after the time limit of the session does not count: a request that whet interrupts is not an outage.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from whet.agents.gateway_wire import Asked
from whet.agents.prices import load_prices, priced
from whet.dataclass import dataclass
from whet.ground.secrets import Masker
from whet.model.seen import Trouble, TroubleKind
from whet.model.session import Usage, from_gateway, tokens_of
from whet.model.suite import Limits

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
# The rounding error of a sum of dollars.
_ROUNDING_USD = 1e-9


@dataclass(slots=True, kw_only=True)
class Entry:
    """One request on its way."""

    number: int
    method: str
    path: str
    at: str
    began: float
    asked: Asked = field(default_factory=Asked)
    # Who answered, if it was not the provider: a tape, the cache, or a fault on purpose.
    by: str | None = None
    # Whether the provider was asked, and so is paid.
    paid: bool = False
    status: int | None = None
    # When it was handed on, when its answer began, and since when the provider has said nothing.
    sent: float | None = None
    first: float | None = None
    heard: float = 0.0
    # Whether the agent has yet to take what the provider said, and for how long it kept the provider waiting.
    held_up: bool = False
    held_up_s: float = 0.0
    retries: int = 0
    digest: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What the gateway saw of the provider until the end of a session, or until its time limit.

    `trouble` came after the last good answer, `troubles` times. `silent_s` is for how long the provider had said
    nothing although it was asked.
    """

    asked: int = 0
    answered: int = 0
    trouble: Trouble | None = None
    troubles: int = 0
    silent_s: float = 0.0


class Ledger:
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
        self._open: dict[int, Entry] = {}
        self._failed: dict[bytes, int] = {}
        self._waited_s, self._waiting_since = 0.0, 0.0
        self._numbers = self._lines = 0
        self._firsts: list[float] = []
        self._trouble: Trouble | None = None
        self._troubles = self._answered = 0
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

    def begin(self, method: str, path: str, *, model: bool) -> Entry:
        """Note that a request has come; of a *model*, if it is one."""
        self._numbers += 1
        self.asked += model
        now = time.monotonic()
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return Entry(number=self._numbers, method=method, path=path, at=at, began=now, heard=now)

    def refusal(self) -> str | None:
        """Return why no other request may be made, if a budget is spent."""
        limits, spent = self._limits, self.usage + self.guessed
        about = "about " if self.guessed.total_tokens else ""
        if limits.budget_usd is not None and (spent.cost_usd or 0.0) >= limits.budget_usd - _ROUNDING_USD:
            return f"has spent {about}${spent.cost_usd or 0.0:.6g} of a budget of ${limits.budget_usd:g}"
        if limits.budget_tokens is not None and (spent.total_tokens or 0) >= limits.budget_tokens:
            return f"has used {about}{spent.total_tokens or 0} of {limits.budget_tokens} tokens"
        if limits.budget_requests is not None and self.asked > limits.budget_requests:
            return f"has made {self.asked - 1} of {limits.budget_requests} requests to its model"
        return None

    def no_allowance(self) -> str | None:
        """Return why no other request of the whole run may be made, if its money is spent."""
        return self._allowance()

    def sent(self, entry: Entry) -> None:
        """Note that the provider is being asked."""
        if not self._open:
            self._waiting_since = entry.began
        entry.sent = entry.heard = time.monotonic()
        self._open[entry.number] = entry

    def heard(self, entry: Entry) -> None:
        """Note a piece of an answer, which the agent has yet to take."""
        now = time.monotonic()
        if self._late(now):
            return
        entry.heard, entry.held_up = now, True
        if entry.first is None:
            entry.first = now

    def taken(self, entry: Entry) -> None:
        """Note that the agent has taken what there was: now it is the provider's turn."""
        now = time.monotonic()
        if entry.held_up and not self._late(now):
            entry.held_up_s += now - entry.heard
            entry.heard, entry.held_up = now, False

    def done(
        self,
        entry: Entry,
        outcome: Outcome,
        *,
        tokens: Mapping[str, int] | None = None,
        model: str | None = None,
        kind: TroubleKind | None = None,
        said: str = "",
        text: tuple[int, int] = (0, 0),
        whole: bool = True,
    ) -> None:
        """Note how a request ended, and write its line; *text* is how many characters were asked and answered.

        What an answer that is not *whole* told of its output holds only for its beginning.
        """
        now = time.monotonic()
        late = self._late(now)
        if entry.asked.format is not None:
            told = from_gateway(tokens or {})
            usage = self._count(entry, outcome, told if whole else _without_output(told), model)
            if outcome in _ANSWERED and entry.paid:
                self._guess(usage, told, text, model=model or entry.asked.model)
            if not late:
                self._judge(entry, outcome, kind, said, now)
        else:
            usage = Usage()
        if not late or outcome != "left":
            self._close(entry, now)
        self._write(entry, outcome, usage, model, kind, now)

    def _late(self, now: float) -> bool:
        return self._until is not None and now > self._until

    def _close(self, entry: Entry, now: float) -> None:
        if self._open.pop(entry.number, None) is not None and not self._open:
            self._waited_s += now - self._waiting_since

    def _count(self, entry: Entry, outcome: Outcome, told: Usage, model: str | None) -> Usage:
        """Add what a request took; one that failed as a whole took nothing, nor one that the cache answered."""
        if entry.by == "cache":
            return Usage()
        self._paid += entry.paid
        self._faulted += outcome != "answered" and _is_fault(entry)
        usage = priced(told, model or entry.asked.model)
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

    def _guess(self, known: Usage, told: Usage, text: tuple[int, int], *, model: str | None) -> None:
        """Guess what is not *known*: an agent that does not wait for the figures of an answer pays for it as well."""
        if known.total_tokens is not None:
            return
        read, written = map(tokens_of, text)
        # What is guessed has no mark, because a guess has no price.
        likely = Usage(
            input_tokens=read if known.input_tokens is None else known.input_tokens,
            output_tokens=max(written, told.output_tokens or 0),
            cached_tokens=known.cached_tokens,
            cache_write_tokens=known.cache_write_tokens,
        )
        self._spend(likely.total_tokens or 0)
        # Its cost is that of all of it, also of the part that is known: a part of a cost is in no sum.
        missing = replace(likely, cached_tokens=None, cache_write_tokens=None, cost_usd=priced(likely, model).cost_usd)
        self.guessed = self.guessed + (missing if known.input_tokens is None else replace(missing, input_tokens=0))

    def _judge(self, entry: Entry, outcome: Outcome, kind: TroubleKind | None, said: str, now: float) -> None:
        """A good answer ends all trouble; an agent that stops waiting for a silent provider tells of one."""
        if outcome == "answered" and kind is None:
            self._answered += 1
            self._trouble, self._troubles = None, 0
            self._failed.pop(entry.digest, None)
            if entry.first is not None:
                self._firsts.append(entry.first - entry.began)
            return
        if outcome == "cut" and entry.held_up_s >= _LONGEST_HELD_UP_S:
            # A provider does not wait for ever for an agent that does not take its answer.
            kind = None
        if outcome == "left" and self._is_silent(entry) and now - entry.heard >= self._silence_s:
            kind, said = "network", f"the provider said nothing for {now - entry.heard:.0f} s, and the agent hung up"
        if kind is None:
            return
        self._failed[entry.digest] = self._failed.get(entry.digest, 0) + 1
        message = self._masker.text(said[:_LONGEST_MESSAGE]) or kind
        self._trouble = Trouble(message=message, kind=kind, status=entry.status)
        self._troubles += 1

    def _is_silent(self, entry: Entry) -> bool:
        """Return whether it is the provider's turn to speak.

        A program under test may ask for an answer that takes long, and have it as a whole: then it is no silence.
        """
        begun = entry.status is not None or entry.asked.streams
        return entry.sent is not None and not entry.held_up and (self.trusted or begun)

    def retried(self, entry: Entry, digest: bytes) -> None:
        """Note how often the same request had failed before."""
        entry.digest, entry.retries = digest, self._failed.get(digest, 0)

    def witness(self) -> Witness:
        """Return what was seen until now, or until the time limit."""
        now = time.monotonic()
        at = min(now, self._until) if self._until is not None else now
        asked = [entry for entry in self._open.values() if entry.asked.format is not None]
        waiting = [entry.heard if self._is_silent(entry) else at for entry in asked]
        return Witness(
            asked=self.asked,
            answered=self._answered,
            trouble=self._trouble,
            troubles=self._troubles,
            silent_s=max(0.0, at - max(waiting)) if waiting else 0.0,
        )

    @property
    def measured(self) -> Usage:
        """What was used, as far as all answers tell; a part of a sum is no sum."""
        under_way = any(entry.paid and entry.asked.format is not None for entry in self._open.values())
        untold = set(_NEEDED) if under_way else self._untold
        unknown = {part for name in untold for part in (name, *_PARTS[name])}
        known = {name: source for name, source in self.usage.sources.items() if name not in unknown}
        if untold:
            known.pop("total_tokens", None)
        usage = replace(self.usage, **dict.fromkeys(unknown), sources=known) if unknown else self.usage
        return replace(usage, cost_usd=None, cost_source=None) if untold or self.unpriced else usage

    @property
    def free(self) -> bool:
        """Whether the model was asked, and no provider."""
        return self.asked > 0 and not self._paid and not any(entry.paid for entry in self._open.values())

    @property
    def only_faults(self) -> bool:
        """Whether the model was asked, and faults on purpose are all that came."""
        faulted = self._faulted + sum(_is_fault(entry) for entry in self._open.values())
        return 0 < self.asked <= faulted

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
        self, entry: Entry, outcome: Outcome, usage: Usage, model: str | None, kind: TroubleKind | None, now: float
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


def _without_output(told: Usage) -> Usage:
    """Return what an answer told of its input."""
    sources = {
        name: source for name, source in told.sources.items() if name in ("input_tokens", *_PARTS["input_tokens"])
    }
    return replace(told, output_tokens=None, reasoning_tokens=None, sources=sources)


def _is_fault(entry: Entry) -> bool:
    return entry.by is not None and entry.by.startswith("fault ")
