"""The real `claude plugin eval` and whet over the same suites: each grader decides the same in each run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from programs import CLAUDE_CODE, KEY, NotInstalled, Program, installed, search_path
from project import Project

from whet.testing.scripted_model.script import Step, read_step
from whet.testing.scripted_model.server import ModelServer, Request

# The version that agents are tested with has no `plugin eval`.
WITH_PLUGIN_EVAL = replace(CLAUDE_CODE, version="2.1.327")
PATIENCE_S = 400
TOOLS = "[Read, Write, Bash, Skill, Glob]"
MANIFEST = {"name": "greeter", "version": "1.0.0", "description": "Greets."}
SKILL = "---\nname: greet\ndescription: Greets people.\n---\nGREET-BODY: say hello.\n"


def _write(path: str, text: str) -> dict[str, Any]:
    return {"write": path, "text": text}


# What the model does in each case.
PLAYS: dict[str, list[dict[str, Any]]] = {
    "text": [{"say": "Hello Ann,\nhello Bob."}],
    "files": [
        {"say": "First I write hello.", "tools": [_write("notes.txt", "inside\n"), _write("a/b.txt", "deep\n")]},
        {"say": "All is written."},
    ],
    "tools": [{"write": "x.txt", "text": "é"}, {"read": "x.txt"}, {"read": "x.txt"}, {"say": "done"}],
    "skill": [{"call": "Skill", "args": {"skill": "greeter:greet"}}, {"say": "hello"}],
}


def _grader(**fields: Any) -> str:
    lines = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in fields.items())
    return f"---\n{lines}---\n"


def _regex(pattern: str, **fields: Any) -> str:
    return _grader(type="regex", pattern=pattern, **fields)


def _file(path: str) -> dict[str, str]:
    return {"source": "file", "path": path}


GRADERS: dict[str, dict[str, str]] = {
    "text": {
        "contains": _regex("hello Bob", weight=2),
        "case-matters": _regex("HELLO"),
        "flag-i": _regex("HELLO", flags="i"),
        "flag-m": _regex("^hello", flags="m"),
        "without-m": _regex("^hello"),
        "flag-s": _regex("Ann.*Bob", flags="s"),
        "without-s": _regex("Ann.*Bob"),
        "flag-y": _regex("hello", flags="y"),
        "flag-y-at-start": _regex("Hello", flags="y"),
        "flag-u": _regex("\\u{48}ello", flags="u"),
        "absent": _regex("goodbye", match="not_contains"),
        "not-absent": _regex("hello", match="not_contains"),
        "count-2": _regex("hello", flags="i", match="count:2"),
        "count-1": _regex("hello", flags="i", match="count:1"),
        "count-0": _regex("goodbye", match="count:0"),
        "inline-flag": _regex("(?i)hello"),
        "inline-flag-absent": _regex("(?i)goodbye", match="not_contains"),
        "look-behind": _regex("(?<=hello )Bob"),
        "in-trace": _regex('"type":"assistant"', target="trace"),
        "no-files": _regex("^$", target="files"),
        "never-called": _grader(type="tool_used", tool="Bash"),
        "never-called-allowed": _grader(type="tool_used", tool="Bash", min=0, max=0),
        "max-0-without-min": _grader(type="tool_used", tool="Bash", max=0),
        "both-arms": _regex("Ann", arm="both"),
        "body": "---\ntype: regex\n---\n\nhello\\s+Bob\n\n",
    },
    "files": {
        "paths": _regex("^a/b\\.txt$", flags="m", target="files"),
        "paths-in-order": _regex("^a/b\\.txt\\nnotes\\.txt$", target="files"),
        "inside": _regex("^inside$", flags="m", target=_file("notes.txt")),
        "inside-absent": _regex("outside", match="not_contains", target=_file("notes.txt")),
        "missing": _regex("x", target=_file("no.txt")),
        "missing-absent": _regex("x", match="not_contains", target=_file("no.txt")),
        "missing-count": _regex("x", match="count:0", target=_file("no.txt")),
        "top-only": _grader(type="file_exists", path="*.txt"),
        "b-at-top": _grader(type="file_exists", path="b.txt"),
        "any-folder": _grader(type="file_exists", path="**/b.txt"),
        "any-folder-or-none": _grader(type="file_exists", path="**/notes.txt"),
        "question-mark": _grader(type="file_exists", path="a?b.txt"),
        "stars": _grader(type="file_exists", path="**"),
        "none": _grader(type="file_exists", path="*.md", exists=False),
        "not-none": _grader(type="file_exists", path="notes.txt", exists=False),
        "last-message": _regex("written"),
        "not-the-first-message": _regex("First"),
        "first-in-trace": _regex("First I write", target="trace"),
    },
    "tools": {
        "reads": _grader(type="tool_used", tool="Read", min=2, max=2),
        "too-many": _grader(type="tool_used", tool="Read", max=1),
        "too-few": _grader(type="tool_used", tool="Read", min=3),
        "exact-name": _grader(type="tool_used", tool="read"),
        "input": _grader(type="tool_used", tool="Write", input_match='"content":"é"'),
        "other-input": _grader(type="tool_used", tool="Write", input_match="nothing"),
        "in-order": _grader(type="tool_order", before="Write", after="Read"),
        "out-of-order": _grader(type="tool_order", before="Read", after="Write"),
        "never-first": _grader(type="tool_order", before="Bash", after="Read"),
        "never-last": _grader(type="tool_order", before="Read", after="Bash"),
        "with-inputs": _grader(
            type="tool_order",
            before={"tool": "Write", "input_match": "x.txt"},
            after={"tool": "Read", "input_match": "x.txt"},
        ),
    },
    "skill": {
        "fired": _grader(type="tool_used", tool="Skill", input_match="greeter:greet"),
        "fired-both": _grader(type="tool_used", tool="Skill", arm="both"),
        "with-only": _regex("hello", arm="with-only"),
        "says": _regex("hello"),
    },
}
MIXED = """\
schema_version: "1.1"
name: mixed
execution:
  max_turns: 4
