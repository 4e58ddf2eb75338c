"""Lay out the end of a run or an evaluation on a terminal: tables, failures by class, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from shlex import quote

from whet.dataclass import dataclass
from whet.model.benchmark import TYPED_TASK, CompletionReport, Evaluated, Interval, SampleStatus, Summary
from whet.model.comparison import Decision
from whet.model.run import RunInfo
from whet.model.session import Usage
from whet.reading.text import count, duration, left, middle, money, number, one_line, path_for_people, right, width
from whet.report.digest import (
    ERRORED,
    FAILURES,
    LOADS,
    Digest,
    Group,
    Names,
    last_failed_command,
    load_lines,
    outcome,
    ranked,
    resume_command,
    words_of,
)
from whet.report.finding import Finding
from whet.report.plain import STATUS_STYLES, symbol
from whet.report.screen import Screen, Style
from whet.report.spent import spending_text
from whet.report.table import DETAILS, RunnerTable, columns_of, totals_of

_WIDEST_CASE = 48
_NARROWEST_CASE = 16
REASONS_SHOWN = 5
TASKS_SHOWN = 3
_WIDEST_SKILL = 32
# Columns of an evaluation that are always there, and those that a narrow terminal loses first. Report files have all.
_ALWAYS = frozenset({"skill", "completion", "score", "errors", "composite"})
_LEFT_OFF_FIRST = ("consistency", "tokens", "p50", "judge", "score", "p95")
_CALL_STYLES: dict[SampleStatus, Style] = {"fail": "bad", "error": "bad", "timeout": "bad", "errored": "warn"}


def ending_lines(
    digest: Digest, info: RunInfo, screen: Screen, cwd: Path, evaluated: Evaluated | None = None
) -> Iterator[str]:
    """Yield the lines that end a run."""
    if evaluated is None:
        yield from _run_lines(digest, info, screen, cwd)
    else:
        yield from _evaluation_lines(evaluated, screen, cwd)
        if spent := spending_text(digest.spending, agents="skills"):
            yield f"Spent {spent}"
        yield from _decisions(digest, info, screen, cwd)
    yield from _closing(digest, info, screen, cwd)


def _closing(digest: Digest, info: RunInfo, screen: Screen, cwd: Path) -> Iterator[str]:
    """The outcome in a sentence, and the command that you may want next."""
    clean_run = digest.as_expected == digest.counting and not digest.snapshots
    only_errored = not digest.failed
    style: Style = "good" if clean_run else "warn" if only_errored else "bad"
    place = path_for_people(info.run_dir, cwd)
    words = words_of(info.command)
    yield f"{screen.paint(outcome(digest, words), style)}, in {duration(digest.duration_s)}. Results in {place}"
    if digest.missing:
        missing = f"{count(digest.missing, words.trial)} {'is' if digest.missing == 1 else 'are'} missing"
        yield f"  {missing}. To resume: {resume_command(info, place)}"
    elif digest.refused:
        # The same command, or what failed of it alone, would be refused as well until somebody mends the reason.
        rest = count(digest.refused, words.trial)
        yield f"  When that is corrected, to run {rest} again: {resume_command(info, place)}"
    elif not clean_run and info.suite_path.name != TYPED_TASK:
        again = "call only what did not pass" if info.command == "eval" else "run only what did not go as expected"
        yield f"  To {again}: {last_failed_command(info, cwd)}"


def _run_lines(digest: Digest, info: RunInfo, screen: Screen, cwd: Path) -> Iterator[str]:
    for table in digest.tables:
        yield ""
        yield from _table(table, screen)
    if digest.spent:
        yield ""
        yield f"Spent {digest.spent}"
    yield from _groups(FAILURES, "bad", digest.failed, screen)
    yield from _groups(ERRORED, "warn", digest.errored, screen)
    yield from _loads(digest, screen)
    yield from _lifts(digest, screen)
    yield from _decisions(digest, info, screen, cwd)
    yield from _names(digest.flaky, screen)
    yield from _names(digest.vacuous, screen)
    yield from _names(digest.void, screen)
    yield ""


def _table(table: RunnerTable, screen: Screen) -> Iterator[str]:
    yield screen.paint(table.title, "bold")
    for line in _joined(totals_of(table), screen.columns):
        yield f"  {screen.paint(screen.fit(line), 'dim')}"
    names = [screen.fit(middle(row.case, _WIDEST_CASE)) for row in table.rows]
    (heading, *lines), needed = _widest_grid(table, screen)
    first = max(width(name) for name in ("case", *names))
    if screen.columns is not None:
        first = min(first, max(_NARROWEST_CASE, screen.columns - needed))
    yield screen.paint(f"    {left('case', first)}  {'  '.join(heading)}", "dim")
    for row, name, (status, *rest) in zip(table.rows, names, lines, strict=True):
        style = STATUS_STYLES[row.status]
        mark = screen.paint(screen.fit(symbol(row.status)), style)
        yield f"  {mark} {left(middle(name, first), first)}  {screen.paint(status, style)}  {'  '.join(rest)}"
    if table.left_off:
        yield screen.paint(f"    and {count(table.left_off, 'more row')} in the record", "dim")


def _joined(parts: Sequence[str], columns: int | None) -> Iterator[str]:
    """Join *parts* into as few lines as fit into *columns*."""
    line = parts[0]
    for part in parts[1:]:
        if columns is not None and width(f"  {line} · {part}") > columns:
            yield line
            line = part
        else:
            line += f" · {part}"
    yield line


def _widest_grid(table: RunnerTable, screen: Screen) -> tuple[list[list[str]], int]:
    """Return the padded cells with the most detail that fits on the screen, and the width that they need."""
    for detail in DETAILS:
        columns = columns_of(table, detail=detail)
        lines = [[column.heading for column in columns]]
        lines += [[screen.fit(column.cell(row)) for column in columns] for row in table.rows]
        padded = _padded(lines, [column.numeric for column in columns])
        needed = sum(width(text) + 2 for text in padded[0]) + 4
        if screen.columns is None or _NARROWEST_CASE + needed <= screen.columns:
            break
    return padded, needed


def _padded(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[list[str]]:
    """Pad the cells of each column to one width, numbers on the left."""
    widths = [max(width(text) for text in texts) for texts in zip(*lines, strict=True)]
    pads = [right if is_number else left for is_number in numeric]
    return [[pad(text, size) for pad, text, size in zip(pads, line, widths, strict=True)] for line in lines]


def _groups(title: str, style: Style, groups: Sequence[Group], screen: Screen) -> Iterator[str]:
    if not groups:
        return
    yield ""
    yield screen.paint(title, "bold")
    for group in groups:
        yield f"  {screen.paint(group.title, style)} · {count(group.count, group.noun)}"
        for block in group.blocks:
            yield from _finding(block.first, style, screen)
            for finding in block.again:
                yield f"{_opening(finding, style, screen)} {screen.paint('(as above)', 'dim')}"
                for label, fact in block.own_facts(finding):
                    yield _fact(label, fact, screen)
        if group.hidden:
            yield screen.paint(f"    and {group.hidden:,} more", "dim")


def _finding(finding: Finding, style: Style, screen: Screen) -> Iterator[str]:
    yield _opening(finding, style, screen)
    for line in finding.message:
        # The bar shows that these are not our words, and keeps CI systems from taking a line for a command.
        yield f"      {screen.paint(screen.fit('│'), 'dim')} {line}"
    for index, line in enumerate(finding.printed):
        yield _fact("" if index else "printed", f"{screen.fit('│')} {line}", screen)
    for label, fact in finding.facts():
        yield _fact(label, fact, screen)
    if finding.ask is not None:
        yield _fact("to ask", finding.ask, screen)


def _opening(finding: Finding, style: Style, screen: Screen) -> str:
    return f"    {screen.paint(screen.fit(symbol(finding.status)), style)} {finding.key}"


def _fact(label: str, fact: str, screen: Screen) -> str:
    return f"      {screen.paint(left(label, 9), 'dim')} {fact}"


def _loads(digest: Digest, screen: Screen) -> Iterator[str]:
    if not digest.loads:
        return
    yield ""
    yield screen.paint(LOADS, "bold")
    for line in load_lines(digest.loads):
        yield f"  {screen.fit(line)}"


def _lifts(digest: Digest, screen: Screen) -> Iterator[str]:
    if not digest.lifts:
        return
    from whet.grade.comparison import lift_line  # noqa: PLC0415 - most runs compare nothing

    yield ""
    yield screen.paint("Lift: what the skill adds to the score", "bold")
    for lift in digest.lifts:
        style: Style = "good" if lift.value > 0 else "bad" if lift.value < 0 else "dim"
        yield f"  {screen.fit(one_line(lift.runner, 80))}  {screen.paint(screen.fit(lift_line(lift)), style)}"


def _decisions(digest: Digest, info: RunInfo, screen: Screen, cwd: Path) -> Iterator[str]:
    styles: dict[Decision, Style] = {"better": "good", "not-worse": "good", "worse": "bad", "inconclusive": "warn"}
    if not digest.comparisons and not digest.stopped:
        return
    from whet.report.comparison import sentence  # noqa: PLC0415 - most runs compare nothing

    yield ""
    yield screen.paint("Decision", "bold")
    for found in digest.comparisons:
        yield f"  {screen.paint(screen.fit(sentence(found)), styles[found.verdict])}"
    if digest.stopped:
        yield f"  {digest.stopped}"
    # Settings beside the suite may put the run where these commands do not look.
    usual = path_for_people(info.run_dir.parent, cwd) == ".whet/runs"
    run = "" if usual else f" {quote(path_for_people(info.run_dir, cwd))}"
    yield screen.paint(f"  whet compare{run} says more, and whet gate{run} decides", "dim")


def _names(names: Names, screen: Screen) -> Iterator[str]:
    if not names.count:
        return
    yield ""
    yield screen.paint(names.title, "bold")
    for name in names.shown:
        yield f"  {screen.paint('~', 'warn')} {screen.fit(name)}"
    if names.hidden:
        yield screen.paint(f"    and {names.hidden:,} more", "dim")


def _evaluation_lines(evaluated: Evaluated, screen: Screen, cwd: Path) -> Iterator[str]:
    yield ""
    yield from _skills(evaluated.reports, screen)
    for report in evaluated.reports:
        yield from _shortcomings(report, screen)
        yield from _flagged(report, screen)
    yield ""
    for name in evaluated.below:
        least = f"{(evaluated.least or 0) * 100:g} %"
        yield screen.paint(f"{one_line(name)} completes less than the {least} that you asked for", "bad")
    if evaluated.files:
        # The files differ only in their suffixes.
        shown = path_for_people(cwd / evaluated.files[0], cwd)
        yield f"Reports in {' and '.join([shown, *(file.suffix for file in evaluated.files[1:])])}"


def _skills(reports: Sequence[CompletionReport], screen: Screen) -> Iterator[str]:
    """A line for each skill, the best first; columns that are empty for all are left out."""
    rows = [_skill_figures(report) for report in ranked(reports)]
    names = [name for name in rows[0] if name in _ALWAYS or any(row[name] for row in rows)] if rows else []
    for name in _LEFT_OFF_FIRST:
        if screen.columns is not None and width(_skill_lines(names, rows)[0]) + 2 > screen.columns and name in names:
            names.remove(name)
    heading, *lines = _skill_lines(names, rows)
    yield f"  {screen.paint(heading, 'dim')}"
    yield from (f"  {screen.fit(line)}" for line in lines)


def _skill_lines(names: Sequence[str], rows: Sequence[Mapping[str, str]]) -> list[str]:
    lines = [list(names), *([row[name] or "-" for name in names] for row in rows)]
    return ["  ".join(line) for line in _padded(lines, [name != "skill" for name in names])]


def _shortcomings(report: CompletionReport, screen: Screen) -> Iterator[str]:
    """Why calls did not pass, the most frequent reason first."""
    found = _by_reason(report)
    if not found:
        return
    yield ""
    missed = sum(each.count for each in found)
    share = f"{missed:,} of {count(len(report.calls), 'call')} did not pass"
    yield f"{screen.paint(one_line(report.label), 'bold')}: {share}"
    for each in found[:REASONS_SHOWN]:
        word = "wrong" if each.status == "fail" else each.status
        mark = screen.paint(left(word, 8), _CALL_STYLES[each.status])
        times = f"{each.count:,}x " if each.count > 1 else ""
        yield screen.fit(f"  {mark} {times}{each.reason}")
        yield screen.fit(f"           {screen.paint(f'in {_some(list(each.tasks))}', 'dim')}")
    rest = sum(each.count for each in found[REASONS_SHOWN:])
    if rest:
        yield screen.paint(f"  and {count(rest, 'more call')} in the reports", "dim")


def _flagged(report: CompletionReport, screen: Screen) -> Iterator[str]:
    """The answers that try to talk their judge into a verdict: look at them even if they passed."""
    tasks = list(dict.fromkeys(call.task for call in report.calls if call.flags))
    if tasks:
        yield ""
        flagged = screen.paint(f"{count(len(tasks), 'answer')} flagged for speaking to the judge", "warn")
        yield screen.fit(f"{one_line(report.label)}: {flagged}, in {_some(tasks)}")


def _some(tasks: Sequence[str]) -> str:
    shown = ", ".join(one_line(task, 60) for task in tasks[:TASKS_SHOWN])
    return shown if len(tasks) <= TASKS_SHOWN else f"{shown} and {count(len(tasks) - TASKS_SHOWN, 'more task')}"


def _skill_figures(report: CompletionReport) -> dict[str, str]:
    """Return the figures of one skill by the headings of their columns; an unknown one is empty."""
    summary, latency = report.summary, report.summary.latency
    judging, usage = report.judging, report.usage
    return {
        "skill": middle(one_line(report.label), _WIDEST_SKILL),
        "completion": _completion(summary.completion),
        "score": _score(summary),
        "errors": "" if summary.error_rate is None else f"{summary.error_rate.value * 100:.0f} %",
        "p50": duration(latency.p50_ms / 1000) if latency else "",
        "p95": duration(latency.p95_ms / 1000) if latency else "",
        **{f"pass^{found.k}": f"{found.all:.3f}" for found in summary.passes if found.k > 1},
        **{f"pass@{found.k}": f"{found.at:.3f}" for found in summary.passes if found.k > 1},
        "consistency": "" if summary.consistency is None else f"{summary.consistency:.3f}",
        "composite": "" if summary.composite is None else f"{summary.composite:.3f}",
        "tokens": _tokens(usage),
        "judge": "" if judging is None or judging.cost_usd is None else money(judging.cost_usd),
        "errored": _errored(summary),
    }


def _tokens(usage: Usage) -> str:
    if usage.total_tokens is None:
        return ""
    return f"{number(usage.total_tokens)} guessed" if usage.tokens_guessed else number(usage.total_tokens)


def _completion(found: Interval | None) -> str:
    """Such as "90 % (60-98 %)"."""
    return "" if found is None else f"{found.value * 100:.0f} % ({found.low * 100:.0f}-{found.high * 100:.0f} %)"


def _score(summary: Summary) -> str:
    if summary.score is None:
        return ""
    around = summary.score_interval
    return f"{summary.score:.3f}" + (f" ({around.low:.2f}-{around.high:.2f})" if around else "")


def _errored(summary: Summary) -> str:
    """Such as "2 (60-80 %)": how many errored, and the completion if all of them had failed or passed."""
    if not summary.errored:
        return ""
    passed = 0 if summary.completion is None else summary.completion.value * (summary.samples - summary.errored)
    least, most = passed / summary.samples, (passed + summary.errored) / summary.samples
    return f"{number(summary.errored)} ({least * 100:.0f}-{most * 100:.0f} %)"


@dataclass(slots=True)
class _Shortcoming:
    """Calls that did not pass for the same reason."""

    status: SampleStatus
    reason: str
    count: int = 0
    # In order, each once.
    tasks: dict[str, None] = field(default_factory=dict)


def _by_reason(report: CompletionReport) -> list[_Shortcoming]:
    """Group the calls that did not pass by their reason, the most frequent first."""
    found: dict[tuple[str, str], _Shortcoming] = {}
    for call in report.calls:
        status = call.status
        if status == "pass":
            continue
        reason = one_line(call.error or call.reason or "no reason was given", 160)
        alike = found.setdefault((status, reason), _Shortcoming(status, reason))
        alike.count += 1
        alike.tasks[call.task] = None
    return sorted(found.values(), key=lambda each: -each.count)
