"""The terminal reporter: a header with the plan, then progress, then the end of the run."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import assert_never

from whet.errors import UsageError
from whet.model.event import Notice, RunEnded, RunEvent, RunStarted, SessionSeen, TrialEnded, TrialStarted
from whet.model.run import Plan, RunInfo
from whet.model.suite import WorkspaceSpec
from whet.reading.text import count, left, one_line, path_for_people
from whet.report.digest import Words, read_digest, words_of
from whet.report.finding import session_line
from whet.report.live import LiveProgress
from whet.report.plain import CallProgress, PlainProgress, notice_line
from whet.report.reporter import ReporterContext
from whet.report.screen import Screen


def header_lines(started: RunStarted, screen: Screen, cwd: Path) -> Iterator[str]:
    """Yield what people want to see before the first agent starts."""
    info, plan = started.info, started.plan
    words = words_of(info.command)
    suite = f"{one_line(plan.suite.name)} ({path_for_people(info.suite_path, cwd)})"
    yield f"{screen.paint(f'whet {one_line(info.version, 40)}', 'bold')}"
    facts = {
        words.suite: suite,
        "settings": _settings(info, cwd),
        "project": _project(started, cwd),
        "plan": _size(plan, words),
        "done": f"{count(started.done, words.trial)} by an earlier run" if started.done else "",
        "retries": f"up to {plan.retries:,} per {words.trial} that fails or errors" if plan.retries else "",
        "schedule": _schedule(plan),
        # A callable skill has no workspace.
        "workspace": "" if info.command == "eval" else _workspaces(plan),
        "sandbox": one_line(info.sandbox),
        "ceilings": " and ".join(info.ceilings.words()),
        "record": path_for_people(info.run_dir, cwd),
    }
    for label, fact in facts.items():
        if fact:
            yield f"  {screen.paint(left(label, 10), 'dim')} {fact}"
    if shares_at_once(plan):
        yield notice_line(Notice(level="warning", message=_SHARED), screen)
    yield ""


def _settings(info: RunInfo, cwd: Path) -> str:
    """The settings files in force; they decide what runs, so you should not have to guess."""
    if info.settings_files:
        return " and ".join(path_for_people(file, cwd) for file in info.settings_files)
    return f"none found up to {path_for_people(info.searched_to, cwd)}" if info.searched_to else "none found"


def _project(started: RunStarted, cwd: Path) -> str:
    """The folder that each workspace of a bench suite is a copy of, and why it is that one."""
    info, spec = started.info, started.plan.suite.workspace
    # A Python suite names its template itself.
    if info.suite_path.suffix == ".py" or spec is None or spec.template_dir is None:
        return ""
    folder = spec.template_dir
    settings = next((file.name for file in info.settings_files if file.parent == folder), None)
    reason = f"the folder of {settings}" if settings else "the folder of the suite"
    shown = path_for_people(folder, cwd)
    return f"{shown} ({reason})" if settings or folder == info.suite_path.parent else shown


_SHARED = (
    "several trials run at the same time in one shared workspace and can disturb each other; "
    "use the workspace mode isolated, or the schedule serial"
)


def shares_at_once(plan: Plan) -> bool:
    """Return whether two trials can be in one shared workspace at the same time."""
    shared = [execution for execution in plan.executions if execution.workspace.mode == "shared"]
    if plan.max_parallel <= 1 or plan.schedule == "serial":
        return False
    if plan.schedule == "parallel":
        return sum(execution.trials for execution in shared) > 1
    return len({execution.runner.id for execution in shared}) > 1


def _workspaces(plan: Plan) -> str:
    """Such as "isolated, empty"."""
    return " and ".join(sorted({_workspace(execution.workspace) for execution in plan.executions}))


def _workspace(spec: WorkspaceSpec) -> str:
    bare = spec.template_dir is None and spec.package is None and spec.bootstrap is None and not spec.placed
    return f"{spec.mode}, empty" if bare and spec.cwd is None else spec.mode


def _size(plan: Plan, words: Words) -> str:
    """Such as "4 cases x 2 runners x 3 trials = 24 trials"; without the product if it is not the total."""
    factors = [
        (len({execution.case.id for execution in plan.executions}), words.case),
        (len({execution.runner.id for execution in plan.executions}), words.runner),
        (len({execution.variant for execution in plan.executions}), "variant"),
    ]
    samples = {execution.trials for execution in plan.executions}
    each = max(samples, default=1)
    shown = [count(amount, noun) for amount, noun in factors if amount > 1 or noun != "variant"]
    total = count(plan.trial_count, words.trial)
    if len(samples) > 1 or prod(amount for amount, _ in factors) * each != plan.trial_count:
        return f"{', '.join(shown)}: {total}"
    return f"{' x '.join([*shown, count(each, words.sample)])} = {total}"


def _schedule(plan: Plan) -> str:
    match plan.schedule:
        case "serial":
            return "serial"
        case "parallel":
            return "one at a time" if plan.max_parallel == 1 else f"parallel, up to {plan.max_parallel} at once"
        case "isolated-by-runner":
            return f"isolated by runner, up to {plan.max_parallel} runners at once"


ROWS = 60


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

    @property
    def live(self) -> bool:
        """Whether the screen is being redrawn."""
        return self._progress is not None and self._progress.live

    def __call__(self, event: RunEvent) -> None:
        """Show *event*."""
        match event:
            case RunStarted():
                self._start(event)
            case TrialStarted():
                if self._progress is not None:
                    self._progress.started(event.trial)
            case SessionSeen():
                self._watch(event)
            case TrialEnded():
                if self._progress is not None:
                    self._progress.ended(event.trial, event.result)
            case Notice():
                self._notice(event)
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
        plain = CallProgress if event.info.command == "eval" else PlainProgress
        self._progress = (LiveProgress if self._screen.live else plain)(event, self._screen)

    def _watch(self, event: SessionSeen) -> None:
        line = session_line(event, self._screen)
        if line is not None and self._progress is not None:
            self._progress.line(line)

    def _notice(self, event: Notice) -> None:
        if self._progress is not None:
            self._progress.notice(event)
        else:
            self._screen.line(notice_line(event, self._screen))

    def _end(self, event: RunEnded) -> None:
        self.close()
        # Only here: the run imports it while an agent works.
        from whet.report.ending import ending_lines  # noqa: PLC0415

        digest = read_digest(event.results, event.info, cwd=self._cwd, rows=ROWS)
        if event.interrupted:
            self._screen.line(f"\n{self._screen.paint('Interrupted.', 'warn')} Finished trials are kept.")
        for line in ending_lines(digest, event.info, self._screen, self._cwd, event.evaluated):
            self._screen.line(line)
