"""Real agents as users of whet: they call the tools of `whet mcp`, and Claude Code takes the plug-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import CLAUDE_CODE, CODEX, Program, installed
from stage import Played, Stage

ROOT = Path(__file__).resolve().parents[2]
SERVER = ["-m", "whet", "mcp", "--project", "{project}"]
# What a model asks first: Claude Code starts before its servers are ready, and Codex shows tools only after a search.
SEARCHES: dict[str, list[dict[str, Any]]] = {
    CLAUDE_CODE.agent: [{"call": "WaitForMcpServers"}],
    CODEX.agent: [{"call": "tool_search", "args": {"query": "whet run suites failures"}}],
}
# Plug-ins of this form are those of Claude Code.
of_claude_code = pytest.mark.parametrize("program", [CLAUDE_CODE], indirect=True, ids=["claude-code"])
NAMES = {CLAUDE_CODE.agent: "mcp__whet__{}", CODEX.agent: "{}"}


def served(stage: Stage) -> Path:
    """A project of the agent's user, with a suite of which one case fails."""
    folder = stage.project.outside / "served"
    shutil.copytree(ROOT / "skills" / "whet" / "evals" / "files" / "project", folder)
    return folder


def arguments(program: Program, folder: Path) -> str:
    """The arguments that give the agent the server."""
    args = [part.format(project=folder) for part in SERVER]
    if program.agent == CODEX.agent:
        # Required: it waits for the server before it asks the model.
        server = {"command": sys.executable, "args": args, "required": True, "startup_timeout_sec": 120}
        settings = [f"mcp_servers.whet.{key}={json.dumps(value)}" for key, value in server.items()]
        settings.append('mcp_servers.whet.env={WHET_SANDBOX="local"}')
        given = [part for setting in settings for part in ("-c", setting)]
    else:
        config = {"mcpServers": {"whet": {"command": sys.executable, "args": args, "env": {"WHET_SANDBOX": "local"}}}}
        given = ["--mcp-config", json.dumps(config), "--strict-mcp-config"]
    return f"args = {json.dumps(given)}"


def play(stage: Stage, folder: Path, *calls: tuple[str, dict[str, Any]]) -> Played:
    """Let the agent call these tools one after the other, and answer."""
    stage.agent = arguments(stage.program, folder)
    name = NAMES[stage.program.agent]
    steps = [{"call": name.format(tool), "args": args} for tool, args in calls]
    return stage.play([*SEARCHES[stage.program.agent], *steps, {"say": "All is ready."}])


def test_an_agent_runs_a_suite_and_reads_its_failures(stage: Stage) -> None:
    folder = served(stage)
    run = {"path": "greet", "max_minutes": 5, "trials": 1, "cases": ["customer"]}

    played = play(stage, folder, ("run", run), ("failures", {}))

    assert played.verdict == ("passed", None), played.story
    results = json.loads((folder / ".whet" / "runs" / "latest" / "results.json").read_bytes())
    assert results["counts"]["failed"] == 1
    assert "Yours sincerely" in played.requests[-1].text, played.story


def test_an_agent_is_refused_what_lies_outside_and_reads_why(stage: Stage) -> None:
    folder = served(stage)

    played = play(stage, folder, ("validate", {"path": "/etc/passwd"}), ("run", {"path": "greet"}))

    assert "is outside of the project" in played.requests[-1].text, played.story
    assert "a run needs a bound: max_cost_usd, max_minutes or both" in played.requests[-1].text
    assert not (folder / ".whet").exists()


@of_claude_code
def test_claude_code_loads_the_skill_and_the_server_of_the_plug_in(stage: Stage, checkout: Path) -> None:
    stage.agent = f"args = {json.dumps(['--plugin-dir', str(checkout)])}"

    played = stage.play([{"load_skill": "whet:whet"}, {"call": "WaitForMcpServers"}, {"say": "All is ready."}])

    assert played.verdict == ("passed", None), played.story
    transcript = played.outcome.artifact("a", "transcript.jsonl").read_text()
    records = [json.loads(line) for line in transcript.splitlines()]
    init = next(record for record in records if record.get("subtype") == "init")
    assert "whet:whet" in init["skills"]
    assert "plugin:whet:whet" in [server["name"] for server in init["mcp_servers"]]
    assert "Never call a version better because its rate is higher" in played.requests[-1].text


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the plug-in has of this repository."""
    folder = tmp_path / "checkout"
    for name in (".claude-plugin", "skills"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


def claude(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Claude Code that asks no model."""
    program = installed(CLAUDE_CODE) / CLAUDE_CODE.command
    quiet = dict.fromkeys(("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY"), "1")
    env = {"PATH": os.environ["PATH"], "HOME": str(home), **quiet}
    return subprocess.run([program, *arguments], env=env, cwd=home, capture_output=True, text=True, check=False)


@of_claude_code
@pytest.mark.usefixtures("program")
def test_claude_code_finds_nothing_wrong_with_the_plug_in_and_its_marketplace(checkout: Path, tmp_path: Path) -> None:
    for place in (checkout, checkout / ".claude-plugin" / "plugin.json"):
        done = claude(tmp_path, "plugin", "validate", "--strict", str(place))

        assert done.returncode == 0, done.stdout + done.stderr


@of_claude_code
@pytest.mark.usefixtures("program")
def test_the_plug_in_can_be_installed_from_a_checkout(checkout: Path, tmp_path: Path) -> None:
    added = claude(tmp_path, "plugin", "marketplace", "add", str(checkout))
    placed = claude(tmp_path, "plugin", "install", "whet@whet")
    listed = claude(tmp_path, "plugin", "list")

    assert (added.returncode, placed.returncode) == (0, 0), added.stdout + added.stderr + placed.stdout + placed.stderr
    assert "whet@whet" in listed.stdout
