"""SIGKILL of anything of a run on a Ray cluster: how many trials are lost, recorded twice, or left running.

    .venv/bin/python bench/cluster_kills.py [KILLS]

Three nodes, five kills per run: of a trial task, the process of a node, an actor, a raylet or the resumed driver.
Exits with 1 where a trial is lost or doubled, or where an agent is left.
"""

from __future__ import annotations

import json
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "cluster"))

from loopback import LoopbackCluster, bearing, end, of_folder

KILLS, PER_RUN, TRIALS = 50, 5, 120
VICTIMS = {
    "task": "ray::run_trial_task_here",
    "process": "whet.cluster.node",
    "actor": "ray::NodeActor",
    "node": "",
    "driver": "",
}
PATIENCE_S = 900
SUITE = f"""\
from whet import Case
def check(report, ctx): assert (ctx.workspace / "done").exists()
suite = [Case(id=f"c{{n}}", prompt="sh -c 'sleep 0.5; : TOKEN'; touch done", check=check) for n in range({TRIALS})]
"""
SETTINGS = """\
[run]
sandbox = "local"
[runners.sh.agent]
type = "command"
command = "sh"
"""


class Run:
    """One run, which may take several processes."""

    def __init__(self, cluster: LoopbackCluster, folder: Path, token: str) -> None:
        self.cluster, self.folder, self.token = cluster, folder, token
        (folder / "suite.py").write_text(SUITE.replace("TOKEN", token))
        (folder / "whet.toml").write_text(SETTINGS)
        self.process = self._start("suite.py", "--on", cluster.on)

    def _start(self, *args: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "whet", "run", *args]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.cluster.environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

    def journal(self) -> list[dict[str, Any]]:
        journal = self.folder / ".whet/runs/latest/journal.jsonl"
        return [json.loads(line) for line in journal.read_bytes().split(b"\n")[:-1]] if journal.exists() else []

    def lines(self) -> list[str]:
        return [line["key"]["case"] for line in self.journal()]

    def failures(self) -> dict[str, int]:
        """Return what went wrong with trials, which should be nothing."""
        return dict(Counter(line["failure"]["message"] for line in self.journal() if line["failure"]))

    def kill(self, victim: str) -> bool:
        """Kill one of these, and return whether there was one."""
        if victim == "driver":
            end(self.process.pid)
            self.process.wait()
            self.process = self._start("--resume", "latest")
            return True
        if victim == "node":
            self.cluster.kill(self.cluster.nodes[-1])
            self.cluster.add()
            return True
        found = of_folder(VICTIMS[victim], self.cluster.folder)
        if found:
            end(random.choice(found))
        return bool(found)

    def wait(self, count: int) -> bool:
        """Wait until so many trials have ended; return whether the run goes on."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and len(self.lines()) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.process.poll() is None

    def left(self) -> int:
        deadline = time.monotonic() + 30
        while (found := bearing(f": {self.token}")) and time.monotonic() < deadline:
            time.sleep(0.1)
        return len(found)


def main() -> int:
    kills, wrong = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS, 0
    done: Counter[str] = Counter()
    cluster = LoopbackCluster()
    try:
        while done.total() < kills:
            with tempfile.TemporaryDirectory() as folder:
                run = Run(cluster, Path(folder), secrets.token_hex(8))
                for number in range(1, PER_RUN + 1):
                    victim = random.choice(list(VICTIMS))
                    if done.total() < kills and run.wait(number * TRIALS // (PER_RUN + 2)) and run.kill(victim):
                        done[victim] += 1
                run.process.wait(PATIENCE_S)
                keys = Counter(run.lines())
                lost, doubled = TRIALS - len(keys), sum(count - 1 for count in keys.values())
                left = run.left()
                wrong += lost + doubled + left + (run.process.returncode != 0)
                print(f"{dict(done)}: {lost} lost, {doubled} doubled, {left} left, {run.failures()}", flush=True)
    finally:
        cluster.close()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
