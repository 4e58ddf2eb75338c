"""A project in a temporary folder, and the real command run in it by a child process."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

from msgspec import Struct, field

from whet.record.file_hashes import _trial_files, digest_of
from whet.record.journal.chain import Chain, read_line
from whet_process import WhetProcess, run_whet, start_whet

# Nothing here should take so long; whatever does, hangs.
PATIENCE_S = 300

# The prompt is the program: what an agent does stands beside the case that it does it for.
SHELL = """
[runners.sh.agent]
type = "command"
command = "sh"
"""
PYTHON = """
[runners.py.agent]
type = "command"
command = "python3"
args = ["-"]
"""
EVENTS = """
[runners.sh.agent]
type = "command"
command = "sh"
output = "events"
"""
HEADER = """
import os, sys, time, signal, subprocess, asyncio
from pathlib import Path
from whet import *
def ok(report, ctx): pass
def no(report, ctx): assert False, "it is not so"
"""


class Outcome(Struct, frozen=True):
    """How a run of the command ended, and the record that it left."""

    code: int
    stdout: str
    stderr: str
    output_dir: Path

    @property
    def folder(self) -> Path:
        """The newest run's folder."""
        return (self.output_dir / "latest").resolve(strict=True)

    @property
    def results(self) -> dict[str, Any]:
        """The newest run's results."""
        found: dict[str, Any] = json.loads((self.folder / "results.json").read_bytes())
        return found

    @property
    def asked(self) -> dict[str, Any]:
        """What the newest run was asked: its run.json."""
        found: dict[str, Any] = json.loads((self.folder / "run.json").read_bytes())
        return found

    @property
    def trials(self) -> list[dict[str, Any]]:
        """Every trial in the order of the results, with its case and runner."""
        return [
            {"case": case["id"], "runner": execution["runner"], **trial}
            for case in self.results["cases"]
            for execution in case["executions"]
            for trial in execution["trials"]
        ]

    @property
    def statuses(self) -> dict[str, str]:
        """The status of each case's last trial."""
        return {trial["case"]: trial["status"] for trial in self.trials}

    @property
    def codes(self) -> dict[str, str | None]:
        """The failure code of each case's last trial."""
        return {trial["case"]: (trial["failure"] or {}).get("code") for trial in self.trials}

    def trial(self, case: str) -> dict[str, Any]:
        """The first trial of *case*."""
        return next(trial for trial in self.trials if trial["case"] == case)

    def message(self, case: str) -> str:
        """Why *case* did not pass."""
        said: str = (self.trial(case)["failure"] or {}).get("message", "")
        return said

    def artifact(self, case: str, name: str) -> Path:
        """A file of the deciding attempt of *case*."""
        path: Path = self.folder / self.trial(case)["artifact_dir"] / name
        return path

    def session(self, case: str) -> dict[str, Any]:
        """What was seen of the agent."""
        found: dict[str, Any] = json.loads(self.artifact(case, "session.json").read_bytes())
        return found


class Project(Struct):
    """A folder with a suite and settings."""

    root: Path
    sandbox: str = "local"
    env: dict[str, str] = field(default_factory=dict)
    # In the environment of whatever agents of this project start, so that what is left of it can be found.
    token: str = field(default_factory=lambda: f"whet-test-{secrets.token_hex(8)}")
    # What starts the command, where it is not started as we were.
    starter: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.outside.mkdir(exist_ok=True)
        self.root.mkdir(exist_ok=True)
        (self.root.parent / "home").mkdir(exist_ok=True)

    @property
    def outside(self) -> Path:
        """The folder beside it; `{token}` and `{outside}` in suites and settings are filled in."""
        return self.root.parent / "outside"

    @property
    def output_dir(self) -> Path:
        """Where runs are recorded."""
        return self.root / ".whet" / "runs"

    def write(self, name: str, text: str, *, mode: int = 0o644) -> Path:
        """A file of the project."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        filled = dedent(text).replace("{token}", self.token).replace("{outside}", str(self.outside))
        path.write_text(filled)
        path.chmod(mode)
        return path

    def suite(self, text: str, name: str = "suite.py") -> Path:
        """A suite, with the names that all of them use."""
        return self.write(name, HEADER + dedent(text))

    def settings(self, text: str, *, name: str = "whet.toml") -> Path:
        """The settings of the project."""
        return self.write(name, text)

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Little, and nothing of whoever runs the tests."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root.parent / "home"),
            "LANG": "C.UTF-8",
            "WHET_SANDBOX": self.sandbox,
            **self.env,
            **(env or {}),
        }

    def whet(
        self, *args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, cold: bool = False
    ) -> Outcome:
        """Run `whet` with any arguments; *cold*, where it matters how an interpreter starts."""
        ended = run_whet(
            *args,
            cwd=cwd or self.root,
            env=self.environment(env),
            timeout_s=PATIENCE_S,
            starter=self.starter,
            cold=cold,
        )
        return Outcome(ended.returncode, ended.stdout.decode(), ended.stderr.decode(), self.output_dir)

    def run(self, *args: str, env: Mapping[str, str] | None = None) -> Outcome:
        """Run the suite."""
        return self.whet("run", "suite.py", *args, env=env)

    def start(
        self, *args: str, env: Mapping[str, str] | None = None, command: str = "run", cold: bool = False
    ) -> WhetProcess:
        """Begin a run and go on; a session of its own, as a shell gives a job."""
        return start_whet(command, *args, cwd=self.root, env=self.environment(env), starter=self.starter, cold=cold)

    def outcome(self, process: WhetProcess, *, within_s: float = 15) -> Outcome:
        """Wait for a run that was begun."""
        try:
            out, err = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return Outcome(process.returncode, out.decode(), err.decode(), self.output_dir)

    def journal(self) -> list[dict[str, Any]]:
        """The lines of the newest run's journal."""
        path = self.output_dir / "latest" / "journal.jsonl"
        lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
        # The last piece is empty, or a line that a kill cut off.
        return [json.loads(line) for line in lines[:-1]]

    def left(self) -> list[int]:
        """Processes that still run and bear our token."""
        return list(_bearing(self.token))

    def left_after_a_while(self, within_s: float = 5) -> list[int]:
        """The same, for what the kernel is just ending."""
        deadline = time.monotonic() + within_s
        while (found := self.left()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def clear(self) -> None:
        """End what a failing test leaves."""
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def wait_for(path: Path, *, count: int = 1, pattern: str | None = None) -> None:
    """Wait until *path* is there, or holds so many files that match *pattern*."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if path.exists() if pattern is None else len(list(path.glob(pattern))) >= count:
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} never came")


def seal_again(folder: Path) -> None:
    """Give the changed record in *folder* hashes that fit, as somebody can who passes it on."""
    journal, chain = folder / "journal.jsonl", Chain()
    lines = []
    for raw in journal.read_bytes().splitlines(keepends=True):
        line = read_line(raw, 0, 0)
        files = {path: digest_of(f"{folder}/{path}", found) for path, found in _trial_files(folder, line.result)}
        lines.append(chain.forge(line.result, files, line.run, line.grown, line.look))
        chain.accept(lines[-1])
    journal.write_bytes(b"".join(lines))
    (folder / "results.json").unlink()


def _bearing(token: str) -> Iterator[int]:
    wanted = token.encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            seen = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if wanted in seen and state not in (b"Z", b"X"):
            yield int(entry.name)
