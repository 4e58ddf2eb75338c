"""What a trial of a task costs beside `podman run --rm IMAGE true`, and how long it takes to plan thousands of tasks.

    python bench/containers.py IMAGE [--trials N]     warm trials of one task, with and without keep_warm
    python bench/containers.py --plan 3566            plan a folder of so many tasks

Both parts of a ratio are measured in turn in the same run, because a machine is not equally busy all the time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

TASK = """\
schema_version = "1.4"
[metadata]
difficulty = "easy"
tags = ["bench"]
[agent]
timeout_sec = 600
[verifier]
timeout_sec = 600
[environment]
build_timeout_sec = 600
cpus = 1
memory_mb = 2048
network_mode = "no-network"
"""
TESTS = "#!/bin/sh\ntest -e answer.txt && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"
SETTINGS = '[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n'


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", nargs="?")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--plan", type=int)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="whet-bench-") as name:
        folder = Path(name)
        (folder / "whet.toml").write_text(SETTINGS)
        if asked.plan:
            plan(folder, asked.plan)
        elif asked.image:
            compare(folder, asked.image, asked.trials)
        else:
            parser.error("name an image, or --plan")


def write_task(folder: Path, image: str, more: str = "") -> None:
    """Write a task as public benchmarks have them."""
    files = {
        "task.toml": TASK,
        "instruction.md": "touch answer.txt\n",
        "environment/Dockerfile": f"FROM {image}\nWORKDIR /app\n{more}",
        "tests/test.sh": TESTS,
        "tests/test_outputs.py": "def test_answer():\n    assert True\n",
        "solution/solve.sh": "#!/bin/sh\ntouch answer.txt\n",
    }
    for inner, text in files.items():
        path = folder / inner
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def plan(folder: Path, count: int) -> None:
    """Say how long a dry run of *count* tasks takes."""
    for number in range(count):
        write_task(folder / "tasks" / f"task-{number:05}", "debian", f"RUN echo {number}\n")
    began = time.monotonic()
    done = subprocess.run(
        (sys.executable, "-m", "whet", "run", "tasks", "--dry-run"), cwd=folder, capture_output=True, check=True
    )
    took_s = time.monotonic() - began
    print(f"{count} tasks planned in {took_s:.1f} s, {len(done.stdout.splitlines())} lines")


def compare(folder: Path, image: str, trials: int) -> None:
    """Say what a warm trial costs, as a ratio to an empty container."""
    write_task(folder / "tasks" / "one", image)
    warm(folder, 1)
    empty, cold, kept = [], [], []
    for _ in range(2):
        empty += [bare(image) for _ in range(trials)]
        cold += warm(folder, trials)
        kept += warm(folder, trials, "true")
    base = statistics.median(empty)
    print(f"podman run --rm IMAGE true   {base:.2f} s")
    for name, found in (("a warm trial", cold), ("with keep_warm", kept)):
        print(f"{name:28} {statistics.median(found):.2f} s   {statistics.median(found) / base:.2f} times")


def bare(image: str) -> float:
    """Return how long an empty container takes."""
    began = time.monotonic()
    podman = shutil.which("podman") or "podman"
    subprocess.run((podman, "run", "--rm", "--network", "none", image, "true"), check=True, capture_output=True)
    return time.monotonic() - began


def warm(folder: Path, trials: int, keep: str = "false") -> list[float]:
    """Run trials of one task one after the other; return what each of them took from the end of the one before."""
    env = {**os.environ, "WHET_KEEP_WARM": keep}
    argv = (sys.executable, "-m", "whet", "run", "tasks", "--trials", str(trials), "--max-parallel", "1")
    subprocess.run(argv, cwd=folder, env=env, check=True, capture_output=True)
    lines = (folder / ".whet/runs/latest/journal.jsonl").read_text().splitlines()
    ends = [json.loads(line) for line in lines]
    times = [found for line in ends if (found := _ended(line)) is not None]
    return [after - before for before, after in pairwise(times)] or times


def _ended(line: dict[str, object]) -> float | None:
    """Return when the trial of a line ended."""
    result = line.get("result", line)
    if not isinstance(result, dict) or "started_at" not in result:
        return None
    return datetime.fromisoformat(str(result["started_at"])).timestamp() + float(str(result["duration_s"]))


if __name__ == "__main__":
    main()
