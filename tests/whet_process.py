"""`whet` as a process of a test: a fork of a server that has imported it, or a cold start."""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Self, TypeAlias

from whet_call import LOCALE, Call, is_usual

_CLIENT = Path(__file__).with_name("whet_call.py")
_SERVER = Path(__file__).with_name("whet_server.py")
# What the commands of the service import and a run does not.
_SERVICE = (
    *("whet.service.app", "whet.service.client", "whet.service.start"),
    *("sqlalchemy.dialects.sqlite", "uvicorn.protocols.http.auto"),
)
_OF_SERVICE = ("serve", "keys", "suites")


@lru_cache
def server_address(*more: str) -> str:
    """Start a server of this process, which ends with it and imports *more* modules; return where it listens."""
    folder = tempfile.mkdtemp(prefix="whet-server-")
    address = f"{folder}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        # Its stdin is ours as long as we live.
        server = subprocess.Popen(
            [sys.executable, str(_SERVER), str(listener.fileno()), folder, *more],
            env={"PATH": os.environ["PATH"], "HOME": folder, "LANG": LOCALE},
            stdin=subprocess.PIPE,
            pass_fds=(listener.fileno(),),
        )
    _SERVERS.append(server)
    return address


def make_program(folder: Path) -> Path:
    """Write a program `whet` for shells into *folder*: a client that needs ADDRESS in its environment."""
    program = folder / "whet"
    # Isolated and without site: it starts in 10 ms.
    program.write_text(f"#!{sys.executable} -IS\n{_CLIENT.read_text()}")
    program.chmod(0o755)
    return program


# Referred to, so that nobody collects the pipes that keep them alive.
_SERVERS: list[subprocess.Popen[bytes]] = []


class ForkedWhet:
    """A `whet` that a server forked, with as much of `subprocess.Popen` as tests need."""

    def __init__(
        self, call: Call, arguments: tuple[str, ...], stdout: BinaryIO | None, stderr: BinaryIO | None
    ) -> None:
        self.pid, self.args, self.stdout, self.stderr = call.pid, arguments, stdout, stderr
        self.returncode: int | None = None
        self._call = call
        self._printed: dict[BinaryIO, bytearray] = {}

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        if self.returncode is None and select.select([self._call.connection], [], [], 0)[0]:
            self.returncode = self._call.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raise `TimeoutExpired` before it has ended."""
        if self.returncode is None:
            if not select.select([self._call.connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = self._call.wait()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Read what it prints until it has ended; what was read before a `TimeoutExpired` comes the next time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        streams = [stream for stream in (self.stdout, self.stderr) if stream is not None]
        with selectors.DefaultSelector() as selector:
            for stream in streams:
                self._printed.setdefault(stream, bytearray())
                if not stream.closed:
                    selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(None if deadline is None else max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                for key, _ in ready:
                    self._read(key.fileobj, selector)
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        stdout, stderr = (bytes(self._printed.get(stream, b"")) for stream in (self.stdout, self.stderr))
        return stdout, stderr

    def _read(self, stream: BinaryIO, selector: selectors.BaseSelector) -> None:
        piece = stream.read1(1 << 16)
        self._printed[stream] += piece
        if not piece:
            selector.unregister(stream)
            stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


WhetProcess: TypeAlias = subprocess.Popen[bytes] | ForkedWhet


def start_whet(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str],
    starter: tuple[str, ...] = (),
    cold: bool = False,
    stdout: BinaryIO | None = None,
    stderr: BinaryIO | None = None,
    session: bool = True,
) -> WhetProcess:
    """Start `whet`; a fork, unless a *starter* starts it or *cold* says that the start itself matters.

    Without *stdout* and *stderr*, what it prints is to be read; it leads a *session*, as a shell gives a job one.
    """
    if cold or starter or not is_usual(env):
        return subprocess.Popen(
            [*starter, sys.executable, "-m", "whet", *arguments],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout or subprocess.PIPE,
            stderr=stderr or subprocess.PIPE,
            start_new_session=session,
        )
    address = server_address(*_SERVICE) if arguments[0] in _OF_SERVICE else server_address()
    readers, writers = [], []
    for file in (stdout, stderr):
        reading, writing = os.pipe() if file is None else (None, os.dup(file.fileno()))
        readers.append(None if reading is None else os.fdopen(reading, "rb"))
        writers.append(writing)
    with Path(os.devnull).open() as nothing:
        call = Call(address, arguments, cwd=str(cwd), env=env, streams=(nothing.fileno(), *writers), session=session)
    for writing in writers:
        os.close(writing)
    return ForkedWhet(call, arguments, *readers)


def run_whet(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    starter: tuple[str, ...] = (),
    cold: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Run `whet` to its end, and kill it if that takes longer than *timeout_s*."""
    with start_whet(*arguments, cwd=cwd, env=env, starter=starter, cold=cold, session=False) as process:
        try:
            printed = process.communicate(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(arguments, process.returncode, *printed)


def type_whet(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `whet` in the environment of the tests, changed by *env*, in the locale of the server; return its texts."""
    # Other variables of Python and of locales are those of whoever runs the tests.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    environ = {**inherited, "LANG": LOCALE, **env}
    ended = run_whet(*arguments, cwd=cwd or Path.cwd(), env=environ, timeout_s=300)
    texts = (ended.stdout.decode(), ended.stderr.decode())
    return subprocess.CompletedProcess(arguments, ended.returncode, *texts)
