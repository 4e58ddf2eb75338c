"""The files of a skill as an agent meets them: links of its manifest, and scripts."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

from whet.reading.files import read_start
from whet.suites.left_out import left_out

# What is wrong: the rule, the line of the text, 0 if it is about the folder, and a message.
Finding = tuple[str, int, str]
_LINK = re.compile(r"\]\(\s*(<[^>\n]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]\n]+\]:\s*(<[^>\n]*>|\S+)")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_CODE = re.compile(r"``.*?``|`[^`]*`")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#", re.IGNORECASE)
_LONGEST_LINE = 10_000
_MOST_FILES = 10_000
_SCRIPTS = "scripts"
_MOST_SCRIPTS, _MOST_LINKS = 20, 50
_PROGRAM = (
    r"(?:python[0-9.]*|uv run(?: python)?|bash|sh|zsh|node|deno run|bun(?: run)?|npx|tsx|ruby|perl|php|Rscript|pwsh)"
)


def lines_of_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of *text* that are no code, with their numbers; code in a line is left out."""
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
            fence = ""
        elif not fence:
            yield number, _CODE.sub("", line[:_LONGEST_LINE])


def link_findings(skill: Path, text: str) -> Iterator[Finding]:
    """Yield each link of *text* that leads to no file, or out of the folder *skill*; the first ones of very many."""
    return islice(_missing_links(skill, text), _MOST_LINKS)


def _missing_links(skill: Path, text: str) -> Iterator[Finding]:
    root = os.path.realpath(skill)
    for number, line in lines_of_prose(text):
        for target in (*_LINK.findall(line), *_REFERENCE.findall(line)):
            path = unquote(target.strip("<>").partition("#")[0].partition("?")[0])
            # A word alone is code more often than a file: `a[0](n)`.
            if (
                not {".", "/"} & set(path)
                or _ELSEWHERE.match(target.strip("<>"))
                or path.startswith("/")
                or "\0" in path
            ):
                continue
            # Where links of the file system lead does not matter: an agent follows them.
            place = os.path.normpath(f"{root}/{path}")
            if place != root and not place.startswith(f"{root}/"):
                yield "link", number, f"links to {path}, which is not in the skill: no agent is given it"
            elif not os.path.lexists(place):
                yield "link", number, f"links to {path}, and there is no such file"


def script_findings(skill: Path, text: str) -> Iterator[Finding]:
    """Yield each script of the folder *skill* that has no run bit, unless *text* says what runs it."""
    scripts = (path for path in agent_files(skill) if _SCRIPTS in path.parts[len(skill.parts) : -1])
    for path in islice(filter(_is_bare_script, scripts), _MOST_SCRIPTS):
        name = path.relative_to(skill).as_posix()
        runs_it = rf"\b{_PROGRAM}[ \t]+(?:-\S+[ \t]+)*[\w./{{}}$-]*{re.escape(name)}"
        if name not in text or not re.search(runs_it, text):
            yield "script", 0, f"{name} has no run bit: chmod +x {name}"


def _is_bare_script(path: Path) -> bool:
    """Return whether a file begins with `#!`, and cannot be run."""
    try:
        mode = path.lstat().st_mode
        return stat.S_ISREG(mode) and not mode & stat.S_IXUSR and read_start(path, 2) == b"#!"
    except OSError:
        return False


def agent_files(skill: Path) -> Iterator[Path]:
    """Yield the files of the folder *skill* that agents are given, sorted; no links, and not too many."""
    out = left_out(skill)
    number = 0
    for root, folders, names in os.walk(skill):
        place = Path(root)
        folders[:] = sorted(name for name in folders if (place / name).relative_to(skill).as_posix() not in out)
        for name in sorted(names):
            number += 1
            if number > _MOST_FILES:
                return
            if (place / name).relative_to(skill).as_posix() not in out:
                yield place / name
