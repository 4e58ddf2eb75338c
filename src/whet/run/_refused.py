"""What keeps trials from starting: a provider that lets a runner, the judge or the user of conversations in no more."""

from __future__ import annotations

import json

from msgspec import Struct, field

from whet.errors import (
    AttemptError,
    JudgeRefused,
    KeyRefused,
    ModelRejected,
    ProviderUnreachable,
    UserRefused,
)
from whet.model.grade import Failure
from whet.model.run import Trial
from whet.model.suite import Suite
from whet.plan.judge import asks_judge

_OF_RUNNERS = (KeyRefused, ProviderUnreachable, ModelRejected)
_ENDING: dict[str, type[AttemptError]] = {error.code: error for error in (*_OF_RUNNERS, JudgeRefused, UserRefused)}


class Refusals(Struct):
    """Why trials of the runs of one command need not start, by what they have in common."""

    _why: dict[str, AttemptError] = field(default_factory=dict)
    # What was already said: arms with variables of their own may have the same key.
    _notices: set[str] = field(default_factory=set)

    def note(self, suite: Suite, trial: Trial, failure: Failure | None) -> str | None:
        """Note how a trial failed; return what people should know, the first time that this keeps others off."""
        kind = _ENDING.get(failure.code) if failure is not None else None
        if failure is None or kind is None:
            return None
        common = _in_common(kind, suite, trial)
        if common in self._why:
            return None
        self._why[common] = kind(failure.message)
        sentence = f"{_whose(kind, trial)}: {failure.message.partition(chr(10))[0]}; {_RESTS[kind]}"
        if sentence in self._notices:
            return None
        self._notices.add(sentence)
        return sentence

    def why_not(self, suite: Suite, trial: Trial) -> AttemptError | None:
        """Return why *trial* has no sense, if that is known."""
        for kind in _ENDING.values() if self._why else ():
            error = self._why.get(_in_common(kind, suite, trial)) if _concerns(kind, trial) else None
            if error is not None:
                return error
        return None


_OTHERS = "its other trials do not start"
_RESTS: dict[type[AttemptError], str] = {
    KeyRefused: _OTHERS,
    ProviderUnreachable: _OTHERS,
    ModelRejected: _OTHERS,
    JudgeRefused: "the other trials that a judge has to decide do not start",
    UserRefused: "the other conversations with such a user do not start",
}


def _whose(kind: type[AttemptError], trial: Trial) -> str:
    if kind in _OF_RUNNERS:
        return f"runner {trial.key.runner}"
    return "judge" if kind is JudgeRefused else "user"


def _concerns(kind: type[AttemptError], trial: Trial) -> bool:
    if kind is JudgeRefused:
        return asks_judge(trial.execution)
    return trial.execution.case.user is not None if kind is UserRefused else True


def _in_common(kind: type[AttemptError], suite: Suite, trial: Trial) -> str:
    """Return what trials share that end for the same reason: variables of a case or an arm may hold another key."""
    runner, env = trial.execution.runner, trial.execution.case.env
    if kind in _OF_RUNNERS:
        model = runner.model if kind is ModelRejected else None
        common_facts = [runner.id, runner.agent, runner.options.get("env"), dict(env), model]
    else:
        common_facts = [dict(suite.judge if kind is JudgeRefused else suite.user)]
    return f"{kind.code} {json.dumps(common_facts, default=str, sort_keys=True)}"
