"""The program of the scripted agent: it plays steps in its working folder and prints session events.

The player runs on its own, by `python -I -S`, and imports only the standard library. Each attempt waits for it, so it
imports little, and what only some steps need when such a step is played.
"""

from __future__ import annotations

import marshal
import sys
import time

# As in `typing`, which takes as long to import as Python to start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

_calls = 0


def emit(kind: str, **fields: Any) -> None:
    """Print one event."""
    import json

    say(json.dumps({"type": kind, **fields}) + "\n")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line)
    sys.stdout.flush()


def call(tool: str, **args: Any) -> str:
    """Announce a tool call and give its id."""
    global _calls  # noqa: PLW0603 - the program is one session
    _calls += 1
    emit("tool_call", id=f"call-{_calls}", tool=tool, args=args)
    return f"call-{_calls}"


def done(call_id: str, tool: str, output: str, ok: bool) -> None:
    """Print the result of a tool."""
    emit("tool_result", id=call_id, tool=tool, output=output, ok=ok)


def place(path: str) -> Path:
    """Return where *path* is, seen from the working folder."""
    from pathlib import Path

    return Path.cwd() / path


def named(path: Path) -> str:
    """Return *path* as the events of every agent name it: from the working folder, if it is in there."""
    import os

    return os.path.normpath(path).removeprefix(f"{path.cwd()}/")


def run(step: dict[str, Any]) -> None:
    """Run a shell command."""
    import subprocess

    call_id = call("shell", command=step["run"])
    ended = subprocess.run(  # noqa: S602 - running what the script says is the point
        step["run"], shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    emit("command", command=step["run"], exit_code=ended.returncode)
    done(call_id, "shell", ended.stdout.decode(errors="replace"), ended.returncode == 0)


def read(step: dict[str, Any]) -> None:
    """Read a file."""
    path = place(step["read"])
    call_id = call("read", path=step["read"])
    emit("file_read", path=named(path))
    try:
        done(call_id, "read", path.read_text(errors="replace"), True)
    except OSError as error:
        done(call_id, "read", f"{step['read']}: {error.strerror}", False)


def write(step: dict[str, Any]) -> None:
    """Write a file, and the folders above it."""

    def change(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step.get("text", ""))

    edit("write", step["write"], change)


def delete(step: dict[str, Any]) -> None:
    """Delete a file."""
    edit("delete", step["delete"], lambda path: path.unlink())


def edit(tool: str, name: str, change: Callable[[Path], None]) -> None:
    """Change a file by a tool."""
    path = place(name)
    call_id = call(tool, path=name)
    try:
        change(path)
    except OSError as error:
        done(call_id, tool, f"{name}: {error.strerror}", False)
        return
    emit("file_edit", path=named(path))
    done(call_id, tool, "", True)


def load_skill(step: dict[str, Any]) -> None:
    """Load a skill."""
    call_id = call("skill", name=step["load_skill"])
    emit("skill_signal", skill=step["load_skill"], signal="tool:skill")
    done(call_id, "skill", "", True)


def wait(step: dict[str, Any]) -> None:
    """Do nothing for some seconds."""
    time.sleep(step["wait_s"])


def leave(step: dict[str, Any]) -> None:
    """End with an exit code."""
    sys.exit(step["exit"])


ACTIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "run": run,
    "read": read,
    "write": write,
    "delete": delete,
    "load_skill": load_skill,
    "wait_s": wait,
    "exit": leave,
}


def main() -> None:
    """Play what standard input says: lines to print, and steps to take."""
    for step in marshal.load(sys.stdin.buffer):  # noqa: S302 - whet wrote it, in the same interpreter
        if isinstance(step, str):
            say(step)
        else:
            ACTIONS[next(word for word in ACTIONS if word in step)](step)


if __name__ == "__main__":
    main()
