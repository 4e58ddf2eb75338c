"""The skill of whet, tested as whet tests any skill: with it and without it, by the suites that lie in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from project import Project

from whet.version import __version__

ROOT = Path(__file__).resolve().parents[2]
SKILL = ROOT / "skills" / "whet"
# Stands for an agent that does what it is taught, and otherwise guesses. It looks its answers up in the skill.
AGENT = r"""
import json, os, pathlib, re, sys
prompt = sys.stdin.read()
folder = os.environ.get("WHET_SKILL")
text = "\n".join(page.read_text() for page in pathlib.Path(folder).rglob("*.md")) if folder else ""

def lookup(pattern):
    match = re.search(pattern, text)
    return match[0] if match else "I do not know."

if "suite of evals" in prompt:
    is_taught = "`evals.json` in the folder `evals`" in text
    path = pathlib.Path("greet/evals/evals.json" if is_taught else "tests.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    key = lookup(r'"expectations"').strip('"')
    cases = [{"prompt": name, key: [{"type": "contains", "value": "Dear"}]} for name in ("Ada", "Grace")]
    path.write_text(json.dumps({"evals": cases}))
    print("It is in", path)
elif "greet-v2" in prompt:
    command = lookup(r"whet run greet --arm \S+ --arm \S+ --trials 3 --max-cost 1")
    print(re.sub(r"--max-cost 1", "--max-cost 2", command))
elif "did not commit" in prompt:
    options = lookup(r"--skill SKILL --arm old=skill:git:HEAD --arm new=skill:SKILL")
    print("whet run tidy", options.replace("SKILL", "tidy"))
elif "not known yet" in prompt:
    command = re.search(r"whet run --resume \S+ --add-trials \d+", prompt)[0] if "--add-trials" in text else "Run it."
    print(command, lookup(r"Never start it again until it passes"))
elif "exit code 3" in prompt:
    print("None:", lookup(r"nothing is known about the agent"), lookup(r"whet run --resume latest"))
elif "transcript" in prompt:
    place = lookup(r"\.whet/runs/RUN/trials/CASE/RUNNER/ARM/NUMBER/ATTEMPT")
    values = {"RUN/": "latest/", "CASE": "customer", "RUNNER": "claude", "ARM": "skill", "NUMBER": "2", "ATTEMPT": "1"}
    for name, value in values.items():
        place = place.replace(name, value)
    print(place)
"""


# The same agent, which shows that it loads the skill, and knows what needs none.
SHOWING = (
    """
import json
write = print

def print(*words):
    if folder and "sentence" not in prompt:
        write(json.dumps({"type": "tool_call", "tool": "Skill", "args": {"skill": "whet:whet"}}))
    write(json.dumps({"type": "final_output", "text": " ".join(map(str, words))}))
"""
    + AGENT
    + """
elif "sentence" in prompt:
    print("The shop is open on Mondays.")
"""
)


@pytest.fixture
def plugged(project: Project) -> Project:
    """A project with the plug-in, as its marketplace has it, and that agent."""
    for name in (".claude-plugin", "skills", "evals"):
        shutil.copytree(ROOT / name, project.root / "plugin" / name)
    project.write("agent.py", SHOWING)
    runner = 'type = "command"\ncommand = "python3"\nargs = ["./agent.py"]\noutput = "events"\n'
    project.settings(f"[runners.pupil.agent]\n{runner}")
    return project


@pytest.fixture
def skilled(project: Project) -> Project:
    """A project with the skill, and that agent."""
    shutil.copytree(SKILL, project.root / "whet")
    project.write("agent.py", AGENT)
    project.settings('[runners.pupil.agent]\ntype = "command"\ncommand = "python3"\nargs = ["./agent.py"]\n')
    return project


def test_the_evals_of_the_skill_decide_that_it_helps_an_agent_that_reads_it(skilled: Project) -> None:
    ran = skilled.whet("run", "whet/evals/evals.json", "--trials", "3")
    gated = skilled.whet("gate")

    assert ran.code == 0, ran.stdout
    assert "skill is better than no_skill on pupil" in ran.stdout
    assert (gated.code, gated.stdout.splitlines()[0]) == (0, "gate: pass")


def test_the_evals_of_the_skill_notice_what_is_lost_from_it(skilled: Project) -> None:
    for page in (skilled.root / "whet").rglob("*.md"):
        page.write_text(page.read_text().replace("git:HEAD", "committed").replace("--resume", "--again"))

    ran = skilled.whet("run", "whet/evals/evals.json", "--arm", "skill")

    assert ran.code == 1
    assert {case for case, status in ran.statuses.items() if status == "failed"} == {
        "uncommitted-change",
        "errored-is-not-failed",
    }


def test_the_skill_and_its_queries_are_valid_and_the_plug_in_has_the_version_of_whet(skilled: Project) -> None:
    checked = skilled.whet("validate", "--strict", "whet")
    planned = skilled.whet("run", "whet", "--dry-run", "--runner", "pupil")
    manifest = json.loads((ROOT / ".claude-plugin" / "plugin.json").read_bytes())

    assert checked.code == 0, checked.stdout + checked.stderr
    assert "not carried over" not in checked.stderr
    assert planned.code == 0, planned.stdout + planned.stderr
    assert manifest["version"] == __version__
    assert manifest["mcpServers"]["whet"] == {"command": "whet", "args": ["mcp"]}


def test_the_evals_of_the_plug_in_decide_that_it_helps_an_agent_that_reads_it(plugged: Project) -> None:
    ran = plugged.whet("run", "plugin/evals", "--reporter", "plugin-eval=out", "--reporter", "terminal")
    document = json.loads((plugged.root / "out/aggregate-result.json").read_bytes())

    scores = {case["name"]: case["aggregates"] for case in document["cases"]}
    assert ran.code == 0, ran.stdout
    assert {name: figures["score"] for name, figures in scores.items()} == dict.fromkeys(scores, 1.0)
    assert {name for name, figures in scores.items() if figures["delta"] > 0} == set(scores) - {"other-work"}
    assert document["suite"]["plugins"][0]["name"] == "whet"


def test_the_evals_of_the_plug_in_have_every_check_and_are_found_from_its_folder(plugged: Project) -> None:
    checked = plugged.whet("validate", "--strict", "plugin/evals")
    planned = plugged.whet("run", "plugin", "--dry-run")

    assert checked.code == 0, checked.stdout + checked.stderr
    assert "6 cases with 21 checks, no problems" in checked.stdout
    assert "writes-evals" in planned.stdout, planned.stdout + planned.stderr
