"""The order in which trials run: one at a time, several at once, or one at a time for each runner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import assert_never

import anyio

from whet.model.run import Plan, Trial

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
