"""What a bench suite costs beside its agents: 1,000 cases with five file expectations each, in CPU time of whet's own.

The agent is the smallest program there is, so nearly all that is spent is whet's; what it spends itself is not counted.
Counted are the command and the workers that it forks, each by the kernel's own figures: the command's when it has
ended, those of a worker as last seen, because nobody waits for workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from statistics import median

from projects import environment, folder, whet

CASES, ROUNDS = 1000, 3
_LOOK_EVERY_S = 0.05
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
SETTINGS = """\
[run]
sandbox = "local"
reporters = ["bench=results.json"]

[runners.quick.agent]
type = "command"
command = "/bin/true"
"""
EXPECT = [
    "file:README.md exists",
    "file:src/a.ts contains 'export function'",
    r"file:src/a.ts matches /export\s+function\s+\w+/",
    "no-file:src/old.ts",
    "file:package.json contains 'test'",
]


def write_project(where: Path) -> Path:
    """A small project with its suite; the suite's path."""
    (where / ".git").mkdir(parents=True)
    (where / "src").mkdir()
    (where / "bench").mkdir()
    (where / "README.md").write_text("# A project\n")
    (where / "package.json").write_text('{"scripts": {"test": "node --test"}}\n')
    (where / "src/a.ts").write_text("export function answer(): number {\n  return 42;\n}\n" * 20)
    (where / "whet.toml").write_text(SETTINGS)
    cases = [{"id": f"case-{number}", "prompt": "Do nothing.", "expect": EXPECT} for number in range(CASES)]
    suite = where / "bench/suite.json"
    suite.write_text(json.dumps({"name": "thousand", "cases": cases}))
    return suite


def own_ms(argv: list[str], where: Path) -> float:
    """The CPU time of a command and of the processes that it forks without becoming another program."""
    process = subprocess.Popen(argv, cwd=where, env=environment(where.parent), stdout=subprocess.DEVNULL)
    program = _program(process.pid)
    workers: dict[int, float] = {}
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        for pid in _below(process.pid):
            if _program(pid) == program:
                workers[pid] = max(_spent_ms(pid), workers.get(pid, 0.0))
        time.sleep(_LOOK_EVERY_S)
    spent = _spent_ms(process.pid) + sum(workers.values())
    if process.wait() != 0:
        raise RuntimeError(f"{argv} ended with {process.returncode}")
    return spent


def _below(pid: int) -> list[int]:
    """All that a process has started, and what that has."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return children + [each for child in children for each in _below(child)]


def _program(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return ""


def _spent_ms(pid: int) -> float:
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(facts[11]) + int(facts[12])) * _TICK_MS


def measure() -> dict[str, float]:
    """Medians over the rounds."""
    spent = []
    for _ in range(ROUNDS):
        with folder() as base:
            suite = write_project(base / "project")
            spent.append(own_ms(whet("bench", str(suite), "--concurrent", "4"), base / "project"))
    return {"own CPU per case, ms": median(spent) / CASES, "should be under, ms": 5.0}


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:40} {value:10.2f}")
