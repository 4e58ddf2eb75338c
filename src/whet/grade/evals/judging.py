"""The judges of a run of an eval suite: one for each model and number of votes that cases ask for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from whet.grade.judge.judge import LlmJudge
from whet.grade.judge.settings import JudgeSettings, judge_settings

_CACHE = "cache_dir"


def settings_of(judge: Mapping[str, Any]) -> JudgeSettings:
    """How the language model that judges is asked, as the suite was told."""
    return judge_settings({key: value for key, value in judge.items() if key != _CACHE}, cache_dir=judge.get(_CACHE))


class Judges:
    """Made when they are first asked, and kept for the run."""

    def __init__(self, judge: Mapping[str, Any]) -> None:
        self._judge = judge
        self._made: dict[JudgeSettings, LlmJudge] = {}

    def ask(self, *, model: str | None = None, votes: int | None = None) -> LlmJudge:
        """The judge that goes by *model*, or the usual one, and is asked so many times."""
        usual = settings_of(self._judge)
        wanted = replace(usual, model=model or usual.model, votes=votes or usual.votes)
        if wanted not in self._made:
            self._made[wanted] = LlmJudge(wanted, os.environ)
        return self._made[wanted]

    async def release(self) -> None:
        """Let go of connections, in the event loop that they were made in."""
        made, self._made = self._made, {}
        for judge in made.values():
            await judge.close()