graders:
  - {name: from-yaml, type: regex, pattern: hello, flags: i}
"""
SCAFFOLDED = """\
schema_version: "1.1"
name: scaffolded
runs: 1
execution:
  prompt: PLAY-files
  allowed_tools: [Write]
  env: {EVAL_GREETING: hello}
context:
  scaffold_script: make.sh
graders:
  - {name: is-there, type: regex, pattern: from the fixture, target: {source: file, path: seed.txt}}
  - {name: was-there-before, type: file_exists, path: seed.txt}
  - {name: not-created, type: file_exists, path: seed.txt, exists: false}
  - {name: created, type: file_exists, path: a/b.txt, weight: 0.5}
"""


class _Model(ModelServer):
    """Plays the case that the prompt names; how often it has answered says which step is next."""

    def _next(self, request: Request) -> tuple[Request, Step | str]:
        case = re.search(r"PLAY-(\w+)", request.text)
        if case is None:
            return replace(request, step=0), Step(say="Nothing to play.")
        messages = request.body.get("messages") or ()
        step = sum(message.get("role") == "assistant" for message in messages)
        steps = PLAYS[case[1]]
        return replace(request, step=step), read_step(steps[min(step, len(steps) - 1)])


@contextmanager
def _model() -> Iterator[str]:
    server = _Model({})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.end()
        thread.join()


@pytest.fixture
def claude(monkeypatch: pytest.MonkeyPatch) -> Program:
    """The version of Claude Code that has `plugin eval`."""
    monkeypatch.setattr("project.PATIENCE_S", PATIENCE_S)
    try:
        installed(WITH_PLUGIN_EVAL)
    except NotInstalled as error:
        (pytest.fail if os.environ.get("WHET_CI_STRICT") == "1" else pytest.skip)(str(error))
    return WITH_PLUGIN_EVAL


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path / "project")
    yield project
    project.clear()


def _plugin(project: Project) -> Path:
    """Write the plug-in with one case for each play, and one in both files."""
    project.write("greeter/.claude-plugin/plugin.json", json.dumps(MANIFEST))
    project.write("greeter/skills/greet/SKILL.md", SKILL)
    for case, graders in GRADERS.items():
        front = f"---\nruns: 1\nmax_turns: 8\nallowed_tools: {TOOLS}\n---\n"
        project.write(f"greeter/evals/{case}/prompt.md", f"{front}\nPLAY-{case}\n")
        for name, text in graders.items():
            project.write(f"greeter/evals/{case}/graders/{name}.md", text)
    project.write("greeter/evals/group/mixed/case.yaml", MIXED)
    project.write("greeter/evals/group/mixed/prompt.md", "---\nruns: 1\n---\nPLAY-text\n")
    project.write("greeter/evals/group/mixed/graders/from-file.md", _regex("hello Bob"))
    project.write("greeter/evals/group/mixed/graders/README.md", "About these graders.\n")
    project.write("greeter/evals/scaffolded/case.yaml", SCAFFOLDED)
    project.write("greeter/evals/scaffolded/make.sh", 'cp "$(dirname "$0")/fixture.txt" seed.txt\n')
    project.write("greeter/evals/scaffolded/fixture.txt", "from the fixture\n")
    return project.root / "greeter"


def _theirs(claude: Program, plugin: Path, url: str, home: Path) -> dict[str, Any]:
    """Run `claude plugin eval`, and return what it writes."""
    home.mkdir()
    result = home / "result.json"
    argv = [str(installed(claude) / "claude"), "plugin", "eval", str(plugin), "--trust-plugin", "--no-publish"]
    argv += ["--allow-tools", "Write", "--scaffold", "--model", claude.model, "--json", str(result)]
    env = {"PATH": search_path(claude), "HOME": str(home), "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY}
    env |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}
    env |= {"IS_SANDBOX": "1"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=home)
    assert result.is_file(), done.stdout + done.stderr
    document: dict[str, Any] = json.loads(result.read_bytes())
    return document


def _ours(claude: Program, project: Project, url: str) -> dict[str, Any]:
    """Run whet with its reporter of that form, and return what it writes."""
    project.settings(
        f"""
        [runners.real.agent]
        type = "claude-code"
        model = "{claude.model}"
        [runners.real.agent.env]
        WHET_TEST = "{project.token}"
        """
    )
    env = {"PATH": search_path(claude), "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY}
    done = project.whet("run", "greeter", "--reporter", "plugin-eval=out", env=env)
    written = project.root / "out/aggregate-result.json"
    assert written.is_file(), done.stdout + done.stderr
    document: dict[str, Any] = json.loads(written.read_bytes())
    return document


def _verdicts(document: dict[str, Any]) -> dict[str, Any]:
    """Return whether each grader held in each arm, and whether it counts."""
    return {
        f"{case['name']} {arm} {grader['name']}": (grader["passed"], grader["withOnly"], grader["scored"])
        for case in document["cases"]
        for arm, runs in case["arms"].items()
        for run in runs
        for grader in run["graders"]
    }


def _scores(document: dict[str, Any]) -> dict[str, Any]:
    names = ("score", "passRate", "scoreWithout", "passRateWithout", "delta")
    return {
        case["name"]: {name: pytest.approx(case["aggregates"][name]) for name in names} for case in document["cases"]
    }


def _facts(document: dict[str, Any]) -> dict[str, Any]:
    """Return what both write of a case and its graders besides."""
    names = ("dir", "source", "promptMarkdown", "runsPerCase", "timeoutSeconds", "maxTurns", "graders")
    return {case["name"]: {name: case[name] for name in names} for case in document["cases"]}


def test_each_grader_decides_the_same_as_in_claude_plugin_eval(
    claude: Program, project: Project, tmp_path: Path
) -> None:
    plugin = _plugin(project)

    with _model() as url:
        theirs = _theirs(claude, plugin, url, tmp_path / "theirs")
        ours = _ours(claude, project, url)

    assert _verdicts(ours) == _verdicts(theirs)
    assert _facts(ours) == _facts(theirs)
    assert {name: case["aggregates"] for name, case in _by_name(ours).items()} == _scores(theirs)
    assert ours["aggregates"] == pytest.approx(theirs["aggregates"])
    assert ours["suite"]["plugins"] == theirs["suite"]["plugins"]
    assert ours["claudeVersion"] == theirs["claudeVersion"]
    # All of theirs is in ours, so what reads the one reads the other.
    assert theirs.keys() <= ours.keys()


def _by_name(document: dict[str, Any]) -> dict[str, Any]:
    return {case["name"]: case for case in document["cases"]}
