"""report.md of an improve run: what came of it, each round with its candidates, and the decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whet.reading.text import clean, count, money, one_line, percent, points
from whet.record.improve.document import (
    CURRENT,
    CandidateRecord,
    ConfirmRecord,
    HeldOutCase,
    ImproveDocument,
    RoundRecord,
)
from whet.report.improve.steps import sealed_text
from whet.report.improve.words import (
    ACCEPTS,
    FATES,
    PARTS,
    accepted_version,
    decision_text,
    effort_text,
    growth_text,
    headline,
    like_these_text,
    moved_text,
    parent_text,
    practice_text,
    spent_rows,
    why_text,
)
from whet.report.markup import Kind, Table, cell, code, fence, markdown_table

_CANDIDATES: Sequence[tuple[str, Kind]] = (
    ("candidate", "text"),
    ("practice", "number"),
    ("tokens", "number"),
    ("cost", "number"),
    ("what became of it", "text"),
)
_CASES: Sequence[tuple[str, Kind]] = (
    ("held-out case", "text"),
    ("before", "number"),
    ("after", "number"),
    ("points", "number"),
)


def improve_report(document: ImproveDocument) -> str:
    """Return the report of a run."""
    return "".join(_sections(document))


def _sections(document: ImproveDocument) -> Iterator[str]:
    yield f"# {cell(headline(document))}\n\n"
    if document.reason:
        yield f"{cell(document.reason)}\n\n"
    if document.hint:
        yield f"Next: {_code(document.hint)}\n\n"
    yield from (f"- {name}: {value}\n" for name, value in _facts(document))
    yield "\n"
    yield from (f"> Warning: {cell(warning)}\n\n" for warning in document.warnings)
    for round_record in document.rounds:
        yield from _round_sections(round_record, document)
    if document.sealed is not None:
        yield f"## Sealed cases\n\n{sealed_text(document.sealed)}.\n\n"


def _facts(document: ImproveDocument) -> Iterator[tuple[str, str]]:
    options = document.options
    yield "Skill", _code(document.skill)
    proposer = f", proposals by {_code(document.proposer)}" if document.proposer else ""
    yield "Suite", f"{_code(document.suite)} on {_code(document.runner)}{proposer}"
    if document.split is not None:
        split = document.split
        yield "Cases", f"{len(split.practice)} practice, {len(split.held_out)} held out, {len(split.sealed)} sealed"
    yield (
        "Asked for",
        f"to change {PARTS[options.part]}, and to accept what is {options.goal} {ACCEPTS[options.accept]}",
    )
    if document.baseline is not None:
        yield "Baseline", f"{practice_text(document.baseline)} on practice cases"
    version = accepted_version(document)
    if version is not None:
        yield "Skill now", f"{growth_text(version.token_growth)} than before"
    for name, text in spent_rows(document):
        yield name.capitalize(), text


def _round_sections(round_record: RoundRecord, document: ImproveDocument) -> Iterator[str]:
    yield f"## Round {round_record.number}, from {cell(parent_text(round_record, document))}\n\n"
    rows = [_candidate_row(candidate) for candidate in round_record.candidates]
    if round_record.current is not None:
        rows.append((CURRENT, practice_text(round_record.current), "", "", "the version that the round started from"))
    if rows:
        yield _lines(markdown_table(Table(_CANDIDATES, rows)))
    if round_record.confirm is not None:
        yield from _confirm_sections(round_record, round_record.confirm, document)
    for candidate in round_record.candidates:
        if candidate.fate != "same":
            yield from _candidate_sections(candidate)


def _candidate_row(candidate: CandidateRecord) -> tuple[str, ...]:
    growth, cost = "", ""
    if candidate.digest:
        growth = f"{candidate.token_growth:+d}"
    if candidate.cost_usd is not None:
        cost = money(candidate.cost_usd)
    why = why_text(candidate)
    fate = f"{FATES[candidate.fate]}{why and f': {why}'}"
    return candidate.id, practice_text(candidate.practice), growth, cost, fate


def _candidate_sections(candidate: CandidateRecord) -> Iterator[str]:
    if not candidate.changes and not candidate.diff:
        return
    yield f"### {cell(candidate.id)}\n\n"
    if candidate.changes:
        yield _block(candidate.changes, "text")
    if candidate.diff:
        yield _block(candidate.diff, "diff")


def _confirm_sections(round_record: RoundRecord, confirm: ConfirmRecord, document: ImproveDocument) -> Iterator[str]:
    yield f"### Decision of round {round_record.number}\n\n"
    yield f"**{cell(decision_text(round_record.chosen or CURRENT, confirm, document.options.goal))}**\n\n"
    facts = (
        like_these_text(confirm),
        f"of {count(len(confirm.cases), 'held-out case')}, {moved_text(confirm)}",
        effort_text(confirm),
    )
    yield "".join(f"- {fact}\n" for fact in facts)
    yield "".join(f"- not accepted: {cell(objection)}\n" for objection in confirm.objections)
    yield "\n"
    if confirm.cases:
        rows = [_case_row(case) for case in sorted(confirm.cases, key=lambda case: case.after - case.before)]
        yield _lines(markdown_table(Table(_CASES, rows)))


def _case_row(case: HeldOutCase) -> tuple[str, ...]:
    return case.case, percent(case.before), percent(case.after), points(case.after - case.before)


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n\n"


def _code(text: str) -> str:
    return code(one_line(text, 1000))


def _block(text: str, language: str) -> str:
    return fence(clean(text).rstrip().splitlines(), language)
