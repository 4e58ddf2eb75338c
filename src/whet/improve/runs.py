"""Carry out the runs of an improve run: ordinary runs of whet, in this process, each found again after a kill."""

from __future__ import annotations

import hashlib
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio
from msgspec import Struct
from msgspec.structs import replace

from whet.errors import CheckCrashed, CheckMistaken, UsageError
from whet.model.comparison import RunSamples, Stop, Until
from whet.model.request import BUILT_IN, RunRequest, Selection, Settings
from whet.model.run import TrialResult
from whet.model.suite import SKILL, Part, Suite
from whet.plan.load import PlannedRun, check_run, load_inputs, plan_run
from whet.record.improve.folder import ImproveFolder
from whet.record.read.run import read_run
from whet.report.contract import Reporter, Reporters
from whet.run.attempt.trial import run_trial_past_errors
from whet.run.conclude import record_results
from whet.run.flow import agent_run_kind, early_work, start_early
from whet.run.schedule import LOOP, RunTrial, execute, ignore_signals, interruptible, single_errors
from whet.run.start import ready_run, start_run
from whet.suites.digests import case_digest
from whet.suites.format import load_suite

_CRASHES = (CheckCrashed.code, CheckMistaken.code)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class RunsOfPhases(Struct, frozen=True, kw_only=True):
    """What the runs of all phases have in common."""

    folder: ImproveFolder
    suite: Path
    suite_digest: str
    runner: str
    config_file: Path | None = None
    flags: Mapping[str, object]
    # What sees the events of the run of a phase.
    listen: Callable[[str], Reporter | None] = lambda _: None


class PhaseAsk(Struct, frozen=True, kw_only=True):
    """What the run of a phase is to do: these versions of the skill, on the cases of one part."""

    # The name of its folder.
    name: str
    part: Part
    # Those of the part that are run; all of them if none is named.
    cases: tuple[str, ...] = ()
    versions: Mapping[str, Path]
    # How many trials a case, or until when.
    trials: int | None = None
    until: Until | None = None
    max_cost_usd: float | None = None


class PhaseRun(Struct, frozen=True, kw_only=True):
    """What came of the run of a phase."""

    run_dir: Path
    samples: RunSamples
    cost_usd: float | None
    # How many trials came to a verdict or errored, and how many are missing.
    trials: int
    missing: int
    is_interrupted: bool
    # Whether the money that it may take is spent.
    is_short: bool
    stop: Stop | None
    # Why trials errored, each reason once.
    errors: tuple[str, ...] = ()
    # What a check raised, if checks crashed in every trial of every version.
    crash: str | None = None


def digest_of_cases(suite: Suite) -> str:
    """Return the digest of what the cases of *suite* ask and check, and of the parts they are in."""
    facts = sorted((case.id, case.split or "", case.weight, case_digest(case)) for case in suite.cases)
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).hexdigest()


def refuse_other_cases(suite: Suite, digest: str) -> None:
    """Refuse to go on with other cases than those that the run began with: scores of two suites cannot be compared."""
    if digest_of_cases(suite) != digest:
        raise UsageError(
            f"the cases of {suite.name} have changed since the improve run began",
            hint="undo the change and go on with --resume, or start a new run",
        )


def run_phase(common: RunsOfPhases, ask: PhaseAsk) -> PhaseRun:
    """Carry out the run that *ask* describes, or what is missing of it, and return what its record says."""
    return carry_out(plan_phase(common, ask), common.listen(ask.name))


