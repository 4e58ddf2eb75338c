"""Run the scripts of a task package, and read the reward file that a verifier leaves."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from whet.checks.context import Shell, plain_environment
from whet.errors import AgentNotFound, AgentNotStarted
from whet.grade.evidence import Evidence
from whet.packages.task_packages import ShownAt
from whet.reading.fields import is_number
from whet.reading.text import listed
from whet.sandbox.contract import Command, Ended
from whet.sandbox.limits import suspected
from whet.workspace.walk import open_file

_FOLDER = "verifier"
_MOST_FILES = 200
_LARGEST_LOG = 4 * 1024 * 1024
_MOST_BYTES = 32 * 1024 * 1024


def keep_logs(folder: Path, evidence: Evidence) -> list[str]:
    """Keep the files of *folder* with the other evidence, without secrets; return what was left out, as sentences."""
    left_out: list[str] = []
    file_count = total = 0
    for path, status in _files(folder):
        name = path.relative_to(folder).as_posix()
        if status.st_size > _LARGEST_LOG or file_count == _MOST_FILES or total + status.st_size > _MOST_BYTES:
            left_out.append(f"{name} was not kept: the logs are too many or too large")
            continue
        file_count, total = file_count + 1, total + status.st_size
        try:
            text = path.read_bytes().decode("utf-8", "replace")
        except OSError as error:
            left_out.append(f"{name} was not kept: {error.strerror}")
            continue
        (evidence.artifact_dir / _FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        evidence.keep(f"{_FOLDER}/{name}", text)
    return left_out[:3]


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the regular files below *folder*, without following links."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place) / name
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                yield path, status


_JSON, _TEXT = "reward.json", "reward.txt"
# Similar names, which are not read; a note says so.
_NEAR = ("rewards.json", "rewards.txt", "reward", "score.txt", "score.json")
_LARGEST_REWARD = 1024 * 1024
_MAIN = "reward"
_LONGEST_SHOWN = 40


class BadReward(ValueError):
    """A reward file that cannot be read."""


class Reward(Struct, frozen=True, kw_only=True):
    """A number as it was given, its file, and notes for a person."""

    value: float
    file: str
    notes: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        """The number, limited to the range of a score."""
        return min(1.0, max(0.0, self.value))


def read_reward(folder: Path) -> Reward | None:
    """Return the reward in *folder*, from reward.json or else from reward.txt; none if there is neither."""
    first, second = _content(folder / _JSON), _content(folder / _TEXT)
    if first is None:
        return None if second is None else Reward(value=_from_text(second), file=_TEXT)
    value, notes = _from_json(first)
    if second is not None:
        notes += _conflict(value, second)
    return Reward(value=value, file=_JSON, notes=notes)


def read_rewards(folder: Path) -> dict[str, float]:
    """Return all rewards in *folder* by name; none if there is no file."""
    content = _content(folder / _JSON)
    if content is not None:
        return _numbers(content)
    reward = read_reward(folder)
    return {} if reward is None else {_MAIN: reward.value}


def plain(number: float) -> str:
    """Return *number* as a person writes it, and never rounded: what is almost 1 is not 1."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


def near_miss_note(folder: Path) -> str:
    """Return a note on the files in *folder* that look as if they were meant as rewards; none without such files."""
    misses = [name for name in _NEAR if (folder / name).is_file()]
    return f"; {', '.join(misses)} is not a reward file: name it reward.json or reward.txt" if misses else ""


def _conflict(value: float, text: bytes) -> tuple[str, ...]:
    try:
        text_value = _from_text(text)
    except BadReward as error:
        return (f"{error}; {_JSON} counts",)
    return (
        () if text_value == value else (f"{_TEXT} says {plain(text_value)} and {_JSON} {plain(value)}; {_JSON} counts",)
    )


