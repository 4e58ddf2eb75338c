"""The judge of a run: votes, cached and paid for once, become one grade."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from statistics import mean
from typing import Any

import anyio

from whet.dataclass import dataclass
from whet.grade.judge_client import JudgeClient, JudgeSettings, find_key
from whet.grade.judge_questions import VERSION, Question, Vote, question
from whet.model import wire
from whet.model.benchmark import BenchmarkTask
from whet.model.grade import Grade
from whet.model.session import Usage


class VerdictCache:
    """A folder of small files; two processes may share one, and a file that cannot be read is none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def find(self, asked: Any) -> Vote | None:
        """The vote that was given to the same question before."""
        if self._folder is None:
            return None
        try:
            return replace(wire.decode(self._place(asked).read_bytes(), Vote), cached=True)
        except (OSError, wire.WireError):
            return None

    def keep(self, asked: Any, vote: Vote) -> None:
        """Keep a vote; it is there whole or not at all. A full disk is no reason to lose the verdict itself."""
        if self._folder is None:
            return
        place = self._place(asked)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            # Not a name that another process would choose.
            draft = place.with_name(f"{place.name}.{os.getpid()}.tmp")
            draft.write_bytes(wire.encode(vote))
            draft.replace(place)
        except OSError:
            return

    def _place(self, asked: Any) -> Path:
        assert self._folder is not None
        name = hashlib.sha256(wire.encode(asked)).hexdigest()
        return self._folder / name[:2] / f"{name}.json"


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
