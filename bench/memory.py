"""What whet holds in memory: the same at 500 trials and at 10,000, of 200 events each."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from projects import environment, folder, whet, write_project

CASES = 500
TRIALS = (1, 20)
EVENTS = 200


def write_session(path: Path) -> None:
    """A session of 200 events, as an agent would print it."""
    with path.open("w") as file:
        for number in range(EVENTS - 1):
            event = {"type": "command", "command": f"ls part-{number}", "exit_code": 0}
            file.write(json.dumps(event) + "\n")
        file.write(json.dumps({"type": "final_output", "text": "done"}) + "\n")


def peak_mb(argv: list[str], where: Path) -> float:
    """The most memory that the command, or any one process below it, ever held."""
    process = subprocess.Popen(argv, cwd=where, env=environment(where), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{argv} ended with {process.returncode}")
    return usage.ru_maxrss / 1024


def measure() -> dict[str, float]:
    """Peak memory by number of trials."""
    found: dict[str, float] = {}
    with folder() as base:
        session = base / "session.jsonl"
        write_session(session)
        suite = write_project(base / "p", cases=CASES, command="/bin/cat", args=(str(session),), output="events")
        for trials in TRIALS:
            argv = whet("run", str(suite), "--trials", str(trials), "--output-dir", str(base / f"runs-{trials}"))
            found[f"{CASES * trials} trials of {EVENTS} events, MB"] = peak_mb(argv, base)
    few, many = found.values()
    return found | {"ratio (1 is flat)": many / few}
