"""Execute: run the trials of a plan as its schedule says, and end them cleanly when a signal comes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread

from whet import exit_codes
from whet.errors import RecordUnwritten, WhetError
from whet.model.run import Plan, Trial, TrialResult
from whet.model.run_events import TrialEnded, TrialStarted
from whet.record.file_hashes import FileHashes
from whet.record.journal.journal import FREE_SPACE
from whet.run._refused import Refusals
from whet.run.attempt.folders import keep_shared
from whet.run.attempt.trial import not_started
from whet.run.context import RunContext
from whet.run.state import RunState, TrialSlots
from whet.workspace.copy import remove_tree

RunTrial: TypeAlias = Callable[[RunContext, Trial], Awaitable[TrialResult]]
After: TypeAlias = Callable[[RunState, RunContext], Awaitable[None]]
_Work: TypeAlias = Callable[[Trial], Awaitable[None]]
# A run, and what its attempts need.
Job: TypeAlias = tuple[RunState, RunContext]
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


async def nothing_after(_: RunState, __: RunContext) -> None:
    """Do nothing once the trials have ended."""


async def execute(
    jobs: Sequence[Job],
    run_trial: RunTrial,
    around: Callable[[RunState, RunContext], AbstractAsyncContextManager[object]] = lambda *_: nullcontext(),
    early: Sequence[Callable[[], object]] = (),
    after: After = nothing_after,
) -> None:
    """Run every trial that has no result yet; a signal ends those under way and loses none that ended.

    *early* is done while the first trials wait for their agents, and *after* for each run once all trials have ended.
    """

    def interrupt() -> None:
        for state, _ in jobs:
            state.interrupt()

    try:
        # Outside of what a signal cancels, so that connections are closed in peace.
        async with AsyncExitStack() as stack, anyio.create_task_group() as group:
            for state, context in jobs:
                await stack.enter_async_context(around(state, context))
            with anyio.CancelScope() as trials:
                group.start_soon(watch_signals, trials, interrupt)
                group.start_soon(_do_early, early)
                refusals = Refusals()
                todo = [(state, partial(_work, state, context, run_trial, refusals)) for state, context in jobs]
                # Several suites have no rounds in common.
                await (_run_rounds(*todo[0]) if todo[0][0].interim_analysis else _run_jobs(todo))
                for state, context in jobs:
                    await after(state, context)
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            for state, context in jobs:
                await _close(state, context)


async def _do_early(early: Sequence[Callable[[], object]]) -> None:
    for work in early:
        # Trials go first, whenever they have something to do.
        await anyio.lowlevel.checkpoint()
        work()


async def _work(state: RunState, context: RunContext, run_trial: RunTrial, refusals: Refusals, trial: Trial) -> None:
    """Bring one trial to its result, unless the run is to end; one that cannot work is not started."""
    if not state.may_start():
        return
    if state.resumed:
        _clear_remains(context, trial)
    async with context.gateways.admitted(trial):
        state.emit(TrialStarted(trial=trial))
        why_not = refusals.why_not(context.suite, trial)
        result = await (run_trial(context, trial) if why_not is None else not_started(context, trial, why_not))
    context.shared.went_wrong |= not result.passed
    state.emit(TrialEnded(trial=trial, result=result), await _hash_files(context.run_dir, result))
    if not result.passed:
        state.note_failure(trial.key)
    if message := refusals.note(context.suite, trial, result.failure):
        state.notice(message)


async def _run_rounds(state: RunState, work: _Work) -> None:
    """Run round after round, until an interim analysis stops the run or a round cannot be completed."""
    assert state.interim_analysis is not None
    for number in range(1, state.interim_analysis.until.rounds + 1):
        is_untouched = sum(1 for _ in state.pending(number)) == len(state.plan.executions)
        # Half a round decides nothing. So none begins that the rest of the money will not pay for.
        if is_untouched and number > 1 and not state.afford(ahead=1 / (number - 1)):
            return
        await _run_jobs([(state, work)], number)
        if not state.interim_analysis.is_complete(number) or state.journal.rounds.stop:
            break
    if stop := state.journal.rounds.stop:
        state.end_after(stop.round)


async def _run_jobs(jobs: Sequence[tuple[RunState, _Work]], number: int | None = None) -> None:
    """Run the jobs, or one round of them, in their order; jobs whose trials may run side by side do so too."""
    for parallel, together in groupby(jobs, key=lambda job: job[0].plan.schedule == "parallel"):
        if parallel:
            # Workers take from one iterator: nothing waits in memory, and trials start in declared order.
            batch = list(together)
            waiting = ((work, trial) for state, work in batch for trial in state.pending(number))
            at_once = max(min(state.plan.max_parallel, state.plan.trial_count) for state, _ in batch)
            with ExitStack() as running:
                async with anyio.create_task_group() as group:
                    slots = TrialSlots(partial(group.start_soon, _fill_slot, waiting))
                    for state, _ in batch:
                        running.enter_context(state.side_by_side(slots))
                    slots.widen(at_once)
        else:
            for state, work in together:
                await _run_all(state.plan, state.pending(number), work)


async def _close(state: RunState, context: RunContext) -> None:
    """Release the graders and the sandbox, and keep the shared workspace if a trial in it went wrong."""
    await context.release()
    for message in await keep_shared(context):
        state.notice(message, "info")
    context.workspaces.close()


def _clear_remains(context: RunContext, trial: Trial) -> None:
    """Remove what a trial that never ended left in the record; it starts anew."""
    for part in ("trials", "workspaces"):
        remove_tree(context.run_dir / part / trial.key.folder)


async def _hash_files(run_dir: Path, result: TrialResult) -> dict[str, str]:
    """Return the hashes of the files that a trial left in the record."""
    try:
        file_hashes = FileHashes(run_dir, result)
        if file_hashes.light:
            files = file_hashes.hashes()
        else:
            # A trial that has ended is recorded, even if a signal comes meanwhile.
            with anyio.CancelScope(shield=True):
                files = await anyio.to_thread.run_sync(file_hashes.hashes)
    except OSError as error:
        raise RecordUnwritten(f"what {result.key} left cannot be recorded: {error}", hint=FREE_SPACE) from error
    return files


async def _run_all(plan: Plan, pending: Iterable[Trial], work: _Work) -> None:
    """Do *work* on every trial of *pending*, one after the other as a whole or on each runner."""
    if plan.schedule == "isolated-by-runner":
        await _by_runner(plan, list(pending), work)
    else:
        await _fill_slot((work, trial) for trial in pending)


async def _by_runner(plan: Plan, pending: list[Trial], work: _Work) -> None:
    trials_by_runner: dict[str, list[Trial]] = {}
    for trial in pending:
        trials_by_runner.setdefault(trial.key.runner, []).append(trial)
    limiter = anyio.CapacityLimiter(plan.max_parallel)

    async def run_in_turn(trials: list[Trial]) -> None:
        async with limiter:
            await _fill_slot((work, trial) for trial in trials)

    async with anyio.create_task_group() as group:
        for trials in trials_by_runner.values():
            group.start_soon(run_in_turn, trials)


async def _fill_slot(waiting: Iterator[tuple[_Work, Trial]]) -> None:
    for work, trial in waiting:
        await work(trial)


@contextmanager
def interruptible() -> Iterator[None]:
    """Treat every ending signal as Ctrl-C until trials run, so that what was begun is cleaned up."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in _ending_signals()}
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
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _ending_signals()}
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
    signal_numbers = _ending_signals()
    try:
        with anyio.open_signal_receiver(*signal_numbers) as signals:
            try:
                async for number in signals:
                    if not trials.cancel_called:
                        interrupt()
                        trials.cancel()
                    # A closing terminal sends SIGHUP several times: once by itself, and once by the shell in it.
                    elif number != signal.SIGHUP:
                        # Cancelling waits for agents to tidy up; a second signal means that you do not want to wait.
                        # Everything that runs is below a supervisor, which ends it as soon as this process is gone.
                        os._exit(exit_codes.INTERRUPTED)
            finally:
                # The receiver restores the default handler, which would end the process.
                signal.pthread_sigmask(signal.SIG_BLOCK, signal_numbers)
    finally:
        for signal_number in signal_numbers:
            signal.signal(signal_number, _ignore)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal_numbers)


@contextmanager
def ignore_signals() -> Iterator[None]:
    """Ignore signals for a short while, such as the writing of results."""
    before = {number: signal.signal(number, _ignore) for number in _ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ending_signals() -> tuple[signal.Signals, ...]:
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
        error: BaseException = group.subgroup(WhetError) or group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) > 0:
            error = error.exceptions[0]
        raise error from None
