"""A first suite for a project: look at the project, and write a case that fits it."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

from msgspec import Struct

from whet.agents.known import known_agents
from whet.errors import UsageError
from whet.model.run import id_problem
from whet.reading.documents import load_json
from whet.reading.fields import UNWRITTEN
from whet.workspace.make import MANIFEST, described

_TEST_FOLDERS = ("test", "tests", "spec", "__tests__")
_MANAGERS = {
    "pnpm-lock.yaml": "pnpm test",
    "yarn.lock": "yarn test",
    "bun.lock": "bun run test",
    "bun.lockb": "bun run test",
}
# What npm writes for a project without tests.
_NO_TEST = "no test specified"
# How descriptions of skills begin to say when to use them, and what separates the uses.
_USE = re.compile(
    r"(this skill should be used|use( this skill)?|trigger(s|ed)?|applies|invoke( this skill)?)"
    r"( proactively| only)?( when(ever)?| for| to| if)?"
    r"( (the user|users|you|someone|somebody|asked|asks?|wants?|needs?|has|have|is|are|mentions?|to|about|for))*\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_PARTS = re.compile(r"[,;](?:\s*(?:or|and))?\s+|\s+or\s+", re.IGNORECASE)
_SHORTEST_WORD = 2
_MOST_EVALS = 6
_LONGEST_NAME = 60
# One trial says nothing about chance, and with three a run can already be compared.
TRIALS = 3
_PROMPT = 'Add a section "Getting started" to README.md that says how to run the tests.'


class Project(Struct, frozen=True, kw_only=True):
    """What a first suite needs to know about a project."""

    name: str
    command: str | None = None
    origin: str | None = None
    protect: tuple[str, ...] = ()


def look_at(folder: Path) -> Project:
    """Look at *folder*; the first file that suggests a test command decides."""
    name = folder.resolve().name
    name = "project" if id_problem(name) else name
    protect = tuple(f"{folder_name}/**" for folder_name in _TEST_FOLDERS if (folder / folder_name).is_dir())
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
    """Return the suite as a Python module."""
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


def skill_evals(folder: Path) -> dict[str, Any]:
    """Return a skeleton of evals for the skill in *folder*: one for each use that its description names, six at most.

    What only its author can know is a text that begins with `TODO:`, which no run accepts. Raises `UsageError` if the
    description says nothing: then it is unknown what to ask for.
    """
    skill = described(folder)
    uses = _uses(skill.description)
    if not uses:
        raise UsageError(
            f"{folder / MANIFEST} does not say what the skill is for",
            hint="begin the file with a line ---, the name, a description such as\n"
            "  description: Greets people formally. Use when asked to greet a customer.\nand a second line ---",
        )
    evals: list[dict[str, Any]] = [
        {
            "id": "-".join(re.findall(r"\w+", use.lower()))[:_LONGEST_NAME].strip("-"),
            "prompt": f'{UNWRITTEN} how a person asks to "{use}", with all that the agent needs to do it',
            "files": [],
            "expectations": [f"{UNWRITTEN} what is true of the answer only if the skill was followed"],
        }
        for use in dict.fromkeys(uses[:_MOST_EVALS])
    ]
    evals.append(
        {
            "id": "not-for-this-skill",
            "prompt": f"{UNWRITTEN} a request that sounds alike, and that {skill.name} is not for",
            "should_trigger": False,
        }
    )
    return {"skill_name": skill.name, "evals": evals}


def _uses(description: str) -> list[str]:
    """Return what a person would ask for, as the description of a skill says it."""
    sentences = [text.strip() for text in _SENTENCE.split(" ".join(description.split())) if text.strip()]
    does = next((text for text in sentences if not _USE.match(text)), "") or description.strip()
    uses = [_USE.sub("", text) for text in sentences if _USE.match(text)]
    requests: list[str] = []
    for use in uses or [does]:
        parts = [part.strip(" .,;").removeprefix("to ") for part in _PARTS.split(use)]
        requests += _with_objects([part for part in parts if len(part) > _SHORTEST_WORD])
    return requests


def _with_objects(parts: list[str]) -> list[str]:
    """Return *parts* with what they are about: of "write, fix or review a letter", that is "a letter"."""
    phrase = next((part for part in reversed(parts) if " " in part), "")
    about = phrase.partition(" ")[2]
    return [part if " " in part or not about else f"{part} {about}" for part in parts]


def installed_agent() -> str | None:
    """Return the type of the first agent whose program is installed."""
    return next((agent.type for agent in known_agents() if shutil.which(agent.program)), None)


def settings_text(agent: str | None, *, judged: bool = False) -> str:
    """Return settings with a runner for *agent*, or with runners to choose from, all of them commented out.

    If cases are *judged*, the agent is the judge too, as it is without settings.
    """
    judge = f'\n[judge]\nrunner = "{agent or "mine"}"\n\n[run]\ntrials = {TRIALS}\n' if judged else ""
    if agent is not None:
        return f'[runners.{agent}.agent]\ntype = "{agent}"\n{judge}'
    choices = "\n".join(f'# [runners.{agent.type}.agent]\n# type = "{agent.type}"\n#' for agent in known_agents())
    return f"""\
# Which agents to try: remove the "#" from the two lines of one or more of them.
#
{choices}
# Any program that takes a prompt on its input, or by {{prompt}} in its arguments:
#
# [runners.mine.agent]
# type = "command"
# command = "./agent.sh"
{indent(judge, "# ")}"""


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
            yield from (line for element in item for line in _yaml_item(element, f"{indent}  "))
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
        scripts = load_json((folder / "package.json").read_bytes(), repeats=True).get("scripts", {})
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
