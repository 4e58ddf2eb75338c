"""The GitHub reporter: annotations on the lines of failed checks, and a job summary."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from whet.decide.comparison import comparisons_in
from whet.errors import UsageError
from whet.model.grade import Location
from whet.model.run import RunInfo, TrialResult
from whet.model.run_events import ExecutionSummary, Results, RunEnded, RunEvent
from whet.reading.text import count, one_line, path_for_people
from whet.report.contract import ReporterContext
from whet.report.decisions.words import sentence, why_stopped
from whet.report.files.markdown import sections, within
from whet.report.finding import ShownStatus, class_of, execution_name, finding_of, snapshot_finding
from whet.report.markup import code
from whet.report.screen import printing

# GitHub shows ten annotations of a kind for each step, and drops the others.
ANNOTATIONS = 10
SUMMARY_BYTES = 1 << 20
# The kinds of annotations, and the statuses that they are for.
_STATUSES: dict[str, tuple[ShownStatus, ...]] = {"error": ("failed", "unexpected-passed"), "warning": ("errored",)}
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
        why = why_stopped(results)
        for comparison in comparisons_in(results):
            yield command("notice", "\n".join((sentence(comparison), *((why,) if why else ()))), title="whet: decision")
        amounts = dict.fromkeys(_STATUSES, 0)
        for summary in results.summaries():
            for kind, statuses in _STATUSES.items():
                if summary.status in statuses:
                    amounts[kind] += 1
                    if amounts[kind] <= ANNOTATIONS:
                        yield from self._annotation(kind, summary, results, info)
        words = {"error": "failed", "warning": "errored"}
        omissions = [
            f"{amount - ANNOTATIONS} more {words[kind]}" for kind, amount in amounts.items() if amount > ANNOTATIONS
        ]
        if omissions:
            # A notice, because GitHub would not show an eleventh error.
            yield command("notice", f"{' and '.join(omissions)}: see {self._rest_in(info)}", title="whet")

    def _annotation(self, kind: str, summary: ExecutionSummary, results: Results, info: RunInfo) -> Iterator[str]:
        results_of_kind = (result for result in results.trials(summary.execution) if result.status in _STATUSES[kind])
        execution = summary.execution
        title = f"{execution_name(execution.case.id, execution.arm)} > {one_line(execution.runner.id, 80)}"
        for result in islice(results_of_kind, 1):
            # After a timeout there is no check to point to, only the case.
            location = (result.failure.location if result.failure else None) or execution.case.location
            message = "\n".join(self._message(kind, result, summary, info))
            yield command(kind, message, **self._place(location), title=title)
        finding = snapshot_finding(summary, results, info, self._context.cwd)
        if finding is not None:
            text = "\n".join(("Usage snapshot", *finding.message, finding.key))
            yield command(kind, text, **self._place(execution.case.location), title=title)

    def _message(self, kind: str, result: TrialResult, summary: ExecutionSummary, info: RunInfo) -> Iterator[str]:
        finding = finding_of(result, info, self._context.cwd)
        _, title = class_of(result)
        yield title
        if summary.execution.trials > 1:
            amount = sum(summary.counts.get(status, 0) for status in _STATUSES[kind])
            yield f"{amount} of {count(summary.execution.trials, 'trial')}; the first of them:"
        yield from finding.message
        for label, fact in finding.facts():
            if label not in ("attempts", "workspace"):
                yield f"at {fact}" if label == "at" else f"{label}: {fact}"

    def _place(self, location: Location | None) -> dict[str, str]:
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

    def _pages(self) -> Iterator[str]:
        """Yield where the pages of the run are, if another reporter writes them: who uploads them finds them there."""
        file = self._context.files.get("html")
        if file is None:
            return
        environ, name = self._context.environ, code(path_for_people(file, self._context.cwd))
        parts = [environ.get(f"GITHUB_{part}") for part in ("SERVER_URL", "REPOSITORY", "RUN_ID")]
        if all(parts):
            server, repository, run = parts
            place = f"{server}/{repository}/actions/runs/{run}#artifacts"
            yield f"Pages of this run: {name}, in the [artifacts of this job]({place}) if a step uploads it.\n\n"
        else:
            yield f"Pages of this run: {name}\n\n"

    def _summary(self, results: Results, info: RunInfo) -> None:
        if self._summary_path:
            text = within((*self._pages(), *sections(results, info, self._context.cwd)), SUMMARY_BYTES, _CUT)
            with Path(self._summary_path).open("ab") as file:
                file.write(text.encode())


def command(kind: str, message: str, **properties: str) -> str:
    """Return a workflow command; *message* cannot become another one."""
    property_text = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {property_text}::{_data(message)}"


def _data(text: str) -> str:
    # File names may hold bytes that are not text: escape them.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
