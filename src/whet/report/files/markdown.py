"""The Markdown reporter: totals, a table for each runner and failures by class, safe to paste anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from whet.decide.comparison import lift_line
from whet.model.comparison import Comparison
from whet.model.grade import Lift
from whet.model.run import RunInfo
from whet.model.run_events import Results, RunEnded
from whet.reading.text import count, duration, one_line, path_for_people
from whet.report.decisions.words import comparison_lines, sentence
from whet.report.digest import (
    ERRORED,
    FAILURES,
    LOADS,
    Block,
    Digest,
    FindingGroup,
    Names,
    load_lines,
    outcome,
    read_digest,
    resume_command,
)
from whet.report.files.json import DocumentReporter
from whet.report.finding import Finding
from whet.report.judging.pairs import pairs_line
from whet.report.markup import Kind, Table, cell, code, fence, markdown_table
from whet.report.table import RunnerTable, columns_of, totals_of
from whet.report.terminal.progress import mark_of
from whet.report.triggers import TRIGGERS, TriggerReport

ROWS = 500
_LIFT_COLUMNS: Sequence[tuple[str, Kind]] = (
    ("case", "text"),
    ("with the skill", "number"),
    ("without", "number"),
    ("lift", "number"),
    ("weight", "number"),
)


class MarkdownReporter(DocumentReporter):
    """Writes the sections of a run."""

    def chunks(self, event: RunEnded) -> Iterator[bytes]:
        """Return the document in pieces."""
        return (part.encode() for part in sections(event.results, event.info, self.context.cwd))


def sections(results: Results, info: RunInfo, cwd: Path) -> Iterator[str]:
    """Yield the document in pieces, so that it can be cut between any two."""
    digest = read_digest(results, info, cwd=cwd, rows=ROWS)
    yield f"# {cell(info.suite)}\n\n"
    yield from _decisions(digest)
    yield f"{outcome(digest)}, in {duration(digest.duration_s)}.\n\n"
    if digest.spent:
        yield f"Spent {digest.spent}.\n\n"
    yield f"Results in {code(path_for_people(info.run_dir, cwd))}.\n\n"
    if digest.missing:
        yield f"To resume: {code(resume_command(info, one_line(info.run_id)))}\n\n"
    for table in digest.tables:
        yield _table(table)
    if digest.loads:
        yield f"## {LOADS}\n\n```text\n" + "".join(f"{line}\n" for line in load_lines(digest.loads)) + "```\n\n"
    if digest.triggers:
        yield _triggers(digest.triggers)
    for lift in digest.lifts:
        yield _lift(lift)
    for comparison in digest.comparisons:
        yield _comparison(comparison)
    yield from _groups(FAILURES, digest.failed)
    yield from _groups(ERRORED, digest.errored)
    yield _names(digest.lost_checks)
    yield _names(digest.void)
    yield _names(digest.flaky)


def _decisions(digest: Digest) -> Iterator[str]:
    """Yield what the run decides about its arms, and what a judge said of their answers."""
    for comparison in digest.comparisons:
        yield f"**{cell(sentence(comparison))}**\n\n"
    for figures in digest.pairwise:
        line = pairs_line(figures)
        yield f"{cell(line[0].upper() + line[1:])}.\n\n"
    if digest.stopped:
        yield f"{digest.stopped.capitalize()}.\n\n"


def _comparison(comparison: Comparison) -> str:
    heading, *lines = comparison_lines(comparison)
    return "\n".join((f"## {cell(heading)}", "", "```text", *lines, "```", "", ""))


def within(parts: Iterable[str], limit_bytes: int, remainder: str) -> str:
    """Join as many of *parts* as fit, and *rest* in place of the others."""
    lines: list[str] = []
    room = limit_bytes - len(remainder.encode())
    for part in parts:
        room -= len(part.encode())
        if room < 0:
            return "".join([*lines, remainder])
        lines.append(part)
    return "".join(lines)


def _table(table: RunnerTable) -> str:
    columns = columns_of(table)
    kinds: list[tuple[str, Kind]] = [("", "word"), ("case", "text")]
    kinds += [(column.heading, "number" if column.numeric else "word") for column in columns]
    marks = [mark_of(row.status, baseline=row.baseline)[0] for row in table.rows]
    rows = [
        (mark, row.case, *(column.cell(row) for column in columns)) for mark, row in zip(marks, table.rows, strict=True)
    ]
    lines = [f"## {cell(table.title)}", "", " · ".join(totals_of(table)), ""]
    lines += markdown_table(Table(kinds, rows))
    if table.left_off:
        lines += ["", f"and {count(table.left_off, 'more row')} in the record"]
    return "\n".join(lines) + "\n\n"


def _triggers(triggers: TriggerReport) -> str:
    lines = [f"## {TRIGGERS}", "", "```text", *triggers.lines(), "```", ""]
    rows = triggers.rows(all_queries=True)
    if rows:
        lines += markdown_table(Table([(heading, "text") for heading in triggers.columns], rows[:ROWS]))
    if len(rows) > ROWS:
        lines += ["", f"and {count(len(rows) - ROWS, 'more row')} in the record"]
    return "\n".join(lines) + "\n\n"


def _lift(lift: Lift) -> str:
    lines = [f"## Lift on {cell(lift.runner)}", "", f"{lift_line(lift)}.", ""]
    rows = [
        (case.case, f"{case.skill:.2f}", f"{case.no_skill:.2f}", f"{case.value:+.2f}", f"{case.weight:g}")
        for case in lift.cases[:ROWS]
    ]
    lines += markdown_table(Table(_LIFT_COLUMNS, rows))
    if len(lift.cases) > ROWS:
        lines += ["", f"and {count(len(lift.cases) - ROWS, 'more row')} in the record"]
    return "\n".join(lines) + "\n\n"


def _groups(title: str, groups: Sequence[FindingGroup]) -> Iterator[str]:
    if groups:
        yield f"## {title}\n\n"
    for group in groups:
        yield f"### {cell(group.title)} · {count(group.count, group.noun)}\n\n"
        for block in group.blocks:
            yield _finding(block.first)
            yield _again(block)
        if group.hidden:
            yield f"and {group.hidden:,} more\n\n"


def _finding(finding: Finding) -> str:
    lines = "".join(f"- {label}: {code(fact)}\n" for label, fact in finding.facts())
    output = f"The check printed:\n\n{fence(finding.printed)}" if finding.printed else ""
    return f"{code(finding.key)}\n\n{fence(finding.message)}{output}{lines}\n"


def _again(block: Block) -> str:
    lines = "".join(f"- {code(finding.key)}, {_own_facts(block, finding)}\n" for finding in block.again)
    return f"As above:\n\n{lines}\n" if lines else ""


def _own_facts(block: Block, finding: Finding) -> str:
    return ", ".join(f"{label}: {code(fact)}" for label, fact in block.own_facts(finding))


def _names(names: Names) -> str:
    lines = "".join(f"- {code(name)}\n" for name in names.shown)
    more = f"\nand {names.hidden:,} more\n" if names.hidden else ""
    return f"## {names.title}\n\n{lines}{more}" if lines else ""
