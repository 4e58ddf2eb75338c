"""A project with runs that are worth looking at, made by real runs of an agent that prints events."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

PATIENCE_S = 300
HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
TURNED = "safe\u202etxt.exe"

AGENT = """
import datetime, json, os, pathlib, sys

careful, text = sys.argv[1] == "careful", sys.argv[2] if len(sys.argv) > 2 else None
now = datetime.datetime(2026, 1, 5, 9, 0, tzinfo=datetime.timezone.utc)


def emit(type_, take, **fields):
    global now
    now += datetime.timedelta(seconds=take)
    print(json.dumps({"type": type_, "at": now.isoformat(), **fields}), flush=True)


def call(id, tool, args, output, ok=True, inside=()):
    emit("tool_call", 1, id=id, tool=tool, args=args)
    for kind, fields in inside:
        emit(kind, 1, **fields)
    emit("tool_result", 1, id=id, tool=tool, output=output, ok=ok)


def command(line, code):
    return ("command", {"command": line, "exit_code": code})


emit("session_started", 0, model=text or "large-2", version="1.0", skills=["changelog"])
emit("message", 1, role="user", text=os.environ["WHET_PROMPT"])
emit("message", 2, role="assistant", phase="thinking", text=text or "I look at the log first.")
emit("message", 1, role="assistant", phase="commentary", text=text or "I read **the log**, then write `CHANGELOG.md`.")
if careful:
    call("s", "Skill", {"skill": "changelog"}, "loaded", inside=[("skill_signal", {"skill": text or "changelog"})])
line = text or "git describe"
call("a", "Bash", {"command": line}, text or "fatal: no names found", False, [command(line, 128)])
call("b", "Read", {"file_path": "README.md"}, text or "# notes", True, [("file_read", {"path": text or "README.md"})])
emit("usage", 0, input_tokens=1200, output_tokens=80, cost_usd=0.01)
emit("tool_call", 1, id="t", tool="Task", args={"description": text or "Look for breaking changes"})
call("t1", "Bash", {"command": "pytest -q"}, "1 failed", False, [command("pytest -q", 1)])
emit("tool_result", 1, id="t", tool="Task", output="One test fails.", ok=True)
good = careful or os.environ["WHET_CASE_ID"] == "easy"
pathlib.Path("CHANGELOG.md").write_text("## 1.4.0\\n" if good else "- various fixes\\n")
pathlib.Path("README.md").write_text("# notes\\n\\nA tool that takes and keeps notes.\\n" + (text or ""))
if text:
    pathlib.Path("<b>bold.txt").write_text(text)
    print(text, file=sys.stderr)
edit = ("file_edit", {"path": text or "CHANGELOG.md"})
call("w", "Write", {"file_path": "CHANGELOG.md", "content": text or "notes"}, "ok", True, [edit])
if text:
    emit("trouble", 1, message=text, kind="other")
emit("final_output", 1, text=text or "# Done\\n\\n| kind | entries |\\n|---|---|\\n| Added | 1 |\\n")
"""
SUITE = """
from whet import Case, Workspace, expect

workspace = Workspace(mode="isolated", template_dir="template")


def dated(session, ctx):
    assert "## 1.4.0" in ctx.read("CHANGELOG.md")


def by_the_skill(session, ctx):
    expect.skills.has(session, "changelog")


suite = [
    Case(id="easy", prompt="Write release notes.", check=dated, tags=["notes"]),
    Case(id="dated", prompt="Write dated release notes.", check=dated, tags=["notes", "dates"]),
    Case(id="skilled", prompt="Use the changelog skill.", check=by_the_skill, tags=["skills"]),
]
"""
HOSTILE_SUITE = f"""
from whet import Case, Workspace

TEXT = {HOSTILE!r}


def refuses(session, ctx):
    raise AssertionError(TEXT + "\\n" + {TURNED!r})


