"""Execute in a running container by the runtime itself: a fifth of what podman takes, and the pipes are our own.

Only for root, whose containers the runtime knows by their ids; everybody else goes through the engine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.sandbox.container.leftovers import handing_over
from whet.sandbox.engine import Engine

# In the foreground, the runtime copies output through small pipes of its own, and waits for everybody who holds them.
# So it goes away at once, and this waits for the process alone, which becomes its child. A handler, because a signal
# that is ignored stays ignored in programs that are started.
_WAIT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
signal.signal(signal.SIGTERM, lambda *_: None)
code = os.spawnv(os.P_WAIT, sys.argv[2], sys.argv[2:])
if code:
    os._exit(code if code > 0 else 255)
with open(sys.argv[1]) as file:
    pid = int(file.read())
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
os._exit(code if code >= 0 else 128 - code)
"""

# A capability that does next to nothing, and its number in the kernel. Processes of the environment have it, and what
# whet executes later has not: nobody may trace a process, or write into its memory, that may do more than he himself.
_MARK, _MARK_NUMBER = "CAP_LEASE", 28


def mark_options(engine: Engine) -> tuple[str, ...]:
    """Return the options by which a container has what keeps its own processes from those that come later."""
    status = Path("/proc/self/status").read_text()
    bounding = next((line.split()[1] for line in status.splitlines() if line.startswith("CapBnd:")), "0")
    is_ours = int(bounding, 16) >> _MARK_NUMBER & 1
    return ("--cap-add", _MARK) if is_ours and _runtime(engine.program) is not None else ()


class RunningContainer(Struct, frozen=True):
    """A container as the runtime knows it: its first process, and how its processes are set up."""

    runtime: Engine
    id: str
    pid: int
    process: Mapping[str, Any]
    # The root of its file system on this machine.
    root: Path

    @property
    def layer(self) -> Path | None:
        """The folder with what was written in it, if its file system is an overlay."""
        folder = self.root.parent / "diff"
        return folder if self.root.name == "merged" and folder.is_dir() else None

    @classmethod
    def find(cls, engine: Engine, identifier: str) -> RunningContainer | None:
        """Return the container, or None if only the engine can reach it."""
        program = _runtime(engine.program)
        if program is None:
            return None
        said = Engine(program).ask("state", identifier)
        try:
            state = json.loads(said.out)
            config = json.loads(Path(state["bundle"], "config.json").read_bytes())
            return cls(Engine(program), identifier, int(state["pid"]), config["process"], Path(config["root"]["path"]))
        except (ValueError, KeyError, TypeError, OSError):
            return None

    @property
    def _capabilities(self) -> Mapping[str, list[str]]:
        return self.process.get("capabilities") or {}

    def takes(self, user: str | None) -> bool:
        """Return whether it can become *user*: the runtime knows no names."""
        return user is None or user == "root" or user.isdigit()

    @contextmanager
    def executing(
        self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path, user: str | None, *, is_environment: bool
    ) -> Iterator[tuple[str, ...]]:
        """Yield what executes a command; the file with its variables is only for us.

        What is not of the *environment* can reach none of its processes.
        """
        known = dict(pair.partition("=")[::2] for pair in self.process.get("env", ()))
        number = 0 if user == "root" else int(user or 0)
        process = {
            **self.process,
            "terminal": False,
            "args": list(argv),
            "cwd": str(cwd),
            "env": [f"{name}={value}" for name, value in {**known, **env}.items()],
            "user": self.process.get("user", {}) if user is None else {"uid": number, "gid": number},
            "capabilities": self._capabilities if is_environment else _unmarked(self._capabilities),
        }
        with handing_over() as folder:
            file, pid = folder / "process.json", str(folder / "pid")
            file.write_text(json.dumps(process))
            runtime = (self.runtime.program, "exec", "--detach", "--pid-file", pid, "--process", str(file), self.id)
            yield (sys.executable, "-I", "-S", "-c", _WAIT, pid, *runtime)


def _unmarked(capabilities: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {kind: [name for name in names if name != _MARK] for kind, names in capabilities.items()}


@lru_cache
def _runtime(program: str) -> str | None:
    engine = Engine(program)
    if os.geteuid() != 0 or not engine.is_podman:
        return None
    said = engine.ask("info", "--format", "{{.Host.OCIRuntime.Path}}")
    program_path = said.out.strip()
    return program_path if said.ok and Path(program_path).is_file() else None
