"""A real server in its own process, and clients that use it over HTTP."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
from msgspec import Struct, field

from whet.service.api.auth import SCOPES, create_key
from whet.service.database import open_database
from whet_process import WhetProcess, run_whet, start_whet

PATIENCE_S = 300
SUITES = "/api/v1/eval-suites"


class Server(Struct):
    """`whet serve` on a database and a data folder; can be stopped and started again."""

    database: str
    data_dir: Path
    options: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    # A command that becomes the one that follows it.
    before: tuple[str, ...] = ()
    process: WhetProcess | None = None
    url: str = ""
    # Whether an interpreter is to be started for it.
    cold: bool = False

    def __post_init__(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)

    @property
    def log(self) -> Path:
        return self.data_dir.with_suffix(".log")

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8", **self.env}

    def start(self) -> Server:
        """Begin, and wait until it answers."""
        with self.log.open("ab") as log:
            self.process = start_whet(
                *("serve", "--port", "0", *self._where(), *self.options),
                cwd=Path.cwd(),
                env={**self.environment(), "WHET_DATABASE": self.database},
                starter=self.before,
                cold=self.cold,
                stderr=log,
            )
        assert self.process.stdout is not None
        said = self.process.stdout.readline().decode()
        if not said.startswith("whet answers on "):
            self._ended()
            raise AssertionError(self.log.read_text())
        self.url = said.split()[3]
        return self

    def _where(self) -> list[str]:
        return ["--data-dir", str(self.data_dir)]

    def key(self, organisation: str, *scopes: str) -> str:
        """A new key."""
        with closing(open_database(self.database)) as database:
            return create_key(database, organisation, scopes or SCOPES)[1]

    def whet(self, *arguments: str) -> str:
        """What a command prints with `--database`."""
        return self.plain(*arguments, "--database", self.database)

    def plain(self, *arguments: str) -> str:
        """What a command prints that succeeds."""
        ended = self.ended(*arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def fails(self, *arguments: str) -> str:
        """The error that a command prints."""
        ended = self.ended(*arguments)
        assert ended.returncode == 2, ended.stdout + ended.stderr
        return ended.stderr

    def ended(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command that has ended."""
        ended = run_whet(*arguments, cwd=Path.cwd(), env=self.environment(), timeout_s=PATIENCE_S)
        printed = (ended.stdout.decode(), ended.stderr.decode())
        return subprocess.CompletedProcess(arguments, ended.returncode, *printed)

    def client(self, key: str | None) -> httpx2.Client:
        headers = {"authorization": f"Bearer {key}"} if key is not None else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)

    def kill(self) -> None:
        """Kill it."""
        assert self.process is not None
        self.process.kill()
        self._ended()

    def stop(self) -> int:
        """Stop it as an operator would; returns the exit code."""
        if self.process is None:
            return 0
        self.process.terminate()
        return self._ended()

    def _ended(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        self.process = None
        return code


def suite_document(**changes: Any) -> dict[str, Any]:
    """A suite that a service takes."""
    return {
        "name": "smoke",
        "source_kind": "manual",
        "verifier_kind": "deterministic",
        "cases_json": [{"case_kind": "task_package", "environment_ref": "r2://bucket/smoke.tar.gz"}],
        **changes,
    }


def wait_until(asked: Any, *, within_s: float = PATIENCE_S) -> Any:
    """The first true answer of *asked*."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if found := asked():
            return found
        time.sleep(0.05)
    raise AssertionError("it never happened")