workspace = Workspace(mode="isolated", template_dir="template")
suite = [Case(id="odd", prompt=TEXT, check=refuses, tags=["<b>tag"]), Case(id="wide", prompt="w" * 3000, check=refuses)]
"""
SETTINGS = """
[run]
max_parallel = 2
{runners}
"""
RUNNER = """
[runners.{name}.agent]
type = "command"
command = "python3"
args = {args}
output = "events"
"""


class Project(Struct, frozen=True):
    """A project, and the ids of its runs."""

    folder: Path
    # With arms; before with the hasty agent; after with the careful one; with attacks.
    decided: str
    before: str
    after: str
    hostile: str


class Viewer(Struct, frozen=True):
    """`whet view` at an address, which ends without a slash."""

    url: str
    process: subprocess.Popen[str]


def make_project(folder: Path) -> Project:
    """Make the project, and run its suites."""
    (folder / "template").mkdir(parents=True)
    (folder / "template" / "README.md").write_text("# notes\n\nA tool that takes notes.\n")
    (folder / "agent.py").write_text(AGENT)
    (folder / "suite.py").write_text(SUITE)
    (folder / "hostile.py").write_text(HOSTILE_SUITE)
    runners = {
        "hasty": ["./agent.py", "hasty"],
        "careful": ["./agent.py", "careful"],
        "attacker": ["./agent.py", "hasty", f"{HOSTILE} {TURNED}"],
    }
    made = "".join(RUNNER.format(name=name, args=_toml(args)) for name, args in runners.items())
    (folder / "whet.toml").write_text(SETTINGS.format(runners=made))
    hostile = run_suite(folder, "hostile.py", "--runner", "attacker")
    before = run_suite(folder, "suite.py", "--runner", "hasty")
    after = run_suite(folder, "suite.py", "--runner", "careful")
    decided = run_suite(folder, "suite.py", "--trials", "3", "--arm", "old=runner:hasty", "--arm", "new=runner:careful")
    return Project(folder, decided, before, after, hostile)


def make_told(folder: Path, events: list[dict[str, object]], prompt: str = "Tell.") -> str:
    """Make a project whose agent prints these events, and return the id of its run."""
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    (folder / "agent.py").write_text("import sys\nprint(open(sys.argv[1]).read())\n")
    (folder / "suite.py").write_text(f"from whet import case\n@case(prompt={prompt!r})\ndef told(session, ctx): pass\n")
    args = ["./agent.py", str(folder / "events.jsonl")]
    (folder / "whet.toml").write_text(RUNNER.format(name="told", args=_toml(args)))
    return run_suite(folder, "suite.py")


def make_scripted(folder: Path, *scripts: list[dict[str, object]]) -> list[str]:
    """Make a project whose scripted agent plays these steps, a run each, and return the ids of the runs."""
    (folder / "suite.py").write_text("from whet import case\n@case(prompt='Play.')\ndef played(session, ctx): pass\n")
    (folder / "whet.toml").write_text('[runners.player.agent]\ntype = "scripted"\nscript = "steps.json"\n')
    runs = []
    for steps in scripts:
        (folder / "steps.json").write_text(json.dumps(steps))
        runs.append(run_suite(folder, "suite.py"))
    return runs


def _toml(args: list[str]) -> str:
    return "[" + ", ".join('"' + arg.replace("\\", "\\\\").replace('"', '\\"') + '"' for arg in args) + "]"


def run_suite(folder: Path, *arguments: str, codes: tuple[int, ...] = (0, 1)) -> str:
    """Run a suite, and return the id of the run; it ends with one of the exit *codes*."""
    argv = [sys.executable, "-m", "whet", "run", "--sandbox", "local", *arguments]
    ended = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S * 3)
    assert ended.returncode in codes, ended.stdout + ended.stderr
    return (folder / ".whet" / "runs" / "latest").resolve().name


@contextmanager
def viewed(folder: Path, *arguments: str, command: tuple[str, ...] = ("view",)) -> Iterator[Viewer]:
    """`whet view`, or another *command* that serves pages, in a folder, until the block ends."""
    argv = [sys.executable, "-m", "whet", *command, "--no-open", *arguments]
    served = subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    try:
        address, _, _ = served.stdout.readline().split()[-1].partition("#")
        yield Viewer(address.rstrip("/"), served)
    finally:
        served.terminate()
        served.wait(PATIENCE_S)
        served.stdout.close()
