"""The doctor: what is there, what is not, and what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from project import Project

from whet import plugins
from whet.agents.contract import Task
from whet.agents.known import KnownAgent, known_agents
from whet.model.run import Runner

CLAUDE = """
[runners.claude.agent]
type = "command"
command = "claude"
"""


def program(project: Project, name: str, text: str) -> dict[str, str]:
    """A program on a PATH that has little else; the environment that finds it."""
    project.write(f"bin/{name}", f"#!/bin/sh\n{text}\n", mode=0o755)
    return {"PATH": f"{project.root / 'bin'}:{os.environ['PATH']}"}


def findings(stdout: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(item["part"], item["name"]): item for item in json.loads(stdout)["findings"]}


def test_an_installed_agent_is_shown_with_its_version_and_the_name_of_its_login(project: Project) -> None:
    env = program(project, "claude", "echo '9.8.7 (Fake Code)'") | {"ANTHROPIC_API_KEY": "sk-never-shown"}

    outcome = project.whet("doctor", env=env)

    assert "claude-code" in outcome.stdout
    assert "9.8.7 (Fake Code)" in outcome.stdout
    assert "could log in with ANTHROPIC_API_KEY" in outcome.stdout
    assert "sk-never-shown" not in outcome.stdout + outcome.stderr


def test_a_login_file_counts_by_its_name(project: Project) -> None:
    env = program(project, "codex", "echo 1.0")
    login = project.root.parent / "home" / ".codex" / "auth.json"
    login.parent.mkdir()
    login.write_text("hush")

    found = findings(project.whet("doctor", "--json", env=env).stdout)

    assert "could log in with ~/.codex/auth.json" in found["agents", "codex"]["message"]


def test_an_agent_that_is_not_there_is_no_problem_unless_a_runner_needs_it(project: Project) -> None:
    alone = project.whet("doctor", env=program(project, "codex", "echo 1.0"))
    project.settings(CLAUDE.replace('"claude"', '"no-such-agent"'))

    needed = project.whet("doctor")

    assert alone.code == 0
    assert needed.code == 1
    assert 'there is no program "no-such-agent"' in needed.stdout
    assert "install it, or correct `command` of this runner" in needed.stdout


def test_without_a_runner_and_without_an_agent_nothing_can_run(project: Project) -> None:
    outcome = project.whet("doctor")

    assert outcome.code == 1
    assert "no runners are configured, and no agent is installed" in outcome.stdout


def test_a_runner_that_can_start_makes_exit_code_0(project: Project) -> None:
    project.settings(CLAUDE.replace('"claude"', '"sh"'))

    outcome = project.whet("doctor", "--json")

    assert outcome.code == 0
    assert findings(outcome.stdout)["runners", "claude"]["state"] == "ok"


def test_the_command_of_a_runner_is_never_run(project: Project) -> None:
    project.settings(CLAUDE.replace('"claude"', '"./agent.sh"'))
    project.write("agent.sh", "#!/bin/sh\ntouch {outside}/ran\n", mode=0o755)

    outcome = project.whet("doctor")

    assert outcome.code == 0
    assert not (project.outside / "ran").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 4", "ended with exit code 4"),
        ("printf '\\033[31mred\\n'; yes | head -c 1000000", "red"),
        ("echo a word that is much longer than anybody would call a version, and goes on", "\u2026"),
    ],
)
def test_what_a_program_says_of_itself_is_not_trusted(project: Project, text: str, said: str) -> None:
    env = program(project, "gemini", text)

    outcome = project.whet("doctor", env=env)

    assert said in outcome.stdout
    assert "\033" not in outcome.stdout
    assert all(len(line) < 400 for line in outcome.stdout.splitlines())


def test_wrong_settings_are_problems_like_any_other(project: Project) -> None:
    project.settings("[run]\ntrails = 3\n")

    outcome = project.whet("doctor")

    assert outcome.code == 1
    assert 'run.trails: is not a known field (did you mean "trials"?)' in outcome.stdout


def test_an_unknown_agent_is_answered_with_the_nearest(project: Project) -> None:
    project.settings('[runners.x.agent]\ntype = "scriptd"\n')

    outcome = project.whet("doctor")

    assert outcome.code == 1
    assert 'did you mean "scripted"?' in outcome.stdout


def test_the_cases_of_a_suite_are_asked_for_what_their_agents_need(project: Project) -> None:
    project.suite('suite = [Case(id="c", prompt="x", check=ok)]')
    project.settings('[runners.x.agent]\ntype = "scripted"\nscript = "steps"\n')
    project.write("steps/another.toml", "")

    outcome = project.whet("doctor", "suite.py")

    assert outcome.code == 1
    assert "c.toml: there is no such file" in outcome.stdout


def test_the_machine_is_described_with_what_to_do(project: Project) -> None:
    found = findings(project.whet("doctor", "--json").stdout)

    names = {name for part, name in found if part == "machine"}
    assert {"python", "bubblewrap", "user namespaces", "/proc", "overlay workspaces", "temporary space", "git"} <= names
    assert all(item["hint"] for item in found.values() if item["state"] == "problem")


@pytest.mark.parametrize("agent", tuple(known_agents()), ids=lambda agent: agent.type)
def test_the_doctor_looks_for_the_program_that_a_run_starts(tmp_path: Path, agent: KnownAgent) -> None:
    facts: dict[str, Any] = {"case": "c", "suite_dir": tmp_path, "settings_dir": None, "environ": {}}
    folders: dict[str, Any] = {name: tmp_path / name for name in ("workspace", "home", "temporary")}
    task = Task(prompt="go", runner=Runner(id="r", agent=agent.type), **facts, **folders)

    asked = plugins.find("agents", agent.type)().command(task)

    assert asked.argv[0] == agent.program


def test_an_agent_that_needs_another_program_is_told_so(project: Project) -> None:
    project.write("bin/opencode", "#!/bin/sh\necho 1.0\n", mode=0o755)
    project.settings('[runners.oc.agent]\ntype = "opencode"\n')
    path = {"PATH": str(project.root / "bin")}

    without = project.whet("doctor", "--json", env=path)
    project.write("bin/rg", "#!/bin/sh\n", mode=0o755)
    with_it = project.whet("doctor", "--json", env=path)

    said = [item for item in json.loads(without.stdout)["findings"] if item["hint"] == "install rg"]
    assert [(item["state"], item["message"]) for item in said] == [
        ("warning", "opencode cannot load skills without ripgrep")
    ]
    assert "install rg" not in with_it.stdout
