"""Plan an improve run before anything is spent: what it is about, what it may cost, and what speaks against it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import fsum
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet.decide.comparison import sample_trial
from whet.decide.improve.reach import effect_in_reach
from whet.decide.improve.spending import error_of_step
from whet.errors import StoreError, UsageError
from whet.improve.apply import refuse_unclean
from whet.improve.money import GENERATING_SHARE, TrialCounts
from whet.improve.propose.session_run import refuse_unfit_proposer, refuse_without_boundary
from whet.improve.ready import (
    PartsOfSuite,
    parts_of_suite,
    readiness_warnings,
    refuse_few_cases,
    refuse_unknown_tags,
)
from whet.improve.request import ImproveRequest
from whet.improve.search.candidate import gepa_engine
from whet.model import codec
from whet.model.request import Settings
from whet.model.run import Runner
from whet.model.suite import Suite
from whet.plan.settings.load import load_settings, with_found_agent
from whet.reading.plugin_folder import can_be_given
from whet.reading.text import listed, money, path_for_people, percent
from whet.record.improve.document import ImproveOptions, SplitFacts
from whet.record.improve.folder import IMPROVE_RUNS, improve_folders
from whet.record.improve.split_lock import draw_parts
from whet.record.read.past_runs import past_runs
from whet.report.improve.quote import ImproveQuote, ThreeFigures
from whet.suites.format import load_suite
from whet.suites.split.lock import find_lock, held_out_in, with_confirm, with_parts_of
from whet.workspace.make import MANIFEST


class ImprovePlan(Struct, frozen=True, kw_only=True):
    """An improve run that has not begun."""

    request: ImproveRequest
    skill: Path
    suite: Suite
    settings: Settings
    runner: Runner
    parts: PartsOfSuite
    options: ImproveOptions
    counts: TrialCounts
    quote: ImproveQuote
    seed: int

    @property
    def output_dir(self) -> Path:
        """Where improve runs are recorded."""
        return improve_dir(self.settings)


def improve_dir(settings: Settings) -> Path:
    """Return where improve runs are recorded: beside the folder of runs."""
    return settings.store / IMPROVE_RUNS


def plan_improvement(request: ImproveRequest) -> ImprovePlan:
    """Plan the run that *request* asks for, with the parts that cases without one will have."""
    request.check()
    if request.engine == "gepa":
        gepa_engine()
    assert request.skill is not None
    assert request.suite is not None
    skill = request.skill.resolve()
    if not can_be_given(skill):
        why = f"it has no {MANIFEST}" if skill.exists() else "there is no such folder"
        raise UsageError(f"{request.skill} is not a skill: {why}")
    for folder in request.own_candidates:
        if not can_be_given(folder):
            raise UsageError(
                f"--candidate: {folder} has no {MANIFEST}", hint="name the folder of a version of the skill"
            )
    if request.apply:
        refuse_unclean(skill, force=request.force)
    settings = load_settings(request.suite, flags=request.flags, environ=os.environ, config_file=request.config_file)
    if settings.on is not None:
        raise UsageError("whet improve runs on this machine, and run.on names a cluster", hint="unset run.on")
    if request.max_cost_usd is None:
        # What the settings say of every run holds for all phases together.
        request = replace(request, max_cost_usd=settings.max_cost_usd)
    assert request.suite is not None
    suite = load_suite(request.suite)
    runner = choose_runner(settings, suite, request.runner)
    if not request.own_candidates:
        # Said now, and not after the baseline is paid.
        refuse_without_boundary(settings)
        proposer = choose_runner(settings, suite, request.proposer or runner.id)
        refuse_unfit_proposer(proposer, played=settings.plays_all)
    # Written when the run begins: who only looks at the plan has drawn nothing.
    path, _, lock = draw_parts(suite, write=False)
    suite = with_parts_of(suite, lock, path)
    parts = parts_of_suite(suite)
    refuse_few_cases(parts, suite)
    options = request.options_for(suite, len(parts.held_out))
    refuse_unknown_tags(options, suite)
    counts = trial_counts(parts, options)
    _, step = with_confirm(lock, held_out_in(suite, lock))
    quote = _quote(request, suite, options, counts, step, (runner, cost_of_trial(suite, settings, runner)))
    return ImprovePlan(
        request=request,
        skill=skill,
        suite=suite,
        settings=settings,
        runner=runner,
        parts=parts,
        options=options,
        counts=counts,
        quote=quote,
        seed=request.seed or 0,
    )


def split_facts(suite: Suite, parts: PartsOfSuite) -> SplitFacts:
    """Return the parts of *suite* as a record has them."""
    path, lock = find_lock(suite)
    return SplitFacts(
        lock=str(path),
        digest=hashlib.sha256(codec.encode(lock and (lock.cases, lock.digests))).hexdigest(),
        practice=parts.practice,
        held_out=parts.held_out,
        sealed=parts.sealed,
    )


def trial_counts(parts: PartsOfSuite, options: ImproveOptions) -> TrialCounts:
    """Return what the trials of a run follow from."""
    return TrialCounts(
        practice=len(parts.practice),
        held_out=len(parts.held_out),
        sealed=len(parts.sealed),
        candidates=options.candidates,
        rounds=0 if options.propose_only else options.rounds,
        max_rounds=options.max_rounds,
        has_baseline=not options.own_candidates and not options.propose_only,
        is_search=options.engine == "gepa",
    )


def choose_runner(settings: Settings, suite: Suite, name: str | None) -> Runner:
    """Return the runner under test: the one that is named, or the only one."""
    runners = with_found_agent(settings, suite, () if name is None else (name,)).runners
    if name is not None:
        runner = next((runner for runner in runners if runner.id == name), None)
        if runner is None:
            known = listed([runner.id for runner in runners]) or "none"
            raise UsageError(f'there is no runner "{name}"', hint=f"the settings have {known}")
        return runner
    if len(runners) == 1:
        return runners[0]
    if not runners:
        raise UsageError("no runners are configured", hint="whet doctor lists the agents that whet knows")
    raise UsageError(
        f"there are {len(runners)} runners, and a skill is improved on one",
        hint=f"name it with --runner: {listed([runner.id for runner in runners])}",
    )


def require_money(request: ImproveRequest, environ: Mapping[str, str], *, can_ask: bool) -> None:
    """Refuse a run without an upper limit where nobody can be asked whether its price is right."""
    if request.max_cost_usd is not None:
        return
    if environ.get("CI") not in (None, "", "0", "false"):
        raise UsageError("in CI, say how much it may cost at most", hint="add --max-cost USD")
    if not request.yes and not can_ask:
        raise UsageError(
            "nobody can be asked here whether the price is right", hint="add --max-cost USD, or --yes for no limit"
        )


def _quote(
    request: ImproveRequest,
    suite: Suite,
    options: ImproveOptions,
    counts: TrialCounts,
    step: int,
    price: tuple[Runner, float | None],
) -> ImproveQuote:
    error = error_of_step(step)
    runner, per_trial = price
    trials = ThreeFigures(least=counts.least, usual=counts.usual, most=counts.most)
    assert request.skill is not None
    proposer = None if options.own_candidates else request.proposer or runner.id
    return ImproveQuote(
        skill=path_for_people(request.skill, Path.cwd()),
        suite=path_for_people(suite.source, Path.cwd()),
        runner=runner.id,
        proposer=proposer,
        options=options,
        practice=counts.practice,
        held_out=counts.held_out,
        sealed=counts.sealed,
        trials=trials,
        cost_usd=None if per_trial is None else _times(trials, per_trial),
        shares=_shares(options, counts, per_trial),
        reach=effect_in_reach(counts.held_out, options.max_rounds, error, options.accept),
        step=step,
        error=error,
        warnings=tuple(readiness_warnings(request.skill, suite, parts_of_suite(suite), options, error)),
    )


def _times(figures: ThreeFigures, price: float) -> ThreeFigures:
    return ThreeFigures(least=price * figures.least, usual=price * figures.usual, most=price * figures.most)


def _shares(options: ImproveOptions, counts: TrialCounts, per_trial: float | None) -> str | None:
    """Return how the money is divided, and whether it cuts a race short."""
    most = options.max_cost_usd
    if most is None:
        return None
    words = []
    if not options.own_candidates:
        words.append(f"proposals may take {percent(GENERATING_SHARE)} ({money(GENERATING_SHARE * most)})")
    words.append("two rounds of confirming are kept back from each race")
    if per_trial is not None and per_trial * counts.least > most:
        words.append("the race is cut short, and may not end")
    return "; ".join(words)


def cost_of_trial(suite: Suite, settings: Settings, runner: Runner) -> float | None:
    """Return what a trial of *suite* took on *runner* in earlier runs, on average; None if no run says it."""
    for folder in improve_folders(improve_dir(settings)):
        with suppress(StoreError):
            document = folder.read()
            steps = [step for step in document.steps if step.trials and step.cost_usd and step.phase != "generating"]
            if steps and (document.suite, document.runner) == (str(suite.source), runner.id):
                return fsum(step.cost_usd or 0.0 for step in steps) / sum(step.trials for step in steps)
    past = past_runs(suite, suite.cases, settings.output_dir)
    costs = [
        cost
        for trials in past.cases
        for trial in trials.trials
        if trial.key.runner == runner.id and (cost := sample_trial(trial).cost_usd) is not None
    ]
    return fsum(costs) / len(costs) if costs else None


def facts_for_resuming(flags: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield *flags* as JSON has them: paths as texts, so that they can be read again in another folder."""
    for name, value in flags.items():
        yield name, str(value.absolute()) if isinstance(value, Path) else value
