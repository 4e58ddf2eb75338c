"""Evaluators behind a hard time limit: a pattern may take for ever, and Python cannot be asked to stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whet import wire
from whet.errors import CheckerDied, CheckTimedOut, GraderError
from whet.grade.evaluate.plain import PLAIN
from whet.model.benchmark import Evaluator, Expected
from whet.model.grade import Grade
from whet.sandbox.workers import Printed, WorkerDied, WorkerHung, Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    output: Any
    patterns: tuple[str, ...]
    evaluator: Evaluator


class LimitedRegex:
    """Searches in worker processes that are killed when time is up; to be made before the event loop starts."""

    def __init__(self) -> None:
        self._workers = Workers.fork(_serve)

    async def evaluate(self, output: Any, expected: Expected, evaluator: Evaluator, *, timeout_s: float) -> Grade:
        """The grade; a `GraderError` where there is none in time."""
        request = wire.encode(_Request(output=output, patterns=expected.patterns, evaluator=evaluator))
        try:
            answer = await self._workers.call(request, timeout_s=timeout_s)
        except WorkerHung:
            raise CheckTimedOut(
                f"no pattern was found or ruled out within {timeout_s:g} s",
                hint="nested repetitions such as (a+)+ take for ever; write the pattern without them",
            ) from None
        except WorkerDied:
            raise CheckerDied("the process that searched for patterns ended") from None
        try:
            return wire.decode(answer, Grade)
        except wire.WireError as error:
            raise GraderError(f"the search for patterns failed: {answer.decode(errors='replace')}") from error

    def close(self) -> None:
        """End the workers."""
        self._workers.close()


def _serve(request: bytes, printed: Printed) -> bytes:
    del printed
    asked = wire.decode(request, _Request)
    try:
        return wire.encode(PLAIN["regex"](asked.output, Expected(patterns=asked.patterns), asked.evaluator))
    except Exception as error:  # noqa: BLE001 - told to whoever asked
        return wire.encode(f"{type(error).__name__}: {error}")
