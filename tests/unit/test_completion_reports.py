"""Completion reports: ours can be read again, those of others too, and two of them can be compared."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from reporting import MemoryResults, Stage, all_pass, make_info, make_plan

from whet.callable._summary import summarize
from whet.callable.report import read_reports, reports_json
from whet.callable.report_files import compare, reports_csv, reports_markdown
from whet.errors import SuiteError, UsageError
from whet.model.callable import CompletionReport, EvaluationOutcome, Sample, SampleStatus
from whet.model.run_events import RunEnded
from whet.model.session import Usage, guessed
from whet.report.terminal.reporter import TerminalReporter


def call(
    task: str, status: SampleStatus = "pass", score: float | None = None, run: int = 1, weight: float = 1.0
) -> Sample:
    answered = status in {"pass", "fail"}
    return Sample(
        task=task,
        run=run,
        weight=weight,
        status=status,
        score=score if score is not None else float(status == "pass"),
        latency_ms=12.5 if answered else None,
        evaluator="exact",
        output={"result": task} if answered else None,
        error=None if answered else "it broke",
        reason="as expected",
        usage=Usage(input_tokens=3, output_tokens=4),
    )


def report(*calls: Sample, skill: str = "mine", **more: Any) -> CompletionReport:
    how = {name: more[name] for name in ("scoring", "ks", "max_latency_ms") if name in more}
    return CompletionReport(
        skill=skill,
        skill_version="1.0.0",
        benchmark="b",
        timestamp="2026-01-05T10:15:30Z",
        summary=summarize(calls, **how),
        calls=calls,
        **more,
    )


def write(path: Path, content: Any) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_what_is_written_can_be_read_again_as_it_was(tmp_path: Path) -> None:
    original = report(
        call("a"),
        call("b", "fail", 0.5),
        call("c", "error"),
        call("d", "timeout"),
        call("e", "errored"),
        scoring="weighted_mean",
        max_latency_ms=100.0,
        usage=Usage(input_tokens=15, output_tokens=20, cost_usd=0.5, cost_source="prices"),
    )

    found = read_reports(write(tmp_path / "r.json", reports_json([original])))

    assert found == [original]


def test_tokens_that_were_guessed_are_marked_and_stay_so_when_they_are_read_again(tmp_path: Path) -> None:
    guess = guessed(40, 8)
    original = report(replace(call("a"), usage=guess), call("b"), usage=guess, judging=guess)

    content = reports_json([original])

    written = json.loads(content)[0]
    assert written["tokenCost"] == {
        "promptTokens": 10,
        "completionTokens": 2,
        "totalTokens": 12,
        "tokensGuessed": True,
    }
    assert [each["usage"].get("tokensGuessed") for each in written["taskResults"]] == [True, None]
    assert read_reports(write(tmp_path / "r.json", content)) == [original]


def test_the_terminal_marks_tokens_that_were_guessed() -> None:
    stage, plan = Stage(), make_plan()
    reports = (report(call("a"), skill="told", usage=Usage(input_tokens=3, output_tokens=4)),)
    reports += (report(call("a"), skill="guessing", usage=guessed(40, 8)),)

    TerminalReporter(stage.context)(
        RunEnded(
            info=make_info(command="eval"),
            results=MemoryResults(plan, all_pass),
            interrupted=False,
            evaluated=EvaluationOutcome(reports=reports),
        )
    )

    lines = {line.split()[0]: line for line in stage.printed.splitlines() if line.strip()}
    assert lines["guessing"].endswith("12 guessed")
    assert lines["told"].endswith(" 7")


def test_the_shape_is_the_one_that_others_read() -> None:
    written = json.loads(reports_json([report(call("a"), call("b", "errored"))]))

    assert sorted(written[0]) == [
        "benchmarkId",
        "evaluatorMetadata",
        "latency",
        "skillId",
        "skillVersion",
        "summary",
        "taskResults",
        "timestamp",
    ]
    assert written[0]["summary"]["completionRate"] == 1
    assert written[0]["latency"] == {"p50Ms": 12, "p95Ms": 12, "p99Ms": 12}
    assert written[0]["taskResults"][0]["scorerType"] == "exact_match"
    assert written[0]["taskResults"][1] | {"errored": True, "status": "error"} == written[0]["taskResults"][1]


def test_a_report_of_others_is_read(tmp_path: Path) -> None:
    theirs = [
        {
            "skillId": "calculator",
            "skillVersion": "1.0.0",
            "benchmarkId": "coding-easy",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "summary": {"completionRate": 0.5, "partialScore": 0.5, "errorRate": 0.5, "compositeScore": 0.6},
            "latency": {"p50Ms": 40, "p95Ms": 40, "p99Ms": 40},
            "taskResults": [
                {"taskId": "a", "skillId": "calculator", "status": "pass", "score": 1, "latencyMs": 40},
                {"taskId": "b", "skillId": "calculator", "status": "error", "score": 0, "latencyMs": 0, "error": "E"},
            ],
            "evaluatorMetadata": {},
        }
    ]

    found = read_reports(write(tmp_path / "r.json", theirs))[0]

    assert found.summary.completion is not None
    assert found.summary.completion.value == 0.5
    assert found.summary.latency is not None
    assert found.summary.latency.p95_ms == 40
    assert found.calls[1].latency_ms is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        ([1], r"\[0\]: must be an object, not 1"),
        ([{"skillId": "a", "benchmarkId": "b"}], r"\[0\].taskResults: is missing"),
        (
            [{"skillId": "a", "benchmarkId": "b", "taskResults": [{"taskId": "t", "status": "ok"}]}],
            r"\[0\].taskResults\[0\].status: must be one of pass, fail, error, timeout",
        ),
    ],
)
def test_a_file_that_is_no_report_is_refused_with_its_place(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(SuiteError, match=message):
        read_reports(write(tmp_path / "r.json", content))


def test_a_table_has_a_row_for_each_skill_whatever_its_name() -> None:
    rows = list(csv.DictReader(io.StringIO(reports_csv([report(call("a"), skill='a,"b')]))))

    assert rows[0]["skillId"] == 'a,"b'
    assert (rows[0]["completionRate"], rows[0]["p95Ms"]) == ("1.0000", "12")


def test_markdown_ranks_skills_and_lets_nothing_break_out_of_a_cell() -> None:
    poor = report(call("<script>|x", "fail"), skill="poor")

    text = reports_markdown([poor, report(call("a"), skill="good")])

    assert text.index("| good |") < text.index("| poor |")
    assert "&lt;script&gt;\\|x" in text
    assert "<script>" not in text
    assert "No results" in reports_markdown([])


def test_words_of_a_task_are_no_markup() -> None:
    hostile = [report(call("[a](http://b) *c* `d` <img src=x>", "fail"))]

    assert "| \\[a\\](http://b) \\*c\\* \\`d\\` &lt;img src=x&gt; |" in reports_markdown(hostile)


def test_a_skill_that_got_worse_in_every_task_has_regressed() -> None:
    tasks = [f"t{number}" for number in range(10)]
    before, after = report(*map(call, tasks)), report(*(call(task, "fail") for task in tasks))

    change = compare([before], [after])[0]

    assert change.regressed
    assert change.difference is not None
    assert (change.difference.value, len(change.difference.worse)) == (-1, 10)
    assert (change.tasks[0].before, change.tasks[0].after) == (1, 0)
    assert not compare([after], [before])[0].regressed


def test_a_difference_that_may_be_chance_is_no_regression() -> None:
    tasks = [f"t{number}" for number in range(10)]
    after = report(*(call(task, "fail" if task == "t3" else "pass") for task in tasks))

    change = compare([report(*map(call, tasks))], [after])[0]

    assert not change.regressed
    assert change.difference is not None
    assert change.difference.worse == ("t3",)


@pytest.mark.parametrize(("scoring", "difference"), [("weighted_mean", 1 / 3), ("mean", -2 / 3)])
def test_a_difference_weighs_tasks_as_their_scores_do(scoring: str, difference: float) -> None:
    """One task of weight 10 got better, and five of weight 1 got worse."""
    tasks = [("heavy", "fail", "pass", 10.0), *((f"t{number}", "pass", "fail", 1.0) for number in range(5))]
    before, after = (
        report(*(call(each[0], each[place], run=run, weight=each[3]) for each in tasks for run in range(1, 11)))
        for place in (1, 2)
    )
    before, after = (report(*each.calls, scoring=scoring) for each in (before, after))

    change = compare([before], [after])[0]

    assert change.difference is not None
    assert change.difference.value == pytest.approx(difference)
    assert change.regressed == (difference < 0)
    if scoring == "weighted_mean":
        assert change.difference.value == pytest.approx((after.summary.score or 0) - (before.summary.score or 0))


def test_skills_that_came_or_went_are_told_and_have_no_difference() -> None:
    changes = compare([report(call("a"), skill="old")], [report(call("a"), skill="new")])

    assert [(change.skill, change.before is None, change.after is None) for change in changes] == [
        ("old", False, True),
        ("new", True, False),
    ]
    assert [change.difference for change in changes] == [None, None]


def test_a_call_that_says_nothing_is_left_out_of_a_comparison() -> None:
    before, after = report(call("a"), call("b")), report(call("a"), call("b", "errored"))

    change = compare([before], [after])[0]

    assert change.difference is not None
    assert (change.difference.value, change.difference.only_before) == (0, ("b",))


def test_two_reports_on_one_skill_are_refused() -> None:
    with pytest.raises(UsageError, match="two reports"):
        compare([report(call("a")), report(call("a"))], [])
