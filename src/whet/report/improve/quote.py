"""Say what an improve run is going to do and what it may cost, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from msgspec import Struct

from whet.reading.text import count, money, number, one_line, points
from whet.record.improve.document import ImproveOptions
from whet.report.improve.words import ACCEPTS, PARTS, percent_text
from whet.report.screen import Screen


class ThreeFigures(Struct, frozen=True, kw_only=True):
    """The least that a run can come to, what it usually comes to, and the most."""

    least: float
    usual: float
    most: float


class ImproveQuote(Struct, frozen=True, kw_only=True):
    """What an improve run is going to do."""

    skill: str
    suite: str
    runner: str
    # None if people wrote the candidates.
    proposer: str | None
    options: ImproveOptions
    practice: int
    held_out: int
    sealed: int = 0
    trials: ThreeFigures
    # None if no run says what a trial costs.
    cost_usd: ThreeFigures | None
    # How the money of --max-cost is divided, and what this cuts short.
    shares: str | None = None
    # The least difference that the confirm step finds in 80 % of runs, in rates.
    reach: float | None = None
    # The number of the next confirm step on this split, and the error that it may make.
    step: int = 1
    error: float = 0.05
    warnings: Sequence[str] = ()


def quote_lines(quote: ImproveQuote, screen: Screen) -> Iterator[str]:
    """Yield the plan in words, with its three prices."""
    options = quote.options
    yield f"{screen.paint(one_line(quote.skill), 'bold')}: {_task(quote)}"
    for label, text in _rows(quote):
        yield f"  {screen.paint(f'{label:11}', 'dim')} {text}"
    if options.propose_only:
        yield "  nothing is tried: the candidates are only written"
    for warning in quote.warnings:
        yield f"  {screen.paint('warning:', 'warn')} {one_line(warning, 1000)}"


def _task(quote: ImproveQuote) -> str:
    options = quote.options
    if options.own_candidates:
        return f"compare {count(len(options.own_candidates), 'candidate')} that people wrote"
    rounds = count(options.rounds, "round")
    goal = "make it cheaper, and not worse" if options.goal == "cheaper" else "make it better"
    return f"{goal}: change {PARTS[options.part]}, {count(options.candidates, 'candidate')} in each of {rounds}"


def _rows(quote: ImproveQuote) -> Iterator[tuple[str, str]]:
    proposer = f"; {one_line(quote.proposer)} proposes" if quote.proposer else ""
    yield "suite", f"{one_line(quote.suite)} on {one_line(quote.runner)}{proposer}"
    sealed = f", {quote.sealed} sealed" if quote.sealed else ""
    yield "cases", f"{quote.practice} practice, {quote.held_out} held out{sealed}"
    yield "accepts", _rule(quote)
    trials = quote.trials
    yield "trials", f"{number(trials.least)} at least, usually {number(trials.usual)}, {number(trials.most)} at most"
    yield "price", _price(quote)
    if quote.shares:
        yield "shares", one_line(quote.shares, 1000)


def _rule(quote: ImproveQuote) -> str:
    options = quote.options
    error = f"step {quote.step} on this split, which may err in {percent_text(quote.error)}"
    found = ""
    if quote.reach is not None:
        # Rounded up, as the warning about it is.
        found = f"; finds {ceil(100 * quote.reach)} points or more in 80 % of runs"
    if options.goal == "cheaper":
        margin = points(options.margin, sign=False)
        return f"what costs less and is not worse by {margin} points or more; {error}"
    return f"what is better {ACCEPTS[options.accept]}; {error}{found}"


def _price(quote: ImproveQuote) -> str:
    cap = ""
    if quote.options.max_cost_usd is not None:
        cap = f"; it stops at {money(quote.options.max_cost_usd)}"
    if quote.cost_usd is None:
        return f"not known: no run says what a trial costs{cap}"
    cost = quote.cost_usd
    return f"{money(cost.least)} at least, usually {money(cost.usual)}, {money(cost.most)} at most{cap}"
