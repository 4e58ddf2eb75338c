"""Suites under pytest: a case on a runner is a test, its tags are marks, and an expected failure is a strict xfail.

A suite file is one that is called `suite.py`, `suite_*.py` or `*_suite.py` (or as the ini option `whet_suites` says).
The cases that pytest selected are run together by one `whet run` when the first of them is due, so that they run as
they always do: several at once, each in its own boundary.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from whet.model.run import Runner
    from whet.model.suite import Case

_PATTERNS = ("suite.py", "suite_*.py", "*_suite.py")
_NOTHING_WAS_RUN = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which files are suites, and which runners are used."""
    parser.addini("whet_suites", "file names that are whet suites", type="args", default=list(_PATTERNS))
    group = parser.getgroup("whet", "suites of agent cases")
    group.addoption("--whet-runner", action="append", default=[], metavar="ID", help="only these runners of whet.toml")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take the files that are suites."""
    patterns = parent.config.getini("whet_suites")
    if file_path.suffix != ".py" or not any(fnmatch(file_path.name, pattern) for pattern in patterns):
        return None
    if b"whet" not in file_path.read_bytes():
        return None
    return SuiteFile.from_parent(parent, path=file_path)


class SuiteFile(pytest.File):
    """A suite, with a test for every case on every runner."""

    _results: dict[tuple[str, str], dict[str, Any]] | None = None

    def collect(self) -> Iterator[CaseItem]:
        """The cases in declared order."""
        # Only here: every run of pytest loads this plug-in, and most have no suite.
        from whet.config import load_settings  # noqa: PLC0415
        from whet.errors import WhetError  # noqa: PLC0415
        from whet.formats.base import load_suite  # noqa: PLC0415

        wanted = self.config.getoption("--whet-runner")
        try:
            suite = load_suite(self.path)
            settings = load_settings(self.path, flags={}, environ=os.environ)
        except WhetError as error:
            raise self.CollectError(str(error)) from error
        runners = [runner for runner in settings.runners if not wanted or runner.id in wanted]
        if not runners:
            raise self.CollectError(f"{self.path}: no runner to run it on; write one into whet.toml")
        for tag in suite.tags:
            self.config.addinivalue_line("markers", f"{tag}: a tag of a whet suite")
        for case in suite.cases:
            for runner in runners:
                name = case.id if len(settings.runners) == 1 else f"{case.id}[{runner.id}]"
                yield CaseItem.from_parent(self, name=name, case=case, runner=runner)

    def result_of(self, item: CaseItem) -> dict[str, Any]:
        """The execution that *item* stands for, run together with the others unless workers share them out."""
        if hasattr(self.config, "workerinput"):
            return _run(self.path, [item])[item.key]
        if self._results is None:
            mine = [other for other in self.session.items if isinstance(other, CaseItem) and other.parent is self]
            self._results = _run(self.path, mine)
        return self._results[item.key]


class CaseItem(pytest.Item):
    """One case on one runner."""

    def __init__(self, *, case: Case, runner: Runner, **others: Any) -> None:
        super().__init__(**others)
        self.key = (case.id, runner.id)
        self._execution: dict[str, Any] = {}
        for tag in case.tags:
            self.add_marker(tag)
        if case.expected_fail:
            self.add_marker(pytest.mark.xfail(strict=True, reason="expected_fail", raises=CaseFailed))

    def setup(self) -> None:
        """Run it; what was not the agent's doing is an error, not a failure."""
        assert isinstance(self.parent, SuiteFile)
        self._execution = self.parent.result_of(self)
        if self._execution["status"] in {"errored", "not-run"}:
            raise CaseErrored(_why(self._execution))

    def runtest(self) -> None:
        """Fail where a check did."""
        if self._execution["status"] in {"failed", "expected-failed"}:
            raise CaseFailed(_why(self._execution))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What the check said, without the way that it took through pytest."""
        if isinstance(excinfo.value, CaseFailed | CaseErrored):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it is written."""
        return self.path, None, self.name


class CaseFailed(AssertionError):
    """A case did not go as its checks ask."""


class CaseErrored(Exception):
    """A case says nothing, for a reason that is not the agent's."""


def _run(path: Path, items: list[CaseItem]) -> dict[tuple[str, str], dict[str, Any]]:
    """Run these cases by the command itself, in a process without pytest's threads and hooks."""
    runs = path.parent / ".whet" / "pytest"
    with tempfile.TemporaryDirectory(prefix="whet-pytest-") as folder:
        results = Path(folder) / "results.json"
        argv = [sys.executable, "-m", "whet", "run", str(path)]
        argv += ["--output-dir", str(runs), "--reporter", f"json={results}"]
        for case, runner in sorted({item.key for item in items}):
            argv += ["--case", case, "--runner", runner]
        ended = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if ended.returncode == _NOTHING_WAS_RUN or not results.exists():
            raise CaseErrored(ended.stderr.strip() or f"whet run ended with {ended.returncode}")
        document = json.loads(results.read_text(encoding="utf-8"))
    run_dir = str(runs / document["run_id"])
    return {
        (case["id"], execution["runner"]): {**execution, "run_dir": run_dir}
        for case in document["cases"]
        for execution in case["executions"]
    }


def _why(execution: dict[str, Any]) -> str:
    """The failures of its trials, with their places and where the evidence lies."""
    lines: list[str] = []
    for trial in execution["trials"]:
        failure = trial["failure"]
        if failure is None:
            continue
        place = failure["location"]
        where = f"{place['file']}:{place['line']}: " if place else ""
        lines += [f"{where}{failure['message']}", f"  evidence: {execution['run_dir']}/{trial['artifact_dir']}"]
    if execution["snapshot"] and not lines:
        lines.append(execution["snapshot"]["message"])
    return "\n".join(lines) or f"status {execution['status']}"
