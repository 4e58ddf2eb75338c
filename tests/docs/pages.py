"""Pages of documentation as something to run: their fenced blocks, and a shell that plays them in a folder.

The marks are explained in CONTRIBUTING.md, "Examples in the documentation".
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from whet_call import ADDRESS, LOCALE
from whet_process import make_program, server_address

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/suite.py"))
# A page beside one of these is played in a copy of its folder.
EXAMPLE_FOLDERS = [
    *EXAMPLES,
    ROOT / "examples" / "bench",
    ROOT / "examples" / "evals",
    *sorted(path.parent for path in (ROOT / "examples").glob("skills/*/skill.json")),
]
# The skill of whet: what it teaches an agent is played like any page, in a copy of the project that its evals have.
SKILL = ROOT / "skills" / "whet"
SKILL_PAGES = [SKILL / "SKILL.md", *sorted((SKILL / "references").glob("*.md"))]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
    *SKILL_PAGES,
]


def folder_of(page: Path) -> Path | None:
    """The folder in a copy of which *page* is played; None is an empty one."""
    if page in SKILL_PAGES:
        return SKILL / "evals" / "files" / "project"
    return page.parent if page.parent in EXAMPLE_FOLDERS else None


_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_PROGRESS = re.compile(r"^ *\d+/\d+ +\S ")
# What differs from run to run and from machine to machine, and what it is made alike to.
_ALIKE = (
    (re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}"), "RUN"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s|min)\b( ± \d+(\.\d+)? (ms|s|min)\b)?"), "TIME"),
    (re.compile(r"^( *sandbox +).*", re.MULTILINE), r"\1SANDBOX"),
    (re.compile(r"^ *warning: bubblewrap.*\n", re.MULTILINE), ""),
    (re.compile(r"up to \d+ (runners )?at once"), "up to N at once"),
    (re.compile(r"^whet \d+\.\d+\.\d+\S*( \(.*\))?$", re.MULTILINE), "whet VERSION"),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" $", re.MULTILINE), ""),
)


class Block(Struct, frozen=True):
    """A fenced block: its language, the file that it is the text of, and the line where it begins."""

    language: str
    file: str | None
    text: str
    line: int


class Command(Struct):
    """A line that is typed, and what should be seen."""

    typed: str
    seen: list[str] = field(default_factory=list)


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks of *page*, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        language, _, rest = found["info"].strip().partition(" ")
        file = rest.removeprefix("file=") if rest.startswith("file=") else None
        yield Block(language, file, found["text"], text.count("\n", 0, found.start()) + 1)


def parse(block: Block) -> None:
    """Raise where *block* is not what its language says."""
    match block.language:
        case "python":
            ast.parse(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "json":
            json.loads(block.text)
        case "jsonl":
            for line in block.text.splitlines():
                json.loads(line)
        case "sh":
            subprocess.run(["/bin/sh", "-n"], input=block.text.encode(), check=True)
        case "" | "console" | "text" | "makefile" | "yaml" | "diff":
            pass
        case other:
            raise AssertionError(f"a block is marked {other!r}, which nobody can check")


def commands_of(block: Block) -> Iterator[Command]:
    """What is typed in a console block, each with what follows it."""
    current: Command | None = None
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if current:
                yield current
            current = Command(line[2:])
        elif current:
            current.seen.append(line)
    if current:
        yield current


class Shell:
    """Plays blocks in a folder: writes files, types commands, compares what is seen."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        self._code = 0
        foreign = ("WHET_", "GITHUB_", "PYTHON", "LANG", "LC_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        programs = home / "programs"
        programs.mkdir()
        make_program(programs)
        self._env = kept | {
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(home),
            "LC_ALL": LOCALE,
            "NO_COLOR": "1",
            "COLUMNS": "120",
            # Tests of a page run in the order of the page.
            "PYTEST_ADDOPTS": "-p no:randomly",
            ADDRESS: server_address(),
        }

    def play(self, block: Block, page: str) -> None:
        """Do what *block* says."""
        if block.file is not None:
            path = self._folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for command in commands_of(block):
                self._type(command, f"{page}:{block.line}: $ {command.typed}")

    def finish(self, page: str) -> None:
        """See that the last command succeeded, or that its exit code was shown."""
        assert self._code == 0, f"{page}: the last command ended with exit code {self._code}"

    def _type(self, command: Command, where: str) -> None:
        asked = "$?" in command.typed
        assert self._code == 0 or asked, f"{where}: the command before ended with exit code {self._code}; show it"
        script = f"(exit {self._code})\n{command.typed}"
        ended = subprocess.run(
            ["/bin/sh", "-c", script],
            cwd=self._folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        self._code = ended.returncode
        printed = ended.stdout.decode()
        if command.seen:
            expected = "\n".join(command.seen)
            assert matches(expected, printed), f"{where}\nexpected:\n{expected}\n\nprinted:\n{printed}"


def matches(expected: str, printed: str) -> bool:
    """Whether *printed* is as *expected*, in which `...` stands for anything."""
    pieces = [re.escape(piece) for piece in _alike(expected).split("...")]
    return re.fullmatch(".*".join(pieces), _alike(printed), re.DOTALL) is not None


def _alike(text: str) -> str:
    lines = text.strip("\n").split("\n")
    ordered: list[str] = []
    # Trials that run at the same time end in any order: their lines are compared as a set.
    waiting: list[str] = []
    for line in [*lines, ""]:
        if _PROGRESS.match(line):
            waiting.append(re.sub(r"^ *\d+/", "n/", line))
        else:
            ordered += [*sorted(waiting), line]
            waiting = []
    text = "\n".join(ordered)
    for pattern, replacement in _ALIKE:
        text = pattern.sub(replacement, text)
    return text.strip("\n ")
