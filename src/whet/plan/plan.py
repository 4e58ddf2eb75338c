"""Make the plan of a run: select cases, runners and arms, and fill in every default."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from msgspec.structs import replace

from whet.errors import NothingSelected, PathRefused, UnknownName, UsageError
from whet.model.arm import Arm, baseline_of
from whet.model.comparison import Until
from whet.model.request import Selection, Settings
from whet.model.run import NO_AGENT, Execution, Plan, Runner, ScheduleName, in_arm
from whet.model.suite import NO_SKILL, SKILL, Case, Limits, Part, Suite, WorkspaceSpec, parts_of
from whet.reading.paths import refusals
from whet.reading.plugin_folder import can_be_given, skill_hint
from whet.reading.text import count, path_for_people, quoted
from whet.suites.starter import installed_agent, settings_text

# What makes a name a pattern.
_MARKS = re.compile(r"[*?\[]")
_EXAMPLE = """write one into whet.toml, such as:
[runners.demo.agent]
type = "command"
command = "./agent.sh\""""


def make_plan(
    suite: Suite,
    settings: Settings,
    selection: Selection,
    *,
    model: str | None = None,
    in_place: bool = False,
    fail_fast: bool = False,
    strict: bool = False,
    arms: tuple[Arm, ...] = (),
    seed: int | None = None,
    watermarks: Mapping[str, str] | None = None,
    words: Mapping[str, str] | None = None,
) -> Plan:
    """Plan a run of *suite*, in declared order; raises `UsageError` if nothing is selected.

    Without *arms* they are the suite's own; *seed* and *watermarks* are of an earlier run; *words* are for messages.
    """
    workspace = _in_place(suite) if in_place else run_workspace(suite, settings)
    arms = arms or tuple(Arm(name=name, skill=suite.skill if name == SKILL else None) for name in suite.arms)
    selection_rows = select_rows(suite, settings, selection, arms, words or {})
    compared_arms = tuple(arm for arm in arms if any(arm is row_arm for _, _, row_arm in selection_rows))
    _refuse_idle(() if selection.only is not None else [arm for arm in arms if arm not in compared_arms])
    baseline = baseline_of([arm.name for arm in compared_arms])
    beside = {case.id for case, _, arm in selection_rows if arm.name != baseline}
    executions = [
        in_arm(
            suite,
            Execution(
                case=case,
                # The model of the arm, the one that was typed, then the case's (or its suite's), then the runner's.
                runner=replace(runner, model=arm.model or model or case.model or runner.model),
                arm=arm.name,
                limits=case_limits(suite, case, settings),
                workspace=with_placed(case, case.workspace or workspace),
                trials=_trials(case, runner, settings),
                baseline=arm.name == baseline and case.id in beside,
            ),
            arm,
        )
        for case, runner, arm in selection_rows
    ]
    schedule = "serial" if in_place else _schedule(settings, workspace)
    return Plan(
        suite=suite,
        executions=take_shard(executions, selection.shard, together=baseline is not None),
        whole=() if selection.shard is None else tuple(executions),
        schedule=schedule,
        max_parallel=1 if schedule == "serial" else settings.max_parallel,
        retries=settings.retries,
        check_timeout_s=settings.check_timeout_s,
        command_timeout_s=settings.command_timeout_s,
        fail_fast=fail_fast,
        strict=strict,
        arms=compared_arms,
        baseline=baseline,
        seed=_order_seed(baseline, seed),
        watermarks=_watermarks(suite, compared_arms) if watermarks is None else watermarks,
    )


def _order_seed(baseline: str | None, earlier_seed: int | None) -> int | None:
    """Return the seed of the order of trials of compared arms: that of an earlier run, or a new one."""
    if baseline is None:
        return None
    return int.from_bytes(os.urandom(4)) if earlier_seed is None else earlier_seed


def _trials(case: Case, runner: Runner, settings: Settings) -> int:
    """Return how often a case is run: as was typed, then as it says itself, then as the settings say."""
    # Without an agent, a second trial has the same result.
    if settings.is_for_this_run("run.trials") or runner.agent == NO_AGENT:
        return settings.trials
    return case.trials or settings.trials


