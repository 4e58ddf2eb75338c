"""Who judged what: identities that labels of people are held against, so that what has changed since then shows."""

from __future__ import annotations

import hashlib

from msgspec import Struct
from msgspec.structs import asdict

from whet.grade.judge.pairs import VERSION as PAIRS_VERSION
from whet.grade.judge.questions import HIGHEST_RATING, VERSION, Question
from whet.grade.judge_settings import JudgeSettings
from whet.model import codec

_DIGITS = 16


class JudgeFacts(Struct, frozen=True, kw_only=True):
    """All of a judge that its verdicts depend on, but for what it is asked about."""

    provider: str
    model: str | None
    # The runner whose agent judges, instead of a model.
    runner: str | None
    votes: int
    temperature: float | None
    threshold: float
    majority: bool
    # The version of the texts around a question.
    questions: int = VERSION
    scale: int = HIGHEST_RATING

    @property
    def judge_id(self) -> str:
        """What identifies this judge: equal for equal facts."""
        return _digest(codec.encode(asdict(self)))


def facts_of(settings: JudgeSettings, votes: int, *, threshold: float, majority: bool) -> JudgeFacts:
    """Return the facts of the judge of *settings*, which gave so many *votes*."""
    by_agent = settings.runner is not None
    return JudgeFacts(
        provider="agent" if by_agent else settings.provider,
        model=settings.runner_model if by_agent else settings.model_name,
        runner=settings.runner,
        votes=votes,
        # An agent has its own.
        temperature=None if by_agent else settings.temperature,
        threshold=threshold,
        majority=majority,
    )


class PairsJudgeFacts(Struct, frozen=True, kw_only=True):
    """All of a judge that its choices between answers depend on."""

    provider: str
    model: str | None
    runner: str | None
    temperature: float | None
    questions: int = PAIRS_VERSION

    @property
    def judge_id(self) -> str:
        """What identifies this judge: equal for equal facts."""
        return _digest(codec.encode(asdict(self)))


def facts_of_pairs(settings: JudgeSettings) -> PairsJudgeFacts:
    """Return the facts of the judge of *settings* where it compares answers: it has one vote in each order."""
    facts = facts_of(settings, 1, threshold=0.0, majority=False)
    return PairsJudgeFacts(
        provider=facts.provider, model=facts.model, runner=facts.runner, temperature=facts.temperature
    )


def statement_id(question: Question) -> str:
    """Return what identifies the statement of *question*, with what its author says is right; its weight is not in."""
    return _digest(codec.encode([question.criteria, question.reference]))


def answer_id(question: Question) -> str:
    """Return what identifies the answer that was judged, with the changed files as the judge is shown them."""
    return _digest(question.answer.encode("utf-8", "surrogatepass"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]
