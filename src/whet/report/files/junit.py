"""The JUnit reporter: XML for CI systems, with a test suite for each runner and a test case for each trial."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from whet.decide.scores import rate_of
from whet.model.run import Execution, RunInfo, Runner, TrialKey, TrialResult
from whet.model.run_events import ExecutionSummary, Results, RunEnded
from whet.reading.text import excerpt, one_line, path_for_people
from whet.report.files.json import DocumentReporter
from whet.report.finding import (
    Finding,
    ShownStatus,
    class_of,
    execution_name,
    finding_of,
    message_of,
    snapshot_finding,
    trial_name,
)
from whet.report.markup import attribute, escape_markup
from whet.report.table import errored_text

_KINDS: dict[ShownStatus, str] = {
    "failed": "failures",
    "unexpected-passed": "failures",
    "errored": "errors",
    "expected-failed": "skipped",
    "not-run": "skipped",
    "void": "skipped",
}
_SPOOL_BYTES = 1 << 18
_MESSAGE_LINES = 400
_PRINTED_LINES = 100


class JunitReporter(DocumentReporter):
    """Writes the document a trial at a time."""

    def chunks(self, event: RunEnded) -> Iterator[bytes]:
        """Return the document in pieces."""
        return _document(event.results, event.info, self.context.cwd)


def _document(results: Results, info: RunInfo, cwd: Path) -> Iterator[bytes]:
    # Only once: it may read the record.
    totals = results.counts
    counts = Counter[str](tests=totals.get("total", 0))
    for status, kind in _KINDS.items():
        counts[kind] += totals.get(status, 0)
    for summary in results.summaries():
        if summary.snapshot is not None and summary.snapshot.verdict is not None:
            counts.update(["tests", _KINDS[summary.snapshot.verdict]])
    yield b'<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f"<testsuites name={attribute(info.suite)} {_numbers(counts, results.duration_s)}>\n".encode()
    # By id, because the options of a runner may not be hashable.
    runners = {execution.runner.id: execution.runner for execution in results.plan.executions}
    for runner in runners.values():
        yield from _suite(runner, results, info, cwd)
    yield b"</testsuites>\n"


def _suite(runner: Runner, results: Results, info: RunInfo, cwd: Path) -> Iterator[bytes]:
    """Yield one runner. Its cases wait in a temporary file, because the counts come first in the document."""
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as cases:
        counts, seconds = Counter[str](), 0.0
        tally = Counter[str]()
        for summary in results.summaries():
            if summary.execution.runner.id == runner.id:
                _count_rate(tally, summary, results)
                for status, duration_s, text in _cases(summary, results, info, cwd):
                    counts["tests"] += 1
                    counts[_KINDS.get(status, "passed")] += 1
                    seconds += duration_s
                    cases.write(text.encode())
        numbers = _numbers(counts, seconds)
        yield f"  <testsuite name={attribute(runner.id)} {numbers} timestamp={attribute(info.started_at)}>\n".encode()
        yield _properties(runner, info, tally).encode()
        yield from _copy(cases)
        yield b"  </testsuite>\n"


def _copy(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(_SPOOL_BYTES):
        yield chunk


def _count_rate(tally: Counter[str], summary: ExecutionSummary, results: Results) -> None:
    """Add an execution to the rate of its runner. The baseline may fail, so its own rate counts something else."""
    if summary.status == "void":
        return
    rate = summary.rate
    if summary.execution.baseline:
        rate = rate_of([(trial.status, trial.first_status) for trial in results.trials(summary.execution)])
    tally["trials"] += sum(summary.counts.values())
    tally["errored"] += summary.counts.get("errored", 0)
    if rate is not None:
        tally.update(as_expected=rate.passed, first=rate.first_passed, first_total=rate.first_total, flaky=rate.flaky)


def _rate_facts(tally: Counter[str]) -> dict[str, str]:
    """Return the rate of all trials that count, that of first attempts, and the bounds because of errored trials."""
    total = tally["trials"] - tally["errored"]
    facts = {"as expected": f"{tally['as_expected']} of {total}"}
    facts["as expected at the first attempt"] = f"{tally['first']} of {tally['first_total']}"
    facts |= {"flaky": str(tally["flaky"]), "errored": str(tally["errored"])}
    if tally["errored"]:
        facts["as expected with errored"] = errored_text(tally["errored"], tally["as_expected"], tally["trials"])
    return facts


def _properties(runner: Runner, info: RunInfo, tally: Counter[str]) -> str:
    facts = {"agent": runner.agent, "model": runner.model, "sandbox": info.sandbox, "run": info.run_id}
    facts |= _rate_facts(tally)
    lines = (
        f"      <property name={attribute(name)} value={attribute(fact)}/>\n" for name, fact in facts.items() if fact
    )
    return f"    <properties>\n{''.join(lines)}    </properties>\n"


def _cases(
    summary: ExecutionSummary, results: Results, info: RunInfo, cwd: Path
) -> Iterator[tuple[ShownStatus, float, str]]:
    """Yield every planned trial in order, missing ones too, and a snapshot that does not hold."""
    execution = summary.execution
    trials = results.trials(execution)
    result = next(trials, None)
    for number in range(1, execution.trials + 1):
        if summary.status == "void":
            opening = _opening(results.plan.key(execution, number), execution, 0.0, cwd)
            yield "void", 0.0, f'{opening}      <skipped message="void: a control passes it"/>\n    </testcase>\n'
        elif result is not None and result.number == number:
            yield result.status, result.duration_s, _case(result, execution, info, cwd)
            result = next(trials, None)
        else:
            opening = _opening(results.plan.key(execution, number), execution, 0.0, cwd)
            yield "not-run", 0.0, f'{opening}      <skipped message="not run"/>\n    </testcase>\n'
    finding = snapshot_finding(summary, results, info, cwd)
    if finding is not None:
        yield finding.status, 0.0, _snapshot(execution, finding, info)


def _snapshot(execution: Execution, finding: Finding, info: RunInfo) -> str:
    name = f"{execution_name(execution.case.id, execution.arm)} @ {one_line(execution.runner.id, 80)} usage snapshot"
    tag = "error" if finding.status == "errored" else "failure"
    message = "\n".join(finding.message)
    return (
        f'    <testcase classname={attribute(info.suite)} name={attribute(name)} time="0.000">\n'
        f'      <{tag} message={attribute(message)} type="snapshot">{escape_markup(message)}</{tag}>\n    </testcase>\n'
    )


def _case(result: TrialResult, execution: Execution, info: RunInfo, cwd: Path) -> str:
    finding = finding_of(result, info, cwd, printed_lines=_PRINTED_LINES)
    facts = [f"artifacts: {finding.artifacts}"] if finding.artifacts else []
    if finding.workspace:
        facts.append(f"workspace: {finding.workspace}")
    if result.flaky:
        facts.append(f"flaky: went as expected on attempt {len(result.attempts)}")
    facts += (f"note: {note}" for note in finding.notes)
    if finding.seen:
        facts.append(f"last seen: {finding.seen}")
    if finding.printed:
        facts += ("the check printed:", *finding.printed)
    text = escape_markup("\n".join(facts))
    opening = _opening(result.key, execution, result.duration_s, cwd)
    return f"{opening}{_outcome(result, finding)}      <system-out>{text}</system-out>\n    </testcase>\n"


def _opening(key: TrialKey, execution: Execution, duration_s: float, cwd: Path) -> str:
    name, location = trial_name(key, trials=execution.trials), execution.case.location
    place = f' file={attribute(path_for_people(Path(location.file), cwd))} line="{location.line}"' if location else ""
    return f'    <testcase classname={attribute(key.suite)} name={attribute(name)}{place} time="{duration_s:.3f}">\n'


def _outcome(result: TrialResult, finding: Finding) -> str:
    """Return the element for a trial that did not simply pass."""
    if result.status == "passed":
        return ""
    message = message_of(result)
    if result.status == "expected-failed":
        return f"      <skipped message={attribute('failed as expected: ' + one_line(message, 280))}/>\n"
    tag = "error" if result.status == "errored" else "failure"
    kind, _ = class_of(result)
    lines = _long(message)
    if finding.where:
        lines.append(f"at {finding.where}")
    if finding.cause and result.status == "errored":
        lines.append(f"cause: {finding.cause}")
    if result.failure is not None and result.failure.traceback:
        # The message of a check that crashed may not explain it.
        lines += ["", *_long(result.failure.traceback)]
    body = escape_markup("\n".join(lines))
    return f"      <{tag} message={attribute(one_line(message, 300))} type={attribute(kind)}>{body}</{tag}>\n"


def _long(text: str) -> list[str]:
    return list(excerpt(text, lines=_MESSAGE_LINES, width=2000))


def _numbers(counts: Counter[str], seconds: float) -> str:
    kinds = ("tests", "failures", "errors", "skipped")
    return " ".join((*(f'{kind}="{counts[kind]}"' for kind in kinds), f'time="{seconds:.3f}"'))