def until_decided(plan: Plan, settings: Settings, until: Until) -> Plan:
    """Return *plan* as one that may stop after each round; refuses one that has nothing to decide."""
    if plan.baseline is None:
        raise UsageError(
            "--until-decided compares arms, and this run has one", hint="name two: --arm old=... --arm new=..."
        )
    if settings.is_for_this_run("run.trials"):
        raise UsageError(
            f"--until-decided says how many trials there are, and so does {settings.origins['run.trials']}",
            hint="leave one of them out; --max-rounds is the most trials per case and arm",
        )
    return replace(plan.ended_after(until.rounds), until=until)


def _refuse_idle(arms: Sequence[Arm]) -> None:
    for arm in arms:
        if arm.runner is not None:
            raise UsageError(f'nothing is selected for the arm "{arm.name}"', hint=f"it runs on {arm.runner} only")


def _watermarks(suite: Suite, arms: Sequence[Arm]) -> dict[str, str]:
    digests = {arm.name: arm.skill.digest for arm in arms if arm.skill is not None}
    if not digests or suite.skill is None:
        return {}
    from whet.workspace.watermark import new_watermarks  # most runs have no skill

    return new_watermarks(digests)


def with_placed(case: Case, spec: WorkspaceSpec) -> WorkspaceSpec:
    """Return the workspace with what the case puts into it."""
    if not case.placed:
        return spec
    if spec.mode == "shared":
        raise UsageError(
            f"{case.id} needs files in its workspace, and all cases work in one folder",
            hint="leave out run.cwd, --cwd and the shared workspace",
        )
    return replace(spec, placed=(*spec.placed, *case.placed))


def _in_place(suite: Suite) -> WorkspaceSpec:
    """Return the folder that workspaces would be copies of, to work in it directly."""
    spec = suite.workspace
    if spec is None or spec.template_dir is None:
        raise UsageError(
            f"{suite.name} has no project to work in", hint="--in-place is for suites whose workspaces copy a folder"
        )
    return replace(spec, mode="shared", cwd=spec.template_dir, template_dir=None)


def run_workspace(suite: Suite, settings: Settings) -> WorkspaceSpec:
    """Return the workspace of the suite, or the configured one; a folder named by `run.cwd` is shared."""
    cwd = settings.cwd
    spec = suite.workspace or settings.workspace or WorkspaceSpec(mode="shared" if cwd else "isolated")
    if cwd is None:
        return spec
    if spec.mode == "isolated":
        origin = settings.origins.get("run.cwd", "run.cwd")
        raise UsageError(
            f"{suite.name} uses isolated workspaces, but a folder to work in is set ({origin})",
            hint="leave out run.cwd and --cwd, or use a shared workspace",
        )
    # A flag outranks the suite, and the suite outranks files.
    return replace(spec, cwd=cwd) if spec.cwd is None or settings.is_for_this_run("run.cwd") else spec


def case_limits(suite: Suite, case: Case, settings: Settings) -> Limits:
    """Return the limits: given for this run, then those of the case, then of the settings; the fewer steps count."""
    limits = case.limits
    if limits.timeout_s is None and settings.is_default("defaults.timeout_ms"):
        limits = replace(limits, timeout_s=suite.usual_timeout_s)
    own_counts = limits.timeout_s is not None and not settings.is_for_this_run("defaults.timeout_ms")
    steps = [limit for limit in (limits.max_steps, settings.max_steps) if limit is not None]
    own_budget = limits.budget_usd is not None and not settings.is_for_this_run("defaults.budget_usd")
    return replace(
        limits,
        timeout_s=limits.timeout_s if own_counts else settings.timeout_s,
        max_steps=min(steps, default=None),
        budget_usd=limits.budget_usd if own_budget else settings.budget_usd,
        budget_tokens=settings.budget_tokens,
        budget_requests=settings.budget_requests,
    )


def _schedule(settings: Settings, workspace: WorkspaceSpec) -> ScheduleName:
    if settings.schedule is not None:
        return settings.schedule
    # Agents that work in one folder at the same time would change one another's results.
    return "serial" if workspace.mode == "shared" else "parallel"


