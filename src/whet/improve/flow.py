"""The flow of an improve run: plan, open, look whether the cases can decide, loop, report, apply.

plan      `plan_improvement` says what it is about and what it may cost          improve/plan.py
open      `begin` makes its folder, `resume` finds it                            here
ready     controls go through the cases, a run is planned                        improve/ready.py
loop      `improve_in_rounds` over the workbench, which runs whet for each phase improve/loop.py, workbench.py
report    improve.json after each step, in the end the patch and the report      improve/keeper.py
apply     the accepted version, if that was asked for                            improve/apply.py
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from whet import exit_codes
from whet.errors import UsageError, WhetError
from whet.improve.apply import apply_version, refuse_unclean, write_patch
from whet.improve.contract import EndedEarly
from whet.improve.evidence import earlier_practice
from whet.improve.keeper import ImproveKeeper
from whet.improve.loop import LoopEnd, improve_in_rounds
from whet.improve.money import BASELINE_TRIALS
from whet.improve.plan import ImprovePlan, facts_for_resuming, improve_dir, split_facts, trial_counts
from whet.improve.propose.task import ProposalTask
from whet.improve.propose.versions import copy_skill, version_digest
from whet.improve.ready import PartsOfSuite, audit_cases, parts_of_suite, refuse_self_judge
from whet.improve.request import ImproveRequest
from whet.improve.runs import PhaseAsk, RunsOfPhases, digest_of_cases, plan_phase, refuse_other_cases
from whet.improve.workbench import RunsWorkbench
from whet.model.suite import Suite
from whet.plan.settings.load import load_settings
from whet.plan.settings.table import GIVEN
from whet.record.folder import PRIVATE, lock, write_atomically, writing
from whet.record.improve.document import (
    CURRENT,
    PATCH,
    REPORT_MD,
    ImproveDocument,
    Phase,
)
from whet.record.improve.folder import ImproveFolder, create_improve_folder, find_improve_folder, utc_now
from whet.record.improve.split_lock import count_confirm, draw_parts
from whet.report.contract import Reporter
from whet.report.improve.markdown import improve_report
from whet.run.schedule import interruptible
from whet.suites.format import load_suite
from whet.version import __version__
from whet.view.improve.page import write_report
from whet.workspace.make import named_in


class Watcher(Struct, frozen=True):
    """What shows an improve run while it goes on: its document when it changes, and the runs of its phases."""

    see: Callable[[ImproveDocument], object] = lambda _: None
    reporter: Callable[[Phase], Reporter | None] = lambda _: None


class ImproveOutcome(Struct, frozen=True, kw_only=True):
    """How an improve run ended, and where its record is."""

    folder: ImproveFolder
    document: ImproveDocument
    code: int
    # Whether the accepted version was written into the skill.
    is_applied: bool = False


def begin(plan: ImprovePlan) -> ImproveFolder:
    """Make the record of a new run, which has the version that it starts from; keeps the parts of the suite."""
    draw_parts(plan.suite)
    folder = create_improve_folder(plan.output_dir)
    first = folder.start(1) / plan.skill.name
    with writing(folder.path):
        first.parent.mkdir(parents=True)
        copy_skill(plan.skill, first)
    request = plan.request
    folder.write(
        ImproveDocument(
            id=folder.id,
            began_at=utc_now(),
            whet=__version__,
            skill=str(plan.skill),
            skill_name=named_in(first) or plan.skill.name,
            start=version_digest(first),
            suite=str(plan.suite.source),
            suite_name=plan.suite.name,
            suite_digest=digest_of_cases(plan.suite),
            runner=plan.runner.id,
            proposer=plan.quote.proposer,
            config_file=None if request.config_file is None else str(request.config_file.absolute()),
            flags=dict(facts_for_resuming(request.flags)),
            seed=plan.seed,
            warnings=tuple(plan.quote.warnings),
            options=plan.options,
        )
    )
    return folder


def find_to_resume(request: ImproveRequest) -> ImproveFolder:
    """Return the run that *request* goes on with, with the money that it may take now; refuses one that has ended."""
    assert request.resume is not None
    settings = load_settings(Path.cwd(), flags=request.flags, environ=os.environ, config_file=request.config_file)
    folder = find_improve_folder(request.resume, improve_dir(settings))
    document = folder.read()
    if document.phase is None:
        raise UsageError(
            f"{folder.id} has ended: {document.reason}", hint=f"whet improve {document.skill} is a new run"
        )
    if request.apply:
        refuse_unclean(Path(document.skill), force=request.force)
    if request.max_cost_usd is not None:
        options = replace(document.options, max_cost_usd=request.max_cost_usd)
        folder.write(replace(document, options=options))
    return folder


def carry_out(folder: ImproveFolder, request: ImproveRequest, watcher: Watcher) -> ImproveOutcome:
    """Do what is left of the run in *folder*, and return how it ended."""
    with _alone(folder), interruptible():
        document = folder.read()
        document = replace(document, outcome=None, reason=None, hint=None, ended_at=None)
        keeper = ImproveKeeper(folder, document, watcher.see)
        try:
            _go_through(keeper, watcher, request)
        except WhetError as error:
            keeper.stop("failed", error.message, error.hint)
            raise
        except EndedEarly as end:
            keeper.end_early(end, _how_to_resume(keeper, end))
        except KeyboardInterrupt:
            interruption = EndedEarly("interrupted", "interrupted: everything that has ended is kept")
            keeper.end_early(interruption, _how_to_resume(keeper, interruption))
        _write_report(keeper)
        is_applied = keeper.document.outcome == "succeeded" and _apply(keeper, request)
    return ImproveOutcome(
        folder=folder,
        document=keeper.document,
        code=_exit_code(keeper.document, is_strict=request.fail_without_winner),
        is_applied=is_applied,
    )


@contextmanager
def _alone(folder: ImproveFolder) -> Iterator[None]:
    descriptor = lock(folder.path)
    try:
        yield
    finally:
        os.close(descriptor)


def _go_through(keeper: ImproveKeeper, watcher: Watcher, request: ImproveRequest) -> None:
    """Go through the phases that are left."""
    document, folder = keeper.document, keeper.folder
    suite = load_suite(Path(document.suite))
    parts = parts_of_suite(suite)
    refuse_other_cases(suite, document.suite_digest)
    common = RunsOfPhases(
        folder=folder,
        suite=Path(document.suite),
        suite_digest=document.suite_digest,
        runner=document.runner,
        config_file=None if document.config_file is None else Path(document.config_file),
        flags=_flags(document),
        listen=lambda _: watcher.reporter(keeper.document.phase or "done"),
    )
    bench = _workbench(keeper, suite, parts, common)
    done = {step.phase for step in document.steps}
    if "ready" not in done:
        keeper.begin("ready")
        # Who only wants candidates needs no cases that can decide.
        keeper.keep_ready(() if document.options.propose_only else _look_at_cases(common, bench, parts))
    if "split" not in done:
        keeper.begin("split")
        keeper.keep_split(split_facts(suite, parts))
    document = keeper.document
    end = improve_in_rounds(
        bench,
        document.options,
        start=document.start,
        record=keeper,
        baseline=document.baseline,
        rounds=document.rounds,
        sealed=document.sealed,
    )
    if _is_out_of_money(end):
        keeper.stop("undecided", end.reason, _more_money(keeper))
        return
    if end.outcome == "succeeded":
        rounds = document.options.rounds
        write_patch(folder, bench.current(1), bench.current(rounds + 1))
    keeper.finish(end, _next_step(keeper, end, is_applied=request.apply))


def _look_at_cases(common: RunsOfPhases, bench: RunsWorkbench, parts: PartsOfSuite) -> tuple[str, ...]:
    """Find what keeps runs from starting, and let controls go through the cases; return warnings."""
    ask = PhaseAsk(name="baseline", part="practice", versions={CURRENT: bench.current(1)}, trials=BASELINE_TRIALS)
    refuse_self_judge(plan_phase(common, ask).plan, bench.options)
    return audit_cases(common, parts)


def _workbench(keeper: ImproveKeeper, suite: Suite, parts: PartsOfSuite, common: RunsOfPhases) -> RunsWorkbench:
    document, folder = keeper.document, keeper.folder
    first = next(path for path in folder.start(1).iterdir() if path.is_dir())
    return RunsWorkbench(
        folder=folder,
        suite=suite,
        options=document.options,
        common=common,
        counts=trial_counts(parts, document.options),
        skill_name=first.name,
        proposals=ProposalTask(
            skill=first,
            suite=suite,
            practice=parts.practice,
            options=document.options,
            seed=document.seed,
            candidates=folder.candidates,
            place=folder.path / "proposals",
            proposer=document.proposer,
            config_file=common.config_file,
            flags=common.flags,
        ),
        rounds=lambda: keeper.document.rounds,
        earlier_practice=lambda: earlier_practice(folder, suite, document.start, _output_dir(common)),
        count_step=partial(count_confirm, suite),
        spent_usd=lambda: keeper.spent_usd,
        spending=keeper.spending,
    )


def _output_dir(common: RunsOfPhases) -> Path:
    """Return where runs are recorded that nobody started for this one."""
    return load_settings(
        common.suite, flags=common.flags, environ=os.environ, config_file=common.config_file
    ).output_dir


def _flags(document: ImproveDocument) -> dict[str, Any]:
    paths = {name for name, (_, row) in GIVEN.items() if row.place == "path"}
    return {name: Path(value) if name in paths else value for name, value in document.flags.items()}


def _is_out_of_money(end: LoopEnd) -> bool:
    last = end.rounds[-1].confirm if end.rounds else None
    return end.outcome == "undecided" and last is not None and last.stop == "money"


def _more_money(keeper: ImproveKeeper) -> str:
    return f"whet improve --resume {keeper.folder.id} --max-cost USD goes on with more money"


def _how_to_resume(keeper: ImproveKeeper, end: EndedEarly) -> str:
    if end.outcome == "undecided":
        return _more_money(keeper)
    return f"whet improve --resume {keeper.folder.id}"


def _next_step(keeper: ImproveKeeper, end: LoopEnd, *, is_applied: bool) -> str | None:
    """Return what to do with what came of the run."""
    document = keeper.document
    # It is read again in other folders, so paths are whole.
    skill = document.skill
    if end.outcome == "succeeded" and is_applied:
        return f"look at what was written: git -C {shlex.quote(skill)} diff"
    if end.outcome == "succeeded":
        patch = shlex.quote(str(keeper.folder.path.resolve() / PATCH))
        return f"look at the patch, and apply it: git -C {shlex.quote(skill)} apply {patch}"
    if end.outcome == "proposed":
        folder = shlex.quote(str(keeper.folder.candidates.resolve()))
        return f"read what is in {folder}, and race what you like: whet improve {shlex.quote(skill)} --candidate DIR"
    if end.outcome == "undecided":
        held_out = len(document.split.held_out) if document.split else 0
        return (
            f"add held-out cases, which count most (there are {held_out}, and 20 are good), "
            "or allow more rounds of trials (--max-rounds)"
        )
    return None


def _apply(keeper: ImproveKeeper, request: ImproveRequest) -> bool:
    """Write the accepted version into the skill, if that was asked for."""
    if not request.apply:
        return False
    folder, document = keeper.folder, keeper.document
    versions = sorted(folder.path.glob("start/*/*/"), key=lambda path: int(path.parent.name))
    apply_version(Path(document.skill), versions[0], versions[-1])
    return True


def _write_report(keeper: ImproveKeeper) -> None:
    folder = keeper.folder
    with writing(folder.path):
        text = improve_report(keeper.document).encode("utf-8", "backslashreplace")
        write_atomically(folder.path / REPORT_MD, text, mode=PRIVATE)
        write_report(keeper.document, folder.path)


def _exit_code(document: ImproveDocument, *, is_strict: bool) -> int:
    codes = {
        "succeeded": exit_codes.DONE,
        "proposed": exit_codes.DONE,
        "no_winner": exit_codes.FAILED if is_strict else exit_codes.DONE,
        "undecided": exit_codes.UNDECIDED,
        "refused": exit_codes.USAGE,
        "interrupted": exit_codes.INTERRUPTED,
    }
    return codes.get(document.outcome or "failed", exit_codes.ERRORED)
