"""The run in which candidates are made: an ordinary one, with a case for each candidate and the proposer as its runner.

Its sandbox has to hide files and its network leads to the model alone, whatever the settings say: the held-out cases
are on this machine, and perhaps on a server too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from whet import plugins
from whet.errors import UsageError
from whet.gateway.routes import find_unrouted, network_of, provider_of
from whet.improve.contract import EndedEarly
from whet.improve.propose.rules import prompt_text
from whet.improve.propose.task import ProposalTask
from whet.improve.runs import carry_out
from whet.model import codec
from whet.model.request import RunRequest, Selection, Settings
from whet.model.run import Runner, TrialResult
from whet.model.suite import Suite, WorkspaceSpec
from whet.plan.load import PlannedRun, RunInputs, check_run, earlier_run, plan_run
from whet.plan.settings.load import load_settings, with_found_agent
from whet.record.folder import write_atomically
from whet.record.read.run import read_trials, run_folders
from whet.run.attempt.trial import run_trial
from whet.run.flow import start_early
from whet.sandbox.contract import choose_sandbox, require_sandbox
from whet.suites.format import load_suite
from whet.suites.split.lock import find_lock

_SUITE_FILE, _FOLDERS, _RUNS = "proposals.json", "folders", "runs"
_RETRIES = 2
# Holds whatever a session leaves: a session that ends well is no failure, also if it has changed nothing.
_EXPECTATION = "file:skill exists"


class ProposalRun(Struct, frozen=True, kw_only=True):
    """The record of the run, and how each of its trials ended, by the ids of candidates."""

    folder: Path
    results: Mapping[str, TrialResult]
    # All that it has cost, also for sessions that a signal ended.
    cost_usd: float | None


def folders_of(task: ProposalTask) -> Path:
    """Return where the folders are that proposers work in copies of."""
    return task.place / _FOLDERS


def run_of(task: ProposalTask) -> Path | None:
    """Return the folder of the newest run of *task*, if there is one."""
    runs = run_folders(task.place / _RUNS)
    return runs[-1] if runs else None


def run_proposer(task: ProposalTask) -> ProposalRun:
    """Let the proposer work on each candidate that it has not worked on yet; raises `EndedEarly` if it cannot."""
    suite_file = _write_suite(task)
    earlier = run_of(task)
    if earlier is not None and _none_finished(earlier):
        # Nothing came of it, so a resumed run would have nothing to do.
        earlier = None
    # Other than a case, a proposer is asked again whatever went wrong.
    phase = carry_out(_plan(task, suite_file, earlier), task.reporter, run_trial)
    if phase.is_interrupted:
        raise EndedEarly("interrupted", "interrupted while candidates were made: what has ended is kept")
    run = ProposalRun(folder=phase.run_dir, results=_results(phase.run_dir), cost_usd=phase.cost_usd)
    if not run.results:
        raise EndedEarly(
            "undecided", "the money was spent before a candidate was made", hint="go on with a larger --max-cost"
        )
    if _none_finished(run.folder):
        why = next(result.failure.message for result in run.results.values() if result.failure is not None)
        raise EndedEarly("failed", f"the proposer made no candidate: {why}", hint=f"its record is {run.folder}")
    return run


def _results(run_dir: Path) -> dict[str, TrialResult]:
    return {result.key.case: result for result in read_trials(run_dir).results.values()}


def _none_finished(run_dir: Path) -> bool:
    """Return whether no session came to its end: each errored, crashed or took too long."""
    failures = [result.failure for result in _results(run_dir).values()]
    return bool(failures) and all(failure is not None and not failure.is_of_checks for failure in failures)


def _write_suite(task: ProposalTask) -> Path:
    """Write the suite of the run, which is one for any reader: a case for each candidate."""
    path = task.place / _SUITE_FILE
    has_refused = any((folders_of(task) / candidate / "refused.md").exists() for candidate in task.ids)
    document = {
        "name": "proposals",
        "description": f"Versions of the skill {task.skill.name}, round {task.number} of an improve run.",
        "cases": [
            {"id": candidate, "prompt": prompt_text(refused=has_refused), "expect": [_EXPECTATION]}
            for candidate in task.ids
        ],
    }
    data = codec.encode_pretty(document)
    if not path.exists() or path.read_bytes() != data:
        write_atomically(path, data)
    return path


def _plan(task: ProposalTask, suite_file: Path, earlier: Path | None) -> PlannedRun:
    """Plan what is left of the run."""
    # A run that is resumed knows what it was asked.
    fixed_flags = {} if earlier is not None else {**task.flags, "trials": 1, "retries": _RETRIES}
    flags = {**fixed_flags, "output_dir": task.place / _RUNS}
    if task.money_left_usd is not None:
        flags["max_cost_usd"] = task.money_left_usd
    runners = (task.proposer,) if task.proposer and earlier is None else ()
    request = RunRequest(
        suite=suite_file,
        flags=flags,
        config_file=task.config_file,
        selection=Selection(runners=runners),
        last_failed=False,
        dry_run=False,
        resume=None if earlier is None else str(earlier),
        command="run",
    )
    earlier_asked = earlier_run(request)
    if earlier_asked is not None:
        request = earlier_asked.request
    # Those of the suite that the skill is tried on: this one lies among records.
    settings = load_settings(
        task.suite.source, flags=request.flags, environ=os.environ, config_file=request.config_file
    )
    suite = _suite(task, suite_file)
    settings = _closed(with_found_agent(settings, suite, request.selection.runners), request.selection.runners)
    start_early(settings)
    refuse_without_boundary(settings)
    inputs = RunInputs(request=request, settings=settings, earlier=earlier_asked)
    # What is to say of this suite concerns nobody: whet wrote it.
    return replace(check_run(plan_run(inputs, suite)), notices=())


def _suite(task: ProposalTask, suite_file: Path) -> Suite:
    """Return the suite with the folder of each candidate, which hides all that belongs to the suite of the skill."""
    suite = load_suite(suite_file)
    lock, _ = find_lock(task.suite)
    beside = [task.suite.source.parent] if task.suite.source.parent.name == "evals" else []
    hidden = dict.fromkeys((task.suite.source, *beside, *task.suite.held_out, lock, suite_file))
    return replace(
        suite,
        cases=tuple(
            replace(case, workspace=WorkspaceSpec(mode="isolated", template_dir=folders_of(task) / case.id))
            for case in suite.cases
        ),
        workspace=None,
        # That no project is around it is as it should be.
        warnings=(),
        held_out=tuple(path for path in hidden if path.exists()),
    )


def _closed(settings: Settings, wanted: tuple[str, ...]) -> Settings:
    """Return *settings* for a run that shows nothing but what a proposer is given."""
    runners = tuple(
        _closed_runner(runner) if not wanted or runner.id in wanted else runner for runner in settings.runners
    )
    return replace(
        settings,
        runners=runners,
        workspace=None,
        mounts=(),
        tags=(),
        snapshots=None,
        reporters=(),
        controls=False,
        on=None,
        vary=(),
        keep_services=False,
    )


def refuse_unfit_proposer(runner: Runner, *, played: bool) -> None:
    """Refuse a runner that cannot work as a proposer, before anything is spent; played answers need no key."""
    closed_runner = _closed_runner(runner)
    for _, why in find_unrouted([closed_runner], os.environ, played=played):
        raise UsageError(
            f"runners.{runner.id} cannot write candidates: a proposer reaches its model and nothing else, "
            f"through the gateway, and {why}",
            hint="set the key, name another runner with --proposer, or write versions yourself: --candidate DIR",
        )


def _closed_runner(runner: Runner) -> Runner:
    """Return *runner* with its model as all of its network, and nothing of this machine."""
    if runner.options.get("inherit_home"):
        raise UsageError(
            f"runners.{runner.id}: a proposer cannot work in your own home, which has your sessions and projects",
            hint="name another runner with --proposer, or leave out `inherit_home`",
        )
    agent = plugins.find("agents", runner.agent)
    asks_model = provider_of(runner) is not None or getattr(agent, "always_direct", False)
    network = network_of(runner)
    if network == "full":
        network = "model" if asks_model else "none"
    options = {name: value for name, value in runner.options.items() if name not in ("mounts", "allow")}
    allowed = False if network == "none" else network
    return replace(runner, options={**options, "network": allowed, "network_required": True})


def refuse_without_boundary(settings: Settings) -> None:
    """Refuse a sandbox that hides no files: the proposer could read the cases that decide about its work."""
    require_sandbox(settings.sandbox)
    sandbox, why = choose_sandbox(settings.sandbox)
    if sandbox.name == "local":
        raise UsageError(
            "the proposer has to work in a sandbox that hides files, because it could read the held-out cases"
            + (f"; {why.partition(':')[0]}" if why else ""),
            hint="install bubblewrap or use --sandbox container; or write versions yourself: --candidate DIR",
        )


def make_readable(folder: Path) -> None:
    """Let everybody read *folder*: in a container, the agent may be another user."""
    for root, _, names in os.walk(folder):
        for path in (Path(root), *(Path(root, name) for name in names)):
            if not path.is_symlink():
                mode = stat.S_IMODE(path.stat().st_mode)
                path.chmod(mode | (0o755 if path.is_dir() else 0o644))
