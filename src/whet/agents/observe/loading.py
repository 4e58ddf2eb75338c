"""What a case asks about the loading of skills, and a follower that sees when a session has answered that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from whet.model.eval_cases import ANY_SKILL, BooleanAssertion, TriggerQuery
from whet.model.events import Event, FinalOutput, Message, SessionEnded, ToolCall, ToolResult
from whet.model.skills import EarlyEnd, WhyEnded
from whet.model.suite import TRIGGERED, Case, Check, SkillUnderTest

# A model that has not loaded a skill by then has begun to work without it.
MOST_ROUNDS = 3


class LoadQuestion(Struct, frozen=True):
    """Which skills a case asks about and nothing else: each by all of its names, and any skill by none."""

    skills: frozenset[frozenset[str]]

    def is_answered_by(self, loaded: Collection[str]) -> bool:
        """Return whether it can no longer matter which other skills are loaded than those that were *loaded*."""
        return all(not names.isdisjoint(loaded) if names else bool(loaded) for names in self.skills)


def question_of(case: Case, skill: SkillUnderTest | None) -> LoadQuestion | None:
    """Return what *case* asks about loading; None if its checks, or prompts that follow, ask for anything else."""
    if case.converses or case.task is not None or not case.checks:
        return None
    skills: set[frozenset[str]] = set()
    for check in case.checks:
        asked_skills = _asked_skills(check, skill)
        if asked_skills is None:
            return None
        skills |= asked_skills
    return LoadQuestion(frozenset(skills))


def _asked_skills(check: Check, skill: SkillUnderTest | None) -> set[frozenset[str]] | None:
    """Return the skills whose loading *check* is about; None if it is about something else."""
    own_names = skill.names if skill else None
    match check.grader, check.params.get("case"):
        case "trigger", TriggerQuery():
            return None if own_names is None else {own_names}
        case "answer", BooleanAssertion(assertions=assertions) if assertions:
            if any(assertion.op != TRIGGERED for assertion in assertions):
                return None
            named_skills = {_names(assertion.value, own_names) for assertion in assertions}
            known_skills = {names for names in named_skills if names is not None}
            return known_skills if len(known_skills) == len(named_skills) else None
    return None


def _names(name: str | None, own_names: frozenset[str] | None) -> frozenset[str] | None:
    """Return the names of the skill that an assertion names; None if it names none and none is under test."""
    if name == ANY_SKILL:
        return frozenset()
    return frozenset((name,)) if name else own_names


def wants_skill(checks: Iterable[Check], skill: SkillUnderTest) -> bool | None:
    """Return whether *checks* ask that the skill is loaded, or that it is not; None if they do not say."""
    answers = {_wants(check, skill) for check in checks}
    if False in answers:
        return False
    return True if True in answers else None


def _wants(check: Check, skill: SkillUnderTest) -> bool | None:
    match check.params.get("case"):
        case TriggerQuery(expectation=expectation):
            return expectation == "should_trigger"
        case BooleanAssertion(assertions=assertions):
            loadings = [assertion for assertion in assertions if assertion.op == TRIGGERED]
            own_names = (None, *skill.names)
            # A check that forbids any skill forbids this one too; one that wants any need not mean this one.
            if any(loading.negate and loading.value in (ANY_SKILL, *own_names) for loading in loadings):
                return False
            return True if any(loading.value in own_names for loading in loadings) else None
    return None


class LoadFollower:
    """Looks at the events of a session as they come; calls *then* as soon as the question is answered.

    *answered* is called once the agent has given an answer: most end by themselves then.
    """

    def __init__(
        self,
        question: LoadQuestion,
        then: Callable[[], object],
        answered: Callable[[], object] = lambda: None,
        *,
        asked: Callable[[], int] | None = None,
    ) -> None:
        self._question, self._then, self._answered = question, then, answered
        # How often the agent has asked its model, if that is known better than by what it prints.
        self._asked = asked
        self._rounds = 0
        self._tells = False
        self._open: set[str | None] = set()
        # Whether the round that is under way, or was the last, asked for a tool.
        self._called = False
        self.why: WhyEnded | None = None
        self.is_over = False

    def take(self, event: Event) -> None:
        """Note what an event says of the round that it is in."""
        match event:
            case ToolCall(id=call):
                self._called = True
                self._open.add(call)
            case ToolResult(id=call):
                self._open.discard(call)
            case FinalOutput() | SessionEnded(ok=True):
                if not self.is_over:
                    self.is_over = True
                    self._answered()

    def begin_round(self) -> None:
        """Note that the model speaks again."""
        self._called = False
        self._open.clear()

    def look(self, *, loaded: Collection[str], rounds: int, tells: bool, event: Event) -> None:
        """Decide after an *event*, with what was loaded so far; *tells* says whether a skill that is loaded is seen."""
        if self.why is not None:
            return
        self._rounds, self._tells = self._count(rounds), tells
        if self._question.is_answered_by(loaded):
            self._decide("loaded")
        elif not tells:
            return
        elif self._rounds > MOST_ROUNDS or (self._asked is None and self._rounds == MOST_ROUNDS and self._is_done()):
            self._decide("rounds")
        elif isinstance(event, Message) and event.role == "user" and rounds and not self._called:
            # Something made it go on after its answer.
            self._decide("answered")

    def asks_again(self) -> None:
        """Note that the agent asks its model again, and what it printed before has been read."""
        if self.why is None and self._tells and self._rounds >= MOST_ROUNDS:
            self._decide("rounds")

    def _count(self, rounds: int) -> int:
        """Return how many rounds there were: some agents print the calls of one round as if each were one."""
        return rounds if self._asked is None else min(rounds, self._asked())

    def _is_done(self) -> bool:
        """Return whether all tools that the round asked for have answered."""
        return self._called and not self._open

    def _decide(self, why: WhyEnded) -> None:
        self.why = why
        self._then()

    def outcome(self, loaded: Collection[str], rounds: int) -> EarlyEnd:
        """Return how the session that was ended is recorded, by all that is known of it."""
        why = "loaded" if self._question.is_answered_by(loaded) else self.why or "answered"
        return EarlyEnd(why=why, rounds=self._count(rounds))
