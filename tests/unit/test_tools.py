"""What tools mean: a call and its result become commands, reads, edits and skills, alike for every agent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.agents.observe.records import as_text, number, parse, status_kind, text
from whet.agents.observe.to_events import EventBuilder, SpendingTotals, kind_of
from whet.model.events import (
    CommandRun,
    Event,
    FileEdit,
    FileRead,
    FinalOutput,
    Message,
    SkillSignal,
    ToolCall,
    ToolResult,
    Trouble,
    UsageSeen,
)
from whet.shell.files import shell_reads, unwrapped

WORKSPACE = "/ws"


def done(tool: str, args: Any, **told: Any) -> list[Event]:
    """What a call did, between the call and its result."""
    calls = EventBuilder(WORKSPACE)
    first, *deeds, last = [*calls.began("c1", tool, args), *calls.ended("c1", **told)]
    assert isinstance(first, ToolCall)
    assert isinstance(last, ToolResult)
    return deeds


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        *[(name, "shell") for name in ("Bash", "bash", "run_shell_command", "exec_command", "local_shell", "shell")],
        *[(name, "read") for name in ("Read", "read", "read_file", "view")],
        *[(name, "edit") for name in ("Write", "Edit", "MultiEdit", "write_file", "replace", "apply_patch", "create")],
        *[(name, "skill") for name in ("Skill", "skill", "activate_skill")],
        *[(name, None) for name in ("Grep", "WebFetch", "mcp__docs__read", "")],
    ],
)
def test_tools_are_known_by_name(tool: str, kind: str | None) -> None:
    assert kind_of(tool) == kind


@pytest.mark.parametrize(
    ("tool", "args", "command"),
    [
        ("Bash", {"command": "ls -l", "description": "list"}, "ls -l"),
        ("exec_command", {"cmd": "ls -l"}, "ls -l"),
        ("shell", {"command": ["bash", "-lc", "ls | wc"]}, "ls | wc"),
        ("local_shell", {"command": ["ls", "a b"]}, "ls 'a b'"),
        ("bash", "ls", "ls"),
    ],
)
def test_a_shell_runs_a_command(tool: str, args: Any, command: str) -> None:
    assert done(tool, args, exit_code=2) == [CommandRun(command=command, exit_code=2)]


@pytest.mark.parametrize("args", [None, {}, [], {"command": None}, {"command": {}}, {"command": []}, 3])
def test_a_shell_without_a_command_ran_none(args: Any) -> None:
    assert done("Bash", args, exit_code=0) == []


@pytest.mark.parametrize(
    ("tool", "args", "paths"),
    [
        ("Read", {"file_path": "/ws/src/a.py"}, ["src/a.py"]),
        ("read", {"filePath": "src/a.py"}, ["src/a.py"]),
        ("read_file", {"absolute_path": "/etc/hosts"}, ["/etc/hosts"]),
        ("view", {"path": "./src/../a.py"}, ["a.py"]),
        ("read_many_files", {"paths": ["a.py", "b.py"]}, ["a.py", "b.py"]),
        ("read_file", {"path": "~/notes"}, ["~/notes"]),
        ("read_file", {"path": "/wsx/a.py"}, ["/wsx/a.py"]),
        ("read_file", {"path": 7}, []),
        ("read_file", None, []),
    ],
)
def test_a_reading_tool_reads_files_as_seen_from_the_workspace(tool: str, args: Any, paths: list[str]) -> None:
    assert done(tool, args, ok=True) == [FileRead(path=path) for path in paths]


PATCH = """*** Begin Patch
*** Update File: src/a.py
*** Move to: src/b.py
@@
-x
*** Add File: new.md
+*** text
*** Delete File: old.md
*** End Patch"""


@pytest.mark.parametrize(
    ("tool", "args", "paths"),
    [
        ("Write", {"file_path": "/ws/a.md", "content": "*** Add File: no.md"}, ["a.md"]),
        ("replace", {"file_path": "a.md", "old_string": "x"}, ["a.md"]),
        ("create", {"path": "a.md"}, ["a.md"]),
        ("apply_patch", {"input": PATCH}, ["src/a.py", "src/b.py", "new.md", "old.md"]),
        ("apply_patch", PATCH, ["src/a.py", "src/b.py", "new.md", "old.md"]),
        ("apply_patch", {"changes": [{"path": "/ws/a.md", "kind": "add"}, {"path": "b.md"}, 3]}, ["a.md", "b.md"]),
    ],
)
def test_an_editing_tool_edits_files(tool: str, args: Any, paths: list[str]) -> None:
    assert done(tool, args) == [FileEdit(path=path) for path in paths]


@pytest.mark.parametrize(
    ("tool", "args", "signal"),
    [
        ("Skill", {"skill": "greeting"}, ("greeting", "tool:skill")),
        ("Skill", {"command": "greeting Ada"}, ("greeting", "tool:skill")),
        ("skill", {"name": "plug-in:greeting"}, ("greeting", "tool:skill")),
        ("activate_skill", {"name": "/greeting"}, ("greeting", "tool:activate_skill")),
    ],
)
def test_a_skill_is_loaded_under_its_own_name(tool: str, args: Any, signal: tuple[str, str]) -> None:
    assert done(tool, args, ok=True) == [SkillSignal(skill=signal[0], signal=signal[1])]


@pytest.mark.parametrize("args", [None, {}, {"skill": " "}, {"skill": ["x"]}, {"skill": ":"}])
def test_a_skill_without_a_name_is_none(args: Any) -> None:
    assert done("Skill", args, ok=True) == []


@pytest.mark.parametrize("told", [{"ok": False}, {"ran": False}])
def test_a_skill_that_was_asked_for_in_vain_is_not_loaded(told: dict[str, bool]) -> None:
    assert done("Skill", {"skill": "greeting"}, **told) == [SkillSignal(skill="greeting", loaded=False)]


@pytest.mark.parametrize("tool", ["Read", "Write"])
def test_a_tool_that_failed_did_nothing(tool: str) -> None:
    args = {"skill": "greeting", "file_path": "a.md"}

    assert done(tool, args, ok=False) == []


@pytest.mark.parametrize("tool", ["Read", "Write", "Bash"])
def test_a_tool_that_was_refused_did_nothing(tool: str) -> None:
    args = {"skill": "greeting", "file_path": "a.md", "command": "cat a.md"}

    assert done(tool, args, ran=False) == []


def test_a_command_reads_from_where_it_is_run() -> None:
    deeds = done("exec_command", {"cmd": "cat a.md", "workdir": "/ws/docs"}, exit_code=0)

    assert deeds == [CommandRun(command="cat a.md", exit_code=0, cwd="docs"), FileRead(path="docs/a.md")]


def test_the_workspace_itself_is_no_other_place() -> None:
    deeds = done("exec_command", {"cmd": "cat a.md", "workdir": "/ws/"}, exit_code=0)

    assert deeds == [CommandRun(command="cat a.md", exit_code=0), FileRead(path="a.md")]


def test_what_a_command_shows_is_sure_where_somebody_says_that_it_worked() -> None:
    unknown = done("bash", {"command": "cat a.md"})
    worked = done("bash", {"command": "cat a.md"}, worked=True)
    failed = done("bash", {"command": "cat a.md"}, worked=False)

    assert unknown == [CommandRun(command="cat a.md"), FileRead(path="a.md", ok=None)]
    assert worked == [CommandRun(command="cat a.md", ok=True), FileRead(path="a.md")]
    assert failed == [CommandRun(command="cat a.md", ok=False)]


def test_a_result_without_its_call_is_still_a_result() -> None:
    events = list(
        EventBuilder().ended("c9", output=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], ok=True)
    )

    assert events == [ToolResult(id="c9", output="a\nb", ok=True)]


def test_commands_that_never_returned_were_run() -> None:
    calls = EventBuilder()
    began = [*calls.began("c1", "Bash", {"command": "make"}), *calls.began("c2", "Read", {"file_path": "a"})]

    left = list(calls.left())

    assert len(began) == 2
    assert left == [CommandRun(command="make")]
    assert list(calls.left()) == []


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("cat a.md", ["a.md"]),
        ("cat -n a.md 'b c.md' -- -d.md", ["a.md", "b c.md", "-d.md"]),
        ("/bin/bash -lc 'cat a.md && sed -n 1,20p b.md | head -5'", ["a.md", "b.md"]),
        ("sed -n '1,200p' a.md", ["a.md"]),
        ("sed -ne 1p -e 2p a.md", ["a.md"]),
        ("sed -i s/a/b/ a.md", []),
        ("head -n 5 a.md", ["a.md"]),
        ("head -5 a.md; tail -n +3 b.md; tail -f -n5 c.log", ["a.md", "b.md", "c.log"]),
        ("nl -ba a.md | sed -n 1,5p", ["a.md"]),
        ("less +G a.md", ["a.md"]),
        ("cat < a.md", ["a.md"]),
        ("cat <<EOF > a.md\ntext\nEOF", []),
        ("grep -n word a.md b.md", ["a.md", "b.md"]),
        ("grep -rn word src docs/a.md", ["docs/a.md"]),
        ("grep -nA 3 -e word a.md", ["a.md"]),
        ("grep -er notes", ["notes"]),
        ("rg -n word src/a.py src", ["src/a.py"]),
        ("rg -g '*.py' word", []),
        ("rg --files src/a.py", []),
        ("awk -F , '{print $1}' a.csv", ["a.csv"]),
        ("cat a.md | grep word", ["a.md"]),
        ("cd docs && cat a.md", ["docs/a.md"]),
        ("cd docs && cat /etc/hosts", ["/etc/hosts"]),
        ('cat "$HOME/.agents/skills/x/SKILL.md" ~/a.md', ["$HOME/.agents/skills/x/SKILL.md", "~/a.md"]),
        ('cat "$FILE" src/*.py /dev/null - $(ls) src/$NAME.py', []),
        ('for f in a b; do cat "$f"; done', []),
        ("cat a.md a.md && cat a.md", ["a.md"]),
        ("timeout 5 sudo cat a.md", ["a.md"]),
        ("ls a.md; echo cat a.md; python3 a.py; cp a.md b.md", []),
        ("", []),
    ],
)
def test_files_are_read_by_commands_that_show_them(line: str, paths: list[str]) -> None:
    assert list(shell_reads(line)) == paths


@pytest.mark.parametrize(
    ("line", "exit_code", "paths"),
    [
        ("cat a.md", 1, []),
        ("cat a.md", None, ["a.md"]),
        ("grep word a.md", 1, ["a.md"]),
        ("grep word a.md", 2, []),
        ("cat a.md && false", 1, ["a.md"]),
    ],
)
def test_a_lone_command_that_failed_read_nothing(line: str, exit_code: int | None, paths: list[str]) -> None:
    assert list(shell_reads(line, exit_code)) == paths


@pytest.mark.parametrize(
    "line",
    ["cat a.txt b/c.txt", "head -n 5 a.txt", "sed -n 1,20p a.py", "rg -n what a.py", "tail --lines=3 a", "cat -- -a"],
)
def test_a_plain_command_is_read_like_one_among_others(line: str) -> None:
    assert shell_reads(line) == shell_reads(f"true; {line}") != ()


@given(line=st.text(alphabet="catsedhgrp -n<>|&;$'\"/.*~\n", max_size=40))
def test_no_line_breaks_it(line: str) -> None:
    assert all(isinstance(path, str) and path for path in shell_reads(line))


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("/bin/bash -lc 'echo \"hi\" > out.txt'", 'echo "hi" > out.txt'),
        ("sh -c ls", "ls"),
        ("/usr/bin/zsh -lc \"cat 'a b'\"", "cat 'a b'"),
        ("bash -lc 'ls' extra", "bash -lc ls extra"),
        ("bash -lc 'never closed", "bash -lc 'never closed"),
        ("push -c x", "push -c x"),
        ("ls", "ls"),
    ],
)
def test_the_shell_around_a_script_is_taken_off(command: str, script: str) -> None:
    assert unwrapped(command) == script


def test_words_are_the_last_only_if_the_session_ends_well() -> None:
    reading = EventBuilder()

    events = [*reading.said("First."), *reading.thought("hm"), *reading.said("Second."), *reading.answered()]

    assert events == [
        Message(role="assistant", phase="commentary", text="First."),
        Message(role="assistant", phase="thinking", text="hm"),
        Message(role="assistant", phase="final", text="Second."),
        FinalOutput(text="Second."),
    ]


def test_trouble_comes_after_the_words_before_it() -> None:
    reading = EventBuilder()

    events = [*reading.said("Looking."), *reading.trouble("overloaded", "overloaded", 529)]

    assert [type(event) for event in events] == [Message, Trouble]


def test_words_that_were_cut_off_are_not_lost() -> None:
    reading = EventBuilder()

    events = [*reading.said("Looking."), *reading.left()]

    assert events == [Message(role="assistant", phase="commentary", text="Looking.")]


def test_a_total_is_told_without_what_was_told_before() -> None:
    spending = SpendingTotals()

    events = [
        *spending.more(input_tokens=10),
        *spending.total(input_tokens=25, output_tokens=3, cost_usd=None),
        *spending.total(input_tokens=20, output_tokens=4),
        *spending.more(input_tokens="5"),
    ]

    assert events == [
        UsageSeen(input_tokens=10),
        UsageSeen(input_tokens=15, output_tokens=3),
        UsageSeen(input_tokens=0, output_tokens=1),
    ]


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'{"a": "\\ud83d"}', {"a": "?"}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'{"a": "line\x0bbreak"}', {"a": "line\x0bbreak"}),
        (b'{"a": ', {}),
        (b"[1]", {}),
        (b"null", {}),
        (b"[" * 100_000, {}),
        (b"", {}),
    ],
)
def test_a_record_is_an_object_or_nothing(record: bytes, value: dict[str, Any]) -> None:
    assert parse(record) == value


def test_foreign_values_are_looked_into_by_name() -> None:
    record = {"error": {"message": "no", "status": 500, "flag": True, "huge": 10**30}, "list": [1]}

    assert text(record, "error", "message") == "no"
    assert number(record, "error", "status") == 500
    assert text(record, "error", "status") is None
    assert text(record, "list", "message") is None
    assert (number(record, "error", "flag"), number(record, "error", "huge")) == (None, None)


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, ""), ("a", "a"), ([{"type": "text", "text": "a"}, "b"], "a\nb"), ({"a": 1}, '{"a": 1}'), (3, "3")],
)
def test_whatever_a_tool_gives_back_becomes_text(value: Any, words: str) -> None:
    assert as_text(value) == words


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((401, "auth"), (404, "model-rejected"), (400, "bad-request"), (429, "rate-limit"), (500, "server")),
        *((502, "server"), (503, "overloaded"), (529, "overloaded"), (418, "other"), (200, "other"), (None, "other")),
    ],
)
def test_a_status_says_what_kind_of_trouble_it_is(status: int | None, kind: str) -> None:
    assert status_kind(status) == kind
