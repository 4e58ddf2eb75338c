"""What `whet eval` adds to a skill that answers at once: 1,000 tasks, 4 at a time, beside a bare asyncio loop.

The loop spawns the same program for each task, hands it the request and reads its answer. Measured in turns, for a
Python program, as most skills are, and for a shell script, which starts so quickly that hardly anything hides behind
it; without a boundary, as the loop has none, and inside bubblewrap.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from projects import environment, folder, whet

TASKS, AT_ONCE, ROUNDS = 1000, 4, 3
PYTHON = """\
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"result": 1}}), flush=True)
"""
SHELL = """\
read -r request
printf '{"jsonrpc": "2.0", "id": 1, "result": {"result": 1}}\\n'
"""
PROGRAMS = {"python": ((sys.executable, "skill.py"), PYTHON), "shell": (("/bin/sh", "skill.sh"), SHELL)}
BARE = f"""\
import asyncio, json, subprocess, sys

async def one(limit, number):
    async with limit:
        process = await asyncio.create_subprocess_exec(
            *sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
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


def write_skill(base: Path, name: str, kind: str, *, keep_alive: bool) -> Path:
    """The folder of a skill."""
    root = base / name
    root.mkdir()
    argv, text = PROGRAMS[kind]
    (root / argv[-1]).write_text(text)
    about = {"id": name, "name": name, "version": "1.0.0", "adapterType": "subprocess", "entrypoint": " ".join(argv)}
    (root / "skill.json").write_text(json.dumps(about))
    (root / "adapter.config.json").write_text(json.dumps({"keepAlive": keep_alive}))
    return root


def evaluation(root: Path, sandbox: str) -> list[str]:
    """The command that calls a skill with all tasks."""
    argv = ("eval", "--skills", str(root), "--tasks", "tasks.json", "--concurrency", str(AT_ONCE))
    return whet(*argv, "--min-completion", "1", "--format", "json", "--sandbox", sandbox)


def measure() -> dict[str, float]:
    """Medians over the rounds, with start-up."""
    sandboxes = ("local", "bubblewrap") if shutil.which("bwrap") else ("local",)
    with folder() as base:
        tasks = [
            {"id": f"t{number}", "inputData": {"n": number}, "expectedOutput": {"type": "exact", "value": 1}}
            for number in range(TASKS)
        ]
        (base / "tasks.json").write_text(json.dumps(tasks))
        commands: dict[str, tuple[list[str], Path]] = {}
        for kind, (argv, _) in PROGRAMS.items():
            root = write_skill(base, kind, kind, keep_alive=False)
            commands[f"{kind}, bare loop"] = ([sys.executable, "-c", BARE, *argv], root)
            for sandbox in sandboxes:
                commands[f"{kind}, {sandbox}"] = (evaluation(root, sandbox), base)
        kept = write_skill(base, "kept", "python", keep_alive=True)
        for sandbox in sandboxes:
            commands[f"kept alive, {sandbox}"] = (evaluation(kept, sandbox), base)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, (argv, where) in commands.items():
                began = time.perf_counter()
                subprocess.run(argv, cwd=where, env=environment(base), check=True, stdout=subprocess.DEVNULL)
                times[name].append(time.perf_counter() - began)
    took = {name: median(found) for name, found in times.items()}
    figures = {f"{name}, s": value for name, value in took.items()}
    for sandbox in sandboxes:
        for kind in PROGRAMS:
            figures[f"{kind}, {sandbox}: ratio (at most 3)"] = took[f"{kind}, {sandbox}"] / took[f"{kind}, bare loop"]
        faster = took["python, bare loop"] / took[f"kept alive, {sandbox}"]
        figures[f"kept alive, {sandbox}: faster (at least 5)"] = faster
    return figures


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:45} {value:8.2f}")
