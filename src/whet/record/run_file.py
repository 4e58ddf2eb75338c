"""run.json: what a run was asked to do, written when it begins and read back by everything that comes later."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct, field, structs, to_builtins
from msgspec.structs import replace

from whet.errors import StoreError
from whet.model import codec
from whet.model.callable import EvaluatorKind
from whet.model.comparison import Until
from whet.model.request import RunRequest, Selection
from whet.model.run import Execution, Plan, RunWarning
from whet.model.suite import AS_WRITTEN, Part, SuiteReading, edited_of, parts_of
from whet.reading.files import read_file
from whet.record.folder import PRIVATE, RUN_FILE, write_atomically, writing
from whet.suites.digests import case_digest

# The format of the record: of run.json, and of the journal, whose first line has the hash of run.json.
FORMAT = "whet/run/3"


class TypedCommand(Struct, frozen=True, kw_only=True):
    """The words that a run was started with, and the folder that its paths start from."""

    cwd: str | None = None
    again: tuple[str, ...] = ()
    going_on: tuple[str, ...] = ()


class EvalFacts(Struct, frozen=True, kw_only=True):
    """What only `whet eval` is asked: which skills on which tasks; in run.json, all paths are absolute."""

    skills: tuple[str, ...] = ()
    benchmark: str | None = None
    tasks: str | None = None
    # The only task, as `whet task` was given it.
    task: dict[str, Any] | None = None
    evaluator: EvaluatorKind | None = None
    check_schemas: bool = False


class SettingRow(Struct, frozen=True, kw_only=True):
    """A setting that was in force; without its value if that looks secret."""

    key: str
    value: str
    origin: str


class ShardFacts(Struct, frozen=True, kw_only=True):
    """Which shard a run is, and what all of them are together, so that their records can be merged."""

    number: int
    of: int
    # In how many pieces all of it can be dealt: shards above that number are empty.
    pieces: int
    # Of all shards together.
    plan: tuple[str, ...]
    trials: int
    fingerprint: str
    # The same as the fingerprint, wherever the project lies.
    content: str
    # The folders of this machine that paths in the record may begin with.
    places: tuple[str, ...] = ()


class PileFacts(Struct, frozen=True, kw_only=True):
    """What a shard of several suites is dealt from: their names, which of them this is, and the shard of all."""

    suites: tuple[str, ...]
    suite: str
    number: int


class ShardOrigin(Struct, frozen=True, kw_only=True):
    """A run whose record is a part of a merged one: its shard, its seed, and the hashes that it ended in."""

    run: str
    shard: int
    seed: int | None
    whet_version: str | None
    run_hash: str | None
    lines: int
    hash: str | None


class ExecutionDigests(Struct, frozen=True, kw_only=True):
    """What one execution measures, by digests: its content (`case`, `files`, `helpers`), its skills and so on.

    `program` is empty if the program of the agent is not on this machine. `trials` is how many were planned at first.
    """

    case: str
    files: str
    helpers: str
    skill: str
    settings: str
    agent: str
    program: str
    trials: int


class RunFile(Struct, frozen=True, kw_only=True):
    """What run.json says."""

    schema: str | None = None
    whet_version: str | None = None
    suite: str | None = None
    suite_path: str | None = None
    suite_digest: str | None = None
    fingerprint: str | None = None
    config_file: str | None = None
    flags: dict[str, Any] = field(default_factory=dict)
    selection: Selection = field(default_factory=Selection)
    # The run whose failures were selected, and those whose failures it had selected itself.
    selected_from: tuple[str, ...] = ()
    settings: tuple[SettingRow, ...] = ()
    typed: TypedCommand = TypedCommand()
    update_snapshots: bool = False
    model: str | None = None
    in_place: bool = False
    reading: SuiteReading = AS_WRITTEN
    fail_fast: bool = False
    strict: bool = False
    skill: str | None = None
    skill_digest: str | None = None
    more_reporters: tuple[str, ...] = ()
    workspace: dict[str, Any] | None = None
    trials: int | None = None
    # A line for each execution, for people.
    plan: tuple[str, ...] = ()
    # The arms as they were typed, the commits of their skills, what each one is, and the order of their rounds.
    arms: tuple[str, ...] = ()
    commits: dict[str, str] = field(default_factory=dict)
    arm_facts: dict[str, dict[str, str]] = field(default_factory=dict)
    # The arms that do not differ in anything, in groups.
    alike: tuple[tuple[str, ...], ...] | None = None
    baseline: str | None = None
    # Whether these are arms that somebody defined.
    compares: bool = False
    seed: int | None = None
    until: Until | None = None
    # The random word in the copies of each arm's skill that agents are given.
    watermarks: dict[str, str] = field(default_factory=dict)
    # The cases that count nowhere, with the controls that pass them.
    voided: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # What readers of its results must know.
    warnings: tuple[RunWarning, ...] = ()
    # How much each case counts, and a digest of what it asks and checks.
    weights: dict[str, float] = field(default_factory=dict)
    case_digests: dict[str, str] = field(default_factory=dict)
    # Of the cases that have some.
    tags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # The part of each case that has one, and the cases that were edited since they were held out.
    splits: dict[str, Part] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    # What each execution measures, by its name, to tell later what has changed since.
    measured: dict[str, ExecutionDigests] = field(default_factory=dict)
    # The hash of the list of what agents started from.
    sources: str | None = None
    # The hash of the texts that it starts from.
    contents: str | None = None
    # What was typed after `whet`.
    command: str | None = None
    # Only of a regraded run, and of one of `whet eval`.
    regraded_from: str | None = None
    eval: EvalFacts | None = None
    # Only of a shard, of a shard of several suites, and of what shards were merged into.
    shard: ShardFacts | None = None
    pile: PileFacts | None = None
    merged: tuple[ShardOrigin, ...] = ()

    def own_runs(self, name: str) -> tuple[str, ...]:
        """Return the runs that its trials are of: its own *name*, and those that it regrades or was merged from."""
        return (name, *((self.regraded_from,) if self.regraded_from else ()), *(part.run for part in self.merged))

    def setting(self, key: str) -> str | None:
        """Return the text of the setting that was in force for the dotted *key*."""
        return next((row.value for row in self.settings if row.key == key), None)


class RunOrigin(Struct, frozen=True, kw_only=True):
    """What run.json says of a run that `whet run` of one suite did not start."""

    command: str | None = None
    eval: EvalFacts | None = None
    pile: PileFacts | None = None
    # The name of the run that is regraded, and what its run.json says.
    regraded_from: str | None = None
    first: RunFile | None = None

    def added_to(self, run_file: RunFile) -> RunFile:
        """Return *run_file* with these facts; a regraded run keeps its workspace and its selection."""
        first = self.first or run_file
        return structs.replace(
            run_file,
            command=self.command or run_file.command,
            eval=self.eval,
            pile=self.pile,
            regraded_from=self.regraded_from,
            workspace=first.workspace,
            selected_from=first.selected_from,
        )


class _Head(Struct):
    schema: str | None = None


def read_run_file(folder: Path) -> RunFile:
    """Read what the run in *folder* was asked; raises `StoreError`."""
    path = folder / RUN_FILE
    try:
        data = read_file(path)
        _refuse_other(path, codec.decode(data, _Head).schema, FORMAT)
        return codec.decode(data, RunFile)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except codec.WireError as error:
        raise StoreError(f"{path} is not the record of a run: {error.message}") from error


def check_format(path: Path, due: str) -> None:
    """Refuse the document at *path* if it is of another format; one that cannot be read is left to its reader."""
    try:
        head = codec.decode_file(path, _Head)
    except (OSError, codec.WireError):
        return
    _refuse_other(path, head.schema, due)


def _refuse_other(path: Path, schema: str | None, due: str) -> None:
    if schema != due:
        raise StoreError(
            f"{path} is of {f'the format {schema}' if schema else 'no known format'}, and this whet reads {due}",
            hint="use the version of whet that wrote it, or run the suite again",
        )


def write_run_file(folder: Path, run_file: RunFile, mask: Callable[[Any], Any] = lambda facts: facts) -> None:
    """Write what was asked, without the secrets that *mask* takes out of it."""
    facts = to_builtins(structs.replace(run_file, schema=FORMAT))
    # Only what has no order gets one: cases and arms stay as they were written.
    if facts["selection"]["only"] is not None:
        facts["selection"]["only"].sort()
    with writing(folder / RUN_FILE):
        write_atomically(folder / RUN_FILE, codec.encode_pretty(mask(facts)), mode=PRIVATE)


def run_facts(request: RunRequest, settings: Iterable[tuple[str, str, str]], plan: Plan, *, version: str) -> RunFile:
    """Return what goes into run.json of every run; *settings* come without values that look secret."""
    return RunFile(
        whet_version=version,
        suite=plan.suite.name,
        suite_path=str(plan.suite.source),
        suite_digest=plan.suite.digest,
        fingerprint=fingerprint(plan),
        config_file=_absolute(request.config_file),
        flags={name: _absolute(value) if isinstance(value, Path) else value for name, value in request.flags.items()},
        selection=_selection(request, plan),
        selected_from=request.selected_from,
        settings=tuple(SettingRow(key=key, value=value, origin=origin) for key, value, origin in settings),
        typed=TypedCommand(cwd=str(Path.cwd()), again=request.again, going_on=request.resume_options),
        update_snapshots=request.update_snapshots,
        model=request.model,
        in_place=request.in_place,
        reading=request.reading,
        fail_fast=request.fail_fast,
        strict=request.strict,
        skill=_absolute(request.skill),
        skill_digest=plan.suite.skill.digest if plan.suite.skill else None,
        more_reporters=request.more_reporters,
        workspace=_workspace_facts(plan),
        trials=plan.trial_count,
        arms=request.arms,
        command=request.command,
        commits={arm.name: arm.commit for arm in plan.arms if arm.commit is not None},
        arm_facts={arm.name: arm.facts() for arm in plan.arms},
        alike=plan.alike,
        baseline=plan.baseline,
        compares=plan.compares,
        seed=plan.seed,
        until=plan.until,
        watermarks=dict(plan.watermarks),
        voided=dict(plan.voided),
        warnings=plan.warnings,
        weights={case.id: case.weight for case in plan.suite.cases},
        case_digests={case.id: case_digest(case) for case in plan.suite.cases},
        tags={case.id: case.tags for case in plan.suite.cases if case.tags},
        splits=parts_of(plan.suite.cases),
        edited=edited_of(plan.suite.cases),
        plan=_plan_lines(plan),
    )


def shard_facts(request: RunRequest, plan: Plan, pieces: int, places: Iterable[Path]) -> ShardFacts | None:
    """Return which shard *plan* is, and what all shards are together; None if it is none."""
    if request.selection.shard is None or not plan.whole:
        return None
    number, of = request.selection.shard
    full_plan = replace(plan, executions=plan.whole)
    roots = tuple(dict.fromkeys(str(place) for place in places if place != place.parent))
    return ShardFacts(
        number=number,
        of=of,
        pieces=pieces,
        plan=_plan_lines(full_plan),
        trials=full_plan.trial_count,
        fingerprint=fingerprint(full_plan),
        content=hashlib.sha256(remove_places(_plan_facts(full_plan).decode(), roots).encode()).hexdigest(),
        places=roots,
    )


def remove_places(text: str, places: Iterable[str]) -> str:
    """Return *text* as it is on every machine: without the folders that paths of this one begin with."""
    for place in sorted(places, key=len):
        text = text.replace(place, "<>")
    return text


def fingerprint(plan: Plan) -> str:
    """Return a digest of everything in a plan that results depend on."""
    return hashlib.sha256(_plan_facts(plan)).hexdigest()


def _plan_facts(plan: Plan) -> bytes:
    facts = [_execution_facts(execution, plan.added) for execution in plan.executions]
    common: list[Any] = [plan.retries, plan.check_timeout_s, plan.command_timeout_s, plan.fail_fast, plan.strict]
    if special := {arm.name: arm.facts() for arm in plan.arms if arm.facts().keys() - {"skill"}}:
        common.append(special)
    return codec.encode([facts, *common])


def _plan_lines(plan: Plan) -> tuple[str, ...]:
    return tuple(f"{execution} x{execution.trials}" for execution in plan.executions)


def _execution_facts(execution: Execution, more_trials: int) -> list[Any]:
    runner = execution.runner
    return [
        execution.case.id,
        [
            runner.id,
            runner.agent,
            runner.model,
            sorted((key, repr(value)) for key, value in runner.options.items()),
            runner.skills,
        ],
        execution.arm,
        execution.limits,
        execution.workspace,
        execution.trials - more_trials,
    ]


def _workspace_facts(plan: Plan) -> dict[str, Any]:
    """Return what workspaces begin as, which is the same for every execution."""
    executions = plan.whole or plan.executions
    spec = executions[0].workspace
    template = str(spec.template_dir) if spec.template_dir else None
    has_bootstrap = spec.bootstrap is not None or any(item.case.bootstrap for item in executions)
    cwd = str(spec.cwd) if spec.cwd else None
    return {"mode": spec.mode, "cwd": cwd, "template_dir": template, "bootstrap": has_bootstrap}


def _selection(request: RunRequest, plan: Plan) -> Selection:
    if not request.last_failed:
        return request.selection
    # Resolve --last-failed now: on resume, this run would itself be the last one.
    only = frozenset(execution.key for execution in plan.whole or plan.executions)
    return replace(request.selection, only=only)


def _absolute(path: Path | None) -> str | None:
    return str(path.resolve()) if path else None
