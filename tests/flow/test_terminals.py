"""What commands print for people: colour where it is wanted, lines that end between words, and no harm by names."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from project import PATIENCE_S, Project

from whet.reading.text import width
from whet.report.screen import STYLES

# The agent of the new arm says something else.
SETTINGS = """
[runners.sh.agent]
type = "command"
command = "sh"
args = ["-c", "echo ${ANSWER:-yes}"]
"""
LONG = "a case with a name that is rather long for a narrow terminal"
WIDE = "日本語の名前を持つ場合"
HOSTILE = "x\\\\x1b[2Jx\\\\x1b]0;title\\\\x07x\\\\rx\\\\x9b5m\\\\u202ex"
SUITE = f"""
    def says_yes(report, ctx):
        assert "yes" in report.final_output, report.case_id
    suite = [Case(id=name, prompt="Say yes.", check=says_yes) for name in ("a", "{LONG}", "{WIDE}")]
"""
ARMS = ("--arm", "old=as-is", "--arm", "new=env:ANSWER=no", "--trials", "4")
COMMANDS = (
    ("compare",),
    ("gate",),
    ("plan", "suite.py"),
    ("history", "suite.py"),
    ("audit", "suite.py"),
    ("validate", "suite.py"),
    ("verify", "latest"),
)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a run in which the new arm is worse."""
    project = Project(tmp_path_factory.mktemp("terminals") / "project")
    project.settings(SETTINGS)
    project.suite(SUITE)
    ran = project.run(*ARMS)
    assert ran.code == 0, ran.stderr
    return project


def on_a_terminal(project: Project, columns: int, *words: str, **variables: str) -> str:
    """Return what a command prints on a terminal of so many *columns*."""
    here, there = os.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environ = {**project.environment(), "TERM": "xterm", "CI": "1", **variables}
    with subprocess.Popen(
        [sys.executable, "-m", "whet", *words],
        cwd=project.root,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=there,
        stderr=subprocess.DEVNULL,
    ) as started:
        os.close(there)
        printed = _all_of(here)
        started.wait(PATIENCE_S)
    return printed.decode().replace("\r\n", "\n")


def _all_of(terminal: int) -> bytes:
    """Return all that is written to a terminal; its end is an error to the kernel."""
    chunks: list[bytes] = []
    try:
        while chunk := os.read(terminal, 1 << 16):
            chunks.append(chunk)
    except OSError:
        pass
    os.close(terminal)
    return b"".join(chunks)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_have_colour_if_it_is_forced_and_none_in_a_pipe(compared: Project, words: tuple[str, ...]) -> None:
    piped = compared.whet(*words).stdout
    forced = compared.whet(*words, env={"FORCE_COLOR": "1"}).stdout
    refused = compared.whet(*words, env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout

    assert "\x1b" in forced
    assert "\x1b" not in piped + refused
    # An audit names a new folder each time.
    assert words == ("audit", "suite.py") or STYLES.sub("", forced) == piped == refused


@pytest.mark.parametrize(
    "words", [("run", "--case", "a", *ARMS), ("runs",), ("report", "latest", "--html", "pages.html")], ids=" ".join
)
def test_paths_are_links_on_a_terminal_and_lead_to_what_is_there(compared: Project, words: tuple[str, ...]) -> None:
    printed = on_a_terminal(compared, 80, *words, FORCE_HYPERLINK="1")
    piped = compared.whet(*words, env={"FORCE_HYPERLINK": "1", "FORCE_COLOR": "1"})

    addresses = re.findall(r"\x1b\]8;;(file://[^\x1b]+)\x1b", printed)
    assert addresses
    assert all(Path(unquote(urlsplit(address).path)).exists() for address in addresses)
    assert "\x1b]8" not in piped.stdout + piped.stderr


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("words", COMMANDS[:4], ids=" ".join)
def test_no_line_ends_within_a_word(compared: Project, words: tuple[str, ...], columns: int) -> None:
    whole = compared.whet(*words).stdout

    printed = STYLES.sub("", on_a_terminal(compared, columns, *words))

    known = set(whole.split())
    # Names may be cut, which a sign says.
    assert {word for word in printed.split() if word not in known and "…" not in word} <= {"│"}
    # What you copy stays whole: a path, or a command.
    longer = [line.strip() for line in printed.splitlines() if width(line) > columns]
    assert [line for line in longer if " " in line and not line.startswith("whet run ")] == []


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_names_of_strangers_move_no_cursor(project: Project, columns: int) -> None:
    project.settings(SETTINGS)
    project.suite(
        f"""
        def check(report, ctx):
            assert "yes" in report.final_output, "{HOSTILE}"
        suite = [Case(id="a", prompt="{HOSTILE}", check=check)]
        """.replace("\\\\\\\\", "\\\\")
    )
    ran = on_a_terminal(project, columns, "run", "suite.py", *ARMS)
    told = "".join(on_a_terminal(project, columns, *words) for words in COMMANDS[:4])

    assert "Decision" in ran
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", STYLES.sub("", ran + told))