def select_rows(
    suite: Suite, settings: Settings, selection: Selection, arms: Sequence[Arm], words: Mapping[str, str]
) -> list[tuple[Case, Runner, Arm]]:
    """Return what is selected, in declared order: cases, then runners, then arms.

    *words* may give other names for a case and a runner in messages.
    """
    case_ids = fitting_ids(selection.cases, [case.id for case in suite.cases], words.get("case", "case"))
    must_know("tag", selection.tags, suite.tags)
    refuse_unsplit(suite, selection.splits)
    _must_have_arms(suite, selection.arms, arms)
    runners = _runners(suite, settings, selection)
    must_know(words.get("runner", "runner"), selection.runners, [runner.id for runner in runners])
    # Tags from a file may be meant for another suite of the project: only typed ones must be known here.
    # And what failed last time may have been chosen by other tags than those of the settings.
    tags = selection.tags or (settings.tags if selection.only is None else ())
    cases = [
        case
        for case in suite.cases
        if (case_ids is None or case.id in case_ids)
        and (not tags or set(tags) & set(case.tags))
        and (not selection.splits or case.split in selection.splits)
    ]
    rows = [row for row in product(cases, runners, arms) if _is_selected(row, selection)]
    _refuse_without_skill(cases, arms, selection)
    _refuse_without_agent(rows)
    if not rows:
        raise NothingSelected(
            f"nothing is selected from {suite.name}", hint="; ".join(_reasons(suite, tags, selection))
        )
    return rows


def refuse_unsplit(suite: Suite, splits: Sequence[Part]) -> None:
    """Refuse to select by *splits* in a suite whose cases have no part."""
    if splits and not parts_of(suite.cases):
        path = path_for_people(suite.source, Path.cwd())
        raise UsageError(
            f"nothing says which cases of {suite.name} are {' or '.join(splits)}", hint=f"draw it: whet split {path}"
        )


def _is_selected(row: tuple[Case, Runner, Arm], selection: Selection) -> bool:
    case, runner, arm = row
    if not _takes(case, arm) or arm.runner not in (None, runner.id):
        return False
    if selection.runners and runner.id not in selection.runners:
        return False
    if selection.arms and arm.name not in selection.arms:
        return False
    return selection.only is None or (case.id, runner.id, arm.name) in selection.only


def fitting_ids(patterns: Sequence[str], ids: Sequence[str], kind: str) -> frozenset[str] | None:
    """Return the ids that *patterns* names, or that fit one of its patterns; None if it asks for nothing special."""
    if not patterns:
        return None
    # An id may look like a pattern.
    fitting = {
        name: [name] if name in ids else [identifier for identifier in ids if fnmatchcase(identifier, name)]
        for name in patterns
    }
    must_know(kind, [name for name, matches in fitting.items() if not matches], ids)
    return frozenset(identifier for matches in fitting.values() for identifier in matches)


def _takes(case: Case, arm: Arm) -> bool:
    """Return whether a case is run in an arm; some are about the skill itself."""
    return not case.arms or arm.kind in case.arms


def _must_have_arms(suite: Suite, names: Sequence[str], arms: Sequence[Arm]) -> None:
    if SKILL in names and suite.arms == (NO_SKILL,):
        raise UsageError(f'the arm "{SKILL}" needs a skill', hint="name its folder with --skill")
    if NO_SKILL in names and suite.arms == (SKILL,):
        raise UsageError(f"{suite.name} does not run without the skill", hint="set supports_no_skill in it")
    try:
        must_know("arm", names, [arm.name for arm in arms])
    except UnknownName as error:
        name = error.names[0]
        error.hint = (
            skill_hint(Path(name).name, name)
            or f"{error.hint}; define one like --arm {name}=skill:./v2,model:large, or in the settings"
        )
        raise


def _runners(suite: Suite, settings: Settings, selection: Selection) -> tuple[Runner, ...]:
    """Return the configured runners; if there are none and no agent is needed, one that does nothing."""
    bare = any(not case.needs_agent for case in suite.cases)
    if not settings.runners and not bare:
        raise UsageError(
            "no runners are configured", hint="\n".join((*_search_notes(settings), _runner_to_add(settings)))
        )
    is_requested = selection.runners == (NO_AGENT,) and all(runner.id != NO_AGENT for runner in settings.runners)
    return (
        (Runner(id=NO_AGENT, agent=NO_AGENT),) if bare and (is_requested or not settings.runners) else settings.runners
    )


def _runner_to_add(settings: Settings) -> str:
    """Return a runner to write into the settings: the agent that is installed, or else an example."""
    agent = installed_agent()
    if settings.file is None or agent is None:
        return _EXAMPLE
    return f"{settings.file} has none, and {agent} is installed: add\n{settings_text(agent).rstrip()}"


