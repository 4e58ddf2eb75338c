"""expect.commands and expect.file_reads: each expectation holds, or says what was seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count

import pytest

from whet import Session, command, expect
from whet.checks.matching import Finder
from whet.model.events import CommandRun, Event, FileRead, Message

COMMANDS = ("git status", "pnpm install", "pnpm test --watch", "git push")
READS = ("/app/README.md", "/app/src/main.py", "/skills/notes/SKILL.md")


_ids = count()


def _session(*events: Event) -> Session:
    return Session(runner="demo", agent="scripted", prompt="Go.", session_id=str(next(_ids)), events=events)


@pytest.fixture
def report() -> Session:
    between = Message(role="assistant", text="pnpm build")
    commands = [CommandRun(command=line) for line in COMMANDS]
    return _session(commands[0], between, *commands[1:], *(FileRead(path=path) for path in READS))


def _said(call: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


def _seen(*lines: str) -> str:
    return "\n".join(f"  {number}. {line}" for number, line in enumerate(lines, 1))


OBSERVED = f"observed 4 commands:\n{_seen(*COMMANDS)}"
OBSERVED_READS = f"observed 3 file reads:\n{_seen(*READS)}"


@pytest.mark.parametrize(
    "matcher",
    [
        "pnpm",
        "test --w",
        re.compile(r"^git p"),
        re.compile("GIT", re.IGNORECASE),
        lambda line: line.endswith("push"),
        command("pnpm").arg("test").flag("--watch"),
    ],
    ids=["name", "part", "pattern", "flags", "predicate", "command"],
)
def test_a_command_is_found_by_every_kind_of_matcher(report: Session, matcher: object) -> None:
    expect.commands.includes(report, matcher)

    said = _said(lambda: expect.commands.not_includes(report, matcher))

    assert said.startswith("expected no command matching ")
    assert OBSERVED in said


def test_the_nearest_miss_is_named_with_its_number(report: Session) -> None:
    said = _said(lambda: expect.commands.includes(report, "pnpm instal --frozen"))

    assert said == f'expected a command matching "pnpm instal --frozen"\n{OBSERVED}\nnearest: 2. pnpm install'


def test_nothing_is_called_near_that_is_not(report: Session) -> None:
    said = _said(lambda: expect.commands.includes(report, "cargo clippy"))

    assert said == f'expected a command matching "cargo clippy"\n{OBSERVED}'


def test_no_commands_at_all_is_said_in_so_many_words() -> None:
    said = _said(lambda: expect.commands.includes(_session(), "ls"))

    assert said == 'expected a command matching "ls"\nobserved no commands'


def test_commands_that_must_not_run_are_named_by_number(report: Session) -> None:
    expect.commands.not_includes(report, "npm i -g")

    said = _said(lambda: expect.commands.not_includes(report, "git"))

    assert said == f'expected no command matching "git", but found numbers 1, 4\n{OBSERVED}'


def test_of_very_many_finds_only_the_first_numbers_are_listed() -> None:
    report = _session(*(CommandRun(command=f"echo {number}") for number in range(9)))

    said = _said(lambda: expect.commands.not_includes(report, "echo"))

    assert said.startswith('expected no command matching "echo", but found numbers 1, 2, 3, 4, 5 and 4 more\n')


def test_commands_are_counted(report: Session) -> None:
    expect.commands.count(report, "pnpm", 2)
    expect.commands.count(report, "cargo", 0)

    said = _said(lambda: expect.commands.count(report, "pnpm", 1))

    assert said == f'expected a command matching "pnpm" exactly once, but found it 2 times\n{OBSERVED}'
    assert 'matching "push" never, but found it once' in _said(lambda: expect.commands.count(report, "push", 0))


def test_commands_are_counted_from_below(report: Session) -> None:
    expect.commands.at_least(report, "pnpm", 2)
    expect.commands.at_least(report, "cargo", 0)

    said = _said(lambda: expect.commands.at_least(report, "pnpm", 3))

    assert said == f'expected a command matching "pnpm" at least 3 times, but found it 2 times\n{OBSERVED}'


def test_commands_are_counted_from_above(report: Session) -> None:
    expect.commands.at_most(report, "pnpm", 2)

    said = _said(lambda: expect.commands.at_most(report, "pnpm", 1))

    assert said == f'expected a command matching "pnpm" at most once, but found it 2 times\n{OBSERVED}'


def test_exactly_one_command_may_match_whatever_else_ran(report: Session) -> None:
    expect.commands.exactly_one(report, "push")

    said = _said(lambda: expect.commands.exactly_one(report, "git"))

    assert said == f'expected a command matching "git" exactly once, but found it 2 times\n{OBSERVED}'
    assert "but found it never" in _said(lambda: expect.commands.exactly_one(report, "cargo"))


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("push", "install", "4 comes after 2"),
        ("pnpm", "pnpm install", "2 is the first of both"),
        ("cargo", "push", '"cargo" was not found'),
        ("push", "cargo", '"cargo" was not found'),
        ("cargo", "make", "neither was found"),
    ],
)
def test_one_command_comes_before_another_or_it_is_said_why_not(
    report: Session, first: str, second: str, why: str
) -> None:
    expect.commands.before(report, "install", "push")

    said = _said(lambda: expect.commands.before(report, first, second))

    assert said == f'expected "{first}" before "{second}", but {why}\n{OBSERVED}'


def test_only_the_first_time_of_each_counts_for_their_order() -> None:
    report = _session(*(CommandRun(command=line) for line in ("test", "edit", "test")))

    expect.commands.before(report, "test", "edit")

    assert "2 comes after 1" in _said(lambda: expect.commands.before(report, "edit", "test"))


def test_only_what_is_allowed_was_run(report: Session) -> None:
    expect.commands.only(report, ["git", command("pnpm")])
    expect.commands.only(_session(), [])

    said = _said(lambda: expect.commands.only(report, [re.compile("^git"), "install"]))

    assert said == f'expected only commands matching /^git/ or "install", but found number 3\n{OBSERVED}'
    assert "expected no commands at all, but found numbers 1, 2, 3, 4" in _said(
        lambda: expect.commands.only(report, [])
    )


@pytest.mark.parametrize("group", ["commands", "file_reads"])
def test_a_string_in_place_of_a_list_is_refused_by_only(report: Session, group: str) -> None:
    with pytest.raises(TypeError, match="list"):
        getattr(expect, group).only(report, "pnpm git /app and whatever else")


def test_the_number_of_commands_is_told(report: Session) -> None:
    expect.commands.size(report, 4)
    expect.commands.size(_session(), 0)

    said = _said(lambda: expect.commands.size(report, 3))

    assert said == f"expected 3 commands\n{OBSERVED}"


def test_the_first_command_is_as_expected(report: Session) -> None:
    expect.commands.first(report, "status")

    said = _said(lambda: expect.commands.first(report, "git push"))

    assert said == f'expected the first command to match "git push", but found number 4\n{OBSERVED}'
    assert _said(lambda: expect.commands.first(_session(), "ls")).endswith("observed no commands")


def test_the_last_command_is_as_expected(report: Session) -> None:
    expect.commands.last(report, command("git").arg("push"))

    said = _said(lambda: expect.commands.last(report, re.compile("^pnpm$")))

    assert said.startswith(f"expected the last command to match /^pnpm$/\n{OBSERVED}")
    assert _said(lambda: expect.commands.last(_session(), "ls")).endswith("observed no commands")


def test_a_command_succeeded_when_one_that_matches_ended_well() -> None:
    report = _session(CommandRun(command="make test", exit_code=2), CommandRun(command="make", exit_code=0))

    expect.commands.succeeded(report, "make")
    expect.commands.succeeded(report, command("make").strict())
    said = _said(lambda: expect.commands.succeeded(report, "make test"))

    assert said == (
        'expected a command matching "make test" to succeed\nobserved 2 commands:\n'
        "  1. make test  (exit code 2)\n  2. make  (exit code 0)\nnearest: 1. make test  (exit code 2)"
    )


def test_a_command_failed_when_one_that_matches_ended_badly() -> None:
    report = _session(CommandRun(command="make test", exit_code=-9), CommandRun(command="make lint", exit_code=0))

    expect.commands.failed(report, "make test")
    said = _said(lambda: expect.commands.failed(report, "lint"))

    assert said == (
        'expected a command matching "lint" to fail\nobserved 2 commands:\n'
        "  1. make test  (exit code -9)\n  2. make lint  (exit code 0)\nnearest: 2. make lint  (exit code 0)"
    )


@pytest.mark.parametrize("method", ["succeeded", "failed"])
def test_an_exit_code_that_nobody_told_is_neither_success_nor_failure(method: str) -> None:
    report = _session(CommandRun(command="make"))

    said = _said(lambda: getattr(expect.commands, method)(report, "make"))

    assert said.splitlines()[0].endswith("(the agent does not report exit codes)")
    assert "  1. make  (exit code unknown)" in said


@pytest.mark.parametrize("method", ["succeeded", "failed"])
def test_a_command_that_never_ran_neither_succeeded_nor_failed(method: str) -> None:
    said = _said(lambda: getattr(expect.commands, method)(_session(CommandRun(command="ls", exit_code=0)), "make"))

    assert "(the agent does not report exit codes)" not in said
    assert "  1. ls  (exit code 0)" in said


def test_a_command_matcher_that_misses_says_how_the_nearest_command_was_read(report: Session) -> None:
    said = _said(lambda: expect.commands.includes(report, command("pnpm").arg("test").flag("--run")))

    assert "pnpm test --watch" in said
    assert "no flag --run" in said


def test_every_simple_command_of_a_line_can_match() -> None:
    report = _session(CommandRun(command="cd app && FOO=1 bash -lc 'pnpm test --filter unit | tee log'"))

    expect.commands.includes(report, command("pnpm").arg("test").option("--filter", "unit"))
    expect.commands.exactly_one(report, command("tee"))
    expect.commands.not_includes(report, command("log"))

    assert 'command("npm")' in _said(lambda: expect.commands.includes(report, command("npm")))


def test_file_reads_are_found_by_their_paths(report: Session) -> None:
    expect.file_reads.includes(report, "README")
    expect.file_reads.not_includes(report, "secrets")
    expect.file_reads.first(report, "README.md")
    expect.file_reads.last(report, re.compile(r"SKILL\.md$"))

    assert _said(lambda: expect.file_reads.includes(report, "/app/src/mian.py")) == (
        f'expected a file read matching "/app/src/mian.py"\n{OBSERVED_READS}\nnearest: 2. /app/src/main.py'
    )
    assert _said(lambda: expect.file_reads.not_includes(report, "/app")) == (
        f'expected no file read matching "/app", but found numbers 1, 2\n{OBSERVED_READS}'
    )
    assert "the first file read to match" in _said(lambda: expect.file_reads.first(report, "main"))
    assert "the last file read to match" in _said(lambda: expect.file_reads.last(report, "main"))


def test_file_reads_are_counted_and_ordered(report: Session) -> None:
    expect.file_reads.count(report, "/app", 2)
    expect.file_reads.at_least(report, "/app", 1)
    expect.file_reads.at_most(report, "/app", 2)
    expect.file_reads.exactly_one(report, "SKILL.md")
    expect.file_reads.before(report, "README.md", "SKILL.md")
    expect.file_reads.only(report, ["/app", "/skills"])
    expect.file_reads.size(report, 3)

    assert "exactly 3 times, but found it 2 times" in _said(lambda: expect.file_reads.count(report, "/app", 3))
    assert "at least 3 times" in _said(lambda: expect.file_reads.at_least(report, "/app", 3))
    assert "at most once" in _said(lambda: expect.file_reads.at_most(report, "/app", 1))
    assert "exactly once" in _said(lambda: expect.file_reads.exactly_one(report, "/app"))
    assert "3 comes after 1" in _said(lambda: expect.file_reads.before(report, "SKILL.md", "README.md"))
    assert "only file reads matching" in _said(lambda: expect.file_reads.only(report, ["/app"]))
    assert _said(lambda: expect.file_reads.size(report, 1)) == f"expected 1 file read\n{OBSERVED_READS}"


@pytest.mark.parametrize("group", ["commands", "file_reads"])
@pytest.mark.parametrize("method", ["includes", "not_includes", "exactly_one", "first", "last"])
@pytest.mark.parametrize("matcher", [None, 3, ["a"], b"a"], ids=repr)
def test_what_cannot_look_for_anything_is_refused(group: str, method: str, matcher: object) -> None:
    kind = type(matcher).__name__

    with pytest.raises(TypeError, match=f"a string, a compiled pattern, a predicate or a command, not {kind}"):
        getattr(getattr(expect, group), method)(_session(), matcher)


@pytest.mark.parametrize("group", ["commands", "file_reads"])
def test_what_cannot_look_for_anything_is_refused_wherever_it_stands(group: str) -> None:
    found = getattr(expect, group)

    for method in ("count", "at_least", "at_most"):
        with pytest.raises(TypeError, match="not int"):
            getattr(found, method)(_session(), 3, 3)
    with pytest.raises(TypeError, match="not int"):
        found.before(_session(), "a", 3)
    with pytest.raises(TypeError, match="not int"):
        found.only(_session(), ["a", 3])


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_an_async_predicate_is_refused(report: Session) -> None:
    async def never(line: str) -> bool:
        return False

    with pytest.raises(TypeError, match="async"):
        expect.commands.includes(report, never)


def test_a_predicate_is_named_by_its_name(report: Session) -> None:
    def deploys(line: str) -> bool:
        return "deploy" in line

    said = _said(lambda: expect.commands.includes(report, deploys))

    assert said == f"expected a command matching deploys\n{OBSERVED}"


def test_the_author_s_own_words_come_first(report: Session) -> None:
    said = _said(lambda: expect.commands.includes(report, "cargo", message="it must build with cargo"))

    assert said.splitlines()[:2] == ["it must build with cargo", 'expected a command matching "cargo"']


def test_a_context_stands_for_its_session(report: Session) -> None:
    class Context:
        session = report

    expect.commands.includes(Context(), "pnpm")

    assert OBSERVED in _said(lambda: expect.commands.size(Context(), 0))


def test_the_same_session_can_be_asked_again_and_another_one_has_its_own_answers(report: Session) -> None:
    other = _session(CommandRun(command="cargo test"))

    expect.commands.includes(report, "pnpm")
    expect.commands.includes(other, "cargo")

    assert "cargo test" not in _said(lambda: expect.commands.includes(report, "cargo"))
    assert "pnpm" not in _said(lambda: expect.commands.includes(other, "git"))


def test_sessions_that_differ_in_nothing_but_their_events_are_not_confused() -> None:
    one = Session(runner="demo", agent="scripted", prompt="Go.", events=(CommandRun(command="pnpm test"),))
    other = Session(runner="demo", agent="scripted", prompt="Go.", events=(CommandRun(command="cargo test"),))

    expect.commands.includes(one, "pnpm")

    expect.commands.includes(other, "cargo")
    assert one != other


def test_the_nearest_command_is_found_inside_a_long_line_and_shown_as_it_was_read() -> None:
    line = "mkdir -p app && cd app && FOO=1 sh -c 'echo tests --filter unit'"
    report = _session(CommandRun(command="false"), CommandRun(command=line))

    said = _said(lambda: expect.commands.includes(report, command("echo").option("--filter", "all")))

    assert said.startswith('expected a command matching command("echo").option("--filter", "all")\nobserved 2 ')
    assert f"nearest: 2. {line}\n  read as:\n    1. mkdir\n" in said
    assert said.endswith('nearest:  3. echo: option --filter is unit, not "all"')


@pytest.mark.parametrize(
    "ask",
    [
        lambda report: expect.commands.not_includes(report, command("pnpm")),
        lambda report: expect.commands.at_most(report, command("pnpm"), 0),
        lambda report: expect.commands.count(report, command("pnpm"), 7),
        lambda report: expect.commands.before(report, command("pnpn"), "git"),
        lambda report: expect.commands.succeeded(report, command("pnpm").arg("build")),
        lambda report: expect.commands.last(report, command("pnpm")),
    ],
)
def test_every_failure_of_a_command_matcher_shows_how_a_command_was_read(
    report: Session, ask: Callable[[Session], None]
) -> None:
    assert "  read as:\n    1. " in _said(lambda: ask(report))


def test_the_nearest_file_is_found_by_its_name_alone(report: Session) -> None:
    said = _said(lambda: expect.file_reads.includes(report, "READNE.md"))

    assert said.endswith("nearest: 1. /app/README.md")


def test_nothing_at_most_is_called_never(report: Session) -> None:
    said = _said(lambda: expect.commands.at_most(report, "pnpm", 0))

    assert said.startswith('expected a command matching "pnpm" never, but found it 2 times')


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("a", [0, 2, 3]), ("aa", [2]), ("b", [1, 3]), ("a\nb", [3]), ("b\n", []), ("c", [4]), ("", [0, 1, 2, 3, 4, 5])],
)
def test_a_text_is_found_in_lines_and_never_across_them(wanted: str, found: list[int]) -> None:
    lines = ["a", "b", "aaa", "a\nb", "c", ""]

    assert Finder(lines).matching(wanted) == found
    assert found == [number for number, line in enumerate(lines) if wanted in line]
