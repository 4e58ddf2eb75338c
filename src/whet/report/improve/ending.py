"""How an improve run ended, or where it stands: the verdict, what it rests on, what it cost, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.reading.text import count, one_line, path_for_people
from whet.record.folder import is_locked
from whet.record.improve.document import CURRENT, PATCH, REPORT_HTML, ImproveDocument
from whet.report.improve.steps import labeled_line, sealed_text, step_lines
from whet.report.improve.words import (
    OUTCOME_STYLES,
    OUTCOMES,
    accepted_version,
    decision_text,
    growth_text,
    headline,
    like_these_text,
    spent_rows,
)
from whet.report.screen import Screen, unbroken

_DECIDED = ("succeeded", "no_winner", "undecided")


def ending_lines(document: ImproveDocument, folder: Path, cwd: Path, screen: Screen) -> Iterator[str]:
    """Yield how a run ended; *folder* is its record."""
    is_running = is_locked(folder)
    style = document.outcome and OUTCOME_STYLES[document.outcome]
    yield screen.paint(headline(document, is_running=is_running), style)
    if document.reason:
        yield f"  {one_line(document.reason, 1000)}"
    yield from _decision_lines(document)
    version = accepted_version(document)
    if version is not None:
        yield labeled_line("skill", f"{growth_text(version.token_growth)} than before")
    if document.sealed is not None:
        yield labeled_line("sealed", sealed_text(document.sealed))
    yield from (labeled_line(label, text) for label, text in spent_rows(document))
    files = [folder / name for name in (PATCH, REPORT_HTML) if (folder / name).exists()]
    for label, path in zip(("files", ""), files, strict=False):
        yield labeled_line(label, unbroken(path_for_people(path, cwd)))
    hint = document.hint
    if document.outcome is None and not is_running:
        hint = f"whet improve --resume {document.id}"
    if hint:
        yield labeled_line("next", one_line(hint, 1000))


def _decision_lines(document: ImproveDocument) -> Iterator[str]:
    """Yield the decision on held-out cases that the outcome rests on: the last one, or that of what was accepted."""
    if document.outcome not in _DECIDED:
        return
    for round_record in reversed(document.rounds):
        if round_record.confirm is not None and (round_record.accepted or document.outcome != "succeeded"):
            name = round_record.chosen or CURRENT
            yield labeled_line("decision", decision_text(name, round_record.confirm, document.options.goal))
            yield labeled_line("like these", like_these_text(round_record.confirm))
            return


def status_lines(document: ImproveDocument, folder: Path, cwd: Path, screen: Screen) -> Iterator[str]:
    """Yield where a run stands: each step that it has done, and how it ended if it has."""
    yield f"{screen.paint(document.id, 'bold')}: {one_line(document.suite_name)} on {one_line(document.runner)}"
    for step in document.steps:
        yield from step_lines(step, document, screen)
    yield ""
    yield from ending_lines(document, folder, cwd, screen)


def runs_lines(documents: Sequence[ImproveDocument], screen: Screen) -> Iterator[str]:
    """Yield improve runs, one a line, the newest first."""
    for document in documents:
        outcome = "not ended"
        if document.outcome is not None:
            outcome = OUTCOMES[document.outcome]
        tries = count(sum(len(round_record.candidates) for round_record in document.rounds), "candidate")
        style = document.outcome and OUTCOME_STYLES[document.outcome]
        yield f"  {document.id}  {screen.paint(outcome, style)}  {one_line(document.skill_name)}, {tries}"
