"""What it costs to say hello: `whet --version` and `whet --help` beside `python -c pass`, in turns."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from projects import whet

ROUNDS = 30


def measure() -> dict[str, float]:
    """Medians, and their ratios to the bare interpreter."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "whet --version": whet("--version"),
        "whet --help": whet("--help"),
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, argv in commands.items():
            began = time.perf_counter()
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - began)
    bare = median(times["python -c pass"])
    return {
        "python -c pass, ms": bare * 1000,
        "whet --version, ratio (at most 5)": median(times["whet --version"]) / bare,
        "whet --help, ratio (at most 6)": median(times["whet --help"]) / bare,
    }
