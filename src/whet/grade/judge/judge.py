"""Ask a judge: votes of a language model, each paid for once and then cached, become one grade."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from whet.errors import GraderError
from whet.grade.contract import Grader
from whet.grade.evidence import Evidence
from whet.grade.judge._agent import ask_agent
from whet.grade.judge.client import JudgeClient
from whet.grade.judge.identity import answer_id, facts_of, statement_id
from whet.grade.judge.questions import HIGHEST_RATING, VERSION, ModelPrompt, Question, Vote
from whet.grade.judge_settings import JudgeSettings, find_key, find_variable, judge_settings, with_usual_model
from whet.model import codec
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
        settings = replace(usual, model=model or usual.model, votes=votes or usual.votes)
        if settings not in self._judges:
            self._judges[settings] = LlmJudge(settings, os.environ)
        return self._judges[settings]

    async def ask(
        self, questions: Sequence[Question], evidence: Evidence, *, model: str | None = None, votes: int | None = None
    ) -> Sequence[Judgement | GraderError]:
        """Return the judgement of each question: by an agent in one session, or by a model, all at the same time."""
        settings = judge_settings(self.suite.judge)
        if settings.runner is None:
            judge = self.judge(model=model, votes=votes)
            return await _run_concurrently([partial(judge.collect_votes, question) for question in questions])

        ballots = await ask_agent(questions, evidence, votes or settings.votes)
        pairs = zip(questions, ballots, strict=True)
        return [Judgement.of(settings, ballot_question, ballot) for ballot_question, ballot in pairs]

    async def release(self) -> None:
        """Close the connections of the judges, in the event loop that opened them."""
        judges, self._judges = self._judges, {}
        for judge in judges.values():
            await judge.close()


async def _run_concurrently(work: Sequence[Callable[[], Awaitable[T]]]) -> list[T | GraderError]:
    """Do all of *work* at the same time, and return each result, or the `GraderError` that came instead, in order."""
    results: dict[int, T | GraderError] = {}

    async def do(number: int) -> None:
        try:
            results[number] = await work[number]()
        except GraderError as error:
            results[number] = error

    async with anyio.create_task_group() as group:
        for number in range(len(work)):
            group.start_soon(do, number)
    return [results[number] for number in range(len(work))]


def require_judgement(result: Judgement | GraderError) -> Judgement:
    """Return the judgement; raises the error that came instead."""
    if isinstance(result, GraderError):
        raise result
    return result


class Judgement(Struct, frozen=True, kw_only=True):
    """Every vote on one question, and the signs of manipulation, which change nothing by themselves."""

    judge: JudgeSettings
    votes: list[Vote]
    flags: list[str]
    statement_id: str
    answer_id: str
    # What is stated of the answer.
    statement: str

    @classmethod
    def of(cls, judge: JudgeSettings, question: Question, votes: list[Vote]) -> Judgement:
        """Return what *votes* say on *question*."""
        return cls(
            judge=judge,
            votes=votes,
            flags=_flags(question, votes),
            statement_id=statement_id(question),
            answer_id=answer_id(question),
            statement=question.criteria,
        )

    def grade(self, threshold: float, check: Check | None = None, *, majority: bool = False) -> Grade:
        """Return the mean of the votes, as a share of 10, as the grade of *check*; it passes from *threshold* on.

        With *majority*, each vote from *threshold* on is a yes, and more than half of them have to be.
        """
        ratings = [vote.verdict.rating / HIGHEST_RATING for vote in self.votes]
        yes = sum(rating >= threshold for rating in ratings)
        value = float(yes > len(ratings) / 2) if majority else mean(ratings)
        nearest = min(self.votes, key=lambda vote: abs(vote.verdict.rating / HIGHEST_RATING - value))
        rationale = nearest.verdict.rationale or "(no rationale)"
        figures = f"{yes} of {len(ratings)} votes" if majority else f"{value * HIGHEST_RATING:g} of {HIGHEST_RATING}"
        warning = f" [flagged: the answer {'; '.join(self.flags)}]" if self.flags else ""
        return Grade(
            check=check.label if check else "llm_judge",
            weight=check.weight if check else 1.0,
            value=value,
            passed=value >= threshold,
            reason=f"{figures}: {rationale}{warning}",
            evidence=codec.encode(self._document(threshold, majority=majority)).decode(),
        )

    def _document(self, threshold: float, *, majority: bool) -> dict[str, Any]:
        """Return the evidence: every vote, and who judged what, which labels of people are held against."""
        facts = facts_of(self.judge, len(self.votes), threshold=threshold, majority=majority)
        return {
            "model": self.judge.model_name,
            "votes": self.votes,
            "flags": self.flags,
            "statement": self.statement,
            "statement_id": self.statement_id,
            "answer_id": self.answer_id,
            "judge_id": facts.judge_id,
            "judge": facts,
        }


def _flags(question: Question, votes: Sequence[Vote]) -> list[str]:
    is_suspicious = any(vote.verdict.manipulation for vote in votes)
    return [*question.flags, *(["tries to influence its rating, says the judge"] if is_suspicious else [])]


def judgements(grades: Iterable[Grade]) -> Iterator[dict[str, Any]]:
    """Yield the evidence of each judgement that *grades* hold: a grade of its own, or items of a rubric."""
    for grade in grades:
        try:
            document = json.loads(grade.evidence or "null")
        except ValueError:
            continue
        entries = [document]
        if isinstance(document, list):
            entries = [item.get("judged") for item in document if isinstance(item, dict)]
        yield from (entry for entry in entries if isinstance(entry, dict) and "votes" in entry)


class VerdictCache:
    """A folder of small files, which processes can share; a file that cannot be read is ignored."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def find(self, key: Any) -> Vote | None:
        """Return the vote that the same question got before, if any."""
        if self._folder is None:
            return None
        try:
            return replace(codec.decode_file(self._place(key), Vote), cached=True)
        except (OSError, codec.WireError):
            return None

    def keep(self, key: Any, vote: Vote) -> None:
        """Keep a vote, as a whole or not at all; a full disk does not lose the verdict itself."""
        if self._folder is None:
            return
        place = self._place(key)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            # Not a name that another process would choose.
            draft = place.with_name(f"{place.name}.{os.getpid()}.tmp")
            draft.write_bytes(codec.encode(vote))
            draft.replace(place)
        except OSError:
            return

    def _place(self, key: Any) -> Path:
        assert self._folder is not None
        name = hashlib.sha256(codec.encode(key)).hexdigest()
        return self._folder / name[:2] / f"{name}.json"


