"""What lies around a sandbox for those inside to reach for; a program, so that it can be started as another user.

It makes a process, sockets, keys, shared memory and a terminal, notes them in a file of facts, runs a command among
them, and takes all of it away again. It prints how the command ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import pty
import socket
import stat
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
COLUMN = {"x86_64": 0, "aarch64": 1}[platform.machine()]
ADD_KEY, KEYCTL, MQ_OPEN, MQ_UNLINK = (248, 217), (250, 219), (240, 180), (241, 181)
VICTIM = """
import ctypes, os, sys, time
kept = ctypes.create_string_buffer(b"kept in memory")
print(ctypes.addressof(kept), flush=True)
time.sleep(600)
"""


def call(numbers: tuple[int, int], *args: object) -> int:
    result: int = libc.syscall(ctypes.c_long(numbers[COLUMN]), *args)
    return result


def victim(token: str, folder: Path, stack: ExitStack) -> dict[str, object]:
    """A process that has something to lose: its environment, its memory, its folder."""
    name = f"victim-{token}"
    argv = [sys.executable, "-c", VICTIM, name]
    env = {"PATH": os.environ["PATH"], "TOKEN": token}
    process = subprocess.Popen(argv, env=env, cwd=folder, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout is not None
    address = int(process.stdout.readline())
    return {"victim": process.pid, "victim_name": name, "victim_address": address}


def listening(address: str, token: str, stack: ExitStack) -> None:
    """A socket that greets whoever comes."""
    server = stack.enter_context(socket.socket(socket.AF_UNIX))
    server.bind(address)
    server.listen()

    def greet() -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                peer.sendall(token.encode())

    threading.Thread(target=greet, daemon=True).start()


def keys(name: str, stack: ExitStack) -> None:
    """A key in the session's keyring, which is our own, and in the user's."""
    join_session, revoke = 1, 3
    call(KEYCTL, join_session, None)
    for keyring in (-3, -4):
        made = call(ADD_KEY, b"user", name.encode(), b"secret", 6, keyring)
        if made > 0:
            stack.callback(call, KEYCTL, revoke, made)


def shared(token: str, stack: ExitStack) -> dict[str, object]:
    """Memory, a semaphore and queues that anybody of this user may use."""
    key, create, remove = int(token[-6:], 16), 0o1600, 0
    memory, semaphore, queue = libc.shmget(key, 4096, create), libc.semget(key, 1, create), libc.msgget(key, create)
    assert min(memory, semaphore, queue) >= 0
    stack.callback(libc.shmctl, memory, remove, None)
    stack.callback(libc.semctl, semaphore, 0, remove)
    stack.callback(libc.msgctl, queue, remove, None)
    assert call(MQ_OPEN, token.encode(), os.O_CREAT | os.O_RDWR, 0o600, None) >= 0
    stack.callback(call, MQ_UNLINK, token.encode())
    file = Path("/dev/shm", token)
    file.write_text("shared")
    stack.callback(file.unlink)
    return {"ipc_key": key, "queue": token}


def closed(*folders: str) -> list[str]:
    """What is not for others to read, as far as we can see it."""
    found = []
    for folder in folders:
        for place, inner, names in os.walk(folder):
            inner[:] = [name for name in inner if place != "/proc" or not name.isdigit()]
            paths = [Path(place, name) for name in (*inner, *names)]
            found += [str(path) for path in paths if not path.is_symlink() and not is_open(path)]
    return found


def is_open(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return True
    return bool(mode & (0o001 if stat.S_ISDIR(mode) else 0o004))


def main(command: list[str], asked: dict[str, object]) -> dict[str, object]:
    token, outside = str(asked["token"]), Path(str(asked["outside"]))
    with ExitStack() as stack:
        keys(token, stack)
        controller, terminal = pty.openpty()
        stack.callback(os.close, controller)
        facts = {
            **asked,
            **victim(token, outside, stack),
            **shared(token, stack),
            "abstract_socket": f"abstract-{token}",
            "socket": str(outside / "socket"),
            "key": token,
            "terminal": os.ttyname(terminal),
            "closed_in_proc": closed("/proc"),
            "closed_in_system": closed("/etc", "/opt"),
        }
        listening("\0" + str(facts["abstract_socket"]), token, stack)
        listening(str(facts["socket"]), token, stack)
        Path(str(asked["facts"])).write_text(json.dumps(facts))
        env = {**os.environ, "OUR_PLAIN_VARIABLE": str(asked["whet_token"])}
        ended = subprocess.run(
            command,
            env=env,
            stdin=terminal,
            capture_output=True,
            timeout=300,
            check=False,
            # The terminal is that of whet's session, as it is in front of a person.
            preexec_fn=lambda: (os.setsid(), libc.ioctl(0, 0x540E, 0)),
        )
        return {"code": ended.returncode, "stdout": ended.stdout.decode(), "stderr": ended.stderr.decode()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[2:], json.loads(Path(sys.argv[1]).read_text()))))
