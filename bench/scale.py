"""What many trials cost: agents that wait, long sessions, and 100,000 trials in one run that is then resumed.

The time of 320 agents of 200 ms, 32 at once, is held against the 2.0 s that they would take without any overhead. A
resume is timed until its first trial has ended, after the run was killed without its results.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from statistics import median

from memory import peak_mb, write_session
from projects import environment, folder, whet, write_project

AGENTS, AT_ONCE, WAIT_S, ROUNDS = 320, 32, 0.2, 3
SESSIONS = 1000
CASES, FEW, MANY = 1000, 1, 100
# So many trials are left to resume.
LEFT = 20


def _seconds(argv: list[str], where: Path) -> float:
    began = time.perf_counter()
    subprocess.run(argv, cwd=where, env=environment(where), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _waiting(base: Path) -> dict[str, float]:
    suite = write_project(base / "waiting", cases=AGENTS, command="/bin/sh", args=("-c", f"sleep {WAIT_S}; echo done"))
    times = [_seconds(whet("run", str(suite), "--max-parallel", str(AT_ONCE)), base) for _ in range(ROUNDS)]
    ideal = AGENTS / AT_ONCE * WAIT_S
    return {f"{AGENTS} agents of 200 ms, ratio (at most 1.15)": median(times) / ideal}


def _sessions(base: Path) -> dict[str, float]:
    session = base / "session.jsonl"
    write_session(session)
    suite = write_project(base / "long", cases=SESSIONS, command="/bin/cat", args=(str(session),), output="events")
    times = [_seconds(whet("run", str(suite)), base) for _ in range(ROUNDS)]
    return {f"{SESSIONS} sessions of 200 events, s (at most 3.5)": median(times)}


def _large(base: Path) -> dict[str, float]:
    """Run 100,000 trials, take the last of them and the results away, and resume."""
    suite = write_project(base / "large", cases=CASES, command="/bin/echo", args=("done",))
    memory = {}
    for trials in (FEW, MANY):
        argv = whet("run", str(suite), "--trials", str(trials), "--output-dir", str(base / f"runs-{trials}"))
        memory[f"{CASES * trials} trials, MB"] = peak_mb(argv, base)
    few, many = memory.values()
    run_dir = (base / f"runs-{MANY}" / "latest").resolve()
    journal = run_dir / "journal.jsonl"
    with journal.open("r+b") as file:
        lines = file.read().splitlines(keepends=True)
        file.truncate(sum(map(len, lines[:-LEFT])))
    (run_dir / "results.json").unlink()
    return {**memory, "ratio (1 is flat)": many / few, "a resume begins after, s (at most 3)": _begins(run_dir, base)}


def _begins(run_dir: Path, base: Path) -> float:
    journal = run_dir / "journal.jsonl"
    size, began = journal.stat().st_size, time.perf_counter()
    argv = whet("run", "--resume", str(run_dir))
    with subprocess.Popen(argv, cwd=base, env=environment(base), stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and journal.stat().st_size == size:
            time.sleep(0.002)
        begins = time.perf_counter() - began
    if process.returncode != os.EX_OK:
        raise SystemExit(f"{argv} ended with {process.returncode}")
    return begins


def measure() -> dict[str, float]:
    """Measure all three; the largest takes some minutes."""
    with folder() as base:
        return {**_waiting(base), **_sessions(base), **_large(base)}


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:50} {value:8.2f}")
