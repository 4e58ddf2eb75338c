"""The JUnit document: valid, complete and safe, whatever strangers say."""

from __future__ import annotations

import io
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace
from reporting import Pipe, Stage, all_pass, attempt, by_case, end, errored, failed, make_plan, passed

from whet.model.grade import Location
from whet.report.files.junit import JunitReporter


def document(plan, outcome=all_pass, *, stdout=None) -> ET.Element:
    stage = Stage(stdout=stdout or Pipe())
    end(JunitReporter(stage.context), plan, outcome)
    return ET.fromstring(stage.printed)


def test_there_is_one_suite_per_runner_and_one_case_per_trial():
    root = document(make_plan(["a", "b"], runners=["claude", "codex"], trials=2))

    assert root.tag == "testsuites"
    assert [suite.get("name") for suite in root] == ["claude", "codex"]
    names = [case.get("name") for case in root[0].iter("testcase")]
    assert names == ["a @ claude #1", "a @ claude #2", "b @ claude #1", "b @ claude #2"]
    assert {case.get("classname") for case in root.iter("testcase")} == {"core"}


def test_counts_are_those_of_the_cases_below():
    outcome = by_case(
        {
            "b": failed,
            "c": errored,
            "d": lambda key: failed(key, status="expected-failed"),
            "e": lambda key: passed(key, status="unexpected-passed"),
            "f": lambda key: None,
        }
    )
    root = document(make_plan(list("abcdef")), outcome)

    for element in (root, root[0]):
        counts = [element.get(name) for name in ("tests", "failures", "errors", "skipped")]
        assert counts == ["6", "2", "1", "2"]
    assert len(list(root.iter("failure"))) == 2
    assert len(list(root.iter("error"))) == 1
    assert [each.get("message") for each in root.iter("skipped")] == [
        "failed as expected: expected 3, got 4",
        "not run",
    ]
    assert root[0].get("time") == f"{12.34 * 5:.3f}"


def test_a_case_says_where_it_is_written():
    plan = make_plan(["a", "b"], location=Location(file="/project/bench/core.py", line=12))
    root = document(plan, by_case({"b": lambda key: None}))

    places = [(case.get("file"), case.get("line")) for case in root.iter("testcase")]
    assert places == [("bench/core.py", "12")] * 2


def test_a_failure_tells_class_message_place_and_artifacts():
    case = next(document(make_plan(["a"]), failed).iter("testcase"))

    failure = case.find("failure")
    assert failure.get("type") == "wrong-answer"
    assert failure.get("message") == "expected 3, got 4"
    assert failure.text == "expected 3, got 4\nat bench/core.py:41"
    assert "artifacts: .whet/runs/20250102-030405-abcd/trials/a/claude/default/1" in case.find("system-out").text
    assert case.get("time") == "12.340"
    assert [child.tag for child in case] == ["failure", "system-out"]


@pytest.mark.parametrize(("made", "tag"), [(failed, "failure"), (errored, "error")])
def test_a_check_that_crashed_brings_its_traceback(made, tag):
    def outcome(key):
        result = made(key, "KeyError: 'cost'")
        traceback = "Traceback (most recent call last):\n  File \"core.py\", line 41, in <lambda>\nKeyError: 'cost'\n"
        return replace(result, failure=replace(result.failure, code="check-crash", traceback=traceback))

    found = next(document(make_plan(["a"]), outcome).iter(tag))

    assert found.get("message") == "KeyError: 'cost'"
    assert found.text.startswith("KeyError: 'cost'\n")
    assert found.text.endswith(
        "\n\nTraceback (most recent call last):\n  File \"core.py\", line 41, in <lambda>\nKeyError: 'cost'"
    )


def test_trials_that_an_interrupt_left_out_stand_in_their_place():
    root = document(make_plan(["a"], trials=4), lambda key: passed(key) if key.number in (2, 3) else None)

    missing = [case.get("name") for case in root.iter("testcase") if case.find("skipped") is not None]
    assert missing == ["a @ claude #1", "a @ claude #4"]


def test_a_flaky_trial_passes_and_says_so():
    outcome = by_case({}, lambda key: passed(key, attempts=(attempt(1), attempt(2, "passed"))))
    case = next(document(make_plan(["a"]), outcome).iter("testcase"))

    assert case.find("failure") is None
    assert "flaky: went as expected on attempt 2" in case.find("system-out").text


@pytest.mark.parametrize(
    "evil",
    [
        "]]></failure><testcase/>",
        '" onclick="x" <b>&amp;',
        "\x00\x0b\x1f\x7f\ufffe\uffff\ud800 text",
        "\x1b[31mred\x1b[0m",
        "line\r\nline\n",
    ],
)
def test_hostile_words_stay_words(evil):
    root = document(make_plan([evil], runners=[evil], suite=evil), lambda key: failed(key, evil))

    assert len(list(root.iter("testcase"))) == 1
    assert len(list(root.iter("failure"))) == 1


def test_what_xml_has_signs_for_comes_back_as_it_was():
    evil = "]]></failure><testcase/> \"a\" 'b' &amp;"

    root = document(make_plan(["a"]), lambda key: failed(key, evil))

    assert next(root.iter("failure")).get("message") == evil
    assert next(root.iter("failure")).text.startswith(evil + "\n")


def test_a_message_of_a_megabyte_does_not_fill_the_document():
    stage = Stage(stdout=io.StringIO())

    end(JunitReporter(stage.context), make_plan(["a"]), lambda key: failed(key, "x" * 1_000_000))

    assert len(stage.printed) < 10_000


def test_the_document_is_utf_8_whatever_the_terminal_speaks():
    stage = Stage(stdout=Pipe("latin-1"))

    end(JunitReporter(stage.context), make_plan(["日本語"]), all_pass)

    assert next(ET.fromstring(stage.stdout.bytes()).iter("testcase")).get("name") == "日本語 @ claude"


def test_the_file_appears_whole_and_keeps_its_mode(tmp_path):
    target = tmp_path / "out.xml"
    target.write_text("old")
    target.chmod(0o640)

    end(JunitReporter(replace(Stage().context, target=target)), make_plan(), all_pass)

    assert ET.parse(target).getroot().get("tests") == "2"
    assert target.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [target]
