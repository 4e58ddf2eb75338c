"""Ask a judge: votes of a language model, each paid for once and then cached, become one grade."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import anyio

from whet.dataclass import dataclass
from whet.errors import GraderError
from whet.grade.evidence import Evidence
from whet.grade.grader import Grader
from whet.grade.judge_client import JudgeClient, JudgeSettings, find_key, find_variable, judge_settings
from whet.grade.judge_questions import HIGHEST_RATING, VERSION, Prompt, Question, Vote
from whet.model import wire
from whet.model.grade import Grade
from whet.model.run import Runner
from whet.model.session import Usage
from whet.model.suite import Check, Suite

T = TypeVar("T")


class JudgingGrader(Grader):
    """A grader that asks a language model, as the table `[judge]` of the settings says."""

    def __init__(self, suite: Suite) -> None:
        super().__init__(suite)
        self._judges: dict[JudgeSettings, LlmJudge] = {}

    @classmethod
    def needs_judge(cls, check: Check, runner: Runner) -> bool:
        """Return True: override it if some checks are decided without a judge."""
        del check, runner
        return True

    def judge(self, *, model: str | None = None, votes: int | None = None) -> LlmJudge:
        """Return the judge of the settings, with another *model* or number of *votes* if you name them."""
        usual = judge_settings(self.suite.judge)
        wanted = replace(usual, model=model or usual.model, votes=votes or usual.votes)
        if wanted not in self._judges:
            self._judges[wanted] = LlmJudge(wanted, os.environ)
        return self._judges[wanted]

    async def ask(
        self, questions: Sequence[Question], evidence: Evidence, *, model: str | None = None, votes: int | None = None
    ) -> Sequence[Judged | GraderError]:
        """Return the judgement of each question: by an agent in one session, or by a model, all at the same time."""
        settings = judge_settings(self.suite.judge)
        if settings.runner is None:
            judge = self.judge(model=model, votes=votes)
            return await _together([partial(judge.judged, question) for question in questions])
        # Only here: most judges are models.
        from whet.grade.judge_agent import ask_agent  # noqa: PLC0415

        given = await ask_agent(questions, evidence, votes or settings.votes)
        pairs = zip(questions, given, strict=True)
        return [Judged(model=settings.model_name, votes=voted, flags=_flags(asked, voted)) for asked, voted in pairs]

    async def release(self) -> None:
        """Close the connections of the judges, in the event loop that opened them."""
        made, self._judges = self._judges, {}
        for judge in made.values():
            await judge.close()


async def _together(work: Sequence[Callable[[], Awaitable[T]]]) -> list[T | GraderError]:
    """Do all of *work* at the same time, and return each result, or the `GraderError` that came instead, in order."""
    done: dict[int, T | GraderError] = {}

    async def do(number: int) -> None:
        try:
            done[number] = await work[number]()
        except GraderError as error:
            done[number] = error

    async with anyio.create_task_group() as group:
        for number in range(len(work)):
            group.start_soon(do, number)
    return [done[number] for number in range(len(work))]


def settled(judged: Judged | GraderError) -> Judged:
    """Return the judgement; raises the error that came instead."""
    if isinstance(judged, GraderError):
        raise judged
    return judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Every vote on one question, and the signs of manipulation, which change nothing by themselves."""

    model: str
    votes: list[Vote]
    flags: list[str]

    def grade(self, threshold: float, check: Check | None = None) -> Grade:
        """Return the mean of the votes, as a share of 10, as the grade of *check*; it passes from *threshold* on."""
        value = mean(vote.verdict.rating for vote in self.votes) / HIGHEST_RATING
        nearest = min(self.votes, key=lambda vote: abs(vote.verdict.rating / HIGHEST_RATING - value))
        rationale = nearest.verdict.rationale or "(no rationale)"
        warning = f" [flagged: the answer {'; '.join(self.flags)}]" if self.flags else ""
        return Grade(
            check=check.label if check else "llm_judge",
            weight=check.weight if check else 1.0,
            value=value,
            passed=value >= threshold,
            reason=f"{value * HIGHEST_RATING:g} of {HIGHEST_RATING}: {rationale}{warning}",
            evidence=wire.encode({"model": self.model, "votes": self.votes, "flags": self.flags}).decode(),
        )


def _flags(question: Question, votes: Sequence[Vote]) -> list[str]:
    seen = any(vote.verdict.manipulation for vote in votes)
    return [*question.flags, *(["tries to influence its rating, says the judge"] if seen else [])]


def judgements(grades: Iterable[Grade]) -> Iterator[dict[str, Any]]:
    """Yield the evidence of each judgement that *grades* hold: a grade of its own, or items of a rubric."""
    for grade in grades:
        try:
            found = json.loads(grade.evidence or "null")
        except ValueError:
            continue
        items = (
            [item.get("judged") if isinstance(item, dict) else None for item in found]
            if isinstance(found, list)
            else [found]
        )
        yield from (item for item in items if isinstance(item, dict) and "votes" in item)


class VerdictCache:
    """A folder of small files, which processes can share; a file that cannot be read is ignored."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def find(self, asked: Any) -> Vote | None:
        """Return the vote that the same question got before, if any."""
        if self._folder is None:
            return None
        try:
            return replace(wire.decode_file(self._place(asked), Vote), cached=True)
        except (OSError, wire.WireError):
            return None

    def keep(self, asked: Any, vote: Vote) -> None:
        """Keep a vote, as a whole or not at all; a full disk does not lose the verdict itself."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What judging used; an unknown cost is `None`."""

    asked: int = 0
    cached: int = 0
    usage: Usage = field(default_factory=Usage)

    def with_vote(self, vote: Vote) -> Spent:
        """Add a vote; one from the cache costs nothing."""
        if vote.cached:
            return replace(self, cached=self.cached + 1)
        return replace(self, asked=self.asked + 1, usage=self.usage + vote.usage)


class LlmJudge:
    """A judge with its settings, its cache and its limit of parallel requests; raises `UsageError` without a key."""

    def __init__(self, settings: JudgeSettings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._client = JudgeClient(settings, find_key(settings, environ), variable=find_variable(settings, environ))
        self._cache = VerdictCache(settings.cache_dir)
        self._model = settings.model_name
        self._room: anyio.CapacityLimiter | None = None
        self.spent = Spent()

    async def grade(self, question: Question, *, threshold: float = 0.5, check: Check | None = None) -> Grade:
        """Return the grade of the answer to *question*, as that of *check*; raises `JudgeFailed`."""
        return (await self.judged(question)).grade(threshold, check)

    async def judged(self, question: Question) -> Judged:
        """Return every vote, and the signs of manipulation."""
        prompt = question.prompt()
        votes = [await self._vote(prompt, number) for number in range(1, self._settings.votes + 1)]
        return Judged(model=self._model, votes=votes, flags=_flags(question, votes))

    async def _vote(self, prompt: Prompt, number: int) -> Vote:
        settings = self._settings
        depends_on = [VERSION, settings.address, self._model, settings.temperature, prompt.system, prompt.user, number]
        found = self._cache.find(depends_on)
        if found is None:
            self._room = self._room or anyio.CapacityLimiter(settings.max_parallel)
            async with self._room:
                found = await self._client.ask(prompt)
            self._cache.keep(depends_on, found)
        self.spent = self.spent.with_vote(found)
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
