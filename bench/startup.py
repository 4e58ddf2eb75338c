"""What it costs to start: `whet --version`, `--help` and a `run` of one case beside `python -c pass`, in turns."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from projects import environment, folder, whet, write_scripted

ROUNDS = 30


def measure() -> dict[str, float]:
    """Measure medians, and their ratios to the bare interpreter."""
    with folder() as base:
        suite = write_scripted(base)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "whet --version": whet("--version"),
            "whet --help": whet("--help"),
            "whet run": whet("run", str(suite)),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, argv in commands.items():
                taken[name].append(_seconds(argv, base))
    times = {name: [wall for wall, _ in both] for name, both in taken.items()}
    work = {name: median(cpu for _, cpu in both) for name, both in taken.items()}
    bare = median(times["python -c pass"])
    return {
        "python -c pass, ms": bare * 1000,
        "whet --version, ratio (at most 5)": median(times["whet --version"]) / bare,
        "whet --help, ratio (at most 6)": median(times["whet --help"]) / bare,
        "start-up of one case, ratio (at most 14)": median(times["whet run"]) / bare,
        "start-up of one case, fastest, ratio": min(times["whet run"]) / min(times["python -c pass"]),
        # On a busy machine, this says more than the time that passed.
        "start-up of one case, CPU time, ratio": work["whet run"] / work["python -c pass"],
    }


def _seconds(argv: list[str], where: Path) -> tuple[float, float]:
    """Run a command; return the time that passed, and the CPU time of it and of what it waited for."""
    began, before = time.perf_counter(), _cpu()
    subprocess.run(argv, cwd=where, env=environment(where), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began, _cpu() - before


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
