"""SIGKILL of whet at any moment: how many processes are left.

    .venv/bin/python bench/kills.py [KILLS]

Half of the kills are in each sandbox, a third of them while agents are being started. Each agent keeps a process that
forgot its environment and left its session twice; what is left is found by a token among the arguments, which no
process of these can change. Exits with 1 where anything is left.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from projects import environment, folder, whet

KILLS = 200
# What the kernel is just ending is not left; what is still there after so long is.
LIMIT_S = 10.0
SANDBOXES = ("local", "bubblewrap")
SUITE = """\
from whet import Case

AGENT = '''
(setsid env -i setsid sh -c 'trap "" TERM HUP INT; sleep 120; : {token}' >/dev/null 2>&1 &)
: > begun.$WHET_CASE_ID
sh -c 'sleep 0.1; : {token}'
'''


def check(report, ctx):
    ctx.run(["sh", "-c", "(env -i setsid sh -c 'sleep 120; : {token}' >/dev/null 2>&1 &); sleep 0.05; : {token}"])


suite = [Case(id=f"c{{number}}", prompt=AGENT, check=check) for number in range(400)]
"""
SETTINGS = """\
[run]
sandbox = "{sandbox}"
output_dir = "runs"
cwd = "{outside}"
schedule = "parallel"
max_parallel = 4
reporters = ["json=results.json"]

[runners.sh.agent]
type = "command"
command = "sh"
"""


def arguments(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def stat_of(pid: int) -> list[bytes]:
    """The fields of the process from its state on."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


def left(token: str) -> list[int]:
    """Processes with *token* among their arguments that are more than zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and token in arguments(int(entry.name)):
                found += [int(entry.name)] if stat_of(int(entry.name))[0] not in (b"Z", b"X") else []
        except OSError:
            continue
    return found


def kill_once(base: Path, sandbox: str, chance: random.Random) -> int:
    """Start a run, kill it, and wait; how many processes were left."""
    token = f"whet-kill-{secrets.token_hex(8)}"
    where = base / token
    outside = where / "outside"
    outside.mkdir(parents=True)
    (where / "suite.py").write_text(SUITE.format(token=token))
    (where / "whet.toml").write_text(SETTINGS.format(sandbox=sandbox, outside=outside))
    argv = whet("run", "suite.py")
    run = subprocess.Popen(argv, cwd=where, env=environment(where), stdout=subprocess.DEVNULL, start_new_session=True)
    _wait_for_a_moment(outside, run, chance)
    if run.poll() is not None:
        raise SystemExit(f"the run ended by itself with exit code {run.returncode}")
    run.kill()
    run.wait()
    deadline = time.monotonic() + LIMIT_S
    while (found := left(token)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in found:
        print(f"  left: {pid}, below {int(stat_of(pid)[1])}: {arguments(pid)[-100:]}")
        os.kill(pid, signal.SIGKILL)
    return len(found)


def _wait_for_a_moment(outside: Path, run: subprocess.Popen[bytes], chance: random.Random) -> None:
    """Some time after the first agent began, or as soon as one more begins: then others are being started too."""
    wanted = chance.choice([1, 2, 3, 4, 6, 9])
    while run.poll() is None and len(list(outside.iterdir())) < wanted:
        time.sleep(0.001)
    if chance.random() > 1 / 3:
        time.sleep(chance.uniform(0, 0.4))


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    chance = random.Random(20261116)
    total = 0
    with folder() as base:
        for sandbox in SANDBOXES:
            counts = [kill_once(base, sandbox, chance) for _ in range(kills // len(SANDBOXES))]
            print(f"{sandbox:12} {len(counts):4} kills, {sum(counts):3} processes left", flush=True)
            total += sum(counts)
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()
