"""A process that has imported whet and forks for each call of it: the imports are most of a short command's cost.

`whet_call.py` starts it and talks to it. A call is a real process: it has its own pid, signals, descriptors and exit
code, and what differs between callers (arguments, folder, environment, umask, limits) is the caller's.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import runpy
import selectors
import shutil
import socket
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

# What a run of one case needs is what most calls need.
_SUITE = """
from whet import *
def check(report, ctx): pass
suite = [Case(id="one", prompt="true", check=check)]
"""
_SETTINGS = """
[runners.sh.agent]
type = "command"
command = "sh"
"""


class Server:
    """Forks for each connection, and tells each connection how its process ended."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._calls: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> None:
        """Answer until stdin, which the caller holds, is closed."""
        self._selector.register(0, selectors.EVENT_READ, sys.exit)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        request, descriptors = receive(connection)
        pid = os.fork()
        if pid == 0:
            self._close(connection)
            become_whet(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        pidfd = os.pidfd_open(pid)
        self._calls[pidfd] = (pid, connection)
        self._selector.register(pidfd, selectors.EVENT_READ, partial(self._ended, pidfd))
        connection.sendall(b"%d\n" % pid)

    def _ended(self, pidfd: int) -> None:
        pid, connection = self._calls.pop(pidfd)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        # The caller may not have waited.
        with suppress(OSError):
            connection.sendall(b"%d\n" % code)
        connection.close()

    def _close(self, connection: socket.socket) -> None:
        """Close what a fresh process would not have."""
        self._selector.close()
        self._listener.close()
        connection.close()
        for pidfd, (_, other) in self._calls.items():
            os.close(pidfd)
            other.close()


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a request and the three descriptors that came with it."""
    data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 20)
    request: dict[str, Any] = json.loads(data)
    return request, descriptors


def become_whet(request: dict[str, Any], descriptors: list[int]) -> None:
    """Be `python -m whet` as the caller would have started it; never return."""
    code = 1
    try:
        _take_over(request, descriptors)
        runpy.run_module("whet", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _take_over(request: dict[str, Any], descriptors: list[int]) -> None:
    if request["session"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    _open_streams()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.umask(request["umask"])
    for name, limit in request["limits"].items():
        if resource.getrlimit(int(name)) != tuple(limit):
            resource.setrlimit(int(name), tuple(limit))
    sys.argv = ["whet", *request["arguments"]]
    sys.orig_argv = [sys.executable, "-m", "whet", *request["arguments"]]
    sys.path[0] = str(Path.cwd())
    sys.modules["__main__"] = ModuleType("__main__")


def _open_streams() -> None:
    """Open the standard streams as the interpreter does when it starts."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        old = getattr(sys, f"__{name}__")
        stream = open(number, mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        if name == "stderr":
            stream.reconfigure(line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def import_usual_modules(listener: socket.socket) -> None:
    """Import what a run imports: a child runs one case and tells, so that no module has to be named here."""
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "suite.py").write_text(_SUITE)
        Path(folder, "whet.toml").write_text(_SETTINGS)
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            listener.close()
            _run_once(folder, writing)
        os.close(writing)
        with os.fdopen(reading) as names:
            modules = names.read().split()
        os.waitpid(pid, 0)
    if not modules:
        raise RuntimeError("the run that tells which modules it imports failed")
    for module in modules:
        importlib.import_module(module)


def _run_once(folder: str, writing: int) -> None:
    leave, run = os._exit, os.getpid()

    def tell(code: int) -> None:
        # What whet forks leaves by the same door.
        if code == 0 and os.getpid() == run:
            os.write(writing, "\n".join(_usual_modules()).encode())
        leave(code)

    os._exit = tell  # type: ignore[assignment]
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    request = {
        "cwd": folder,
        "env": {**os.environ, "HOME": folder, "WHET_SANDBOX": "local"},
        "umask": 0o22,
        "session": False,
        "limits": {},
        "arguments": ["run", "suite.py"],
    }
    become_whet(request, [os.dup(number) for number in range(3)])


def _usual_modules() -> list[str]:
    """The imported modules that are no test's and no suite's."""
    homes = (sys.prefix, sys.base_prefix, str(Path(sys.modules["whet"].__file__ or "").parent))
    modules = []
    for name, module in list(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None) or ""
        if name != "__main__" and (origin in ("built-in", "frozen") or origin.startswith(homes)):
            modules.append(name)
    return modules


def main() -> None:
    """Listen on the socket whose descriptor is the first argument; its folder and modules to import are the others."""
    sys.path[0] = ""
    listener = socket.socket(fileno=int(sys.argv[1]))
    listener.set_inheritable(False)
    import_usual_modules(listener)
    for module in sys.argv[3:]:
        importlib.import_module(module)
    tempfile.tempdir = None
    # What is here stays, and looking at it in each child would copy its pages.
    gc.collect()
    gc.freeze()
    Server(listener).serve()


if __name__ == "__main__":
    try:
        main()
    finally:
        shutil.rmtree(sys.argv[2])
