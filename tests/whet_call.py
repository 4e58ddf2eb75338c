"""Calls of `whet` that cost no imports: a client of `whet_server.py`, for tests and, as a program, for shells."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys

# Only what a program that starts in 10 ms can afford.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A shell finds the server by it.
ADDRESS = "TESTS_WHET_SERVER"
LOCALE = "C.UTF-8"
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


class Call:
    """A `whet` that the server at *address* started for us, with our umask and limits and the given streams."""

    def __init__(
        self,
        address: str,
        arguments: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        streams: Sequence[int],
        session: bool = False,
    ) -> None:
        umask = os.umask(0)
        os.umask(umask)
        request = {
            "arguments": list(arguments),
            "cwd": cwd,
            "env": dict(env),
            "umask": umask,
            "session": session,
            "limits": {number: resource.getrlimit(number) for number in _LIMITS},
        }
        data = json.dumps(request).encode() + b"\n"
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(address)
        sent = socket.send_fds(self.connection, [data], list(streams))
        # Not if nothing is left: a short command may have ended already, and its server has closed the connection.
        if sent < len(data):
            self.connection.sendall(data[sent:])
        self._answers = self.connection.makefile("rb")
        self.pid = int(self._answers.readline())

    def wait(self) -> int:
        """Return the exit code, as `subprocess` counts."""
        code = int(self._answers.readline())
        self._answers.close()
        self.connection.close()
        return code


def is_usual(env: Mapping[str, str]) -> bool:
    """Whether the interpreter would start in this environment as the server did."""
    decisive = {name: value for name, value in env.items() if name.startswith(("PYTHON", "LC_", "LANG"))}
    return bool(decisive) and all(value == LOCALE for value in decisive.values())


def main() -> int:
    """Be `whet`, for a shell."""
    env = {name: value for name, value in os.environ.items() if name != ADDRESS}
    if not is_usual(env):
        os.execve(sys.executable, [sys.executable, "-m", "whet", *sys.argv[1:]], env)
    code = Call(os.environ[ADDRESS], sys.argv[1:], cwd=os.getcwd(), env=env, streams=(0, 1, 2)).wait()  # noqa: PTH109
    # A shell says 128 and the number of the signal.
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
