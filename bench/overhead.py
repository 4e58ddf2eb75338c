"""What whet adds to a program that ends at once: 500 cases, 8 at a time, beside a bare asyncio loop.

The loop spawns the same program and reads its output. Measured in turns, so that whatever else the machine does hits
both alike. "Per trial" is the slope between 100 and 500 cases, which leaves start-up out; "whole" is the time
of all 500 with start-up. The same cases inside bubblewrap are held against those without a boundary.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from projects import environment, folder, whet, write_project

FEW, MANY, ROUNDS = 100, 500, 7
BARE = """\
import asyncio, subprocess, sys

async def one(limit):
    async with limit:
        process = await asyncio.create_subprocess_exec(
            "/bin/echo", "done", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, _ = await process.communicate()
        assert out == b"done\\n"

async def main(count):
    limit = asyncio.Semaphore(8)
    await asyncio.gather(*(one(limit) for _ in range(count)))

asyncio.run(main(int(sys.argv[1])))
"""


def seconds(argv: list[str], where: Path) -> float:
    began = time.perf_counter()
    subprocess.run(argv, cwd=where, env=environment(where), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def measure() -> dict[str, float]:
    """Medians over the rounds."""
    with folder() as base:
        bare = base / "bare.py"
        bare.write_text(BARE)
        commands = {}
        for cases in (FEW, MANY):
            suite = write_project(base / f"p{cases}", cases=cases, command="/bin/echo", args=("done",))
            commands["whet", cases] = whet("run", str(suite))
            if shutil.which("bwrap"):
                commands["bubblewrap", cases] = whet("run", str(suite), "--sandbox", "bubblewrap")
            commands["bare", cases] = [sys.executable, str(bare), str(cases)]
        times: dict[tuple[str, int], list[float]] = {key: [] for key in commands}
        for _ in range(ROUNDS):
            for key, argv in commands.items():
                times[key].append(seconds(argv, base))
    slope = {
        who: median((many - few) / (MANY - FEW) for few, many in zip(times[who, FEW], times[who, MANY], strict=True))
        for who in dict.fromkeys(who for who, _ in commands)
    }
    inside = (
        {"bubblewrap, ratio to local (at most 2)": slope["bubblewrap"] / slope["whet"]} if "bubblewrap" in slope else {}
    )
    return {
        "bare loop, ms per trial": slope["bare"] * 1000,
        "whet, ms per trial": slope["whet"] * 1000,
        "ratio per trial (at most 2)": slope["whet"] / slope["bare"],
        "bare loop, whole 500, s": median(times["bare", MANY]),
        "whet, whole 500, s": median(times["whet", MANY]),
        "ratio of the whole": median(times["whet", MANY]) / median(times["bare", MANY]),
        **inside,
    }
