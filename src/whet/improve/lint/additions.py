"""What a candidate may do that the skill could not: scripts, addresses, and what its front matter allows or starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from whet.improve.lint.version import SkillVersion
from whet.reading.text import listed
from whet.record.improve.document import LintFinding
from whet.suites.skills.case_texts import without_disguise
from whet.workspace.make import MANIFEST

_SCRIPTS = frozenset(
    (
        *(".awk", ".bash", ".bat", ".cjs", ".cmd", ".exe", ".fish", ".go", ".js", ".lua", ".mjs", ".php", ".pl"),
        *(".ps1", ".py", ".pyz", ".r", ".rb", ".sh", ".so", ".ts", ".wasm", ".zsh"),
    )
)
# Fields by which an agent is allowed more, runs something, or becomes another agent.
_POWERS = ("allowed-tools", "disallowed-tools", "hooks", "shell", "model", "agent", "context")
# Claude Code runs these lines when it loads the skill, before any model has read them.
_RUN_AT_LOADING = re.compile(r"!`[^`\n]+`|^ {0,3}```!", re.MULTILINE)
_TOP_DOMAINS = "ai|app|biz|cloud|co|com|de|dev|edu|eu|gov|info|io|me|net|org|ru|sh|site|tech|tk|top|uk|us|xyz"
_ADDRESS = re.compile(
    rf"""(?:[a-z][a-z0-9+.-]{{1,20}}://|www\.|git@)[^\s<>()\[\]"'`]+"""
    rf"""|(?<![\w@./-])(?:[a-z0-9-]{{1,63}}\.){{1,8}}(?:{_TOP_DOMAINS})(?![\w-])(?:[:/][^\s<>()\[\]"'`]*)?"""
    r"|(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.]|/[0-9])",
    re.IGNORECASE,
)
_MOST_NAMED = 5


def added_powers(before: SkillVersion, after: SkillVersion) -> Iterator[LintFinding]:
    """Yield what was added that runs, reaches out or allows; `--allow-scripts` is for who wants that."""
    changed_files = after.files_unlike(before)
    scripts = [path for path in changed_files if path in after.files and _is_script(after, path)]
    if scripts:
        yield _finding(f"adds or changes what can be run: {listed(scripts, _MOST_NAMED)}")
    blobs = [path for path in changed_files if path not in scripts and b"\0" in after.data(path)]
    if blobs:
        yield _finding(f"adds or changes what is no text, so nobody can look through it: {listed(blobs, _MOST_NAMED)}")
    if after.files.get(MANIFEST) and not before.files.get(MANIFEST):
        yield _finding(f"makes {MANIFEST} a program")
    powers = [name for name in _POWERS if before.fields.get(name) != after.fields.get(name)]
    if powers:
        yield _finding(f"changes what the front matter allows or runs: {listed(powers)}")
    commands = sorted(_commands(after) - _commands(before))
    if commands:
        yield _finding(f"adds commands that run when the skill is loaded: {listed(commands, _MOST_NAMED)}")
    addresses = sorted(_addresses(after) - _addresses(before))
    if addresses:
        yield _finding(f"adds addresses: {listed(addresses, _MOST_NAMED)}")


def _is_script(version: SkillVersion, path: str) -> bool:
    start = version.data(path)[:4]
    return (
        version.files[path]
        or PurePosixPath(path).suffix.lower() in _SCRIPTS
        or start.startswith(b"#!")
        or start == b"\x7fELF"
    )


def _commands(version: SkillVersion) -> set[str]:
    return set(_RUN_AT_LOADING.findall(version.body))


def _addresses(version: SkillVersion) -> set[str]:
    texts = (version.data(path).decode("utf-8", "replace") for path in version.files)
    return {match[0].rstrip(".,;:!?/").lower() for text in texts for match in _ADDRESS.finditer(without_disguise(text))}


def _finding(message: str) -> LintFinding:
    return LintFinding(rule="scripts", message=f"{message} (--allow-scripts)", told=message)
