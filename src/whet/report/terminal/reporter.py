"""The terminal reporter: a header with the plan, then progress, then the end of the run."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from whet.errors import UsageError
from whet.model.run import Plan, RunInfo
from whet.model.run_events import (
    Looked,
    Notice,
    RunEnded,
    RunEvent,
    RunStarted,
    SessionSeen,
    TrialEnded,
    TrialStarted,
)
from whet.model.suite import WorkspaceSpec
from whet.reading.text import count, left, one_line, path_for_people
from whet.report.contract import ReporterContext
from whet.report.digest import RunNouns, read_digest, words_of
from whet.report.screen import Screen
from whet.report.terminal._ending import ending_lines
from whet.report.terminal._sessions import SessionLines
from whet.report.terminal.progress import (
    CallProgress,
    PlainProgress,
    notice_line,
)

if TYPE_CHECKING:
    from whet.report.terminal._live import LiveProgress


def header_lines(start: RunStarted, screen: Screen, cwd: Path) -> Iterator[str]:
    """Yield what people want to see before the first agent starts."""
    info, plan = start.info, start.plan
    words, runs = words_of(info.command), not start.shards
    suite = f"{one_line(plan.suite.name)} ({screen.path(info.suite_path, cwd)})"
    yield f"{screen.paint(f'whet {one_line(info.version, 40)}', 'bold')}"
    facts = {
        words.suite: suite,
        "settings": _settings(info, screen, cwd),
        "project": _project(start, cwd),
        "plan": _size(plan, words),
        "done": f"{count(start.done, words.trial)} by an earlier run" if start.done and runs else "",
        "merged": "" if runs else count(start.shards, "shard"),
        "retries": f"up to {plan.retries:,} per {words.trial} that fails or errors" if plan.retries and runs else "",
        "schedule": _schedule(plan) if runs else "",
        # A callable skill has no workspace.
        "workspace": "" if info.command == "eval" else _workspaces(plan),
        "cluster": one_line(info.cluster),
        "sandbox": one_line(info.sandbox),
        "ceilings": " and ".join(info.ceilings.words()),
        "record": screen.path(info.run_dir, cwd),
    }
    for label, fact in facts.items():
        if fact:
            yield f"  {screen.paint(left(label, 10), 'dim')} {fact}"
    if runs and shares_at_once(plan):
        yield notice_line(Notice(level="warning", message=_SHARED), screen)
    yield ""


def _settings(info: RunInfo, screen: Screen, cwd: Path) -> str:
    """The settings files in force; they decide what runs, so you should not have to guess."""
    if info.settings_files:
        return " and ".join(screen.path(file, cwd) for file in info.settings_files)
    return f"none found up to {path_for_people(info.searched_to, cwd)}" if info.searched_to else "none found"


def _project(start: RunStarted, cwd: Path) -> str:
    """The folder that each workspace of a bench suite is a copy of, and why it is that one."""
    info, spec = start.info, start.plan.suite.workspace
    # A Python suite names its template itself.
    if info.suite_path.suffix == ".py" or spec is None or spec.template_dir is None:
        return ""
    folder = spec.template_dir
    settings = next((file.name for file in info.settings_files if file.parent == folder), None)
    reason = f"the folder of {settings}" if settings else "the folder of the suite"
    path = path_for_people(folder, cwd)
    return f"{path} ({reason})" if settings or folder == info.suite_path.parent else path


_SHARED = (
    "several trials run at the same time in one shared workspace and can disturb each other; "
    "use the workspace mode isolated, or the schedule serial"
)


def shares_at_once(plan: Plan) -> bool:
    """Return whether two trials can be in one shared workspace at the same time."""
    executions = [execution for execution in plan.executions if execution.workspace.mode == "shared"]
    if plan.max_parallel <= 1 or plan.schedule == "serial":
        return False
    if plan.schedule == "parallel":
        return sum(execution.trials for execution in executions) > 1
    return len({execution.runner.id for execution in executions}) > 1


def _workspaces(plan: Plan) -> str:
    """Return how workspaces are made, such as "isolated, empty"."""
    return " and ".join(sorted({_workspace(execution.workspace) for execution in plan.executions}))


def _workspace(spec: WorkspaceSpec) -> str:
    bare = spec.template_dir is None and spec.package is None and spec.bootstrap is None and not spec.placed
    return f"{spec.mode}, empty" if bare and spec.cwd is None else spec.mode


def _size(plan: Plan, words: RunNouns) -> str:
    """Return the plan's size, such as "4 cases x 2 runners x 3 trials = 24 trials"; if no product, the total."""
    factors = [
        (len({execution.case.id for execution in plan.executions}), words.case),
        (len({execution.runner.id for execution in plan.executions}), words.runner),
        (len({execution.arm for execution in plan.executions}), "arm"),
    ]
    samples = {execution.trials for execution in plan.executions}
    samples_per_case = max(samples, default=1)
    factor_texts = [count(amount, noun) for amount, noun in factors if amount > 1 or noun != "arm"]
    total = count(plan.trial_count, words.trial)
    if len(samples) > 1 or prod(amount for amount, _ in factors) * samples_per_case != plan.trial_count:
        return f"{', '.join(factor_texts)}: {total}"
    most = "at most " if plan.until else ""
    return f"{' x '.join([*factor_texts, most + count(samples_per_case, words.sample)])} = {most}{total}"


