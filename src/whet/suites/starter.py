"""A first suite for a project: look at the project, and write a case that fits it."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.model.run import id_problem

_TEST_FOLDERS = ("test", "tests", "spec", "__tests__")
_MANAGERS = {
    "pnpm-lock.yaml": "pnpm test",
    "yarn.lock": "yarn test",
    "bun.lock": "bun run test",
    "bun.lockb": "bun run test",
}
# What npm writes for a project without tests.
_NO_TEST = "no test specified"
_PROGRAMS = {
    "claude-code": "claude",
    "codex": "codex",
    "opencode": "opencode",
    "copilot": "copilot",
    "gemini": "gemini",
    "cursor-agent": "cursor-agent",
}
_PROMPT = 'Add a section "Getting started" to README.md that says how to run the tests.'


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What a first suite needs to know about a project."""

    name: str
    command: str | None = None
    origin: str | None = None
    protect: tuple[str, ...] = ()


def look_at(folder: Path) -> Project:
    """Look at *folder*; the first file that suggests a test command decides."""
    name = folder.resolve().name
    name = "project" if id_problem(name) else name
    protect = tuple(f"{each}/**" for each in _TEST_FOLDERS if (folder / each).is_dir())
    for file, suggest in _SUGGESTIONS.items():
        command = suggest(folder) if (folder / file).is_file() else None
        if command is not None:
            in_place = ("**/*_test.go",) if file == "go.mod" else ()
            return Project(name=name, command=command, origin=file, protect=(*protect, *in_place))
    return Project(name=name, protect=protect)


def starter_text(project: Project, *, as_yaml: bool) -> str:
    """Return the suite as JSON, or as YAML as a person would write it."""
    suite = _suite(project)
    return "\n".join(_yaml(suite)) + "\n" if as_yaml else json.dumps(suite, indent=2, ensure_ascii=False) + "\n"


def python_text(project: Project) -> str:
    """Return the same case as a Python suite."""
    tests = ""
    if project.command is not None:
        tests = f"    ran = ctx.run({json.dumps(project.command)})\n    assert ran.exit_code == 0, ran.stderr\n"
    return f'''\
"""What an agent should be able to do in {project.name}."""

from whet import CheckContext, Session, Workspace, case, expect

# Every attempt works in a fresh copy of the project.
workspace = Workspace(mode="isolated", template_dir="..")


@case(prompt={json.dumps(_PROMPT)})
def getting_started(session: Session, ctx: CheckContext) -> None:
    expect.files.contains(ctx, "README.md", "Getting started")
{tests}'''


def installed_agent() -> str | None:
    """Return the type of the first agent whose program is installed."""
    return next((kind for kind, program in _PROGRAMS.items() if shutil.which(program)), None)


def settings_text(agent: str | None) -> str:
    """Return settings with a runner for *agent*, or with runners to choose from, all of them commented out."""
    if agent is not None:
        return f'[runners.{agent}.agent]\ntype = "{agent}"\n'
    choices = "\n".join(f'# [runners.{kind}.agent]\n# type = "{kind}"\n#' for kind in _PROGRAMS)
    return f"""\
# Which agents to try: remove the "#" from the two lines of one or more of them.
#
{choices}
# Any program that takes a prompt on its input, or by {{prompt}} in its arguments:
#
# [runners.mine.agent]
# type = "command"
# command = "./agent.sh"
"""


def _suite(project: Project) -> dict[str, Any]:
    expect = ["diff:README.md", "file:README.md contains 'Getting started'"]
    if project.command is not None:
        expect.append(f"test:{project.command} passes")
    suite: dict[str, Any] = {
        "name": project.name,
        "description": f"What an agent should be able to do in {project.name}",
        "defaults": {"budget": 1.0, "timeout": 300},
    }
    if project.protect:
        suite["protect"] = list(project.protect)
    return {**suite, "cases": [{"id": "getting-started", "prompt": _PROMPT, "expect": expect}]}


def _yaml(value: Any, indent: str = "") -> Iterator[str]:
    """Yield lines of YAML, with strings in quotes as in JSON."""
    for key, item in value.items():
        if isinstance(item, dict):
            yield f"{indent}{key}:"
            yield from _yaml(item, f"{indent}  ")
        elif isinstance(item, list):
            yield f"{indent}{key}:"
            yield from (line for each in item for line in _yaml_item(each, f"{indent}  "))
        else:
            yield f"{indent}{key}: {json.dumps(item, ensure_ascii=False)}"


def _yaml_item(item: Any, indent: str) -> Iterator[str]:
    if not isinstance(item, dict):
        yield f"{indent}- {json.dumps(item, ensure_ascii=False)}"
        return
    for number, line in enumerate(_yaml(item, f"{indent}  ")):
        yield f"{indent}- {line.strip()}" if number == 0 else line


def _package_json(folder: Path) -> str | None:
    try:
        scripts = json.loads((folder / "package.json").read_text("utf-8")).get("scripts", {})
        script = scripts.get("test")
    except (OSError, ValueError, AttributeError):
        return None
    if not isinstance(script, str) or _NO_TEST in script:
        return None
    return next((command for lock, command in _MANAGERS.items() if (folder / lock).exists()), "npm test")


def _pyproject(folder: Path) -> str | None:
    try:
        text = (folder / "pyproject.toml").read_text("utf-8")
        tomllib.loads(text)
    except (OSError, ValueError):
        return None
    pytest = "pytest" in text or any((folder / name).exists() for name in ("pytest.ini", "conftest.py"))
    if (folder / "uv.lock").exists():
        return "uv run pytest" if pytest else "uv run python -m unittest"
    if (folder / "poetry.lock").exists():
        return "poetry run pytest" if pytest else "poetry run python -m unittest"
    return "python3 -m pytest" if pytest else "python3 -m unittest"


_SUGGESTIONS: dict[str, Callable[[Path], str | None]] = {
    "package.json": _package_json,
    "pyproject.toml": _pyproject,
    "go.mod": lambda _: "go test ./...",
    "Cargo.toml": lambda _: "cargo test",
}
