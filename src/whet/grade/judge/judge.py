"""The judge of a run: votes, cached and paid for once, become one grade."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

import anyio

from whet import wire
from whet.grade.judge.cache import VerdictCache
from whet.grade.judge.client import JudgeClient
from whet.grade.judge.prompt import VERSION, Question, question
from whet.grade.judge.settings import JudgeSettings, find_key
from whet.grade.judge.verdict import Vote
from whet.model.benchmark import BenchmarkTask
from whet.model.grade import Grade
from whet.model.session import Usage

_HIGHEST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What judging took, apart from what was judged; a cost that nobody knows is `None`."""

    asked: int = 0
    cached: int = 0
    usage: Usage = field(default_factory=Usage)


class LlmJudge:
    """To be made before anything runs: without a key there is no run."""

    def __init__(self, settings: JudgeSettings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._client = JudgeClient(settings, find_key(settings, environ))
        self._cache = VerdictCache(settings.cache_dir)
        self._model = settings.model_name
        self._room: anyio.CapacityLimiter | None = None
        self.spent = Spent()

    async def grade(self, task: BenchmarkTask, output: Any) -> Grade:
        """The mean of the votes, as a share of 10; signs of manipulation are told, and change nothing by themselves."""
        votes, flags = await self.votes(task, output)
        value = mean(vote.verdict.rating for vote in votes) / _HIGHEST
        nearest = min(votes, key=lambda vote: abs(vote.verdict.rating / _HIGHEST - value))
        warning = f" [flagged: the answer {'; '.join(flags)}]" if flags else ""
        return Grade(
            check="llm_judge",
            value=value,
            passed=value >= task.evaluator.threshold,
            reason=f"{value * _HIGHEST:g} of {_HIGHEST}: {nearest.verdict.rationale or '(no rationale)'}{warning}",
            evidence=wire.encode({"model": self._model, "votes": votes, "flags": flags}).decode(),
        )

    async def votes(self, task: BenchmarkTask, output: Any) -> tuple[list[Vote], list[str]]:
        """Every vote, and the signs of manipulation."""
        asked = question(task, output)
        votes = [await self._vote(asked, number) for number in range(1, self._settings.votes + 1)]
        return votes, _flags(asked, votes)

    async def _vote(self, asked: Question, number: int) -> Vote:
        settings = self._settings
        depends_on = [VERSION, settings.address, self._model, settings.temperature, asked.system, asked.user, number]
        found = self._cache.find(depends_on)
        if found is None:
            self._room = self._room or anyio.CapacityLimiter(settings.max_parallel)
            async with self._room:
                found = await self._client.ask(asked)
            self._cache.keep(depends_on, found)
        self.spent = _added(self.spent, found)
        return found

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()


def _flags(asked: Question, votes: list[Vote]) -> list[str]:
    seen = any(vote.verdict.manipulation for vote in votes)
    return [*asked.flags, *(["tries to influence its rating, says the judge"] if seen else [])]


def _added(spent: Spent, vote: Vote) -> Spent:
    if vote.cached:
        return replace(spent, cached=spent.cached + 1)
    before, now = spent.usage, vote.usage
    first = spent.asked == 0
    return Spent(
        asked=spent.asked + 1,
        cached=spent.cached,
        usage=Usage(
            input_tokens=_sum(before.input_tokens, now.input_tokens, first=first),
            output_tokens=_sum(before.output_tokens, now.output_tokens, first=first),
            cached_tokens=_sum(before.cached_tokens, now.cached_tokens, first=first),
            cost_usd=_sum(before.cost_usd, now.cost_usd, first=first),
            cost_source=now.cost_source,
        ),
    )


def _sum(before: Any, now: Any, *, first: bool) -> Any:
    """A sum of which a part is unknown is unknown."""
    if first:
        return now
    return None if before is None or now is None else before + now
