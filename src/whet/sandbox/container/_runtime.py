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

from whet.dataclass import dataclass
from whet.ground.engine import Engine
from whet.ground.marks import handing_over

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


@dataclass(frozen=True, slots=True)
class RunningContainer:
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
        found = self.root.parent / "diff"
        return found if self.root.name == "merged" and found.is_dir() else None

    @classmethod
    def find(cls, engine: Engine, identifier: str) -> RunningContainer | None:
        """Return the container, or None if only the engine can reach it."""
        program = _runtime(engine.program)
        if program is None:
            return None
        said = Engine(program).ask("state", identifier)
        try:
            state = json.loads(said.out)
            told = json.loads(Path(state["bundle"], "config.json").read_bytes())
            return cls(Engine(program), identifier, int(state["pid"]), told["process"], Path(told["root"]["path"]))
        except (ValueError, KeyError, TypeError, OSError):
            return None

    def takes(self, user: str | None) -> bool:
        """Return whether it can become *user*: the runtime knows no names."""
        return user is None or user == "root" or user.isdigit()

    @contextmanager
    def executing(
        self, argv: tuple[str, ...], env: Mapping[str, str], cwd: Path, user: str | None
    ) -> Iterator[tuple[str, ...]]:
        """Yield what executes a command; the file with its variables is only for us."""
        known = dict(pair.partition("=")[::2] for pair in self.process.get("env", ()))
        number = 0 if user == "root" else int(user or 0)
        told = {
            **self.process,
            "terminal": False,
            "args": list(argv),
            "cwd": str(cwd),
            "env": [f"{name}={value}" for name, value in {**known, **env}.items()],
            "user": self.process.get("user", {}) if user is None else {"uid": number, "gid": number},
        }
        with handing_over() as folder:
            file, pid = folder / "process.json", str(folder / "pid")
            file.write_text(json.dumps(told))
            runtime = (self.runtime.program, "exec", "--detach", "--pid-file", pid, "--process", str(file), self.id)
            yield (sys.executable, "-I", "-S", "-c", _WAIT, pid, *runtime)


@lru_cache
def _runtime(program: str) -> str | None:
    engine = Engine(program)
    if os.geteuid() != 0 or not engine.is_podman:
        return None
    said = engine.ask("info", "--format", "{{.Host.OCIRuntime.Path}}")
    found = said.out.strip()
    return found if said.ok and Path(found).is_file() else None
