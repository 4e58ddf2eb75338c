"""A run under way: where its record lies, who listens, and what it may still begin."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from typing import assert_never

import anyio

from whet.dataclass import dataclass
from whet.model.event import Notice, RunEvent, TrialEnded
from whet.model.run import UNHELD, Plan, RunInfo, Trial, TrialResult
from whet.model.session import Usage
from whet.record.journal import Journal, Spent
from whet.report.reporter import Reporters


@dataclass(slots=True)
class UnderWay:
    """A run under way: where its record lies, and who listens."""

    info: RunInfo
    plan: Plan
    journal: Journal
    spent: Spent
    reporters: Reporters
    began: float
    interrupted: bool = False
    # The most that the run may cost, and whether somebody was told that it did.
    max_cost_usd: float | None = None
    stopped: bool = False
    # What a trial took beside its own session, and what that came to so far.
    beside: Callable[[TrialResult], Usage] | None = None
    beside_usd: float = 0.0
    # The runners that tell no cost although there is a budget, once somebody was told.
    unheld: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Take in what an earlier run spent beside its sessions; the journal knows the rest."""
        if self.beside is not None and self.max_cost_usd is not None:
            entries = (self.journal.entry(key) for key in self.journal)
            self.beside_usd = sum(self._beside(self.journal.read(entry)) for entry in entries if entry)

    def _beside(self, result: TrialResult) -> float:
        return 0.0 if self.beside is None else self.beside(result).cost_usd or 0.0

    def emit(self, event: RunEvent, files: Mapping[str, str] | None = None) -> None:
        """Tell everybody; the journal first, with the hashes of a trial's *files*: nothing shown can be lost."""
        if isinstance(event, TrialEnded):
            self.journal.append(event.result, files)
            self.beside_usd += self._beside(event.result)
        self.reporters(event)
        if isinstance(event, TrialEnded):
            self._tell_unheld(event)

    def _tell_unheld(self, event: TrialEnded) -> None:
        """Say once for each runner that a budget was not held."""
        runner = event.trial.key.runner
        if runner not in self.unheld and any(note.startswith(UNHELD) for note in event.result.notes):
            self.unheld.add(runner)
            told = f"what {event.trial.key.case} cost on {runner} is not known, and its budget was not held (told once)"
            self.emit(Notice(level="warning", message=told))

    def interrupt(self) -> None:
        """Somebody wants it to end."""
        self.interrupted = True

    def afford(self) -> bool:
        """Whether another trial may be started; the first time that it may not, everybody is told."""
        own = (self.journal.usage + self.spent.usage).cost_usd
        spent = (own or 0.0) + self.beside_usd
        if self.max_cost_usd is None or (own is None and not self.beside_usd) or spent < self.max_cost_usd:
            return True
        if not self.stopped:
            self.stopped = True
            told = f"${spent:.6g} of at most ${self.max_cost_usd:g} are spent: no further trial is started"
            self.emit(Notice(level="warning", message=told))
        return False

    def pending(self) -> Iterator[Trial]:
        """The trials that have not ended yet."""
        return (trial for trial in self.plan.trials() if not self.journal.is_done(trial.key))


_INTERRUPTED = 130
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def _heard() -> tuple[signal.Signals, ...]:
    """Those that whoever started us did not ask to be ignored, as `nohup` does."""
    return tuple(number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN)


@contextmanager
def interruptible() -> Iterator[None]:
    """Take every ending signal for Ctrl-C while nothing runs yet, so that what was begun is cleared away."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in _heard()}
    try:
        yield
    finally:
        for number, handler in before.items():
            # Where they are let pass, a run has ended, and nothing is left to do but to leave with its exit code.
            if signal.getsignal(number) is not _let_pass:
                signal.signal(number, handler)


async def watch_signals(trials: anyio.CancelScope, interrupted: Callable[[], object]) -> None:
    """Cancel *trials* at the first signal, and end ourselves at the second; runs until it is cancelled.

    From then on signals are let pass: what follows is over soon, and is how the record comes to its end.
    """
    heard = _heard()
    try:
        with anyio.open_signal_receiver(*heard) as signals:
            try:
                async for number in signals:
                    if not trials.cancel_called:
                        interrupted()
                        trials.cancel()
                    # A terminal that closes says so several times: once by itself, and once by the shell in it.
                    elif number != signal.SIGHUP:
                        # Cancelling takes as long as agents take to tidy up; whoever asks again does not want to wait.
                        # Everything that runs is below a warden, which ends it at once when we are no more.
                        os._exit(_INTERRUPTED)
            finally:
                # The receiver leaves the default behind, which is death.
                signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    finally:
        for each in heard:
            signal.signal(each, _let_pass)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)


def _let_pass(*_: object) -> None:
    """Not SIG_IGN, which whatever we start would inherit."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """A moment that signals do not cut short, such as the writing of results; it is over soon anyway."""
    before = {number: signal.signal(number, _let_pass) for number in _heard()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# What whet holds open itself, and the most that a trial takes: pipes, transcripts, a worker, folders being walked.
_OWN = 32
_PER_TRIAL = 16


def fit_open_files(plan: Plan) -> tuple[Plan, str | None]:
    """The plan as the limit of open files can carry it, and a sentence where that is less than was asked.

    The limit is raised no further than needed: agents inherit it, and some close every descriptor that it allows.
    """
    at_once = min(plan.max_parallel, plan.trial_count)
    needed = _OWN + _PER_TRIAL * at_once
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return plan, None
    if hard == resource.RLIM_INFINITY or hard >= needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        return plan, None
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    fits = max(1, (hard - _OWN) // _PER_TRIAL)
    said = f"{fits} at a time instead of {at_once}: no more than {hard} files may be open (ulimit -Hn)"
    return replace(plan, max_parallel=fits), said


Work = Callable[[Trial], Awaitable[None]]


async def run_all(plan: Plan, pending: Iterable[Trial], work: Work) -> None:
    """Do *work* on every trial of *pending*, as the plan's schedule says."""
    match plan.schedule:
        case "serial":
            await _lane(iter(pending), work)
        case "parallel":
            # Lanes that take from one iterator: nothing waits in memory, and trials start in declared order.
            trials = iter(pending)
            async with anyio.create_task_group() as group:
                for _ in range(min(plan.max_parallel, plan.trial_count)):
                    group.start_soon(_lane, trials, work)
        case "isolated-by-runner":
            await _by_runner(plan, list(pending), work)
        case _:
            assert_never(plan.schedule)


async def _by_runner(plan: Plan, pending: list[Trial], work: Work) -> None:
    lanes: dict[str, list[Trial]] = {}
    for trial in pending:
        lanes.setdefault(trial.key.runner, []).append(trial)
    limiter = anyio.CapacityLimiter(plan.max_parallel)

    async def lane(trials: list[Trial]) -> None:
        async with limiter:
            await _lane(iter(trials), work)

    async with anyio.create_task_group() as group:
        for trials in lanes.values():
            group.start_soon(lane, trials)


async def _lane(trials: Iterator[Trial], work: Work) -> None:
    for trial in trials:
        await work(trial)
