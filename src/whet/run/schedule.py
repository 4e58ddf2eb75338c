"""Execute: run the trials of a plan as its schedule says, and end them cleanly when a signal comes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.to_thread

from whet.errors import RecordUnwritten, WhetError
from whet.ground.copying import remove_tree
from whet.model.event import TrialEnded, TrialStarted
from whet.model.run import Plan, Trial, TrialResult
from whet.record.journal import FREE_SPACE
from whet.record.sealing import Sealing
from whet.run.ground import keep_shared
from whet.run.homes import trial_folder
from whet.run.parts import RunParts
from whet.run.refused import Refused
from whet.run.run_state import INTERRUPTED, Lanes, RunState
from whet.run.trial import not_started

RunTrial: TypeAlias = Callable[[RunParts, Trial], Awaitable[TrialResult]]
_Work: TypeAlias = Callable[[Trial], Awaitable[None]]
# A run, and what its attempts need.
Job: TypeAlias = tuple[RunState, RunParts]
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


async def execute(
    jobs: Sequence[Job],
    run_trial: RunTrial,
    around: Callable[[RunState, RunParts], AbstractAsyncContextManager[object]] = lambda *_: nullcontext(),
) -> None:
    """Run every trial that has no result yet; a signal ends those under way and loses none that ended."""

    def interrupt() -> None:
        for state, _ in jobs:
            state.interrupt()

    try:
        # Outside of what a signal cancels, so that connections are closed in peace.
        async with AsyncExitStack() as stack, anyio.create_task_group() as group:
            for state, parts in jobs:
                await stack.enter_async_context(around(state, parts))
            with anyio.CancelScope() as trials:
                group.start_soon(watch_signals, trials, interrupt)
                refused = Refused()
                todo = [(state, partial(_work, state, parts, run_trial, refused)) for state, parts in jobs]
                # Several suites have no rounds in common.
                await (_run_rounds(*todo[0]) if todo[0][0].looking else _run_jobs(todo))
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            for state, parts in jobs:
                await _close(state, parts)


async def _work(state: RunState, parts: RunParts, run_trial: RunTrial, refused: Refused, trial: Trial) -> None:
    """Bring one trial to its result, unless the money is spent; one that cannot work is not started."""
    if not state.afford():
        return
    if state.resumed:
        _clear_remains(parts, trial)
    async with parts.gateways.admitted(trial):
        state.emit(TrialStarted(trial=trial))
        why_not = refused.why_not(parts.suite, trial)
        result = await (run_trial(parts, trial) if why_not is None else not_started(parts, trial, why_not))
    parts.shared.went_wrong |= not result.passed
    state.emit(TrialEnded(trial=trial, result=result), await _hash_files(parts.run_dir, result))
    if message := refused.note(parts.suite, trial, result.failure):
        state.notice(message)


async def _run_rounds(state: RunState, work: _Work) -> None:
    """Run round after round, until a look stops the run or a round cannot be completed."""
    assert state.looking is not None
    for number in range(1, state.looking.until.rounds + 1):
        whole = sum(1 for _ in state.pending(number)) == len(state.plan.executions)
        # Half a round decides nothing. So none begins that the rest of the money will not pay for.
        if whole and number > 1 and not state.afford(ahead=1 / (number - 1)):
            return
        await _run_jobs([(state, work)], number)
        if not state.looking.is_complete(number) or state.journal.rounds.stop:
            break
    if stop := state.journal.rounds.stop:
        # What would have come after that was never due.
        state.plan = state.plan.ended_after(stop.round)


async def _run_jobs(jobs: Sequence[tuple[RunState, _Work]], number: int | None = None) -> None:
    """Run the jobs, or one round of them, in their order; jobs whose trials may run side by side do so too."""
    for parallel, together in groupby(jobs, key=lambda job: job[0].plan.schedule == "parallel"):
        if parallel:
            # Lanes take from one iterator: nothing waits in memory, and trials start in declared order.
            chosen = list(together)
            waiting = ((work, trial) for state, work in chosen for trial in state.pending(number))
            at_once = max(min(state.plan.max_parallel, state.plan.trial_count) for state, _ in chosen)
            async with anyio.create_task_group() as group:
                lanes = Lanes(partial(group.start_soon, _lane, waiting))
                for state, _ in chosen:
                    state.lanes = lanes
                lanes.widen(at_once)
            for state, _ in chosen:
                state.lanes = None
        else:
            for state, work in together:
                await _run_all(state.plan, state.pending(number), work)


async def _close(state: RunState, parts: RunParts) -> None:
    """Release the graders and the sandbox, and keep the shared workspace if a trial in it went wrong."""
    for grader in parts.graders.values():
        await grader.release()
    await parts.gateways.close()
    if parts.housing is not None:
        await parts.housing.settle()
    await parts.sandbox.close()
    for message in await keep_shared(parts):
        state.notice(message, "info")
    parts.workspaces.close()


def _clear_remains(parts: RunParts, trial: Trial) -> None:
    """Remove what a trial that never ended left in the record; it starts anew."""
    for part in ("trials", "workspaces"):
        remove_tree(parts.run_dir / part / trial_folder(trial.key))


async def _hash_files(run_dir: Path, result: TrialResult) -> dict[str, str]:
    """Return the hashes of the files that a trial left in the record."""
    try:
        sealing = Sealing(run_dir, result)
        if sealing.light:
            files = sealing.hashes()
        else:
            # A trial that has ended is recorded, even if a signal comes meanwhile.
            with anyio.CancelScope(shield=True):
                files = await anyio.to_thread.run_sync(sealing.hashes)
    except OSError as error:
        raise RecordUnwritten(f"what {result.key} left cannot be recorded: {error}", hint=FREE_SPACE) from error
    return files


async def _run_all(plan: Plan, pending: Iterable[Trial], work: _Work) -> None:
    """Do *work* on every trial of *pending*, one after the other as a whole or on each runner."""
    if plan.schedule == "isolated-by-runner":
        await _by_runner(plan, list(pending), work)
    else:
        await _lane((work, trial) for trial in pending)


async def _by_runner(plan: Plan, pending: list[Trial], work: _Work) -> None:
    lanes: dict[str, list[Trial]] = {}
    for trial in pending:
        lanes.setdefault(trial.key.runner, []).append(trial)
    limiter = anyio.CapacityLimiter(plan.max_parallel)

    async def lane(trials: list[Trial]) -> None:
        async with limiter:
            await _lane((work, trial) for trial in trials)

    async with anyio.create_task_group() as group:
        for trials in lanes.values():
            group.start_soon(lane, trials)


async def _lane(waiting: Iterator[tuple[_Work, Trial]]) -> None:
    for work, trial in waiting:
        await work(trial)


@contextmanager
def interruptible() -> Iterator[None]:
    """Treat every ending signal as Ctrl-C until trials run, so that what was begun is cleaned up."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in _heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            # If signals are ignored by now, the run has ended: nothing is left to do but to exit with its code.
            if signal.getsignal(number) is not _ignore:
                signal.signal(number, handler)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop; a signal waits meanwhile, because half a loop complains when it is thrown away."""
    came: list[int] = []
    # Not by blocking them: another thread would take them, and they would come here all the same.
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _heeded()}
    try:
        loop = asyncio.new_event_loop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        loop.close()
        raise KeyboardInterrupt
    return loop


# For `anyio.run`.
LOOP: dict[str, Any] = {"loop_factory": _new_loop}


async def watch_signals(trials: anyio.CancelScope, interrupt: Callable[[], object]) -> None:
    """Cancel *trials* at the first signal, and exit at the second; runs until it is cancelled.

    Ignores signals from then on: what follows is short, and completes the record.
    """
    heeded = _heeded()
    try:
        with anyio.open_signal_receiver(*heeded) as signals:
            try:
                async for number in signals:
                    if not trials.cancel_called:
                        interrupt()
                        trials.cancel()
                    # A closing terminal sends SIGHUP several times: once by itself, and once by the shell in it.
                    elif number != signal.SIGHUP:
                        # Cancelling waits for agents to tidy up; a second signal means that you do not want to wait.
                        # Everything that runs is below a warden, which ends it as soon as this process is gone.
                        os._exit(INTERRUPTED)
            finally:
                # The receiver restores the default handler, which would end the process.
                signal.pthread_sigmask(signal.SIG_BLOCK, heeded)
    finally:
        for each in heeded:
            signal.signal(each, _ignore)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heeded)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore signals for a short while, such as the writing of results."""
    before = {number: signal.signal(number, _ignore) for number in _heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _heeded() -> tuple[signal.Signals, ...]:
    """Return the ending signals, without those that are ignored from the start, as with `nohup`."""
    return tuple(number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN)


def _ignore(*_: object) -> None:
    """Do nothing; unlike SIG_IGN, child processes do not inherit it."""


@contextmanager
def single_errors() -> Iterator[None]:
    """Unwrap a single WhetError from a task group."""
    try:
        yield
    except BaseExceptionGroup as group:
        found: BaseException = group.subgroup(WhetError) or group
        while isinstance(found, BaseExceptionGroup) and len(found.exceptions) > 0:
            found = found.exceptions[0]
        raise found from None
