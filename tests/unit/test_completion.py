"""Completion in a real bash: what the Tab key offers, and that it imports no command to know."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whet.cli.grammar.commands import COMMANDS

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
# For an answer that never comes.
LATEST_S = 300


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """Return a folder with `whet` on the path of a bash, and the script that completes it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("whet", "whet-eval"):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m whet "$@"\n')
        program.chmod(0o755)
    (tmp_path / "rc").write_text(f'PATH="{programs}:$PATH"\nPS1="ready> "\neval "$(whet completion bash)"\n')

    return tmp_path


def offered(shell: Path, *words: str, **environ: str) -> list[str]:
    """Return what bash offers for the last of *words*."""
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        f"source '{shell}/rc'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
        'function=$(complete -p "${COMP_WORDS[0]}" | sed "s/.*-F //; s/ .*//"); '
        '$function "${COMP_WORDS[0]}"; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        cwd=shell,
        env=os.environ | environ,
        timeout=LATEST_S,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (("whet", "run", "--split", ""), ["practice", "held-out", "sealed"]),
        (("whet", "compare", "--split", "he"), ["held-out"]),
        (("whet", "ex"), ["export", "explain"]),
        (("whet-eval", "ga"), ["gate"]),
        (("whet", "service", "k"), ["keys"]),
        (("whet", "service", "keys", "re"), ["revoke"]),
        (("whet", "run", "--until"), ["--until-decided"]),
        (("whet", "run", "--goal", "s"), ["shorter"]),
        (("whet", "run", "--sandbox", "bu"), ["bubblewrap"]),
        (("whet", "callable", "create", "--from-t"), ["--from-template"]),
        (("whet", "runs", "rem"), ["remove"]),
        (("whet", "runs", "--lim"), ["--limit"]),
        (("whet", "improve", "--propose-"), ["--propose-only"]),
        (("whet", "improve", "--accept", "l"), ["like-these"]),
        (("whet", "improve", "status", "--js"), ["--json"]),
        (("whet", "improve", "--resume", "l"), ["latest"]),
        (("whet", "nonsense", "x"), []),
    ],
    ids=" ".join,
)
def test_bash_offers_commands_options_and_values(shell: Path, words: tuple[str, ...], offers: list[str]) -> None:
    assert offered(shell, *words) == offers


WRITTEN = """
from whet import Case, case
raise SystemExit("the Tab key must not run this")

@case(prompt="Log in.")
def logs_in(session): ...

@case(prompt="Log out.", id="logs-out")
def leaves(session): ...

suite = [Case(id="lists", prompt="List.", check=leaves)]
"""
COMPUTED = """
from whet import Case
suite = [Case(id=f"case-{number}", prompt="Go.", check=lambda session: None) for number in range(2)]
"""
EVALS = '{"skill_name": "polite", "evals": [{"id": "greets", "prompt": "Greet.", "expectations": ["It greets."]}]}'
SKILL = "---\nname: polite\ndescription: Greets. Use when asked to greet.\n---\nGreet.\n"


@pytest.fixture
def project(shell: Path) -> Path:
    """Return a project with two suites, a skill, a runner and a run, and the script that completes."""
    (shell / "polite" / "evals").mkdir(parents=True)
    for name, text in (
        ("whet.toml", '[runners.careful.agent]\ntype = "command"\ncommand = "cat"\n'),
        ("written.py", WRITTEN),
        ("computed.py", COMPUTED),
        ("polite/SKILL.md", SKILL),
        ("polite/evals/evals.json", EVALS),
    ):
        (shell / name).write_text(text)
    run = [sys.executable, "-m", "whet", "run", "computed.py", "--sandbox", "local"]
    subprocess.run(run, cwd=shell, check=True, capture_output=True, timeout=LATEST_S)
    return shell


def test_bash_offers_runs_runners_and_cases(project: Path) -> None:
    [run] = [path.name for path in (project / ".whet" / "runs").iterdir() if not path.is_symlink()]

    assert offered(project, "whet", "gate", "") == [run, "latest"]
    assert offered(project, "whet", "view", run[:6]) == [run]
    assert offered(project, "whet", "run", "--resume", "la") == ["latest"]
    assert offered(project, "whet", "runs", "remove", "2") == [run]
    assert offered(project, "whet", "run", "--runner", "c") == [
        *("careful", "claude-code", "codex", "copilot", "cursor-agent"),
    ]
    assert offered(project, "whet", "run", "--runner", "careful,cod") == ["careful,codex"]
    assert offered(project, "whet", "run", "written.py", "--case", "l") == ["logs_in", "logs-out", "lists"]
    assert offered(project, "whet", "run", "computed.py", "--case", "") == ["case-0", "case-1"]
    assert offered(project, "whet", "run", "-v", "polite", "--case", "") == ["greets"]
    assert offered(project, "whet", "run", "polite", "--skill", "polite", "--runner", "ge") == ["gemini"]


@pytest.mark.parametrize("name", ["whet.toml", "written.py"])
def test_a_mistake_in_a_file_prints_nothing_into_the_prompt(project: Path, name: str) -> None:
    (project / name).write_text("[[[ broken ((")

    assert offered(project, "whet", "run", "written.py", "--case", "logs") == []
    assert "codex" in offered(project, "whet", "run", "--runner", "")


def test_the_names_of_commands_are_offered_without_importing_a_command() -> None:
    code = "import sys; from whet.cli.main import run; run(); print(*sys.modules, file=sys.stderr)"

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"_WHET_COMPLETE": "bash_complete", "COMP_WORDS": "whet ", "COMP_CWORD": "1"},
        timeout=LATEST_S,
        check=True,
    )

    assert [line.partition(",")[2] for line in done.stdout.split()] == list(COMMANDS)
    imported = set(done.stderr.split())
    assert "whet.cli.grammar.application" in imported
    assert not imported & {f"whet.cli.{entry.home}" for entry in COMMANDS.values()} - {"whet.cli.grammar.completion"}


def test_the_tab_key_completes_a_command_in_an_interactive_bash(shell: Path) -> None:
    control, terminal = pty.openpty()
    bash = subprocess.Popen(
        ["bash", "--rcfile", shell / "rc", "-i"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=shell,
        env=os.environ | {"TERM": "dumb", "HISTFILE": "/dev/null"},
        start_new_session=True,
    )
    os.close(terminal)
    try:
        _read_until(control, b"ready> ")
        os.write(control, b"whet vali\t")
        screen = _read_until(control, b"validate ")
    finally:
        bash.kill()
        bash.wait()
        os.close(control)

    assert screen.endswith(b"whet validate ")


def _read_until(terminal: int, end: bytes) -> bytes:
    """Return what the terminal shows up to *end*; fails if that never comes."""
    screen = b""
    deadline = time.monotonic() + LATEST_S
    while not screen.endswith(end):
        readable, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, screen
        screen += os.read(terminal, 1024)
    return screen


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_for_both_names_of_the_program(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "whet", "completion", name],
        capture_output=True,
        text=True,
        timeout=LATEST_S,
        check=True,
    )

    assert all(f"_{program}_completion" in done.stdout for program in ("whet", "whet_eval"))


def test_a_search_is_offered_what_a_term_may_begin_with(shell: Path) -> None:
    assert sorted(offered(shell, "whet", "search", "latest", "t")) == ["text:", "tool:"]