def _content(path: Path) -> bytes | None:
    """Return the bytes of a regular file, without following a link or waiting for anything."""
    try:
        with io.BufferedReader(open_file(str(path))) as file:
            data = file.read(_LARGEST_REWARD + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadReward(f"{path.name} cannot be read: {error.strerror}") from error
    if len(data) > _LARGEST_REWARD:
        raise BadReward(f"{path.name} is larger than {_LARGEST_REWARD // 1024} KiB")
    if not data.strip():
        raise BadReward(f"{path.name} is empty")
    return data


def _from_text(data: bytes) -> float:
    try:
        value = float(data.decode().strip())
    except (ValueError, UnicodeDecodeError):
        raise BadReward(f"{_TEXT} holds no number: {data[:80].decode(errors='replace').strip()!r}") from None
    return _finite(value, _TEXT)


def _from_json(data: bytes) -> tuple[float, tuple[str, ...]]:
    """Return the number under `reward`, or the only one, or the mean of several, with notes."""
    numbers = _numbers(data)
    if _MAIN in numbers:
        return numbers[_MAIN], ()
    mean = sum(numbers.values()) / len(numbers)
    names = sorted(name[:_LONGEST_SHOWN] for name in numbers)
    note = f"no reward is called `{_MAIN}`: the mean of {listed(names, 8)} counts"
    return mean, (note,) if len(numbers) > 1 else ()


def _numbers(data: bytes) -> dict[str, float]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadReward(f"{_JSON} is not JSON: {error}") from None
    if not isinstance(document, dict) or not document:
        raise BadReward(f"{_JSON} must be an object with a number for each reward")
    return {name: _finite(value, f"{_JSON}: {name}") for name, value in document.items()}


def _finite(value: object, where: str) -> float:
    if not isinstance(value, int | float):
        raise BadReward(f"{where} is not a number")
    if not is_number(value) and not isinstance(value, bool):
        raise BadReward(f"{where} is not a finite number")
    return float(value)


_OUTPUT_KEPT = 4 * 1024 * 1024
_LONGEST_SHEBANG = 256
_LAST_WORDS = 2000
_KILLED = 128 + signal.SIGKILL
# Lets Python find the modules of a workspace last.
_SAFE_PYTHON = Path(__file__).parent / "verifier_python"


class NotRun(Exception):
    """A script could not be started."""


class VerifierScript(Struct, frozen=True, kw_only=True):
    """A script in a workspace, where it runs, and what else it may see."""

    path: Path
    cwd: Path
    workspace: Path
    env: Mapping[str, str]
    writable: tuple[Path, ...]
    shown_at: ShownAt
    network: bool


class ScriptResult(Struct, frozen=True, kw_only=True):
    """How a script ended, and what it printed."""

    ended: Ended
    text: str

    @property
    def killed(self) -> bool:
        """Whether it did not end by itself; bubblewrap reports a kill by an exit code, as shells do."""
        return self.ended.exit_code in (None, _KILLED)

    @property
    def how(self) -> str:
        """How it ended, in words."""
        ceiling = f"ran into its ceiling of {self.ended.reached} and " if self.ended.reached else ""
        if self.ended.exit_code is not None:
            note = " (it was killed)" if self.killed else ""
            return f"{ceiling}ended with exit code {self.ended.exit_code}{note}"
        return f"{ceiling}was ended by signal {self.ended.signal}"


async def run_script(script: VerifierScript, shell: Shell, *, home: Path, timeout_s: float) -> ScriptResult:
    """Run *script* to its end; raises `NotRun` if it cannot be started."""
    env = {**plain_environment(home), "PYTHONSAFEPATH": "1", **script.env}
    if env["PYTHONSAFEPATH"]:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_SAFE_PYTHON), env.get("PYTHONPATH"))))
    sandbox, inside = shell.prepare(script.workspace, home, *script.writable)
    boundary = replace(
        inside,
        readable=(*inside.readable, _SAFE_PYTHON),
        network=script.network and inside.network,
        shown_at=script.shown_at,
    )
    tail = _ScriptOutput()
    command = Command(argv=argv_of(script.path), env=env, cwd=script.cwd)
    try:
        exit_status = await sandbox.run(command, boundary, timeout_s=timeout_s, stdout=tail, stderr=tail)
    except (AgentNotFound, AgentNotStarted) as error:
        raise NotRun(error.message) from error
    text = tail.text()
    return ScriptResult(ended=suspected(exit_status, shell.ceilings, text.encode()[-_LAST_WORDS:]), text=text)


def argv_of(script: Path) -> tuple[str, ...]:
    """Return how to start a script: by itself if possible, else by its first line or its name."""
    with script.open("rb") as file:
        first = file.read(_LONGEST_SHEBANG).split(b"\n")[0]
    if first.startswith(b"#!"):
        if os.access(script, os.X_OK):
            return (str(script),)
        # As the kernel would: a program and at most one argument.
        return (*first[2:].decode("utf-8", "replace").strip().split(None, 1), str(script))
    match script.suffix:
        case ".sh":
            return ("bash", str(script))
        case ".py":
            return (shutil.which("python3") or sys.executable, str(script))
        case _ if os.access(script, os.X_OK):
            return (str(script),)
    raise NotRun(f"{script.name} has no `#!` line, no known ending, and is not executable")


class _ScriptOutput:
    """A sink that keeps the end of what it is given: that is where scripts say what is wrong."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._dropped = 0

    def __call__(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > 2 * _OUTPUT_KEPT:
            self._dropped += len(self._data) - _OUTPUT_KEPT
            del self._data[:-_OUTPUT_KEPT]

    def text(self) -> str:
        start = f"... ({self._dropped} bytes before)\n" if self._dropped else ""
        return start + self._data.decode("utf-8", "replace")
