"""A real Ray cluster of several nodes on this machine, on loopback addresses alone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

RAY = str(Path(sys.executable).with_name("ray"))
# A node starts in three seconds on an idle machine.
PATIENCE_S = 300
# Each trial that runs at a time costs a run the start of a worker of Ray, which is a second of a processor.
CPUS = 2


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.2", 0))
        port: int = sock.getsockname()[1]
        return port


class LoopbackCluster:
    """Starts nodes with `ray start`, and ends those that it started, by their process ids."""

    def __init__(self, nodes: int = 3) -> None:
        # Short: Ray makes Unix sockets in it.
        self.folder = Path(tempfile.mkdtemp(prefix="wr-"))
        self.port = free_port()
        self._pids: dict[str, set[int]] = {}
        self._last = 1
        for _ in range(nodes):
            self.add()

    @property
    def on(self) -> str:
        """What `--on` takes."""
        return f"ray://127.0.0.2:{self.port}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment of everything that belongs to it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "WHET_", "PYTEST_"))}
        return {**kept, "HOME": str(self.folder), "TMPDIR": str(self.folder), "RAY_USAGE_STATS_ENABLED": "0"}

    @property
    def nodes(self) -> list[str]:
        """The addresses of its nodes, the head first."""
        return list(self._pids)

    def add(self, *, resources: str = "{}", env: Mapping[str, str] | None = None) -> str:
        """Start another node, and return its address."""
        self._last += 1
        address = f"127.0.0.{self._last}"
        first = not self._pids
        place = ["--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self.folder}/ray"]
        before = self._found()
        subprocess.run(
            [
                *(RAY, "start", *(place if first else [f"--address=127.0.0.2:{self.port}"])),
                *(f"--node-ip-address={address}", f"--num-cpus={CPUS}", "--object-store-memory=83886080"),
                *("--disable-usage-stats", "--include-log-monitor=false", f"--resources={resources}"),
            ],
            env={**self.environ, **(env or {})},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=True,
        )
        self._pids[address] = self._found() - before
        return address

    def _found(self) -> set[int]:
        """Our processes of Ray: their arguments name our folder."""
        return set(bearing(f"{self.folder}/ray"))

    def kill(self, address: str) -> None:
        """Kill everything of a node at once, as if its machine had lost its power: Ray's processes, and whet's own."""
        own = self._pids.pop(address)
        workers = [pid for pid in bearing("ray::") if parent(pid) in own]
        # The last argument of the process of a node is its node actor.
        nodes = [pid for pid in bearing("whet.cluster.node") if arguments(pid)[-1] in map(str, workers)]
        for pid in (*own, *workers, *nodes):
            end(pid)

    def holding(self, address: str) -> list[int]:
        """Return the workers of a node that hold a trial."""
        return [pid for pid in bearing("ray::run_trial_task_here") if parent(pid) in self._pids[address]]

    def left(self, within_s: float = 30) -> list[str]:
        """Return what processes of whet's nodes, and files of them, are still there after a while."""
        deadline = time.monotonic() + within_s
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _left(self) -> list[str]:
        processes = [f"process {pid}" for pid in bearing("whet.cluster.node") if belongs(pid, self.folder)]
        logs = (f"{path}: {path.read_text()}" for path in self.folder.glob("whet-*/runs/*/log"))
        return [*processes, *logs, *self.scratch()]

    def scratch(self) -> list[str]:
        # Folders of attempts, and not those of nodes, which are named by their user.
        made = (path for path in self.folder.glob("whet-*") if re.fullmatch(r"whet-[a-z0-9_]{8}", path.name))
        return [str(path) for path in made if path.is_dir()]

    def close(self) -> None:
        for address in reversed(self.nodes):
            self.kill(address)
        deadline = time.monotonic() + PATIENCE_S
        while (rest := self._found()) and time.monotonic() < deadline:
            for pid in rest:
                end(pid)
            time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)


def bearing(text: str) -> list[int]:
    """Return the processes with *text* in their arguments."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in arguments and int(place.name) != os.getpid():
            found.append(int(place.name))
    return found


def of_folder(text: str, folder: Path) -> list[int]:
    """Return the processes with *text* in their arguments that belong to a cluster, without those that they forked."""
    found = {pid for pid in bearing(text) if belongs(pid, folder)}
    return [pid for pid in found if parent(pid) not in found]


def arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return [""]


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def belongs(pid: int, folder: Path) -> bool:
    try:
        return f"TMPDIR={folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
