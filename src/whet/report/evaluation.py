"""The end of an evaluation on a terminal: a line for each skill, why calls did not pass, and where it all is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from whet.dataclass import dataclass
from whet.model.benchmark import CallRecord, CompletionReport, Evaluated, Interval, SampleStatus, Summary
from whet.model.run import RunInfo
from whet.reading.text import count, duration, left, middle, money, number, one_line, path_for_people, right, width
from whet.report.screen import Screen, Style


@dataclass(frozen=True, slots=True)
class Words:
    """One word for each noun of the model."""

    suite: str = "suite"
    case: str = "case"
    runner: str = "runner"
    trial: str = "trial"
    sample: str = "trial"
    passed: str = "went as expected"


_RUN = Words()
_BY_COMMAND = {
    "eval": Words(suite="benchmark", case="task", runner="skill", trial="call", sample="run", passed="passed")
}


def words_of(command: str) -> Words:
    """The words of a command."""
    return _BY_COMMAND.get(command, _RUN)


def resume_command(info: RunInfo, place: str) -> str:
    """What to type to go on with a run."""
    return shlex.join(("whet", info.command, *info.going_on, "--resume", place))


KINDS_SHOWN = 5
TASKS_SHOWN = 3
_WIDEST_SKILL = 32
_ALWAYS = frozenset({"skill", "completion", "score", "errors", "composite"})
# Where a terminal is narrow; the reports have them all.
_LEFT_OFF_FIRST = ("consistency", "tokens", "p50", "judge", "score", "p95")
_STYLES: dict[SampleStatus, Style] = {"fail": "bad", "error": "bad", "timeout": "bad", "errored": "warn"}


def evaluation_lines(evaluated: Evaluated, screen: Screen, cwd: Path) -> Iterator[str]:
    """All that is said of skills when nothing is called any more."""
    yield ""
    yield from _table(evaluated.reports, screen)
    for report in evaluated.reports:
        yield from _shortcomings(report, screen)
        yield from _flagged(report, screen)
    yield ""
    for name in evaluated.below:
        least = f"{(evaluated.least or 0) * 100:g} %"
        yield screen.paint(f"{one_line(name)} completes less than the {least} that were asked for", "bad")
    if evaluated.files:
        yield f"Reports in {_listed(evaluated.files, cwd)}"


def _table(reports: Sequence[CompletionReport], screen: Screen) -> Iterator[str]:
    """The best composite first; columns that nobody has anything to say in are left out."""
    ranked = sorted(reports, key=lambda report: -(report.summary.composite or 0))
    rows = [_cells(report) for report in ranked]
    names = [name for name in rows[0] if name in _ALWAYS or any(row[name] for row in rows)] if rows else []
    for name in _LEFT_OFF_FIRST:
        if screen.columns is not None and len(_padded(names, rows)[0]) + 2 > screen.columns and name in names:
            names.remove(name)
    heading, *lines = _padded(names, rows)
    yield f"  {screen.paint(heading, 'dim')}"
    yield from (f"  {screen.fit(line)}" for line in lines)


def _padded(names: Sequence[str], rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The heading and a line for each row, in columns."""
    lines = [list(names), *([row[name] or "-" for name in names] for row in rows)]
    widths = [max(width(line[column]) for line in lines) for column in range(len(names))]
    return ["  ".join([left(line[0], widths[0]), *map(right, line[1:], widths[1:])]) for line in lines]


def _cells(report: CompletionReport) -> dict[str, str]:
    summary = report.summary
    latency = summary.latency
    judging, usage = report.judging, report.usage
    return {
        "skill": middle(one_line(report.skill), _WIDEST_SKILL),
        "completion": _completion(summary),
        "score": _score(summary),
        "errors": _share(summary.error_rate),
        "p50": duration(latency.p50_ms / 1000) if latency else "",
        "p95": duration(latency.p95_ms / 1000) if latency else "",
        **{f"pass^{found.k}": f"{found.all:.3f}" for found in summary.passes if found.k > 1},
        **{f"pass@{found.k}": f"{found.at:.3f}" for found in summary.passes if found.k > 1},
        "consistency": "" if summary.consistency is None else f"{summary.consistency:.3f}",
        "composite": "" if summary.composite is None else f"{summary.composite:.3f}",
        "tokens": "" if usage.total_tokens is None else number(usage.total_tokens),
        "judge": "" if judging is None or judging.cost_usd is None else money(judging.cost_usd),
        "errored": _errored(summary),
    }


