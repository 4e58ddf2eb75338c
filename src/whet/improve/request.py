"""What `whet improve` is asked for, and the rules that its options follow before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from whet.decide.improve.accept import default_rule
from whet.errors import UsageError
from whet.model.suite import Suite
from whet.record.improve.document import AcceptRule, ImproveGoal, ImproveOptions, SkillPart
from whet.suites.split.draw import is_trigger_query

MOST_CANDIDATES, MOST_ROUNDS = 24, 8
# Rounds of a confirm step: to show that something is not worse takes more of them.
_CONFIRM_ROUNDS, _CONFIRM_ROUNDS_IF_CHEAPER = 10, 20


class ImproveRequest(Struct, frozen=True, kw_only=True):
    """What was typed; None stands for what whet chooses."""

    # None only if an earlier run is resumed.
    skill: Path | None
    suite: Path | None = None
    runner: str | None = None
    proposer: str | None = None
    config_file: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    part: SkillPart | None = None
    goal: ImproveGoal = "better"
    candidates: int = 6
    rounds: int = 1
    max_cost_usd: float | None = None
    accept: AcceptRule | None = None
    no_regression: tuple[str, ...] = ()
    allow_scripts: bool = False
    strict_leak: bool = False
    allow_self_judge: bool = False
    # In rates from 0 to 1.
    effect: float = 0.10
    margin: float = 0.10
    max_rounds: int | None = None
    engine: Literal["race", "gepa"] = "race"
    own_candidates: tuple[Path, ...] = ()
    # Make so many candidates, and stop.
    propose_only: int | None = None
    seed: int | None = None
    resume: str | None = None
    apply: bool = False
    force: bool = False
    yes: bool = False
    fail_without_winner: bool = False

    def check(self) -> None:
        """Refuse what cannot be asked for together."""
        _within("--candidates", self.candidates, 1, MOST_CANDIDATES)
        _within("--rounds", self.rounds, 1, MOST_ROUNDS)
        if self.propose_only is not None:
            _within("--propose-only", self.propose_only, 1, MOST_CANDIDATES)
        # Also not NaN, which is above nothing.
        if self.max_cost_usd is not None and not 0 < self.max_cost_usd < inf:
            raise UsageError(f"--max-cost must be a number of dollars above 0, not {self.max_cost_usd:g}")
        if self.own_candidates and self.proposer is not None:
            raise UsageError(
                "--candidate brings the versions to race, so no --proposer makes any", hint="leave one of them out"
            )
        if self.own_candidates and self.propose_only is not None:
            raise UsageError("--propose-only makes candidates, and --candidate brings them", hint="leave one out")
        if self.own_candidates and self.rounds > 1:
            raise UsageError("candidates that you bring are raced in one round", hint="leave out --rounds")
        if len(self.own_candidates) > MOST_CANDIDATES:
            raise UsageError(
                f"at most {MOST_CANDIDATES} candidates are raced, and these are {len(self.own_candidates)}"
            )
        if self.engine == "gepa":
            self._check_search()
        if self.force and not self.apply:
            raise UsageError("--force is for --apply", hint="add --apply, or leave out --force")
        if self.apply and self.propose_only is not None:
            raise UsageError("--propose-only accepts nothing, so --apply has nothing to write", hint="leave one out")

    def _check_search(self) -> None:
        if self.own_candidates:
            raise UsageError("--engine gepa makes candidates, and --candidate brings them", hint="leave one out")
        if self.propose_only is not None:
            raise UsageError("--engine gepa runs what it makes, and --propose-only runs nothing", hint="leave one out")

    def options_for(self, suite: Suite, held_out: int) -> ImproveOptions:
        """Return the options with what whet chooses for *suite*, which holds out so many cases."""
        most = _CONFIRM_ROUNDS if self.goal == "better" else _CONFIRM_ROUNDS_IF_CHEAPER
        return ImproveOptions(
            part=self.part or _part_of(suite),
            goal=self.goal,
            candidates=len(self.own_candidates) or self.propose_only or self.candidates,
            rounds=1 if self.propose_only else self.rounds,
            max_cost_usd=self.max_cost_usd,
            accept=self.accept or default_rule(held_out),
            no_regression=self.no_regression,
            allow_scripts=self.allow_scripts,
            strict_leak=self.strict_leak,
            allow_self_judge=self.allow_self_judge,
            effect=self.effect,
            margin=self.margin,
            max_rounds=self.max_rounds or most,
            engine=self.engine,
            own_candidates=tuple(str(folder) for folder in self.own_candidates),
            propose_only=self.propose_only is not None,
        )


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise UsageError(f"{name} must be from {least} to {most}, not {value}")


def _part_of(suite: Suite) -> SkillPart:
    """Return what decides in cases like these: whether a skill is loaded, or what it says then."""
    return "description" if all(map(is_trigger_query, suite.cases)) else "body"
