"""The GitHub reporter: annotations on the lines of failed checks, and a job summary."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from whet.errors import UsageError
from whet.model.event import ExecutionSummary, Results, RunEnded, RunEvent
from whet.model.grade import Location, Status
from whet.model.run import RunInfo, TrialResult
from whet.model.suite import Case
from whet.reading.text import count, one_line, path_for_people
from whet.report.finding import class_of, execution_name, finding_of, snapshot_finding
from whet.report.markdown import sections, within
from whet.report.reporter import ReporterContext
from whet.report.screen import printing

# GitHub shows ten annotations of a kind for each step, and drops the others.
ANNOTATIONS = 10
SUMMARY_BYTES = 1 << 20
_CUT = "\nThe summary is cut here, at GitHub's limit. The record of the run has all of it.\n"


class GithubReporter:
    """Writes annotations and the job summary when the run ends."""

    def __init__(self, context: ReporterContext) -> None:
        if context.target is not None:
            hint = "for a file use markdown=FILE, which has the same text as the job summary"
            raise UsageError('reporter "github" writes to the log and the job summary, and takes no file', hint=hint)
        self._context = context

    def __call__(self, event: RunEvent) -> None:
        """At the end, annotate and append the summary."""
        if not isinstance(event, RunEnded):
            return
        with printing(self._context.stdout):
            for line in self._annotations(event.results, event.info):
                self._say(line)
            self._context.stdout.flush()
        self._summary(event.results, event.info)

    def _say(self, line: str) -> None:
        encoding = self._context.stdout.encoding or "utf-8"
        self._context.stdout.write(line.encode(encoding, "replace").decode(encoding) + "\n")

    def _annotations(self, results: Results, info: RunInfo) -> Iterator[str]:
        failed = errored = 0
        for summary in results.summaries():
            if summary.status in ("failed", "unexpected-passed"):
                failed += 1
                if failed <= ANNOTATIONS:
                    yield from self._annotation("error", summary, results, info)
            elif summary.status == "errored":
                errored += 1
                if errored <= ANNOTATIONS:
                    yield from self._annotation("warning", summary, results, info)
        hidden = [_hidden(failed, "failed"), _hidden(errored, "errored")]
        if any(hidden):
            message = f"{' and '.join(filter(None, hidden))}: see {self._rest_in(info)}"
            # A notice, because GitHub would not show an eleventh error.
            yield command("notice", message, title="whet")

    def _annotation(self, kind: str, summary: ExecutionSummary, results: Results, info: RunInfo) -> Iterator[str]:
        wanted: tuple[Status, ...] = ("errored",) if kind == "warning" else ("failed", "unexpected-passed")
        found = (result for result in results.trials(summary.execution) if result.status in wanted)
        execution = summary.execution
        title = f"{execution_name(execution.case.id, execution.variant)} > {one_line(execution.runner.id, 80)}"
        for result in islice(found, 1):
            yield command(
                kind,
                "\n".join(self._message(result, summary, info)),
                **self._place(result, execution.case),
                title=title,
            )
        finding = snapshot_finding(summary, results, info, self._context.cwd)
        if finding is not None:
            text = "\n".join(("Usage snapshot", *finding.message, finding.key))
            yield command(kind, text, **self._beside(execution.case.location), title=title)

    def _message(self, result: TrialResult, summary: ExecutionSummary, info: RunInfo) -> Iterator[str]:
        finding = finding_of(result, info, self._context.cwd)
        _, title = class_of(result)
        yield title
        if summary.execution.trials > 1:
            amount = sum(summary.counts.get(status, 0) for status in _alike(result.status))
            yield f"{amount} of {count(summary.execution.trials, 'trial')}; the first of them:"
        yield from finding.message
        if finding.where:
            yield f"at {finding.where}"
        if finding.seen:
            yield f"last seen: {finding.seen}"
        if finding.cause and result.status == "errored":
            yield f"cause: {finding.cause}"
        yield from (f"note: {note}" for note in finding.notes)
        yield f"artifacts: {finding.artifacts}"

    def _place(self, result: TrialResult, case: Case) -> dict[str, str]:
        """Return the line of the check that failed, or that of the case, as for a timeout."""
        named = result.failure.location if result.failure else None
        return self._beside(named or case.location)

    def _beside(self, location: Location | None) -> dict[str, str]:
        """Return file and line relative to the checkout, so that GitHub shows the annotation in the code."""
        if location is None:
            return {}
        file = Path(os.path.normpath(self._context.cwd / location.file))
        root = self._context.environ.get("GITHUB_WORKSPACE")
        if root and file.is_relative_to(root):
            file = file.relative_to(root)
        return {"file": str(file), "line": str(location.line)}

    def _rest_in(self, info: RunInfo) -> str:
        """Return where to read all of it: the job summary, if GitHub asks for one."""
        return "the job summary" if self._summary_path else path_for_people(info.run_dir, self._context.cwd)

    @property
    def _summary_path(self) -> str | None:
        return self._context.environ.get("GITHUB_STEP_SUMMARY")

    def _summary(self, results: Results, info: RunInfo) -> None:
        if self._summary_path:
            text = within(sections(results, info, self._context.cwd), SUMMARY_BYTES, _CUT)
            with Path(self._summary_path).open("ab") as file:
                file.write(text.encode())


def command(kind: str, message: str, **properties: str) -> str:
    """Return a workflow command; *message* cannot become another one."""
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {written}::{_data(message)}"


def _data(text: str) -> str:
    # File names may hold bytes that are not text: escape them.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _alike(status: Status) -> tuple[Status, ...]:
    return ("errored",) if status == "errored" else ("failed", "unexpected-passed")


def _hidden(amount: int, word: str) -> str:
    return f"{amount - ANNOTATIONS} more {word}" if amount > ANNOTATIONS else ""
