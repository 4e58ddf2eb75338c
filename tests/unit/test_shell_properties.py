"""What holds for every line: reading never fails, quoting reads back, and bash agrees."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whet.shell._arguments import SimpleCommand
from whet.shell.match import command
from whet.shell.parse import read_command

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=200)
PIECES = st.sampled_from(
    [
        *("if ", "then ", "fi ", "for x in ", "do ", "done ", "case a in ", "esac ", "function ", "coproc ", "select "),
        *("$(", ")", "(", "{ ", "} ", "${", "}", "((", "))", "$((", "[[ ", "]] ", ";;", ";", "&&", "|", "&", ">", "<"),
        *(
            "<<A ",
            "<<'B' ",
            "\nA\n",
            "\n",
            "'",
            '"',
            "`",
            "\\",
            "$'",
            "<(",
            "#",
            " ",
            "\r",
            "\t",
            "\x00",
            "\ud800",
            "é",
        ),
        *("a ", "b=1 ", "a=(", "-x ", "--y=z ", "bash -c ", "sudo ", "env ", "env -S ", "eval ", "time ", "timeout 5 "),
        *("xargs ", "exec ", "fish -c "),
    ]
)
SHELL_TEXT = st.lists(PIECES, max_size=40).map("".join)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[A-Za-z0-9_@*.-]*\])?\+?")
QUICK = settings(max_examples=300, deadline=None)


@QUICK
@given(st.one_of(ANY_TEXT, SHELL_TEXT))
def test_any_text_has_a_reading_and_an_explanation(line: str) -> None:
    matcher = command("a").arg("b").option("-x", "c").flag("--y").strict()

    commands = read_command(line)

    assert all(found.raw in line or found.depth for found in commands)
    assert matcher.explain(line).startswith("expected: ")


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.lists(PIECES, min_size=5, max_size=30).map("".join))
def test_a_hundred_kilobytes_of_anything_have_a_reading(seed: str) -> None:
    line = (seed * (100_000 // len(seed) + 1))[:100_000] if seed else ""

    commands = read_command(line)

    assert isinstance(commands, tuple)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def quote_command(found: SimpleCommand) -> str:
    """Every word is in quotes, so that none is a keyword or sets a variable."""
    words = " ".join(map(quoted, (found.executable, *found.words)))
    if all(VARIABLE.fullmatch(name) for name, _ in found.env):
        return "".join(f"{name}={quoted(value)} " for name, value in found.env) + words
    # Only `env` can set a variable with another name; `command` keeps an executable with "=" from being one of them.
    settings = " ".join(quoted(f"{name}={value}") for name, value in found.env)
    return f"env {settings} command {words}"


@QUICK
@given(st.one_of(ANY_TEXT, SHELL_TEXT))
def test_a_command_that_is_quoted_reads_as_the_same_command(line: str) -> None:
    for found in read_command(line):
        again = read_command(quote_command(found))

        assert [(one.executable, one.words, one.env) for one in again] == [(found.executable, found.words, found.env)]


def quoted_piece(text: str, how: int) -> str:
    escaped = "".join(f"\\{char}" if char in '$`"\\' else char for char in text)
    ansi = "".join(f"\\x{ord(char):02x}" for char in text)
    bare = "".join(f"\\{char}" for char in text if char != "\n")
    return (quoted(text), f'"{escaped}"', f"$'{ansi}'", bare, f"{bare}\\\n")[how]


WORD = st.lists(
    st.builds(quoted_piece, st.text("ab $`'\"\\!#;&|<>(){}[]*?~=-\n\t", min_size=0, max_size=4), st.integers(0, 4)),
    min_size=1,
    max_size=3,
).map("".join)
SUFFIX = st.sampled_from(
    ["", " >/dev/null", " 2>&1", " </dev/null x", " <<'E' y\n'\"$(\nE\n", " <<E <<F z\nq\nE\nr\nF\n", " <<<w"]
)
CALL = st.builds(lambda words, suffix: "p " + " ".join(words) + suffix, st.lists(WORD, max_size=4), SUFFIX)
FRAME = st.sampled_from(
    [
        *("{}", "({})", "{{ {}\n}}", "if {}\nthen {}\nfi", "for i in 1; do {}\ndone", "case a in a) {}\n;; esac"),
        *("bash -c 'p' ; {}", "x=$({}\n)", ": `p q`; {}", "! ! {}", "A=1 {}", "{} # '", "((1)) && {}", "time {}"),
        *("while {}\ndo break; done", ': "$({}\n)"'),
    ]
)
LINE = st.lists(st.builds(lambda frame, call: frame.format(call, call), FRAME, CALL), min_size=1, max_size=3).map(
    "\n".join
)
PRELUDE = "p() { for w; do printf '%s\\0' \"$w\" >&9; done; printf '\\1\\0' >&9; }; exec 9>&1 >/dev/null 2>&1\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
@settings(max_examples=250)
@given(LINE)
def test_bash_runs_the_words_that_were_read(line: str) -> None:
    ran = subprocess.run(
        ["bash", "--norc", "-c", PRELUDE + line],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=300,
    )
    calls = [call.split("\0")[:-1] for call in ran.stdout.decode().split("\1\0")[:-1]]

    read = [list(found.words) for found in read_command(line) if found.name == "p" and "bash -c" not in found.wrappers]

    assert sorted(read) == sorted(calls)
