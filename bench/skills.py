"""What `whet eval` adds to a skill that answers at once: 1,000 tasks, 4 at a time, beside a bare asyncio loop.

The loop spawns the same program for each task, hands it the request and reads its answer. Measured in turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from projects import environment, folder, whet

TASKS, AT_ONCE, ROUNDS = 1000, 4, 3
# As most skills are: a Python program without anything around it.
SKILL = """\
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"result": 1}}), flush=True)
"""
BARE = f"""\
import asyncio, json, subprocess, sys

async def one(limit, number):
    async with limit:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "skill.py", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        request = json.dumps({{"jsonrpc": "2.0", "method": "invoke", "params": {{"n": number}}, "id":1}},
                             separators=(",", ":"))
        out, _ = await process.communicate(request.encode() + b"\\n")
        assert json.loads(out)["result"] == {{"result": 1}}

async def main():
    limit = asyncio.Semaphore({AT_ONCE})
    await asyncio.gather(*(one(limit, number) for number in range({TASKS})))

asyncio.run(main())
"""


def write_skill(base: Path, name: str, *, keep_alive: bool) -> Path:
    root = base / name
    root.mkdir()
    (root / "skill.py").write_text(SKILL)
    program = f"{sys.executable} skill.py"
    about = {"id": name, "name": name, "version": "1.0.0", "adapterType": "subprocess", "entrypoint": program}
    (root / "skill.json").write_text(json.dumps(about))
    (root / "adapter.config.json").write_text(json.dumps({"keepAlive": keep_alive}))
    return root


def measure() -> dict[str, float]:
    """Medians over the rounds, with start-up."""
    with folder() as base:
        tasks = [
            {"id": f"t{number}", "inputData": {"n": number}, "expectedOutput": {"type": "exact", "value": 1}}
            for number in range(TASKS)
        ]
        (base / "tasks.json").write_text(json.dumps(tasks))
        commands: dict[str, tuple[list[str], Path]] = {}
        for name, keep_alive in (("anew", False), ("kept", True)):
            root = write_skill(base, name, keep_alive=keep_alive)
            argv = ("eval", "--skills", str(root), "--tasks", "tasks.json", "--concurrency", str(AT_ONCE))
            commands[name] = (whet(*argv, "--min-completion", "1", "--format", "json", "--sandbox", "local"), base)
        commands["bare"] = ([sys.executable, "-c", BARE], base / "anew")
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, (argv, where) in commands.items():
                began = time.perf_counter()
                subprocess.run(argv, cwd=where, env=environment(base), check=True, stdout=subprocess.DEVNULL)
                times[name].append(time.perf_counter() - began)
    bare, anew, kept = (median(times[name]) for name in ("bare", "anew", "kept"))
    return {
        "bare loop, 1,000 tasks, s": bare,
        "a process for each call, s": anew,
        "ratio (at most 3)": anew / bare,
        "kept alive, s": kept,
        "times faster than the loop (at least 5)": bare / kept,
    }


if __name__ == "__main__":
    print(measure())