class JudgeUsage(Struct, frozen=True, kw_only=True):
    """What judging used; an unknown cost is `None`."""

    asked: int = 0
    cached: int = 0
    usage: Usage = field(default_factory=Usage)

    def with_vote(self, vote: Vote) -> JudgeUsage:
        """Add a vote; one from the cache costs nothing."""
        if vote.cached:
            return replace(self, cached=self.cached + 1)
        return replace(self, asked=self.asked + 1, usage=self.usage + vote.usage)


class LlmJudge:
    """A judge with its settings, its cache and its limit of parallel requests; raises `UsageError` without a key."""

    def __init__(self, settings: JudgeSettings, environ: Mapping[str, str]) -> None:
        settings = self._settings = with_usual_model(settings, environ)
        self._client = JudgeClient(settings, find_key(settings, environ), variable=find_variable(settings, environ))
        self._cache = VerdictCache(settings.cache_dir)
        self._model = settings.model_name
        self._room: anyio.CapacityLimiter | None = None
        self.spent = JudgeUsage()

    async def grade(self, question: Question, *, threshold: float = 0.5, check: Check | None = None) -> Grade:
        """Return the grade of the answer to *question*, as that of *check*; raises `JudgeFailed`."""
        return (await self.collect_votes(question)).grade(threshold, check)

    async def collect_votes(self, question: Question) -> Judgement:
        """Return every vote, and the signs of manipulation."""
        prompt = question.prompt()
        votes = [await self._vote(prompt, number) for number in range(1, self._settings.votes + 1)]
        return Judgement.of(self._settings, question, votes)

    async def _vote(self, prompt: ModelPrompt, number: int) -> Vote:
        settings = self._settings
        depends_on = [VERSION, settings.address, self._model, settings.temperature, prompt.system, prompt.user, number]
        vote = self._cache.find(depends_on)
        if vote is None:
            self._room = self._room or anyio.CapacityLimiter(settings.max_parallel)
            async with self._room:
                vote = await self._client.ask(prompt)
            self._cache.keep(depends_on, vote)
        self.spent = self.spent.with_vote(vote)
        return vote

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
