"""What an improve run says on the terminal and in report.md."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import replace
from reporting import all_pass, make_plan, play

import improve_documents as documents
from whet.record.folder import lock
from whet.record.improve.document import PATCH, REPORT_HTML, ImproveDocument
from whet.report.improve.ending import ending_lines, status_lines
from whet.report.improve.markdown import improve_report
from whet.report.improve.quote import ImproveQuote, ThreeFigures, quote_lines
from whet.report.improve.steps import ImproveProgress, PhaseReporter
from whet.report.screen import Screen, plain_screen

_HERE = Path("/project")
_FOLDER = _HERE / ".whet" / "improve" / "one"


def _ending(document: ImproveDocument, folder: Path = _FOLDER) -> str:
    return plain_screen().text(ending_lines(document, folder, folder.parent, plain_screen()))


def _quote(**fields: object) -> str:
    quote = ImproveQuote(
        skill="skills/notes", suite="evals.json", runner="haiku", proposer="sonnet", practice=12,
        options=documents.SUCCEEDED.options, held_out=14, trials=ThreeFigures(least=120, usual=286, most=1540),
        cost_usd=ThreeFigures(least=1.1, usual=2.9, most=6.3), reach=0.19, step=2, error=0.0076,
    )  # fmt: skip
    return plain_screen().text(quote_lines(replace(quote, **fields), plain_screen()))


def test_a_plan_has_three_prices_and_says_where_it_stops():
    text = _quote()

    assert "$1.10 at least, usually $2.90, $6.30 at most; it stops at $5.00" in text
    assert "120 at least, usually 286, 1,540 at most" in text
    assert "12 practice, 14 held out\n" in text
    assert "step 2 on this split, which may err in 0.76 %; finds 19 points or more in 80 % of runs" in text


def test_a_plan_without_a_known_price_says_so():
    assert "not known: no run says what a trial costs; it stops at $5.00" in _quote(cost_usd=None)


def test_each_step_is_told_once_although_the_document_is_written_again_and_again():
    stream = StringIO()
    progress = ImproveProgress(Screen(stream, {}))

    for steps in range(len(documents.SUCCEEDED.steps) + 1):
        document = replace(documents.SUCCEEDED, steps=documents.SUCCEEDED.steps[:steps])
        progress(document)
        progress(document)

    text = stream.getvalue()
    assert _labels(text) == ["ready", "split", "baseline", "candidates", "lint", "race", "confirm"]
    assert text.count("r1-1 is better than current: +21.4 points (97 % interval +6 to +36)") == 1


def _labels(text: str) -> Sequence[str]:
    return [line[2:13].strip() for line in text.splitlines() if line.startswith("  ") and line[2:13].strip()]


def test_a_resumed_run_tells_nothing_again():
    stream = StringIO()
    progress = ImproveProgress(Screen(stream, {}))
    progress.skip(replace(documents.SUCCEEDED, steps=documents.SUCCEEDED.steps[:6]))

    progress(documents.SUCCEEDED)

    assert _labels(stream.getvalue()) == ["confirm"]


def test_a_run_of_a_phase_says_at_each_quarter_how_far_it_is():
    stream = StringIO()

    play(PhaseReporter("racing", Screen(stream, {})), make_plan(trials=20), all_pass)

    assert [line.split("  ")[-1].strip() for line in stream.getvalue().splitlines()] == [
        "10 of 40 trials",
        "20 of 40 trials",
        "30 of 40 trials",
    ]


def test_the_race_names_all_scores_with_the_best_first():
    lines = [line.strip() for line in plain_screen().text(_status(documents.NO_WINNER)).splitlines()]

    start = lines.index("current  83 % in 36 trials")
    assert lines[start - 1].startswith("race         none is better than current on practice cases")
    assert [line.split()[0] for line in lines[start : start + 4]] == ["current", "r1-1", "r1-2", "r1-3"]


def _status(document: ImproveDocument) -> Sequence[str]:
    return [*status_lines(document, _FOLDER, _HERE, plain_screen())]


def test_an_accepted_version_has_its_decision_its_price_and_what_to_do_next(tmp_path):
    for name in (PATCH, REPORT_HTML):
        (tmp_path / name).touch()

    text = _ending(documents.SUCCEEDED, tmp_path)

    assert text.startswith("release-notes: r1-1 is accepted\n")
    assert "+2 to +41 points on other cases like these: holds" in text
    # 2.90 dollars for 21.4 points.
    assert "$2.90 of $5.00, $0.136 for each point" in text
    assert "3.04 % of the 5 %" in text
    assert f"{tmp_path.name}/{PATCH}\n" in text
    assert f"{tmp_path.name}/{REPORT_HTML}\n" in text
    assert "next         whet improve skills/release-notes --resume" in text


def test_several_accepted_versions_gain_together():
    text = _ending(documents.TWO_ROUNDS)

    assert "r2-1 is accepted, the last of 2 versions that gain +33.4 points together" in text
    assert "48 tokens longer than before" in text
    assert "+28 points on sealed cases (+10 to +46), 50 % to 78 %; nothing is decided by it" in text


def test_a_version_that_is_cheaper_costs_nothing_for_a_point():
    text = _ending(documents.CHEAPER)

    assert "0.71 times the cost (97 % interval 0.60 to 0.85): -1 points" in text
    assert "for each point" not in text


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (documents.NO_WINNER, "no winner: the skill stays as it is"),
        (documents.OBJECTION, "no winner: the skill stays as it is"),
        (documents.UNDECIDED, "not known yet whether a candidate is better"),
        (documents.REFUSED, "not ready to be improved"),
        (documents.FAILED, "the run failed"),
        (documents.INTERRUPTED, "the run was interrupted"),
        (documents.PROPOSED, "3 candidates written, and none was tried"),
    ],
)
def test_every_ending_has_its_words_in_the_terminal_and_the_report(document, words):
    text, report = _ending(document), improve_report(document)

    assert text.splitlines()[0] == f"release-notes: {words}"
    assert report.splitlines()[0] == f"# release-notes: {words}"
    assert " is accepted" not in text + report


@pytest.mark.parametrize(("phase", "words"), [("racing", "race of round 1"), ("ready", "ready")])
def test_a_run_that_has_not_ended_is_under_way_or_was_killed(tmp_path, phase, words):
    document = documents.running(phase)
    descriptor = lock(tmp_path)
    is_running = _ending(document, tmp_path)
    os.close(descriptor)

    assert is_running.startswith(f"release-notes: {words} under way")
    killed = _ending(document, tmp_path)
    assert killed.startswith(f"release-notes: killed in {words}, and can be resumed")
    assert f"next         whet improve --resume {document.id}\n" in killed
    assert "--resume" not in is_running


def test_the_report_has_each_candidate_with_its_score_its_diff_and_why_it_was_refused():
    report = improve_report(documents.SUCCEEDED)

    assert "| r1-1 | 81 % in 36 trials | +24 | $0.041 | accepted |" in report
    assert "refused: SKILL.md line 9 repeats text of a case" in report
    assert "unusable: the proposer changed nothing" in report
    assert "+Write the notes of a release. Read CHANGELOG.md first" in report
    assert "| revert | 0 % | 100 % | +100 |" in report


def test_what_objects_to_a_better_version_is_told():
    assert "not accepted: security-fix has the tag safety" in improve_report(documents.OBJECTION)
    assert any("not accepted: security-fix has the tag safety" in line for line in _status(documents.OBJECTION))


def test_text_of_others_stays_text():
    terminal = plain_screen().text(_status(documents.HOSTILE))
    report = improve_report(documents.HOSTILE)

    assert "\x1b" not in terminal
    assert "\u202e" not in terminal + report
    # In code, markup is text.
    outside = re.sub(r"```.*?```|`[^`]*`", "", report, flags=re.DOTALL)
    assert "<img" not in outside
    assert not re.search(r"(?<!\\)\]\(", outside)
