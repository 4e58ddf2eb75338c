"""Graders of the author's own: a Python function, or any program that reads and writes JSON."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import AgentError, CheckTimedOut, GraderError, SandboxError, UsageError
from whet.ground.sandbox import Boundary, Command, Sandbox
from whet.model.grade import Grade
from whet.reading.fields import is_number
from whet.reading.text import shorten

_PLAYER = Path(__file__).with_name("custom_player.py")
_MODULE = re.compile(r"[A-Za-z_][\w.]*")
_USUAL_FUNCTION = "score"
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ")
_MOST_BYTES = 4 * 1024 * 1024
_SHOWN = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomGrader:
    """What `customScorerPath` names: a function of a module or a file, or a program."""

    folder: Path
    module: str | None = None
    file: Path | None = None
    function: str | None = None
    program: Path | None = None

    @property
    def shown(self) -> str:
        """As a person would name it."""
        return str(self.program) if self.program else f"{self.file or self.module}:{self.function}"


def find_grader(name: str, folder: Path) -> CustomGrader:
    """The grader that *name* stands for, seen from the benchmark's *folder*; looks before anything runs."""
    place, _, function = name.rpartition(":") if ":" in name else (name, "", "")
    path = (folder / place).resolve()
    if place.endswith(".py"):
        if not path.is_file():
            raise UsageError(f"customScorerPath {name}: there is no file {path}")
        return CustomGrader(folder=folder, file=path, function=function or _USUAL_FUNCTION)
    if function:
        if not _MODULE.fullmatch(place):
            raise UsageError(f"customScorerPath {name}: must be module:function, file.py:function or a program")
        return CustomGrader(folder=folder, module=place, function=function)
    if not path.is_file():
        raise UsageError(f"customScorerPath {name}: there is no file {path}")
    if not os.access(path, os.X_OK):
        raise UsageError(f"customScorerPath {name}: {path} may not be executed", hint=f"chmod +x {path}")
    return CustomGrader(folder=folder, program=path)


async def run_grader(
    grader: CustomGrader,
    context: Mapping[str, Any],
    sandbox: Sandbox,
    *,
    timeout_s: float,
    readable: tuple[Path, ...] = (),
) -> Grade:
    """Ask the grader about an answer; whatever breaks in it is a `GraderError`, and never a 0.

    *context* holds at least `output` and `expected`. The grader has no network, and sees its own folder and *readable*.
    """
    with tempfile.TemporaryDirectory(prefix="whet-grader-") as home:
        out, err = _Kept(grader.shown), _Kept(grader.shown, strict=False)
        boundary = Boundary(writable=(Path(home),), readable=(grader.folder, _PLAYER.parent, *readable), network=False)
        try:
            ended = await sandbox.run(
                _command(grader, context, Path(home)), boundary, timeout_s=timeout_s, stdout=out, stderr=err
            )
        except (AgentError, SandboxError) as error:
            raise GraderError(f"the grader {grader.shown} could not be started: {error.message}") from error
    if ended.timed_out:
        raise CheckTimedOut(f"the grader {grader.shown} did not end within {timeout_s:g} s")
    if ended.exit_code != 0:
        how = f"exit code {ended.exit_code}" if ended.exit_code is not None else f"signal {ended.signal}"
        raise GraderError(f"the grader {grader.shown} ended with {how}: {err.tail()}")
    return _read(grader, out.data)


def _command(grader: CustomGrader, context: Mapping[str, Any], home: Path) -> Command:
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    env |= {"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    if grader.program:
        return Command(
            argv=(str(grader.program),), env=env, cwd=grader.folder, stdin=json.dumps(context).encode() + b"\n"
        )
    request = {
        "folder": str(grader.folder),
        "module": grader.module,
        "file": str(grader.file) if grader.file else None,
        "function": grader.function,
        "context": context,
    }
    return Command(argv=(sys.executable, str(_PLAYER)), env=env, cwd=grader.folder, stdin=json.dumps(request).encode())


def _read(grader: CustomGrader, data: bytes) -> Grade:
    try:
        given = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise GraderError(f"the grader {grader.shown} printed no JSON: {_short(data)}") from error
    if not grader.program:
        given = given["given"]
    decided = _decided(given)
    if decided is None:
        raise GraderError(
            f"the grader {grader.shown} gave {_short(json.dumps(given).encode())}",
            hint='it must give true or false, a number from 0 to 1, or {"passed": ..., "score": ..., "reason": ...}',
        )
    return decided


def _decided(given: Any) -> Grade | None:
    """The grade that a grader's answer stands for, if it stands for one."""
    told = given if isinstance(given, dict) else {"passed": given} if isinstance(given, bool) else {"score": given}
    passed, score, reason = told.get("passed"), told.get("score"), told.get("reason", "")
    if score is None and isinstance(passed, bool):
        score = float(passed)
    if not is_number(score) or not 0 <= score <= 1:
        return None
    if passed is None:
        passed = score >= 1
    if not isinstance(passed, bool) or not isinstance(reason, str):
        return None
    return Grade(check="custom", value=float(score), passed=passed, reason=reason)


class _Kept:
    """What a grader prints, as far as anybody will read it."""

    def __init__(self, name: str, *, strict: bool = True) -> None:
        self._name = name
        self._strict = strict
        self.data = b""

    def __call__(self, chunk: bytes) -> None:
        self.data += chunk
        if len(self.data) > _MOST_BYTES:
            if self._strict:
                raise GraderError(f"the grader {self._name} printed more than {_MOST_BYTES} bytes")
            self.data = self.data[-_SHOWN:]

    def tail(self) -> str:
        """Its last words."""
        return self.data[-_SHOWN:].decode(errors="replace").strip()


def _short(data: bytes) -> str:
    return shorten(data.decode(errors="replace").strip(), _SHOWN)