def _completion(summary: Summary) -> str:
    """Such as "90 % (60-98 %)"."""
    found = summary.completion
    return "" if found is None else f"{found.value * 100:.0f} % ({found.low * 100:.0f}-{found.high * 100:.0f} %)"


def _errored(summary: Summary) -> str:
    """Such as "2 (60-80 %)": how many, and the completion had all of them failed, and had all passed."""
    if not summary.errored:
        return ""
    passed = 0 if summary.completion is None else summary.completion.value * (summary.samples - summary.errored)
    least, most = passed / summary.samples, (passed + summary.errored) / summary.samples
    return f"{number(summary.errored)} ({least * 100:.0f}-{most * 100:.0f} %)"


def _score(summary: Summary) -> str:
    if summary.score is None:
        return ""
    around = summary.score_interval
    return f"{summary.score:.3f}" + (f" ({around.low:.2f}-{around.high:.2f})" if around else "")


def _share(found: Interval | None) -> str:
    return "" if found is None else f"{found.value * 100:.0f} %"


@dataclass(slots=True)
class _Kind:
    """Calls that went wrong in the same words."""

    status: SampleStatus
    said: str
    count: int = 0
    tasks: dict[str, None] = field(default_factory=dict)


def _shortcomings(report: CompletionReport, screen: Screen) -> Iterator[str]:
    """Why calls did not pass, the most frequent reason first."""
    missed = [call for call in report.calls if call.sample.status != "pass"]
    if not missed:
        return
    kinds = _kinds(missed)
    yield ""
    share = f"{len(missed):,} of {count(len(report.calls), 'call')} did not pass"
    yield f"{screen.paint(one_line(report.skill), 'bold')}: {share}"
    for kind in kinds[:KINDS_SHOWN]:
        word = screen.paint(left(_word(kind.status), 8), _STYLES[kind.status])
        times = f"{kind.count:,}x " if kind.count > 1 else ""
        yield screen.fit(f"  {word} {times}{kind.said}")
        yield screen.fit(f"           {screen.paint(f'in {_some(list(kind.tasks))}', 'dim')}")
    if len(kinds) > KINDS_SHOWN:
        rest = sum(kind.count for kind in kinds[KINDS_SHOWN:])
        yield screen.paint(f"  and {count(rest, 'more call')} in the reports", "dim")


def _flagged(report: CompletionReport, screen: Screen) -> Iterator[str]:
    """Which answers try to talk their judge into a verdict: worth a look, also where they passed."""
    tasks = list(dict.fromkeys(call.sample.task for call in report.calls if call.flags))
    if tasks:
        yield ""
        told = screen.paint(f"{count(len(tasks), 'answer')} flagged for speaking to the judge", "warn")
        yield screen.fit(f"{one_line(report.skill)}: {told}, in {_some(tasks)}")


def _kinds(missed: Sequence[CallRecord]) -> list[_Kind]:
    found: dict[tuple[str, str], _Kind] = {}
    for call in missed:
        said = one_line(call.error or call.reason or "nothing says why", 160)
        kind = found.setdefault((call.sample.status, said), _Kind(call.sample.status, said))
        kind.count += 1
        kind.tasks[call.sample.task] = None
    return sorted(found.values(), key=lambda kind: -kind.count)


def _word(status: SampleStatus) -> str:
    return {"fail": "wrong", "errored": "errored"}.get(status, status)


def _some(tasks: Sequence[str]) -> str:
    shown = ", ".join(one_line(task, 60) for task in tasks[:TASKS_SHOWN])
    return shown if len(tasks) <= TASKS_SHOWN else f"{shown} and {count(len(tasks) - TASKS_SHOWN, 'more task')}"


def _listed(files: Sequence[Path], cwd: Path) -> str:
    """The first in full, and the endings of the others, which differ in nothing else."""
    shown = path_for_people(cwd / files[0], cwd)
    return " and ".join([shown, *(file.suffix for file in files[1:])])
