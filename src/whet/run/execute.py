"""Execute: run the trials of a plan as its schedule says, and end them cleanly when a signal comes."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias, assert_never

import anyio
import anyio.to_thread

from whet.errors import RecordUnwritten, WhetError
from whet.ground.copying import remove_tree
from whet.model.event import TrialEnded, TrialStarted
from whet.model.run import Plan, Trial, TrialResult
from whet.record.journal import FREE_SPACE
from whet.record.sealing import Sealing
from whet.run.ground import keep_shared
from whet.run.parts import RunParts, trial_folder
from whet.run.run_state import INTERRUPTED, RunState

RunTrial: TypeAlias = Callable[[RunParts, Trial], Awaitable[TrialResult]]
_Work: TypeAlias = Callable[[Trial], Awaitable[None]]
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


async def execute(
    state: RunState,
    parts: RunParts,
    run_trial: RunTrial,
    around: Callable[[RunParts], AbstractAsyncContextManager[object]],
) -> None:
    """Run every trial that has no result yet; a signal ends those under way and loses none that ended."""

    async def work(trial: Trial) -> None:
        if not state.afford():
            return
        if state.resumed:
            _clear_remains(parts, trial)
        state.emit(TrialStarted(trial=trial))
        result = await run_trial(parts, trial)
        parts.shared.went_wrong |= not result.passed
        state.emit(TrialEnded(trial=trial, result=result), await _hash_files(parts.run_dir, result))

    try:
        # Outside of what a signal cancels, so that connections are closed in peace.
        async with around(parts), anyio.create_task_group() as group:
            with anyio.CancelScope() as trials:
                group.start_soon(watch_signals, trials, state.interrupt)
                await _run_all(state.plan, state.pending(), work)
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _close(state, parts)


async def _close(state: RunState, parts: RunParts) -> None:
    """Release the graders and the sandbox, and keep the shared workspace if a trial in it went wrong."""
    for grader in parts.graders.values():
        await grader.release()
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
    """Do *work* on every trial of *pending*, as the plan's schedule says."""
    match plan.schedule:
        case "serial":
            await _lane(iter(pending), work)
        case "parallel":
            # Lanes take from one iterator: nothing waits in memory, and trials start in declared order.
            trials = iter(pending)
            async with anyio.create_task_group() as group:
                for _ in range(min(plan.max_parallel, plan.trial_count)):
                    group.start_soon(_lane, trials, work)
        case "isolated-by-runner":
            await _by_runner(plan, list(pending), work)
        case _:
            assert_never(plan.schedule)


async def _by_runner(plan: Plan, pending: list[Trial], work: _Work) -> None:
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


async def _lane(trials: Iterator[Trial], work: _Work) -> None:
    for trial in trials:
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