def _schedule(plan: Plan) -> str:
    match plan.schedule:
        case "serial":
            return "serial"
        case "parallel":
            return "one at a time" if plan.max_parallel == 1 else f"parallel, up to {plan.max_parallel} at once"
        case "isolated-by-runner":
            return f"isolated by runner, up to {plan.max_parallel} runners at once"


_TABLE_ROWS = 60


class TerminalReporter:
    """Shows a run live on a terminal, and in plain lines elsewhere."""

    def __init__(self, context: ReporterContext) -> None:
        if context.target is not None:
            raise UsageError(
                'reporter "terminal" writes to the screen and takes no file',
                hint="for a file use markdown=FILE, or redirect the output: whet run ... > FILE",
            )
        self._screen = Screen(context.stdout, context.environ)
        self._cwd = context.cwd
        self._progress: LiveProgress | PlainProgress | None = None
        self._sessions: SessionLines | None = None

    @property
    def live(self) -> bool:
        """Whether the screen is being redrawn."""
        return self._progress is not None and self._progress.live

    def __call__(self, event: RunEvent) -> None:
        """Show *event*."""
        match event:
            case RunStarted():
                self._start(event)
            case TrialStarted() | TrialEnded():
                self._trial(event)
            case SessionSeen():
                self._session(event)
            case Looked():
                self._look(event)
            case Notice():
                self._line(notice_line(event, self._screen))
            case RunEnded():
                self._end(event)
            case _:
                assert_never(event)

    def close(self) -> None:
        """Release the terminal."""
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.stop()

    def _start(self, event: RunStarted) -> None:
        for line in header_lines(event, self._screen, self._cwd):
            self._screen.line(line)
        self._progress = _progress_of(event, self._screen)
        self._sessions = SessionLines(event.plan, self._screen)

    def _trial(self, event: TrialStarted | TrialEnded) -> None:
        if self._progress is None:
            return
        if isinstance(event, TrialStarted):
            self._progress.started(event.trial)
        else:
            self._progress.ended(event.trial, event.result)

    def _session(self, event: SessionSeen) -> None:
        if self._sessions is not None and (line := self._sessions.line(event)):
            self._line(line)

    def _line(self, text: str) -> None:
        (self._progress or self._screen).line(text)

    def _look(self, event: Looked) -> None:
        from whet.report.decisions.words import analysis_line  # most runs compare nothing

        text = analysis_line(event)
        self._line(f"  {self._screen.paint(self._screen.fit(text), 'bold')}")
        if self._progress is not None:
            self._progress.looked(text)

    def _end(self, event: RunEnded) -> None:
        self.close()

        digest = read_digest(event.results, event.info, cwd=self._cwd, rows=_TABLE_ROWS)
        if event.interrupted:
            self._screen.line(f"\n{self._screen.paint('Interrupted.', 'warn')} Finished trials are kept.")
        for line in ending_lines(digest, event.info, self._screen, self._cwd, event.evaluated):
            self._screen.line(line)


def _progress_of(start: RunStarted, screen: Screen) -> LiveProgress | PlainProgress:
    if screen.live:
        # Only here: rich takes long to import.
        from whet.report.terminal._live import LiveProgress

        return LiveProgress(start, screen)
    if start.info.command == "eval":
        return CallProgress(start, screen)
    return PlainProgress(start, screen)
