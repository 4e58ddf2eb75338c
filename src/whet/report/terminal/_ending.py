"""Lay out the end of a run or an evaluation on a terminal: tables, failures by class, and what to do next."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from whet.model.callable import TYPED_TASK, CompletionReport, EvaluationOutcome, Interval, SampleStatus, Summary
from whet.model.run import RunInfo
from whet.model.session import Usage
from whet.reading.text import (
    aligned,
    count,
    duration,
    fitted,
    left,
    middle,
    money,
    number,
    one_line,
    path_for_people,
    right,
    width,
)
from whet.report.digest import (
    ERRORED,
    FAILURES,
    LIKE_THESE,
    LOADS,
    Digest,
    FindingGroup,
    Names,
    last_failed_command,
    load_lines,
    outcome,
    ranked,
    resume_command,
    run_argument,
    words_of,
)
from whet.report.finding import PLACES, Finding
from whet.report.screen import Screen, Style, unbroken
from whet.report.spent import spending_text
from whet.report.table import DETAILS, RunnerTable, columns_of, totals_of
from whet.report.terminal.progress import mark_of, symbol
from whet.report.triggers import TRIGGERS

_WIDEST_CASE = 48
_NAMES_ALIKE = 8
_NARROWEST_CASE = 16
REASONS_SHOWN = 5
TASKS_SHOWN = 3
# How many queries that did not go as they should are shown.
_QUERIES_SHOWN = 20
_WIDEST_SKILL = 32
# Columns of an evaluation that are always there, and those that a narrow terminal loses first. Report files have all.
_ALWAYS = frozenset({"skill", "completion", "score", "errors", "composite"})
_LEFT_OFF_FIRST = ("consistency", "tokens", "p50", "judge", "score", "p95")
_CALL_STYLES: dict[SampleStatus, Style] = {"fail": "bad", "error": "bad", "timeout": "bad", "errored": "warn"}


def ending_lines(
    digest: Digest, info: RunInfo, screen: Screen, cwd: Path, evaluation: EvaluationOutcome | None = None
) -> Iterator[str]:
    """Yield the lines that end a run."""
    if evaluation is None:
        yield from _run_lines(digest, info, screen, cwd)
    else:
        yield from _evaluation_lines(evaluation, screen, cwd)
        if spending := spending_text(digest.spending, agents="skills"):
            yield f"Spent {spending}"
        yield from _compared_arms(digest, info, screen, cwd)
    yield from _closing(digest, info, screen, cwd)


def _closing(digest: Digest, info: RunInfo, screen: Screen, cwd: Path) -> Iterator[str]:
    """The outcome in a sentence, and the command that you may want next."""
    clean_run = digest.as_expected == digest.counting and not digest.snapshots
    only_errored = not digest.failed
    style: Style | None
    if digest.comparisons and not digest.missing:
        # The decision is the verdict, and a trial that failed is a figure in it.
        style = None
    elif clean_run:
        style = "good"
    elif only_errored:
        style = "warn"
    else:
        style = "bad"
    place = path_for_people(info.run_dir, cwd)
    words = words_of(info.command)
    record = screen.path(info.run_dir, cwd)
    yield f"{screen.paint(outcome(digest, words), style)}, in {duration(digest.duration_s)}. Results in {record}"
    if digest.missing:
        missing = f"{count(digest.missing, words.trial)} {'is' if digest.missing == 1 else 'are'} missing"
        yield f"  {missing}. To resume: {unbroken(resume_command(info, place))}"
    elif digest.refused:
        # The same command, or what failed of it alone, would be refused as well until somebody mends the reason.
        refusals = count(digest.refused, words.trial)
        yield f"  When that is corrected, to run {refusals} again: {unbroken(resume_command(info, place))}"
    elif not clean_run and info.suite_path.name != TYPED_TASK:
        again = "call only what did not pass" if info.command == "eval" else "run only what did not go as expected"
        yield f"  To {again}: {unbroken(last_failed_command(info, cwd))}"
    if info.suite_path.name != TYPED_TASK:
        yield f"  To look at it: {unbroken(f'whet view{run_argument(info, cwd)}')}"


def _run_lines(digest: Digest, info: RunInfo, screen: Screen, cwd: Path) -> Iterator[str]:
    for table in digest.tables:
        yield ""
        yield from _table(table, digest.compared(table.runner.id), screen)
    yield from _groups(FAILURES, "bad", digest.failed, screen, cwd)
    yield from _groups(ERRORED, "warn", digest.errored, screen, cwd)
    yield from _names(digest.flaky, screen)
    yield from _names(digest.vacuous, screen)
    yield from _names(digest.lost_checks, screen)
    yield from _names(digest.void, screen)
    yield from _loads(digest, screen)
    yield from _triggers(digest, screen)
    # What counts comes last, where you look.
    yield from _compared_arms(digest, info, screen, cwd)
    if digest.spent:
        yield ""
        yield f"Spent {digest.spent}"
    yield ""


def _table(table: RunnerTable, compared_cases: Collection[str], screen: Screen) -> Iterator[str]:
    """A line for each execution, but not for *compared_cases*: these have a table of arms."""
    yield screen.paint(table.title, "bold")
    for line in _join_columns(totals_of(table), screen.columns):
        yield f"  {screen.paint(screen.fit(line), 'dim')}"
    if compared_cases:
        table = replace(table, rows=[row for row in table.rows if row.case_id not in compared_cases])
    if table.rows:
        yield from _rows(table, screen)


def _rows(table: RunnerTable, screen: Screen) -> Iterator[str]:
    names = [screen.fit(fitted(row.case, _WIDEST_CASE)) for row in table.rows]
    (heading, *lines), needed_width = _widest_grid(table, screen)
    first = max(width(name) for name in ("case", *names))
    if screen.columns is not None:
        first = min(first, max(_NARROWEST_CASE, screen.columns - needed_width))
    yield screen.paint(f"    {left('case', first)}  {'  '.join(heading)}", "dim")
    for row, name, (status, *cells) in zip(table.rows, names, lines, strict=True):
        sign, style = mark_of(row.status, baseline=row.baseline)
        mark = screen.paint(screen.fit(sign), style)
        yield f"  {mark} {left(fitted(name, first), first)}  {screen.paint(status, style)}  {'  '.join(cells)}"
    if table.left_off:
        yield screen.paint(f"    and {count(table.left_off, 'more row')} in the record", "dim")


def _join_columns(parts: Sequence[str], columns: int | None) -> Iterator[str]:
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
        padded_lines = _pad(lines, [column.numeric for column in columns])
        needed_width = sum(width(text) + 2 for text in padded_lines[0]) + 4
        if screen.columns is None or _NARROWEST_CASE + needed_width <= screen.columns:
            break
    return padded_lines, needed_width


def _pad(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[list[str]]:
    """Pad the cells of each column to one width, numbers on the left."""
    widths = [max(width(text) for text in texts) for texts in zip(*lines, strict=True)]
    pads = [right if is_number else left for is_number in numeric]
    return [[pad(text, size) for pad, text, size in zip(pads, line, widths, strict=True)] for line in lines]


def _groups(title: str, style: Style, groups: Sequence[FindingGroup], screen: Screen, cwd: Path) -> Iterator[str]:
    if not groups:
        return
    yield ""
    yield screen.paint(title, "bold")
    for group in groups:
        yield f"  {screen.paint(group.title, style)} · {count(group.count, group.noun)}"
        for block in group.blocks:
            yield from _finding(block.first, style, screen, cwd)
            if block.again:
                yield _fact("also", _some_trials([finding.key for finding in block.again]), screen)
                places = dict.fromkeys(finding.where for finding in block.again if finding.where)
                if others := [place for place in places if place != block.first.where]:
                    links = (_link(place, screen, cwd) for place in others[:_NAMES_ALIKE])
                    yield _fact("also at", ", ".join(links), screen)
        if group.hidden:
            yield screen.paint(f"    and {group.hidden:,} more", "dim")


def _finding(finding: Finding, style: Style, screen: Screen, cwd: Path) -> Iterator[str]:
    yield _opening(finding, style, screen)
    for line in finding.message:
        # The bar shows that these are not our words, and keeps CI systems from taking a line for a command.
        yield f"      {screen.paint(screen.fit('│'), 'dim')} {line}"
    for index, line in enumerate(finding.printed):
        yield _fact("" if index else "printed", f"{screen.fit('│')} {line}", screen)
    for label, fact in finding.facts():
        yield _fact(label, _link(fact, screen, cwd) if label in PLACES else fact, screen)
    if finding.ask is not None:
        yield _fact("to ask", finding.ask, screen)


def _link(place: str, screen: Screen, cwd: Path) -> str:
    """Return *place*, a path with or without a line, as a link if the terminal opens links."""
    path, _, line = place.rpartition(":")
    return screen.link(place, cwd / (path if line.isdecimal() else place))


def _some_trials(keys: Sequence[str]) -> str:
    """Return the names of trials, those of one case, runner and arm as one, such as "a@sh/new#1-#3, #5"."""
    numbers: dict[str, list[int]] = {}
    names: list[str] = []
    for key in keys:
        name, hash_sign, digits = key.rpartition("#")
        if hash_sign and digits.isdecimal():
            numbers.setdefault(name, []).append(int(digits))
        else:
            names.append(key)
    names += [f"{name}{_ranges(digits)}" for name, digits in numbers.items()]
    more = len(names) - _NAMES_ALIKE
    return ", ".join([*names[:_NAMES_ALIKE], *([f"and {count(more, 'more case')}"] if more > 0 else [])])


def _ranges(numbers: Sequence[int]) -> str:
    """Return *numbers*, those that follow each other as a range."""
    ranges: list[list[int]] = []
    for trial in sorted(numbers):
        if ranges and trial == ranges[-1][-1] + 1:
            ranges[-1].append(trial)
        else:
            ranges.append([trial])
    return ", ".join(f"#{run[0]}-#{run[-1]}" if len(run) > 1 else f"#{run[0]}" for run in ranges)


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


def _triggers(digest: Digest, screen: Screen) -> Iterator[str]:
    if not digest.triggers:
        return
    yield ""
    yield screen.paint(TRIGGERS, "bold")
    for line in digest.triggers.lines():
        yield f"  {screen.fit(line)}"
    rows = digest.triggers.rows(all_queries=False)
    if rows:
        for line in aligned([digest.triggers.columns, *rows[:_QUERIES_SHOWN]]):
            yield f"    {screen.fit(line)}"
    if len(rows) > _QUERIES_SHOWN:
        yield f"    and {count(len(rows) - _QUERIES_SHOWN, 'more row')} in the record"


def _compared_arms(digest: Digest, info: RunInfo, screen: Screen, cwd: Path) -> Iterator[str]:
    if not (digest.lifts or digest.comparisons or digest.stopped or digest.pairwise):
        return
    # Only here: most runs compare nothing.
    from whet.report.terminal._comparing import arm_lines, decision_lines, lift_lines, pairwise_lines

    if digest.lifts:
        yield from lift_lines(digest.lifts, screen)
    yield from arm_lines(digest, info, screen)
    if digest.comparisons or digest.stopped:
        yield from decision_lines(digest, info, screen, cwd)
    if digest.pairwise:
        yield from pairwise_lines(digest.pairwise, screen)


def _names(names: Names, screen: Screen) -> Iterator[str]:
    if not names.count:
        return
    yield ""
    yield screen.paint(names.title, "bold")
    for name in names.shown:
        yield f"  {screen.paint('~', 'warn')} {screen.fit(name)}"
    if names.hidden:
        yield screen.paint(f"    and {names.hidden:,} more", "dim")


def _evaluation_lines(evaluation: EvaluationOutcome, screen: Screen, cwd: Path) -> Iterator[str]:
    yield ""
    yield from _skills(evaluation.reports, screen)
    for report in evaluation.reports:
        yield from _shortcomings(report, screen)
        yield from _flag_lines(report, screen)
    yield ""
    for name in evaluation.below:
        least = f"{(evaluation.least or 0) * 100:g} %"
        yield screen.paint(f"{one_line(name)} completes less than the {least} that you asked for", "bad")
    if evaluation.files:
        # The files differ only in their suffixes.
        path = screen.path(cwd / evaluation.files[0], cwd)
        yield f"Reports in {' and '.join([path, *(file.suffix for file in evaluation.files[1:])])}"


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
    if any(report.summary.completion for report in reports):
        yield f"  {screen.paint(screen.fit(LIKE_THESE), 'dim')}"


def _skill_lines(names: Sequence[str], rows: Sequence[Mapping[str, str]]) -> list[str]:
    lines = [list(names), *([row[name] or "-" for name in names] for row in rows)]
    return ["  ".join(line) for line in _pad(lines, [name != "skill" for name in names])]


def _shortcomings(report: CompletionReport, screen: Screen) -> Iterator[str]:
    """Why calls did not pass, the most frequent reason first."""
    shortcomings = _by_reason(report)
    if not shortcomings:
        return
    yield ""
    misses = sum(shortcoming.count for shortcoming in shortcomings)
    share = f"{misses:,} of {count(len(report.calls), 'call')} did not pass"
    yield f"{screen.paint(one_line(report.label), 'bold')}: {share}"
    for shortcoming in shortcomings[:REASONS_SHOWN]:
        word = "wrong" if shortcoming.status == "fail" else shortcoming.status
        mark = screen.paint(left(word, 8), _CALL_STYLES[shortcoming.status])
        times = f"{shortcoming.count:,}x " if shortcoming.count > 1 else ""
        yield screen.fit(f"  {mark} {times}{shortcoming.reason}")
        yield screen.fit(f"           {screen.paint(f'in {_some_names(list(shortcoming.tasks))}', 'dim')}")
    remainder = sum(shortcoming.count for shortcoming in shortcomings[REASONS_SHOWN:])
    if remainder:
        yield screen.paint(f"  and {count(remainder, 'more call')} in the reports", "dim")


def _flag_lines(report: CompletionReport, screen: Screen) -> Iterator[str]:
    """The answers that try to talk their judge into a verdict: look at them even if they passed."""
    tasks = list(dict.fromkeys(call.task for call in report.calls if call.flags))
    if tasks:
        yield ""
        warning = screen.paint(f"{count(len(tasks), 'answer')} flagged for speaking to the judge", "warn")
        yield screen.fit(f"{one_line(report.label)}: {warning}, in {_some_names(tasks)}")


def _some_names(tasks: Sequence[str]) -> str:
    names = ", ".join(one_line(task, 60) for task in tasks[:TASKS_SHOWN])
    return names if len(tasks) <= TASKS_SHOWN else f"{names} and {count(len(tasks) - TASKS_SHOWN, 'more task')}"


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
        **{f"pass^{pass_rate.k}": f"{pass_rate.all:.3f}" for pass_rate in summary.passes if pass_rate.k > 1},
        **{f"pass@{pass_rate.k}": f"{pass_rate.at:.3f}" for pass_rate in summary.passes if pass_rate.k > 1},
        "consistency": "" if summary.consistency is None else f"{summary.consistency:.3f}",
        "composite": "" if summary.composite is None else f"{summary.composite:.3f}",
        "tokens": _tokens(usage),
        "judge": "" if judging is None or judging.cost_usd is None else money(judging.cost_usd),
        "errored": _errors_text(summary),
    }


def _tokens(usage: Usage) -> str:
    if usage.total_tokens is None:
        return ""
    return f"{number(usage.total_tokens)} guessed" if usage.tokens_guessed else number(usage.total_tokens)


def _completion(interval: Interval | None) -> str:
    """Return a completion, such as "90 % (60-98 %)"."""
    return (
        ""
        if interval is None
        else f"{interval.value * 100:.0f} % ({interval.low * 100:.0f}-{interval.high * 100:.0f} %)"
    )


def _score(summary: Summary) -> str:
    if summary.score is None:
        return ""
    around = summary.score_interval
    return f"{summary.score:.3f}" + (f" ({around.low:.2f}-{around.high:.2f})" if around else "")


def _errors_text(summary: Summary) -> str:
    """Return how many errored, and the completion if all of them had failed or passed, such as "2 (60-80 %)"."""
    if not summary.errored:
        return ""
    passes = 0 if summary.completion is None else summary.completion.value * (summary.samples - summary.errored)
    least, most = passes / summary.samples, (passes + summary.errored) / summary.samples
    return f"{number(summary.errored)} ({least * 100:.0f}-{most * 100:.0f} %)"


class _Shortcoming(Struct):
    """Calls that did not pass for the same reason."""

    status: SampleStatus
    reason: str
    count: int = 0
    # In order, each once.
    tasks: dict[str, None] = field(default_factory=dict)


def _by_reason(report: CompletionReport) -> list[_Shortcoming]:
    """Group the calls that did not pass by their reason, the most frequent first."""
    shortcomings: dict[tuple[str, str], _Shortcoming] = {}
    for call in report.calls:
        status = call.status
        if status == "pass":
            continue
        reason = one_line(call.error or call.reason or "no reason was given", 160)
        alike = shortcomings.setdefault((status, reason), _Shortcoming(status, reason))
        alike.count += 1
        alike.tasks[call.task] = None
    return sorted(shortcomings.values(), key=lambda each: -each.count)
