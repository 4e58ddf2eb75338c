"""The chance of passing in k tries, from n tries of which c passed: estimators without bias."""

from __future__ import annotations

from collections.abc import Iterable
from math import comb

from whet.model.benchmark import PassK, Sample
from whet.score.grouping import by_task


def pass_at_k(n: int, c: int, k: int) -> float:
    """That at least one of k tries passes: 1 - C(n-c, k) / C(n, k)."""
    _check(n, c, k)
    return 1 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """That all of k tries pass: C(c, k) / C(n, k)."""
    _check(n, c, k)
    return comb(c, k) / comb(n, k)


def passes_of(samples: Iterable[Sample], k: int) -> PassK | None:
    """Both, as means over the tasks that have k counted tries; none where no task has."""
    tries = {task: [sample.status == "pass" for sample in found] for task, found in by_task(samples).items()}
    enough = {task: found for task, found in tries.items() if len(found) >= k}
    if not enough:
        return None
    return PassK(
        k=k,
        at=sum(pass_at_k(len(found), sum(found), k) for found in enough.values()) / len(enough),
        all=sum(pass_hat_k(len(found), sum(found), k) for found in enough.values()) / len(enough),
        tasks=len(enough),
        left_out=tuple(task for task in tries if task not in enough),
    )


def _check(n: int, c: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k must be between 1 and the number of tries, and {k} of {n} is not")
    if not 0 <= c <= n:
        raise ValueError(f"{c} of {n} cannot have passed")
