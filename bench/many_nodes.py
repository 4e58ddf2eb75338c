"""320 agents of 200 ms on three nodes of a Ray cluster, beside bare tasks of Ray that sleep as long.

Both have 24 slots and are measured in turns, in one cluster. Cold is from the start of the process to its end: Ray
starts 24 workers for each driver. Warm is the second half of 640 in one driver, from the 320th end to the last one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "cluster"))

from loopback import LoopbackCluster

AGENTS, PAUSE_S, ROUNDS = 320, 0.2, 2
SUITE = f"""\
from whet import Case
def check(report, ctx): pass
suite = [Case(id=f"c{{n}}", prompt="sleep {PAUSE_S}", check=check) for n in range(COUNT)]
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
# Its own process, because the workers of Ray belong to one driver.
BARE = f"""
import sys, time
from whet.cluster._nodes import connect
connect(sys.argv[1])
import ray
def pause(): time.sleep({PAUSE_S})
task = ray.remote(num_cpus=0.5)(pause)
left, ended = [task.remote() for _ in range(int(sys.argv[2]))], []
while left:
    done, left = ray.wait(left)
    ended += [time.time()] * len(done)
print(ended[-1] - ended[-{AGENTS} - 1] if len(ended) > {AGENTS} else 0)
"""


def measure() -> dict[str, float]:
    cluster = LoopbackCluster()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _measured(cluster, Path(folder))
    finally:
        cluster.close()


def _measured(cluster: LoopbackCluster, folder: Path) -> dict[str, float]:
    (folder / "whet.toml").write_text(SETTINGS)
    found: dict[str, list[float]] = {"bare": [], "ours": [], "bare warm": [], "ours warm": []}
    for _ in range(ROUNDS):
        for count, kind in ((AGENTS, ""), (2 * AGENTS, " warm")):
            (folder / "suite.py").write_text(SUITE.replace("COUNT", str(count)))
            began = time.monotonic()
            said = _run(cluster, folder, "-c", BARE, cluster.on, str(count))
            found[f"bare{kind}"].append(float(said) or time.monotonic() - began)
            began = time.monotonic()
            _run(cluster, folder, "-m", "whet", "run", "suite.py", "--on", cluster.on)
            found[f"ours{kind}"].append(_second_half_s(folder) if kind else time.monotonic() - began)
    least = {name: min(values) for name, values in found.items()}
    return {
        "bare tasks, s": least["bare"],
        "whet run --on, s": least["ours"],
        "whet / bare tasks": least["ours"] / least["bare"],
        "bare tasks, warm, s": least["bare warm"],
        "whet run --on, warm, s": least["ours warm"],
        "whet / bare tasks, warm": least["ours warm"] / least["bare warm"],
    }


def _second_half_s(folder: Path) -> float:
    """Return how long the second half of the trials took, by the journal."""
    lines = map(json.loads, (folder / ".whet/runs/latest/journal.jsonl").read_bytes().splitlines())
    ended = sorted(datetime.fromisoformat(line["started_at"]).timestamp() + line["duration_s"] for line in lines)
    return ended[-1] - ended[-AGENTS - 1]


def _run(cluster: LoopbackCluster, folder: Path, *args: str) -> str:
    command = [sys.executable, *args]
    return subprocess.run(
        command, cwd=folder, env=cluster.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:40} {value:10.2f}")
