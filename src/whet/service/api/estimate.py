"""What a run would take, before it is started: its trials, its money and time, and what it could decide."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from math import ceil

import msgspec
from pydantic import Field
from sqlalchemy import Connection, select

from whet.decide.sequential import USUAL_SPREAD, alpha_of_each, effect_within_reach, trials_needed
from whet.errors import WhetError
from whet.model.comparison import MOST_ROUNDS, RunSamples, Sampled
from whet.model.eval_cases import EvalCase, EvalSuite, TriggerQuery
from whet.model.run import NO_AGENT
from whet.record.read.run import read_run
from whet.report.decisions.plan import ROUNDS_AHEAD, spread_of
from whet.service.api.run_request import RunBody, arms_with_skill
from whet.service.database import runs
from whet.service.http import Strict
from whet.service.service import Service
from whet.service.store.run_folder import RunFolder
from whet.service.store.runs import Run

log = logging.getLogger("whet.service")
# How many earlier runs to look at for one with the same agents.
_LOOKED_AT = 50
_USUAL_EFFECT_POINTS = 10.0


class NeededTrials(Strict):
    """How many trials decide a difference in 80 of 100 runs."""

    effect_points: float
    trials: int = Field(description="Trials per case and arm.")
    low: int
    high: int
    rounds: int | None = Field(description="Rounds for a run until decided; null if that is more than it may have.")


class RunEstimate(Strict):
    """What a run would take."""

    cases: int
    arms: int
    trials: int = Field(description="All trials; of a run until decided, the most.")
    trials_per_case: int = Field(description="Trials per case and arm; of a run until decided, the most.")
    rounds: int | None = Field(description="The most rounds of a run until decided; null of any other.")
    cost_usd: float | None = Field(description="What so many trials cost; null if no run says it.")
    seconds: float | None = Field(description="How long so many trials take; null if no run says it.")
    finds_points: float | None = Field(
        description="The difference that 80 of 100 such runs find; null with one arm, or if they find none."
    )
    needed: NeededTrials | None = Field(description="Null with one arm.")
    learned_from: str | None = Field(description="The newest run of the suite with the same agents.")


class RunPlanAnswer(Strict):
    """The plan of a run."""

    plan: RunEstimate


def find_pilot(connection: Connection, suite_id: str, body: RunBody) -> Run | None:
    """Return the newest completed run of a suite that had the same agents and models."""
    newest = (
        select(runs)
        .where(
            runs.c.suite_id == suite_id, runs.c.kind == "run", runs.c.status == "completed", runs.c.deleted_us.is_(None)
        )
        .order_by(runs.c.created_us.desc(), runs.c.id.desc())
        .limit(_LOOKED_AT)
    )
    agents = _agents(body)
    return next((run for row in connection.execute(newest) if _agents(run := Run.of(row)) == agents), None)


def _agents(request: RunBody | Run) -> set[tuple[str, str | None]]:
    runner = request.runner or NO_AGENT
    arms = {(arm.runner or runner, arm.model) for arm in request.arms or ()}
    return arms or {(runner, None)}


def estimate_run(service: Service, suite: EvalSuite, body: RunBody, pilot: Run | None) -> RunEstimate:
    """Return what a run of *suite* would take, as far as *pilot* tells."""
    arms = arms_with_skill(suite, body)
    trials = sum(_trials(service, case, body) * _arms_of(case, arms) for case in suite.cases)
    per_case = body.until_decided.max_rounds if body.until_decided else body.trials or service.trials
    samples = _samples(service, pilot)
    pilot_trials = _usable_trials(samples) if samples is not None else []
    spread, known_from = spread_of(samples) if samples is not None and pilot_trials else (USUAL_SPREAD, None)
    cases = sum(case.weight > 0 for case in suite.cases)
    compares = len(arms) > 1 and cases > 0
    return RunEstimate(
        cases=len(suite.cases),
        arms=len(arms),
        trials=trials,
        trials_per_case=per_case,
        rounds=body.until_decided.max_rounds if body.until_decided else None,
        cost_usd=_times(trials, _mean(trial.cost_usd for trial in pilot_trials)),
        seconds=_times(trials / max(1, service.max_parallel), _mean(trial.seconds for trial in pilot_trials)),
        finds_points=_reach(body, cases, len(arms), per_case, spread) if compares else None,
        needed=_needed(body, cases, len(arms), spread, known_from) if compares else None,
        learned_from=pilot.id if pilot is not None and pilot_trials else None,
    )


def _trials(service: Service, case: EvalCase, body: RunBody) -> int:
    """Return how often a case is run in each arm, as the planner of the run decides it."""
    if body.until_decided is not None:
        return body.until_decided.max_rounds
    own = case.runs if isinstance(case, TriggerQuery) and (body.runner or NO_AGENT) != NO_AGENT else None
    return body.trials or own or service.trials


def _arms_of(case: EvalCase, arms: Sequence[bool]) -> int:
    """Return in how many arms a case is run: whether a skill loads is asked only where there is one."""
    return sum(arms) if isinstance(case, TriggerQuery) else len(arms)


def _samples(service: Service, pilot: Run | None) -> RunSamples | None:
    record = RunFolder.of(service.data_dir, pilot.id).record if pilot is not None else None
    if record is None:
        return None
    try:
        return read_run(record).samples()
    except (WhetError, OSError, msgspec.MsgspecError) as error:
        log.warning("nothing was learned from a run for an estimate: %s", type(error).__name__)
        return None


def _usable_trials(samples: RunSamples) -> list[Sampled]:
    return [trial for arm in samples.arms for trial in arm.trials if trial.value is not None]


def _reach(body: RunBody, cases: int, arms: int, per_case: int, spread: float) -> float | None:
    """Return the points that so many trials per case and arm find; None if they find no difference at all."""
    # A run that looks after each round needs more of them at most.
    usable = max(1, int(per_case / ROUNDS_AHEAD)) if body.until_decided is not None else per_case
    reach = effect_within_reach(cases, spread, usable, alpha=alpha_of_each(arms - 1))
    return round(100 * reach, 1) if reach < 1 else None


def _needed(body: RunBody, cases: int, arms: int, spread: float, known_from: int | None) -> NeededTrials:
    """Return what it takes to find the effect that matters."""
    effect_points = body.until_decided.effect_points if body.until_decided is not None else _USUAL_EFFECT_POINTS
    alpha = alpha_of_each(arms - 1)
    needed = trials_needed(cases, spread, effect_points / 100, alpha=alpha, pilot_trials=known_from)
    rounds = ceil(ROUNDS_AHEAD * needed.trials)
    return NeededTrials(
        effect_points=effect_points,
        trials=needed.trials,
        low=needed.least,
        high=needed.most,
        rounds=rounds if rounds <= MOST_ROUNDS else None,
    )


def _mean(values: Iterator[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return sum(known_values) / len(known_values) if known_values else None


def _times(amount: float, value: float | None) -> float | None:
    return None if value is None else amount * value