def _search_notes(settings: Settings) -> Iterator[str]:
    """Yield what was looked for, and where the search for settings ended, if it did not reach the top."""
    yield from settings.notices
    if settings.file is None:
        yield 'without settings, whet uses an agent on your PATH, and there is none: "whet doctor" lists those it knows'
        if settings.searched_to is not None:
            yield f"settings were searched for up to {settings.searched_to}"


def _refuse_without_skill(cases: Sequence[Case], arms: Sequence[Arm], selection: Selection) -> None:
    """Refuse cases that are about the skill if there is none."""
    selected_cases = [
        case for case in cases if not selection.arms or not case.arms or set(selection.arms) & set(case.arms)
    ]
    missing = [case.id for case in selected_cases if not any(_takes(case, arm) for arm in arms)]
    if missing:
        raise UsageError(
            f"there is no skill to load, which is what {quoted(missing)} is about",
            hint="name the folder of the skill with --skill, or leave the case out",
        )


def _refuse_without_agent(rows: Sequence[tuple[Case, Runner, Arm]]) -> None:
    bare = dict.fromkeys(case.id for case, runner, _ in rows if case.needs_agent and runner.agent == NO_AGENT)
    if bare:
        raise UsageError(f"only an agent can answer {quoted(list(bare))}: configure a runner", hint=_EXAMPLE)
    mute = dict.fromkeys(case.id for case, runner, _ in rows if not case.prompt and runner.agent != NO_AGENT)
    if mute:
        raise UsageError(
            f"no instruction for an agent in {quoted(list(mute))}",
            hint=f"write one, or let only the verifier run with --runner {NO_AGENT}",
        )


def _reasons(suite: Suite, tags: Sequence[str], selection: Selection) -> Iterator[str]:
    """Yield what may have left nothing to select."""
    if not suite.cases:
        yield "the suite has no cases"
    if selection.cases:
        yield f"asked for case {quoted(selection.cases)}"
    if tags:
        yield f"asked for tag {quoted(tags)}, the suite has {quoted(suite.tags) or 'none'}"
    if selection.splits:
        yield f"asked for what is {' or '.join(selection.splits)}"
    if selection.arms:
        yield f"asked for arm {quoted(selection.arms)}"
    if selection.only is not None:
        yield "asked for what failed last time"


def must_know(kind: str, names: Sequence[str], valid_names: Sequence[str]) -> None:
    """Refuse *names* that are not *valid_names*; the error suggests the nearest ones."""
    unknown = [name for name in names if name not in valid_names]
    if not unknown:
        return
    near = [match for name in unknown for match in get_close_matches(name, valid_names, n=1)]
    hint = f"did you mean {quoted(near)}?" if near else f"known: {quoted(valid_names) or 'none'}"
    verb = "fits" if all(map(_MARKS.search, unknown)) else "is called"
    raise UnknownName(f"no {kind} {verb} {quoted(unknown)}", hint=hint, kind=kind, names=unknown, known=valid_names)


def take_shard(executions: list[Execution], shard: tuple[int, int] | None, *, together: bool) -> tuple[Execution, ...]:
    """Return the part of *executions* that was asked for; with *together*, all of a case are in one part."""
    if shard is None:
        return tuple(executions)
    number, shards = shard
    parts = pieces(executions, together=together)[number - 1 :: shards]
    part = tuple(execution for piece in parts for execution in piece)
    if not part:
        amount = count(len(executions), "execution")
        raise NothingSelected(f"shard {number}/{shards} is empty", hint=f"only {amount} selected: use fewer shards")
    return part


def pieces(executions: Iterable[Execution], *, together: bool) -> list[list[Execution]]:
    """Return what shards are dealt: each execution alone, or with *together* all of a case."""
    pieces_by_key: dict[str, list[Execution]] = {}
    for execution in executions:
        pieces_by_key.setdefault(execution.case.id if together else str(execution), []).append(execution)
    return list(pieces_by_key.values())


def mount_problems(key: str, mounts: Iterable[str | Path]) -> Iterator[str]:
    """Yield a line for each of the *mounts* at *key* that cannot be used."""
    for index, mount in enumerate(mounts):
        try:
            Path(mount).stat()
        except OSError as error:
            reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be used: {error.strerror}"
            yield f"{key}[{index}]: {mount} {reason}"


