"""The tool `run`: one run at a time, in a process of its own, within the bounds that its caller and operator set."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from whet.errors import UsageError
from whet.mcp_server.answers import ArmArgument, Omissions, RunReport, RunSummary
from whet.mcp_server.calls import WhetCall, call_whet, refuse_failed
from whet.mcp_server.limits import OperatorLimits, RunBounds
from whet.mcp_server.project import ServedProject
from whet.mcp_server.refusals import in_arguments
from whet.model.request import Settings
from whet.model.spending import Spending
from whet.reading.text import duration, one_line
from whet.record.folder import RUN_FILE
from whet.view.run import RunView

_PROGRESS = re.compile(r" *(\d+)/(\d+) +\S")
_LINES, _RUNS, _LONGEST = 80, 50, 300
_NONE, _GIT = "none", "git:"
_MEANINGS = {
    0: "every trial went as expected, or arms were compared and every trial ran",
    1: "some trials did not go as expected",
    3: "some trials errored, which says nothing about the agent",
    4: "the run could not be recorded",
    5: "it is not known yet",
    130: "the run was interrupted; resume it",
}
Progress = Callable[[float, float | None, str | None], Awaitable[None]]


class RunArguments(Struct, frozen=True, kw_only=True):
    """What a caller asks of a run."""

    path: str | None = None
    skill: str | None = None
    cases: Sequence[str] = ()
    tags: Sequence[str] = ()
    runners: Sequence[str] = ()
    arms: Sequence[ArmArgument] = ()
    trials: int | None = None
    model: str | None = None
    until_decided: bool = False
    effect_points: float | None = None
    strict_judge: bool = False
    resume: str | None = None
    add_trials: int | None = None
    max_cost_usd: float | None = None
    max_minutes: float | None = None


class Account(Struct, frozen=True, kw_only=True):
    """What one call of the tool spent, as far as it is known, and what it was allowed."""

    spent_usd: float | None
    unknown_costs: int
    bounds: RunBounds


class RunTool:
    """Runs suites of one project, and keeps the account of what they cost."""

    def __init__(self, project: ServedProject, limits: OperatorLimits) -> None:
        self._project = project
        self._limits = limits
        self._busy = False

    async def run(self, arguments: RunArguments, progress: Progress) -> RunReport:
        """Run what was asked and return how it ended; if we are cancelled, all that it started ends."""
        if self._busy:
            raise UsageError("a run of this server is under way", hint="wait until it ends, or cancel it")
        self._busy = True
        try:
            return await self._run(arguments, progress)
        finally:
            self._busy = False

    async def _run(self, arguments: RunArguments, progress: Progress) -> RunReport:
        start = self._project.path(arguments.path) if arguments.path is not None else None
        settings = self._project.settings(start)
        bounds = self._limits.bound(arguments.max_cost_usd, arguments.max_minutes, settings.max_cost_usd)
        resumed = self._resumed(arguments, settings)
        already = _spending(resumed)
        already_usd = already.cost_usd or 0.0
        before = self._project.run_folders(settings)
        words = [
            *self._words(arguments, resumed),
            f"--output-dir={settings.output_dir}",
            f"--max-cost={bounds.cost_usd + already_usd!r}",
        ]

        async def note(line: str) -> None:
            if match := _PROGRESS.match(line):
                await progress(float(match[1]), float(match[2]), one_line(line.strip(), _LONGEST))

        try:
            call = await call_whet(
                ["run", *words, "--", *([str(start)] if start else [])],
                cwd=self._project.root,
                seconds=bounds.seconds,
                on_line=note,
            )
        finally:
            # Also if the run was cancelled: what it has spent is spent.
            fresh = self._project.run_folders(settings)
            folders = [place for name, place in fresh.items() if name not in before or place == resumed]
            total = _spending(*folders)
            self._limits.spent_usd += max(0.0, (total.cost_usd or 0.0) - already_usd)
        account = Account(
            spent_usd=None if total.cost_usd is None else max(0.0, total.cost_usd - already_usd),
            unknown_costs=max(0, total.unknown - already.unknown),
            bounds=bounds,
        )
        return self._answer(call, self._of_call(call, folders), account)

    def _resumed(self, arguments: RunArguments, settings: Settings) -> Path | None:
        if (arguments.path is None) == (arguments.resume is None):
            raise UsageError(
                "name what to run with path, or a run to go on with by resume",
                hint="path is a suite, the folder of a skill, or a folder of suites",
            )
        return None if arguments.resume is None else self._project.run_folder(arguments.resume, settings)

    def _words(self, arguments: RunArguments, resumed: Path | None) -> Iterator[str]:
        """Yield the options of `whet run`; each has its value in the same word, so that none is taken for another."""
        yield "--reporter=terminal"
        values = {
            "--skill": self._project.path(arguments.skill) if arguments.skill is not None else None,
            "--trials": arguments.trials,
            "--model": arguments.model,
            "--effect": arguments.effect_points,
            "--resume": resumed.name if resumed else None,
            "--add-trials": arguments.add_trials,
        }
        yield from (f"{name}={value}" for name, value in values.items() if value is not None)
        yield from (f"--case={case}" for case in arguments.cases)
        yield from (f"--tag={tag}" for tag in arguments.tags)
        yield from (f"--runner={runner}" for runner in arguments.runners)
        yield from (f"--arm={self._arm(arm)}" for arm in arguments.arms)
        if arguments.until_decided:
            yield "--until-decided"
        if arguments.strict_judge:
            yield "--strict-judge"

    def _arm(self, arm: ArmArgument) -> str:
        """Return an arm as `--arm` takes it, with the paths of the project in full."""
        values = {
            "skill": self._skill(arm.skill) if arm.skill is not None else None,
            "model": arm.model,
            "runner": arm.runner,
            "prompt": str(self._project.path(arm.prompt)) if arm.prompt is not None else None,
        }
        pieces = [f"{key}:{value}" for key, value in values.items() if value is not None]
        if any("," in piece for piece in pieces):
            raise UsageError(f"arm {arm.name}: a value has a comma", hint=f"define [arms.{arm.name}] in whet.toml")
        return f"{arm.name}={','.join(pieces)}" if pieces else arm.name

    def _skill(self, text: str) -> str:
        return text if text == _NONE or text.startswith(_GIT) else str(self._project.path(text))

    def _of_call(self, call: WhetCall, folders: Sequence[Path]) -> list[Path]:
        """Return the runs of a call: it prints their ids, and somebody else may run at the same time."""
        runs = [place for place in folders if (place / RUN_FILE).is_file()]
        printed = "\n".join(call.out.lines)
        return runs if call.out.cut else [run for run in runs if run.name in printed]

    def _answer(self, call: WhetCall, folders: Sequence[Path], account: Account) -> RunReport:
        if not folders:
            # The run was refused before it began.
            refuse_failed(call, account.bounds.seconds)
            raise UsageError(in_arguments("\n".join(call.err.lines[:50])) or "nothing ran, and whet did not say why")
        omissions = Omissions()
        remedy = "call failures and trial for details, or read the folder in record"
        screen = [line for line in (*call.out.lines, *call.err.lines) if line.strip()]
        runs = [self._summary(folder) for folder in folders]
        if call.out.cut or call.err.cut:
            omissions.sentences.append(f"screen: the run printed more than whet keeps; {remedy}")
        ended: Literal["completed", "out of time"] = "out of time" if call.timed_out else "completed"
        return RunReport(
            ended=ended,
            exit_code=call.code,
            meaning=_meaning(call, account.bounds),
            runs=omissions.first(runs, _RUNS, "runs", remedy),
            screen=omissions.last([one_line(line, _LONGEST) for line in screen], _LINES, "screen", remedy),
            spent_usd=account.spent_usd,
            unknown_costs=account.unknown_costs,
            left_usd_on_this_server=self._limits.left_usd,
            next=list(_next(runs)),
            left_out=omissions.sentences,
        )

    def _summary(self, folder: Path) -> RunSummary:
        view = RunView(folder)
        head = view.head
        return RunSummary(
            run=head.id,
            suite=head.suite,
            status=head.status,
            counts=head.counts,
            arms=list(head.arms[:50]),
            decision=head.decision.verdict if head.decision else None,
            cost_usd=head.cost_usd,
            record=self._project.shown(folder),
        )


def _spending(*folders: Path | None) -> Spending:
    """Return what the runs in *folders* have cost; a batch has none of its own."""
    runs = (folder for folder in folders if folder is not None and (folder / RUN_FILE).is_file())
    return sum((RunView(folder).spending for folder in runs), Spending())


def _meaning(call: WhetCall, bounds: RunBounds) -> str:
    if call.timed_out:
        return f"its time of {duration(bounds.seconds)} was over; its record is kept, and resume goes on with it"
    return _MEANINGS.get(call.code, f"whet run ended with {call.code}")


def _next(runs: Sequence[RunSummary]) -> Iterator[str]:
    for run in runs:
        if run.status != "completed":
            yield f"run with resume={run.run} goes on with it"
        if len(run.arms) > 1:
            yield f"gate with run={run.run} says whether the candidate may replace its baseline"
        if any(run.counts.get(status) for status in ("failed", "unexpected_passed", "errored")):
            yield f"failures with run={run.run} says what went wrong"
