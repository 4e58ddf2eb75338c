"""The terminal reporter: header, lines, tables, failures by class and a closing sentence."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from reporting import (
    MemoryResults,
    Pipe,
    Stage,
    Tty,
    all_pass,
    attempt,
    by_case,
    errored,
    failed,
    make_info,
    make_plan,
    passed,
    play,
    usage,
)

from whet.model.events import CommandRun
from whet.model.grade import CHECKS_FAILED, Failure, FailureClass, Grade, Location
from whet.model.run_events import Notice, RunEnded, RunStarted, SessionSeen
from whet.report.screen import Screen
from whet.report.terminal.reporter import TerminalReporter, shares_at_once


def show(plan, outcome=all_pass, *, info=None, **stage: object) -> str:
    made = Stage(**stage)
    play(TerminalReporter(made.context), plan, outcome, info)
    return made.printed


def test_the_header_says_what_will_be_done_and_where():
    printed = show(make_plan(["a", "b"], runners=["claude", "codex"], trials=3, schedule="parallel", max_parallel=4))

    assert printed.startswith(
        "whet 0.1.0\n"
        "  suite      core (bench/core.py)\n"
        "  settings   whet.toml\n"
        "  plan       2 cases x 2 runners x 3 trials = 12 trials\n"
        "  schedule   parallel, up to 4 at once\n"
        "  workspace  isolated, empty\n"
        "  sandbox    bubblewrap\n"
        "  record     .whet/runs/20250102-030405-abcd\n"
        "\n"
    )


@pytest.mark.parametrize(
    ("schedule", "max_parallel", "mode", "runners", "warned"),
    [
        ("parallel", 4, "shared", 1, True),
        ("parallel", 1, "shared", 1, False),
        ("parallel", 4, "isolated", 1, False),
        ("serial", 4, "shared", 2, False),
        ("isolated-by-runner", 4, "shared", 1, False),
        ("isolated-by-runner", 4, "shared", 2, True),
    ],
)
def test_several_trials_at_once_in_one_workspace_are_warned_about(schedule, max_parallel, mode, runners, warned):
    names = [f"runner-{number}" for number in range(runners)]
    plan = make_plan(runners=names, schedule=schedule, max_parallel=max_parallel, mode=mode)

    printed = show(plan)

    assert shares_at_once(plan) is warned
    assert ("  warning: several trials run at the same time in one shared workspace" in printed) is warned


def test_each_finished_trial_is_one_aligned_line():
    outcome = by_case({"sort-a-list": failed, "x": errored})
    printed = show(make_plan(["add", "sort-a-list", "x"], runners=["claude", "gpt"]), outcome)

    assert (
        "  1/6  ✓ add          claude       12.3 s\n"
        "  2/6  ✓ add          gpt          12.3 s\n"
        "  3/6  ✗ sort-a-list  claude       12.3 s  failed: expected 3, got 4\n"
        "  4/6  ✗ sort-a-list  gpt          12.3 s  failed: expected 3, got 4\n"
        "  5/6  ! x            claude       12.3 s  errored: the provider answered 529: overloaded\n"
    ) in printed


def test_lines_carry_the_number_of_the_trial_where_there_are_several():
    printed = show(make_plan(["add"], trials=2))

    assert "  1/2  ✓ add  claude  #1       12.3 s\n  2/2  ✓ add  claude  #2       12.3 s\n" in printed


def test_a_table_gives_rates_with_intervals_spread_tokens_and_cost():
    def outcome(key):
        facts = {"duration_s": 10.0 * key.number, "usage": usage(1000, 50 * key.number, 0.02)}
        return failed(key, **facts) if key.number == 1 else passed(key, **facts)

    printed = show(make_plan(["add"], trials=3), outcome)

    assert (
        "claude (claude_code, sonnet)\n"
        "  2 of 3 trials as expected · time with checks 1 min 00 s · 3,000 tokens in · 300 tokens out · $0.060\n"
        "    case  status  as expected                mean time  mean tokens in / out  mean cost\n"
        "  ✗ add   failed  2/3  67 % (21-94 %)  20.0 s ± 10.0 s           1,000 / 100     $0.020\n"
    ) in printed


def test_a_rate_counts_what_failed_as_expected_and_is_called_so():
    outcome = by_case({"add": lambda key: failed(key, status="expected-failed")})
    printed = show(make_plan(["add"], trials=2), outcome)

    assert "    case  status           as expected " in printed
    assert "  ✓ add   expected-failed  2/2  100 % (34-100 %)" in printed
    assert " passed " not in printed


def test_what_earlier_attempts_took_is_part_of_every_figure():
    def outcome(key):
        lost = replace(attempt(1, "failed"), usage=usage(1000, 10, 0.5))
        kept = replace(attempt(2, "passed"), usage=usage(200, 20, 0.1))
        return passed(key, usage=kept.usage, attempts=(lost, kept)) if key.case == "retried" else passed(key)

    printed = show(make_plan(["retried", "other"]), outcome)

    told = "2 of 2 trials as expected · 1 at the first attempt, 1 flaky · 3 attempts · time with checks 24.7 s"
    told += " · 1,200 tokens in · 30 tokens out"
    assert f"{told} · $0.600 and 1 unknown cost\n" in printed
    assert "  ✓ retried  passed  12.3 s       1,200 / 30  $0.600\n" in printed


def test_the_header_tells_of_retries_where_there_are_some():
    plan = make_plan(["add"])

    assert "  retries    up to 2 per trial that fails or errors\n" in show(replace(plan, retries=2))
    assert "retries" not in show(plan)


def test_figures_that_nobody_told_have_no_column():
    printed = show(make_plan(["add"]))

    assert "    case  status    time\n  ✓ add   passed  12.3 s\n" in printed


def test_failures_are_grouped_by_class_with_all_that_helps():
    slow = FailureClass(id="timeout", label="Timeout")
    outcome = by_case({"b": failed, "c": failed, "d": lambda key: failed(key, "too late", failure_class=slow)})
    printed = show(make_plan(["a", "b", "c", "d"]), outcome)

    assert (
        "\nFailures\n"
        "  Wrong answer · 2 trials\n"
        "    ✗ core::b@claude/default#1\n"
        "      │ expected 3, got 4\n"
        "      at        bench/core.py:41\n"
        "      artifacts .whet/runs/20250102-030405-abcd/trials/b/claude/default/1\n"
        "      workspace .whet/runs/20250102-030405-abcd/workspaces/b/claude/default/1\n"
        "      also      core::c@claude/default#1\n"
    ) in printed
    assert "  Timeout · 1 trial\n    ✗ core::d@claude/default#1\n      │ too late\n" in printed


def test_what_differs_only_in_the_names_of_trials_is_said_once():
    def outcome(key):
        places = (
            f"/tmp/whet-a1_b2/w{key.number}{len(key.runner)}/a.txt, trials/{key.case}/{key.runner}/default/{key.number}"
        )
        return failed(key, f"no file {places} by <{key.runner}>")

    printed = show(make_plan(["a"], runners=["claude", "codex-2"], trials=2), outcome)

    assert printed.count("│ no file") == 1
    assert "      also      core::a@claude/default#2, core::a@codex-2/default#1-#2\n" in printed


def test_alike_failures_stand_together_and_other_ones_are_not_taken_for_them():
    words = {"a": "two", "b": "three", "c": "two", "d": "three"}
    printed = show(make_plan(list("abcd")), lambda key: failed(key, f"expected 1, got {words[key.case]}"))

    shown = [line.strip() for line in printed.split("\nFailures\n")[1].splitlines() if re.search("✗|│|also", line)]
    assert shown == [
        "✗ core::a@claude/default#1",
        "│ expected 1, got two",
        "also      core::c@claude/default#1",
        "✗ core::b@claude/default#1",
        "│ expected 1, got three",
        "also      core::d@claude/default#1",
    ]


def test_the_same_words_at_another_line_are_said_once_and_the_line_is_told():
    def outcome(key):
        result = failed(key)
        place = Location(file="/project/bench/core.py", line=40 + key.number)
        return replace(result, failure=replace(result.failure, location=place))

    printed = show(make_plan(["a"], trials=2), outcome)

    assert printed.count("│ expected 3, got 4") == 1
    assert "at        bench/core.py:41\n" in printed
    assert "      also      core::a@claude/default#2\n      also at   bench/core.py:42\n" in printed


def test_trials_of_one_cause_are_one_block_although_each_saw_something_else():
    def outcome(key):
        result = failed(key)
        return replace(result, failure=replace(result.failure, message=f"no link\nseen: entry {key.number}"))

    printed = show(make_plan(["a"], trials=2), outcome)

    assert printed.count("│ no link") == 1
    assert "also      core::a@claude/default#2\n" in printed


@pytest.mark.parametrize("columns", [80, 120])
def test_on_a_terminal_lines_and_tables_have_room(columns, monkeypatch):
    monkeypatch.setattr(Screen, "columns", property(lambda screen: columns if screen.smart else None))

    def outcome(key):
        facts = {"duration_s": 100.0 * key.number, "usage": usage(123_456, 7_890, 1.5)}
        status = {"short": "unexpected-passed", "x": "errored"}.get(key.case)
        return failed(key, status=status, **facts) if status else failed(key, **facts)

    plan = make_plan(["a-case-with-a-name-that-takes-all-of-its-room", "short", "x"], runners=["claude"], trials=3)
    printed = show(plan, outcome, stdout=Tty(), environ={"CI": "1", "NO_COLOR": "1"})

    progress, _, ending = printed.partition("\nclaude (")
    lines = [*progress.splitlines(), *ending.split("\nFailures\n")[0].splitlines()]
    assert max(len(line) for line in lines if "record" not in line) <= columns
    assert "mean cost" in printed
    assert ("tokens in / out" in printed) is (columns == 120)
    assert "tokens out" in printed


def test_errored_trials_stand_apart_with_their_cause():
    printed = show(make_plan(["a", "b"]), by_case({"a": errored}))

    assert "\nFailures\n" not in printed
    assert (
        "\nErrored, and not counted as failed\n"
        "  Provider · 1 trial\n"
        "    ! core::a@claude/default#1\n"
        "      │ the provider answered 529: overloaded\n"
        "      cause     provider, in phase agent\n"
    ) in printed
    assert "1 of 2 trials went as expected; 1 errored, in 1 min 23 s." in printed


def test_a_failure_without_a_message_shows_the_checks_that_were_not_met():
    grades = (
        Grade(check="file exists", value=0, passed=False, reason="no a.txt"),
        Grade(check="ok", value=1, passed=True),
    )
    printed = show(make_plan(["a"]), lambda key: failed(key, failure=None, failure_class=None, grades=grades))

    assert "  Check not met · 1 trial\n" in printed
    assert "      │ file exists: no a.txt\n" in printed
    assert "ok" not in printed.split("Failures")[1].split("artifacts")[0]


def test_trials_that_passed_after_a_retry_are_named():
    outcome = by_case({"a": lambda key: passed(key, attempts=(attempt(1), attempt(2, "passed")))})
    printed = show(make_plan(["a", "b"]), outcome)

    assert "12.3 s  passed on attempt 2\n" in printed
    assert "\nFlaky: went as expected only on a later attempt\n  ~ a @ claude #1 (attempt 2)\n" in printed


def test_a_good_run_closes_with_one_sentence():
    printed = show(make_plan(["a", "b"]))

    sentence = "2 of 2 trials went as expected, in 1 min 23 s. Results in .whet/runs/20250102-030405-abcd\n"
    assert printed.endswith(f"\n\n{sentence}  To look at it: whet view\n")


def test_a_bad_run_closes_with_what_to_do_next():
    info = make_info(suite_path=Path("/project/my suites/core.py"))
    printed = show(make_plan(["a", "b"]), by_case({"a": failed}), info=info)

    assert "\n1 of 2 trials went as expected; 1 failed, in" in printed
    assert printed.endswith("whet run 'my suites/core.py' --last-failed\n  To look at it: whet view\n")


def test_an_interrupted_run_says_what_is_missing_and_how_to_go_on():
    printed = show(make_plan(["a", "b", "c"]), by_case({"b": lambda key: None, "c": lambda key: None}))

    assert "\nInterrupted. Finished trials are kept.\n" in printed
    assert "  · b     not-run" in printed
    assert "1 of 3 trials went as expected; 2 not run, in" in printed
    assert "  2 trials are missing. To resume: whet run --resume " in printed
    assert printed.endswith("20250102-030405-abcd\n  To look at it: whet view\n")


def test_many_failures_are_counted_and_not_all_shown():
    slow = FailureClass(id="timeout", label="Timeout")
    outcome = by_case({"case-399": lambda key: failed(key, failure_class=slow)}, failed)
    printed = show(make_plan([f"case-{number}" for number in range(400)]), outcome)

    ending = printed.split("\nFailures\n")[1]
    assert "also      core::case-1@claude/default#1, " in ending
    assert ", and 41 more cases\n" in ending
    assert "    and 349 more\n" in ending
    assert "  Timeout · 1 trial\n    ✗ core::case-399@claude/default#1\n" in ending


def test_only_a_hundred_classes_stand_apart():
    def one_of_a_kind(key):
        return failed(key, failure_class=FailureClass(id=key.case, label=f"Kind {key.case}"))

    printed = show(make_plan([f"case-{number}" for number in range(102)]), one_of_a_kind)

    ending = printed.split("\nFailures\n")[1]
    assert ending.count("  Kind case-") == 100
    assert "  Other classes · 2 trials\n" in ending


def test_a_long_table_keeps_the_rows_that_matter():
    outcome = by_case({"case-299": failed})
    printed = show(make_plan([f"case-{number}" for number in range(300)]), outcome)

    table = printed.split("as expected · ")[1].split("\nFailures\n")[0]
    assert "✗ case-299" in table
    assert "    and 240 more rows in the record\n" in table


def test_a_hostile_id_or_message_cannot_reach_the_terminal():
    evil = "x\x1b[2J\x1b]0;owned\x07\r\n[bold red]y[/]\u202e"
    outcome = by_case({}, lambda key: failed(key, evil, failure_class=FailureClass(id=evil, label=evil)))
    plan = make_plan([evil], runners=[evil], suite=evil)

    printed = show(plan, outcome, info=make_info(suite=evil, run_dir=Path(f"/project/{evil}")))

    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert "\r" not in printed
    assert "\u202e" not in printed
    assert "[bold red]y[/]" in printed


@pytest.mark.parametrize("stream", [Pipe, Tty])
def test_a_message_of_a_megabyte_is_shortened(stream):
    printed = show(make_plan(["a"]), lambda key: failed(key, "line\n" * 200_000), stdout=stream())

    assert len(printed) < 20_000
    assert "lines left out" in printed


@pytest.mark.parametrize("message", ["::error::owned", "##[error]owned", "##vso[task.setvariable]owned"])
def test_nothing_that_strangers_say_is_a_command_to_a_ci_system(message):
    outcome = by_case({}, lambda key: failed(key, message, failure_class=FailureClass(id=message)))
    printed = show(make_plan([message], runners=[message]), outcome, environ={"CI": "true"})

    assert not any(line.lstrip().startswith("::") for line in printed.splitlines())
    assert "##[" not in printed
    assert "##vso[" not in printed


def test_a_stream_that_cannot_show_signs_gets_plain_ones():
    outcome = by_case({"a": failed, "é日": passed})
    printed = show(make_plan(["a", "é日"]), outcome, stdout=Pipe("ascii"))

    assert "  1/2  x a " in printed
    assert "  2/2  + ??" in printed
    assert "      | expected 3, got 4\n" in printed


@pytest.mark.parametrize(
    ("environ", "stream", "coloured"),
    [
        ({}, Pipe, False),
        ({"FORCE_COLOR": "1"}, Pipe, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, Pipe, False),
        ({"CI": "true"}, Tty, True),
        ({"TERM": "dumb"}, Tty, False),
        ({"CI": "true", "NO_COLOR": "1"}, Tty, False),
    ],
)
def test_colour_is_used_where_it_is_wanted(environ, stream, coloured):
    printed = show(make_plan(["a"]), environ=environ, stdout=stream())

    assert ("\x1b[32m✓\x1b[0m a" in printed) is coloured
    assert ("\x1b" in printed) is coloured


def test_lines_are_flushed_as_they_happen():
    class Slow(io.StringIO):
        flushed = ""

        def flush(self) -> None:
            self.flushed = self.getvalue()

    stage = Stage(stdout=Slow())
    reporter = TerminalReporter(stage.context)

    reporter(Notice(level="warning", message="two\nlines"))

    assert stage.stdout.flushed == "  warning: two lines\n"


def test_an_empty_plan_has_an_ending_too():
    printed = show(make_plan([]))

    assert "0 of 0 trials went as expected, in" in printed


def test_an_unexpected_pass_is_explained():
    printed = show(make_plan(["a"]), lambda key: passed(key, status="unexpected-passed"))

    assert "✗ a  claude       12.3 s  unexpected-passed\n" in printed
    assert "  Unexpected pass · 1 trial\n" in printed
    assert "0 of 1 trial went as expected; 1 passed unexpectedly, in" in printed


def test_a_failure_outside_the_known_classes_is_named_by_its_code():
    failure = Failure(phase="agent", code="agent-crashed", cause="agent", message="exit code 1")
    printed = show(make_plan(["a"]), lambda key: failed(key, failure=failure, failure_class=None))

    assert "  agent-crashed · 1 trial\n" in printed


def test_an_end_without_a_start_is_told_all_the_same():
    stage = Stage()

    TerminalReporter(stage.context)(
        RunEnded(info=make_info(), results=MemoryResults(make_plan(["a"]), all_pass), interrupted=False)
    )

    assert "1 of 1 trial went as expected" in stage.printed


@pytest.mark.parametrize(
    ("columns", "end"),
    [(40, "12.3 s the provider answered"), (72, "12.3 s the provider answered 529: overloaded")],
)
def test_a_note_with_little_room_says_why_and_leaves_the_status_to_its_sign(monkeypatch, columns, end):
    monkeypatch.setattr(Screen, "columns", property(lambda screen: columns if screen.smart else None))
    stage = {"environ": {"CI": "1", "NO_COLOR": "1"}}

    narrow = show(make_plan(["a"]), by_case({}, errored), stdout=Tty(), **stage)
    wide = show(make_plan(["a"]), by_case({}, errored), **stage)

    assert end in " ".join(narrow.split())
    assert "12.3 s  errored: the provider answered 529: overloaded\n" in wide


def test_a_note_has_the_name_that_the_author_gave_a_failure_or_else_the_line_that_says_most():
    own = FailureClass(id="no-link", label="Entries without a link")
    message = "2 expectations do not hold\n1. suite.py:27: every entry has its link\n2. suite.py:30: more"
    unmet = Failure(phase="check", code=CHECKS_FAILED, cause="agent", message=message)
    outcome = by_case(
        {"named": lambda key: failed(key, failure=unmet, failure_class=own)}, lambda key: failed(key, failure=unmet)
    )

    printed = show(make_plan(["named", "other"]), outcome)

    assert "  failed: Entries without a link\n" in printed
    assert "  failed: every entry has its link\n" in printed


def test_what_agents_do_stands_below_each_other_and_names_the_arm():
    plan = make_plan(["a-case-whose-name-takes-half-of-a-line", "b"], trials=2)
    plan = replace(plan, executions=(replace(plan.executions[0], arm="new"), plan.executions[1]))
    stage = Stage()
    reporter = TerminalReporter(stage.context)
    reporter(RunStarted(info=make_info(), plan=plan, done=0))

    for trial in plan.trials():
        if trial.key.number == 1:
            reporter(SessionSeen(trial=trial, event=CommandRun(command="ls", exit_code=0)))
    reporter.close()

    (long, short) = (line.partition(" │ ") for line in stage.printed.splitlines() if "│" in line)
    assert long[0].endswith("/new@claude#1")
    assert short[0].strip() == "b@claude#1"
    assert len(long[0]) == len(short[0])
    assert long[2] == short[2] == "$ ls"
