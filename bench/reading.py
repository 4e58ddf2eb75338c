"""What reading costs: a transcript of 100 MB of each agent, beside `json.loads` over its lines.

Both take the transcript in turns, a megabyte at a time, so that whatever else the machine does hits both alike. Reading
is what a run does with output: cut into lines, made into events, counted, and the events written to a file. Each is
measured in a process of its own; the growth of memory is that of its peak after the first 10 MB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from projects import folder

from transcripts import MIXES, blocks
from whet import plugins
from whet.agents.contract import Agent, Task
from whet.agents.observe.observer import Observer
from whet.model.run import Runner

AGENTS = {
    "claude-code": "claude",
    "codex": "codex",
    "copilot": "copilot",
    "cursor-agent": "cursor",
    "gemini": "gemini",
    "opencode": "opencode",
}
SIZE, SETTLED, MB = 100, 10, 1 << 20
# As much as is taken from a pipe at once.
_PIECE = 65536


def measure() -> dict[str, float]:
    """Ratios and growth by agent and mix."""
    figures: dict[str, float] = {}
    with folder() as base:
        for mix in MIXES:
            for agent in AGENTS:
                argv = [sys.executable, __file__, agent, mix]
                done = subprocess.run(argv, cwd=base, check=True, stdout=subprocess.PIPE)
                ratio, growth = json.loads(done.stdout)
                figures[f"{agent}, {mix}, ratio (at most 4)"] = ratio
                figures[f"{agent}, {mix}, growth, MB"] = growth
    return figures


def read(agent: str, mix: str, size_mb: int = SIZE) -> tuple[float, float]:
    """How many times as long reading took, and by how many MB the peak of memory grew."""
    bare = whole = settled = done = 0.0
    with tempfile.TemporaryDirectory(dir=".") as where:
        observer = _observer(agent, Path(where).resolve())
        for block in blocks(AGENTS[agent], mix, size=size_mb * MB):
            bare += _seconds_bare(block)
            whole += _seconds_read(observer, block)
            done += len(block) / MB
            if done < SETTLED:
                settled = _peak_mb()
        observer.close()
    return whole / bare, _peak_mb() - settled


def _observer(agent: str, where: Path) -> Observer:
    adapter: Agent = plugins.find("agents", agent)()
    asked = adapter.command(_task(agent, where))
    return Observer(asked.output, adapter.events, events_path=where / "events.jsonl")


def _task(agent: str, where: Path) -> Task:
    return Task(
        prompt="Go.",
        case="long",
        runner=Runner(id="long", agent=agent),
        # Where the recorded programs ran.
        workspace=Path("/tmp/ws/demo"),
        home=where,
        temporary=where,
        suite_dir=where,
        settings_dir=None,
        environ={},
    )


def _seconds_bare(block: bytes) -> float:
    began = time.process_time()
    for line in block.decode().splitlines():
        json.loads(line)
    return time.process_time() - began


def _seconds_read(observer: Observer, block: bytes) -> float:
    began = time.process_time()
    for start in range(0, len(block), _PIECE):
        observer.feed(block[start : start + _PIECE])
    return time.process_time() - began


def _peak_mb() -> float:
    """Of this process alone; what `getrusage` tells begins at the peak of whoever started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    print(json.dumps(read(*sys.argv[1:3], *map(int, sys.argv[3:]))))
