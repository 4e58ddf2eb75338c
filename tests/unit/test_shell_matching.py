"""Saying what a command should have been, and being told why it was not."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from whet.errors import UsageError
from whet.shell.match import CommandIndex, CommandMatcher, command

ANY = re.compile(".")
T = TypeVar("T")


def counting_calls(work: Callable[[], T]) -> tuple[T, int]:
    """Return what *work* returns, and how many functions it called: seconds say more of the machine."""
    calls = 0

    def note(frame: object, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return result, calls


@pytest.mark.parametrize(
    ("matcher", "line"),
    [
        (command(), "ls"),
        (command("pnpm"), "cd app && FOO=1 pnpm test"),
        (command("pnpm"), "/usr/bin/pnpm test"),
        (command("/usr/bin/pnpm"), "/usr/bin/pnpm test"),
        (command(re.compile("^p?npm$")), "/usr/bin/pnpm test"),
        (command(lambda name: name.endswith("pm")), "npm test"),
        (command("pnpm").arg("test").flag("--watch"), "pnpm --watch test"),
        (command("pnpm").option("--watch", "test"), "pnpm --watch test"),
        (command("pnpm").args("run", "test"), "pnpm run -r unit test"),
        (command("pnpm").args(re.compile("^r"), lambda word: word == "test"), "pnpm run test"),
        (command("pnpm").option("--filter", "unit"), "pnpm --filter=unit test"),
        (command("pnpm").option("--filter", re.compile("^un")), "pnpm --filter unit test"),
        (command("npm").option("--tag", ANY).option("--tag", "beta"), "npm --tag beta --tag latest"),
        (command("x").option("-p", "80"), "x -p80"),
        (command("x").option("-p", "80"), "x -p 80"),
        (command("x").option("-p", "80"), "x -p=80"),
        (command("x").option("-n", "-5"), "x -n -5"),
        (command("x").flag("-n").flag("-5"), "x -n -5"),
        (command("x").option("-a", ""), "x -a ''"),
        (command("x").option("-i", "t"), "x -it"),
        (command("tar").flag("-x").option("-f", "a.tgz"), "tar -xzf a.tgz"),
        (command("tar").flag("-f").arg("a.tgz"), "tar -xzf a.tgz"),
        (command("find").option("-name", "*.py"), "find . -name '*.py'"),
        (command("go").option("-run", "TestX"), "go test -run=TestX"),
        (command("npx").flag("-y").arg("codex").strict(), "npx -y codex"),
        (command("docker").args("run", "img").flag("-i").flag("-t").flag("--rm").strict(), "docker run -it --rm img"),
        (command("x").flag("-v").flag("-v").flag("-v").strict(), "x -vvv"),
        (command("x").arg("").strict(), "x ''"),
        (command("x").flag("-b").flag("-a").strict(), "x -a -b"),
        (command("npm").args("run", "--flag").end_of_options(), "npm run -- --flag"),
        (command("npm").end_of_options(False), "npm run"),
        (command("seq").args("5", "-1", "1").strict(), "seq 5 -1 1"),
        (command("sudo").arg("pnpm"), "sudo pnpm test"),
        (command("xargs"), "ls | xargs rm"),
        (command("rm"), "ls | xargs rm"),
        (command("date"), 'echo "$(date)"'),
    ],
)
def test_a_line_matches(matcher: CommandMatcher, line: str) -> None:
    answer = matcher.matches(line)

    assert answer
    assert "matches:  " in matcher.explain(line)


@pytest.mark.parametrize(
    ("matcher", "line", "reason"),
    [
        (command("pnpm"), "npm test", '1. npm: its executable is not "pnpm"'),
        (command("/usr/bin/pnpm"), "pnpm test", 'its executable is not "/usr/bin/pnpm"'),
        (command("pnpm"), "echo 'pnpm test'", "its executable is not"),
        (command("bash"), "bash -lc 'ls'", "its executable is not"),
        (command("pnpm").arg("test"), "npm test; pnpm run", '2. pnpm: no positional "test"'),
        (command("pnpm").args("test", "run"), "pnpm run test", 'no positional "run" after "test"'),
        (command("pnpm").arg("test").option("--watch", "test"), "pnpm --watch test", "one word would have to be two"),
        (command("tar").flag("-f").option("-f", "a"), "tar -f a", "no single reading has them all"),
        (command("x").option("-p", "80"), "x -p 81", 'option -p is 81, not "80"'),
        (command("x").option("-p", ANY), "x -p --rm", "no option -p with re.compile('.')"),
        (command("x").option("-t", ANY).option("-t", "a"), "x -t a", "no single reading has them all"),
        (command("x").flag("--watch"), "x --watch=1", "no flag --watch"),
        (command("x").flag("-v").flag("-v"), "x -v", "no single reading has them all"),
        (command("x").strict(), "x a", "strict: something else is there"),
        (command("x").arg("a").strict(), "x a -b", "strict: something else is there"),
        (command("x").flag("-a").strict(), "x -ab", "strict: something else is there"),
        (command("x").option("-a", "b").strict(), "x -a b -a c", "strict: something else is there"),
        (command("x").end_of_options(), "x a", "no `--`"),
        (command("x").end_of_options(False), "x -- a", "`--` was there"),
        (command("x").flag("--a"), "x -- --a", "no flag --a"),
        (command("x"), "", "no command at all"),
    ],
)
def test_a_line_does_not_match_and_the_text_says_why(matcher: CommandMatcher, line: str, reason: str) -> None:
    answer = matcher.matches(line)

    assert not answer
    assert reason in matcher.explain(line)


def test_the_text_shows_the_raw_command_and_how_it_was_read() -> None:
    matcher = command("pnpm").arg("test").option("--filter", "unit").flag("--watch").strict()

    text = matcher.explain("cd app && FOO=1 sudo pnpm run --filter 'a b' -it > log")

    assert text.splitlines() == [
        'expected: command("pnpm").arg("test").option("--filter", "unit").flag("--watch").strict()',
        "command:  cd app && FOO=1 sudo pnpm run --filter 'a b' -it > log",
        "read as:",
        "  1. cd",
        "       positionals: app",
        "  2. sudo",
        "       env: FOO=1",
        "       positionals: pnpm, run, 'a b'",
        "       options: --filter 'a b'",
        "       flags: --filter, -i, -t",
        "       redirections: >log",
        "  3. pnpm",
        "       wrappers: sudo",
        "       env: FOO=1",
        "       positionals: run, 'a b'",
        "       options: --filter 'a b'",
        "       flags: --filter, -i, -t",
        "       redirections: >log",
        'nearest:  3. pnpm: no positional "test"; option --filter is \'a b\', not "unit"; no flag --watch',
    ]


def test_the_text_stays_short_for_a_long_line() -> None:
    line = "pnpm run " + "x" * 100_000 + "; npm test" * 1_000

    text = command("pnpm").arg("test").explain(line)

    assert len(text) < 3_000
    assert "..." in text
    assert "and 993 more" in text


def test_every_method_gives_a_new_matcher() -> None:
    base = command("pnpm")

    narrow = base.arg("test").flag("-r")

    assert base.matches("pnpm install")
    assert not narrow.matches("pnpm install")
    assert narrow == command("pnpm").arg("test").flag("-r")


@pytest.mark.parametrize(
    ("matcher", "expected"),
    [
        (command(), "command()"),
        (command("a").args("b", "c"), 'command("a").arg("b").arg("c")'),
        (command(re.compile("a", re.IGNORECASE)), "command(re.compile('a', re.IGNORECASE))"),
        (command(str.isdigit).option("-n", 'say "x"'), 'command(isdigit).option("-n", \'say "x"\')'),
        (command().end_of_options().strict(), "command().end_of_options().strict()"),
        (command().end_of_options(False), "command().end_of_options(False)"),
    ],
)
def test_a_matcher_is_shown_as_it_is_written(matcher: CommandMatcher, expected: str) -> None:
    text = str(matcher)

    assert text == expected == repr(matcher)


@pytest.mark.parametrize(
    "build",
    [
        lambda: command(5),  # type: ignore[arg-type]
        lambda: command(re.compile(b"x")),  # type: ignore[arg-type]
        lambda: command("x").arg(None),  # type: ignore[arg-type]
        lambda: command("x").option("filter", "unit"),
        lambda: command("x").option("--filter", 1),  # type: ignore[arg-type]
        lambda: command("x").flag("--"),
        lambda: command("x").flag(""),
    ],
)
def test_a_matcher_that_can_never_match_is_refused(build: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        build()


def test_a_command_with_too_many_readings_is_undecided_and_says_so() -> None:
    matcher = command("x").option("--once", "1").option("--once", "1")
    for flag in ("-a", "-b", "-c", "-d", "-e", "-f", "-g", "-h"):
        matcher = matcher.option(flag, ANY).flag(flag)
    line = "x --once 1 " + "-abcdefgh 1 " * 5_000

    answer, calls = counting_calls(lambda: matcher.matches(line))

    # Each word could be read in thousands of ways; the search ends long before.
    assert calls < 5_000_000
    assert not answer
    assert "undecided: its words have too many readings" in matcher.explain(line)


def test_ten_thousand_words_are_searched_to_the_end() -> None:
    line = "x " + "word " * 10_000 + "--last value end"

    answer = command("x").args("word", "word", "end").option("--last", "value").matches(line)

    assert answer


def test_an_index_gives_the_lines_that_match() -> None:
    lines = ["pnpm test", "cd a && pnpm run test", "npm test", "pnpm test", "sudo /bin/pnpm test -r"]
    index = CommandIndex(lines)

    for matcher in (command("pnpm").arg("test"), command(), command(ANY).flag("-r"), command("sudo"), command("x")):
        expected = tuple(number for number, line in enumerate(lines) if matcher.matches(line))
        assert index.matching(matcher) == expected


def test_a_thousand_assertions_over_ten_thousand_commands_are_quick() -> None:
    lines = [f"cd pkg{n % 50} && FOO=1 pnpm run t{n} --filter p{n} -v 2>&1 | tee log{n}" for n in range(10_000)]
    index = CommandIndex(lines)
    matchers = [command("pnpm").args("run", ANY).option("--filter", f"p{n * 7}").flag("-v") for n in range(1_000)]

    places, calls = counting_calls(lambda: [index.matching(matcher) for matcher in matchers])

    assert places == [(n * 7,) for n in range(1_000)]
    # There are ten million pairs of an assertion and a command.
    assert calls < 1_000_000


@pytest.mark.parametrize(
    ("matcher", "line"),
    [
        (command("a").option(re.compile("^(-f|--filter)$"), "x"), "a -f x"),
        (command("a").option(re.compile("^(-f|--filter)$"), "x"), "a --filter=x"),
        (command("a").flag(re.compile("^--no-")), "a --no-cache"),
        (command("a").flag(lambda name: name == "-v"), "a -xv"),
        # Without greed: the pattern leaves the flag to the one that needs it.
        (command("a").flag(re.compile(".")).flag("-x").strict(), "a -x -y"),
        (command("a").option(re.compile("."), "1").option("-x", "1").strict(), "a -x 1 -y 1"),
    ],
)
def test_the_name_of_an_option_may_be_a_pattern(matcher: CommandMatcher, line: str) -> None:
    assert matcher.matches(line)
    assert not matcher.matches("a --other y")


def test_what_a_pattern_for_a_name_lacks_is_told() -> None:
    matcher = command("a").option(re.compile("^-f"), "x").flag(re.compile("^--no"))

    said = matcher.explain("a -f y")

    assert "option -f is y, not \"x\"; no flag re.compile('^--no')" in said


@pytest.mark.parametrize(
    ("build", "advice"),
    [
        (lambda: command("pnpm test"), r'write command\("pnpm"\).arg\("test"\)'),
        (lambda: command(""), "an executable has a name"),
        (lambda: command("a").flag("--x=1"), "write .option"),
        (lambda: command("a").option("--x=", "1"), "write .option"),
        (lambda: command("a").option(3, "1"), "the name of an option is a string"),
    ],
)
def test_a_matcher_that_means_something_else_is_refused_with_advice(build: Callable[[], object], advice: str) -> None:
    with pytest.raises(UsageError, match=advice):
        build()


def test_an_executable_in_a_folder_may_have_a_space_in_it() -> None:
    assert command("/opt/my app/run").matches("'/opt/my app/run' --now")


def test_an_author_s_editor_offers_nothing_of_the_inside() -> None:
    offered = {name for name in dir(command("a")) if not name.startswith("_")}

    assert offered == {"arg", "args", "end_of_options", "explain", "flag", "matches", "option", "strict"}


@pytest.mark.parametrize(
    ("matcher", "nearest"),
    [
        (command("pnpm").arg("test").flag("--watch"), 1),
        (command("pnpm").arg("build"), 0),
        (command("/usr/bin/pnpn"), 0),
        (command("cargo"), None),
        (command(re.compile("^cargo")), None),
    ],
)
def test_an_index_knows_the_line_whose_command_lacks_least(matcher: CommandMatcher, nearest: int | None) -> None:
    lines = ["pnpm run build", "cd app && bash -lc 'pnpm test' | tee log", "pnpm test", "git push"]

    assert CommandIndex(lines).nearest(matcher) == nearest