def carry_out(
    planned_run: PlannedRun, reporter: Reporter | None, run_trial: RunTrial = run_trial_past_errors
) -> PhaseRun:
    """Carry out a run, which is one of several in this process; *reporter* sees its events."""
    reporters = [] if reporter is None else [("progress", reporter)]
    kind = replace(agent_run_kind(planned_run), run_trial=run_trial)

    def listen(_: Path) -> Reporters:
        return Reporters(reporters, stderr=sys.stderr)

    start_early(planned_run.settings)
    with (
        keep_handlers(),
        interruptible(),
        start_run(ready_run(planned_run, kind.ready, starts_agents=True), listen) as (state, context),
    ):
        with single_errors():
            anyio.run(
                execute, [(state, context)], kind.run_trial, kind.around, early_work([context]), backend_options=LOOP
            )
        with ignore_signals():
            record_results(state)
    record = read_run(state.info.run_dir)
    analysis = record.rounds.stop
    failures = (line.result.failure for line in record.lines if line.result.status == "errored")
    return PhaseRun(
        run_dir=state.info.run_dir,
        samples=record.samples(),
        cost_usd=state.spent_usd,
        trials=len(record.lines),
        missing=record.missing,
        is_interrupted=state.interrupted,
        is_short=state.stopped,
        stop=None if analysis is None else analysis.stop,
        errors=tuple(dict.fromkeys(failure.message for failure in failures if failure is not None)),
        crash=_crash_of_all(line.result for line in record.lines),
    )


def _crash_of_all(results: Iterable[TrialResult]) -> str | None:
    """Return what a check raised, if each of *results* that came to a verdict failed by a check that crashed."""
    failures = [result.failure for result in results if result.status != "errored"]
    crashes = [failure.message for failure in failures if failure is not None and failure.code in _CRASHES]
    return crashes[0] if crashes and len(crashes) == len(failures) else None


def plan_phase(common: RunsOfPhases, ask: PhaseAsk) -> PlannedRun:
    """Plan the run of a phase; it goes on where it was interrupted."""
    earlier = common.folder.run_of(ask.name)
    free_flags: dict[str, object] = {"output_dir": common.folder.runs_of(ask.name)}
    if ask.max_cost_usd is not None:
        free_flags["max_cost_usd"] = ask.max_cost_usd
    request = RunRequest(
        suite=common.suite,
        flags=free_flags,
        config_file=common.config_file,
        selection=Selection(),
        last_failed=False,
        dry_run=False,
        resume=str(earlier) if earlier is not None else None,
    )
    if earlier is None:
        trials = {} if ask.trials is None else {"trials": ask.trials}
        request = replace(
            request,
            flags={**common.flags, **free_flags, **trials},
            selection=_selection(common, ask),
            skill=_skill_of(common, ask),
            arms=tuple(ask.versions),
            until=ask.until,
        )
    # Before the settings: they refuse the same by the id of a run that nobody started by name.
    refuse_other_cases(load_suite(common.suite), common.suite_digest)
    inputs = load_inputs(request)
    suite = load_suite(common.suite, inputs.request.reading)
    planned_run = plan_run(replace(inputs, settings=_quiet(inputs.settings, ask)), suite)
    # What is to say of the cases and rounds was said before the run of runs began.
    return replace(check_run(planned_run), notices=())


def _selection(common: RunsOfPhases, ask: PhaseAsk) -> Selection:
    """Return what is run; cases by their ids, since one may look like a pattern that selects others."""
    named = frozenset((case, common.runner, version) for case in ask.cases for version in ask.versions)
    return Selection(splits=(ask.part,), runners=(common.runner,), only=named or None)


def _skill_of(common: RunsOfPhases, ask: PhaseAsk) -> Path | None:
    """Return the skill of the suite, if it is for one."""
    suite = load_suite(common.suite)
    return next(iter(ask.versions.values())) if SKILL in suite.arms else None


def _quiet(settings: Settings, ask: PhaseAsk) -> Settings:
    """Return *settings* without what is for people who started a run by themselves, and with our arms."""
    return replace(
        settings,
        reporters=(),
        snapshots=None,
        controls=False,
        tags=(),
        vary=(),
        # A second try at what failed would hide how often it fails.
        retries=0,
        arms={name: {"skill": str(place)} for name, place in ask.versions.items()},
        # Who set a number of trials for all runs of this shell did not mean this one.
        origins={**settings.origins, **({} if ask.trials else {"run.trials": BUILT_IN})},
    )


@contextmanager
def keep_handlers() -> Iterator[None]:
    """Restore the handlers of signals: a run ignores them once its trials have ended, since it is usually the last."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
