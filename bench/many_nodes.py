"""320 agents of 200 ms on three nodes of a Ray cluster, beside bare tasks of Ray that sleep as long.

Both have 24 slots, start their workers anew, and are measured in turns, in one cluster.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "cluster"))

from loopback import LoopbackCluster

AGENTS, PAUSE_S, ROUNDS = 320, 0.2, 2
SUITE = f"""\
from whet import Case
def check(report, ctx): pass
suite = [Case(id=f"c{{n}}", prompt="sleep {PAUSE_S}", check=check) for n in range({AGENTS})]
"""
SETTINGS = """\
[run]
sandbox = "local"
reporters = []
[resources."*"]
cpus = 0.5
[runners.sh.agent]
type = "command"
command = "sh"
"""
# Its own process, because the workers of Ray belong to one driver. Both lines are from connecting to the last answer.
BARE = f"""
import sys, time
from whet.run.cluster_nodes import connect
connect(sys.argv[1])
import ray
def pause(): time.sleep({PAUSE_S})
task = ray.remote(num_cpus=0.5)(pause)
for _ in range(2):
    began = time.monotonic()
    ray.get([task.remote() for _ in range({AGENTS})])
    print(time.monotonic() - began)
"""


def measure() -> dict[str, float]:
    cluster = LoopbackCluster()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _measured(cluster, Path(folder))
    finally:
        cluster.close()


def _measured(cluster: LoopbackCluster, folder: Path) -> dict[str, float]:
    (folder / "suite.py").write_text(SUITE)
    (folder / "whet.toml").write_text(SETTINGS)
    bare, warm, ours = [], [], []
    for _ in range(ROUNDS):
        began = time.monotonic()
        said = _run(cluster, folder, "-c", BARE, cluster.on)
        bare.append(time.monotonic() - began - float(said.split()[1]))
        warm.append(float(said.split()[1]))
        began = time.monotonic()
        _run(cluster, folder, "-m", "whet", "run", "suite.py", "--on", cluster.on)
        ours.append(time.monotonic() - began)
    return {
        "bare tasks, s": min(bare),
        "bare tasks, workers started before, s": min(warm),
        "whet run --on, s": min(ours),
        "whet / bare tasks": min(ours) / min(bare),
    }


def _run(cluster: LoopbackCluster, folder: Path, *args: str) -> str:
    command = [sys.executable, *args]
    return subprocess.run(
        command, cwd=folder, env=cluster.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:40} {value:10.2f}")