def skill_problems(key: str, skills: Iterable[Path]) -> Iterator[str]:
    """Yield a line for each of the *skills* at *key* that is not a skill or cannot be read."""
    for skill in skills:
        try:
            with refusals():
                if not can_be_given(skill):
                    with suppress(FileNotFoundError, NotADirectoryError):
                        # A folder that cannot be read may have one.
                        (skill / "SKILL.md").stat()
                    yield f"{key}: {skill} is not a skill: it has no SKILL.md"
        except PathRefused as error:
            yield f"{key}: {error.message}"


def template_problems(plan: Plan, settings: Settings) -> Iterator[str]:
    """Yield what is wrong with the template of the settings; a template of the suite is checked with the suite."""
    if plan.suite.workspace is not None or settings.workspace is None or settings.workspace.template_dir is None:
        return
    template = settings.workspace.template_dir
    if not template.is_dir():
        yield f"run.workspace.template_dir: {template} {'is not a folder' if template.exists() else 'does not exist'}"


def describe_plan(plan: Plan) -> list[str]:
    """Return the plan for a person to read: totals, schedule, and each execution with its claims."""
    executions = plan.executions
    cases = len({execution.case.id for execution in executions})
    runners = len({execution.runner.id for execution in executions})
    rows = [_row(execution) for execution in executions]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    matrix = f"{count(cases, 'case')} on {count(runners, 'runner')}"
    totals = f"{count(len(executions), 'execution')}, {count(plan.trial_count, 'trial')}"
    retries = count(plan.retries, "retry", "retries")
    return [
        f"{plan.suite.name}: {matrix}, {totals}",
        f"schedule {plan.schedule}, at most {plan.max_parallel} at a time, {retries} for each trial",
        *((f"until decided, at most {plan.until.rounds} rounds",) if plan.until else ()),
        *_left_out(plan),
        "",
        *_listing(executions, ["  ".join(map(str.ljust, row, (*widths, 0))) for row in rows]),
    ]


def _left_out(plan: Plan) -> Iterator[str]:
    """Yield what agents are not given of the skill; in every arm it is the same."""
    paths = sorted({path for arm in plan.arms if arm.skill is not None for path in arm.skill.left_out})
    if paths:
        yield f"left out of the skill: {', '.join(paths)}"


def _listing(executions: Sequence[Execution], lines: Sequence[str]) -> Iterator[str]:
    """Yield the line of each execution; below the first one of a case, its claims."""
    from whet.reading.claims.objects import write_object  # only this needs it, and every command imports plans

    shown_cases: set[str] = set()
    for execution, line in zip(executions, lines, strict=True):
        yield line
        case = execution.case
        if case.id not in shown_cases:
            shown_cases.add(case.id)
            for check in case.checks:
                if check.grader == "claim":
                    turn = f"turn {check.turn}: " if check.turn else ""
                    yield f"    {turn}{json.dumps(write_object(check.params['claim']), ensure_ascii=False)}"


def _turns(case: Case) -> Iterator[str]:
    if case.user is not None:
        yield f"at most {count(case.user.max_turns, 'turn')} with a user"
    elif case.then:
        yield count(len(case.then) + 1, "turn")


def _row(execution: Execution) -> tuple[str, str, str, str]:
    limits = execution.limits
    parts = [count(execution.trials, "trial"), *_turns(execution.case), f"{limits.timeout_s:g} s"]
    if execution.case.split is not None:
        parts.insert(0, execution.case.split)
    if limits.max_steps is not None:
        parts.append(f"at most {count(limits.max_steps, 'step')}")
    if limits.budget_usd is not None:
        parts.append(f"at most ${limits.budget_usd:g}")
    if limits.budget_tokens is not None:
        parts.append(f"at most {count(limits.budget_tokens, 'token')}")
    if limits.budget_requests is not None:
        parts.append(f"at most {count(limits.budget_requests, 'request')}")
    runner = execution.runner
    target = f"{runner.agent} {runner.model}" if runner.model else runner.agent
    arm = "" if execution.arm == "default" else f"/{execution.arm}"
    where = execution.workspace.mode if execution.workspace.cwd is None else f"shared {execution.workspace.cwd}"
    return execution.case.id, f"{runner.id}{arm}", f"({target})", ", ".join((*parts, where))
