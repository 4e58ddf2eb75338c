"""The Markdown document: the same facts, and nothing that strangers say is markup."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt
from reporting import Stage, all_pass, by_case, end, errored, failed, make_info, make_plan, usage

from whet.model.grade import FailureClass
from whet.report.files.markdown import MarkdownReporter, within
from whet.report.markup import cell, code, fence

READER = MarkdownIt("commonmark").enable("table")


def document(plan, outcome=all_pass, info=None) -> str:
    stage = Stage()
    end(MarkdownReporter(stage.context), plan, outcome, info)
    return stage.printed


def test_totals_tables_and_failures_by_class_are_there():
    text = document(make_plan(["a", "b", "c"]), by_case({"b": failed, "c": errored}))

    assert text.startswith("# core\n\n1 of 3 trials went as expected; 1 failed, 1 errored, in 1 min 23 s.\n\n")
    assert "| | case | status | time |\n|---|---|---|---:|\n| ✓ | a | passed | 12.3 s |\n| ✗ | b | failed |" in text
    assert "## Failures\n\n### Wrong answer · 1 trial\n\n`core::b@claude/default#1`\n\n" in text
    assert "```text\nexpected 3, got 4\n```\n\n- at: `bench/core.py:41`\n" in text
    assert "## Errored, and not counted as failed\n\n### Provider · 1 trial\n" in text


def test_what_was_said_already_is_a_line():
    text = document(make_plan(["a", "b"]), failed)

    assert text.count("expected 3, got 4") == 1
    assert (
        "\nAs above:\n\n- `core::b@claude/default#1`, artifacts: "
        "`.whet/runs/20250102-030405-abcd/trials/b/claude/default/1`\n"
    ) in text


def test_tokens_and_cost_have_columns_when_known():
    text = document(make_plan(["a"]), lambda key: failed(key, usage=usage(1200, 34, 0.5)))

    assert "| time | tokens in / out | cost |" in text
    assert "| 1,200 / 34 | $0.500 |" in text


def test_a_rate_is_called_what_it_is():
    text = document(make_plan(["a"], trials=2), lambda key: failed(key, status="expected-failed"))

    assert "| | case | status | as expected | mean time |\n" in text
    assert "| ✓ | a | expected-failed | 2/2  100 % (34-100 %) | 12.3 s ± 0.0 s |\n" in text


def test_an_interrupted_run_says_how_to_go_on():
    text = document(make_plan(["a"]), lambda key: None)

    assert "To resume: `whet run --resume 20250102-030405-abcd`" in text


@pytest.mark.parametrize(
    "evil",
    ["a | b", "a\n| x | y |", "<img src=x onerror=alert(1)>", "![x](http://evil)", "*a* _b_ `c` ~~d~~", "\\| x", "# a"],
)
def test_a_hostile_id_is_words_in_one_cell(evil):
    html = READER.render(document(make_plan([evil, "other"]), failed, make_info(suite=evil)))

    plain = MarkdownIt("commonmark").enable("table").render(document(make_plan(["a", "other"]), failed))
    tags = ("<td", "<tr", "<h1", "<h2", "<h3", "<img", "<em", "<a ", "<table", "<pre", "<li", "<script")
    assert {tag: html.count(tag) for tag in tags} == {tag: plain.count(tag) for tag in tags}


@pytest.mark.parametrize("evil", ["```\n# out\n```", "````\n<b>out</b>", "~~~\nx", "`" * 500])
def test_a_message_cannot_leave_its_block(evil):
    html = READER.render(document(make_plan(["a"]), lambda key: failed(key, evil)))

    assert html.count("<pre>") == 1
    assert html.count("<h1>") == 1
    assert "<b>" not in html


def test_a_hostile_class_or_runner_is_words():
    evil = FailureClass(id="x", label="<b>x</b>\n# y")
    html = READER.render(document(make_plan(["a"], runners=["|<i>z"]), lambda key: failed(key, failure_class=evil)))

    assert "<b>" not in html
    assert "<i>" not in html
    assert html.count("<h1>") == 1


def test_code_spans_and_blocks_outlast_what_they_hold():
    assert code("a") == "`a`"
    assert code("`a") == "`` `a ``"
    assert fence(["````"]).startswith("`````text\n")


def test_names_with_underscores_stay_readable():
    assert cell("add_two_numbers") == "add_two_numbers"
    assert cell("_private_") == "\\_private\\_"


def test_a_document_is_cut_between_pieces():
    assert within(["aaaa", "bbbb", "cccc"], 11, "…") == "aaaabbbb…"
    assert within(["aaaa"], 11, "…") == "aaaa"
