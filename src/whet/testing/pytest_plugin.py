"""Suites under pytest: a case on a runner is a test, its tags are marks, and an expected failure is a strict xfail.

A suite file is one that is called `suite.py`, `suite_*.py` or `*_suite.py` (or as the ini option `whet_suites` says).
When the first selected case of a suite is due, one `whet run` runs all of them, as on the command line: several at the
same time, each in its own boundary.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

from whet.errors import WhetError
from whet.reading.text import path_for_people

if TYPE_CHECKING:
    from whet.model.run import Runner
    from whet.model.suite import Case


# Case, runner and arm.
_Key = tuple[str, str, str]

_PATTERNS = ("suite.py", "suite_*.py", "*_suite.py")
_NOTHING_WAS_RUN = 2
_PACKAGE = str(Path(__file__).parent.parent) + os.sep
_EXPECTATIONS = "whet.checks.message"
_IMPORTS_WHET = re.compile(rb"^\s*(?:from|import)\s+whet\b", re.MULTILINE)
# Marks that pytest itself acts on: a tag of that name must not.
_PYTESTS_OWN = frozenset({"skip", "skipif", "xfail", "parametrize", "usefixtures", "filterwarnings"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the files of suites and the runners."""
    parser.addini("whet_suites", "file names that are whet suites", type="args", default=list(_PATTERNS))
    group = parser.getgroup("whet", "suites of agent cases")
    group.addoption("--whet-runner", action="append", default=[], metavar="ID", help="only these runners of whet.toml")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the files that are suites."""
    patterns = parent.config.getini("whet_suites")
    if file_path.suffix != ".py" or not any(fnmatch(file_path.name, pattern) for pattern in patterns):
        return None
    if _IMPORTS_WHET.search(file_path.read_bytes()) is None:
        return None
    return SuiteFile.from_parent(parent, path=file_path)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[Any]) -> Generator[None, Any, None]:
    """Show an expectation that fails in an ordinary test at the line of that test, and not inside of whet."""
    excinfo = call.excinfo
    if excinfo is None or type(excinfo.value).__module__ != _EXPECTATIONS:
        yield
        return
    _leave_whet_out(excinfo.tb)
    outcome = yield
    crash = getattr(outcome.get_result().longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = crash.message.removeprefix(f"{_EXPECTATIONS}.")


def _leave_whet_out(trace: TracebackType | None) -> None:
    while trace is not None:
        while (inner := trace.tb_next) is not None and inner.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            trace.tb_next = inner.tb_next
        trace = trace.tb_next


class SuiteFile(pytest.File):
    """A suite, with a test for every case on every runner in every arm."""

    _results: dict[_Key, dict[str, Any]] | None = None

    def collect(self) -> Iterator[CaseItem]:
        """The cases in declared order."""
        # Only here: every run of pytest loads this plug-in, and most have no suite.
        from whet.plan.settings.load import load_settings
        from whet.suites.format import load_suite

        try:
            with _own_modules(self.path.parent):
                suite = load_suite(self.path)
            settings = load_settings(self.path, flags={}, environ=os.environ)
        except WhetError as error:
            raise self.CollectError(str(error)) from error
        runners = self._runners(settings.runners)
        for tag in suite.tags:
            self.config.addinivalue_line("markers", f"{_mark(tag)}: a tag of a whet suite")
        for case, runner, arm in product(suite.cases, runners, suite.arms):
            parts = [runner.id] if len(settings.runners) > 1 else []
            parts += [arm] if len(suite.arms) > 1 else []
            name = f"{case.id}[{'-'.join(parts)}]" if parts else case.id
            yield CaseItem.from_parent(self, name=name, case=case, runner=runner, arm=arm)

    def _runners(self, known: tuple[Runner, ...]) -> list[Runner]:
        """Return the runners that were named, or all."""
        selection = self.config.getoption("--whet-runner")
        names = [runner.id for runner in known]
        for name in selection:
            if name not in names:
                raise self.CollectError(f'no runner is called "{name}" (known: {", ".join(names) or "none"})')
        if not known:
            raise self.CollectError(f"{self.path}: no runner to run it on; add one to whet.toml")
        return [runner for runner in known if not selection or runner.id in selection]

    def result_of(self, item: CaseItem) -> dict[str, Any]:
        """Return the execution of *item*; run it together with the others unless pytest has several workers."""
        if hasattr(self.config, "workerinput"):
            return _run(self.path, [item])[item.key]
        if self._results is None:
            mine = [
                candidate
                for candidate in self.session.items
                if isinstance(candidate, CaseItem) and candidate.parent is self
            ]
            self._results = _run(self.path, mine)
        return self._results[item.key]


class CaseItem(pytest.Item):
    """One case on one runner in one arm."""

    def __init__(self, *, case: Case, runner: Runner, arm: str, **others: Any) -> None:
        super().__init__(**others)
        self.key = (case.id, runner.id, arm)
        self._execution: dict[str, Any] = {}
        self._expected_fail = case.expected_fail
        for tag in case.tags:
            self.add_marker(_mark(tag))
        if case.expected_fail:
            self.add_marker(pytest.mark.xfail(strict=True, reason="expected_fail", raises=CaseFailed))

    def setup(self) -> None:
        """Run it; an errored trial is an error, not a failure."""
        assert isinstance(self.parent, SuiteFile)
        self._execution = self.parent.result_of(self)
        if self._execution["status"] == "void":
            pytest.skip("void: an agent that solves nothing passes it")
        if self._execution["status"] in {"errored", "not-run"}:
            pytest.fail(self._why(), pytrace=False)

    def runtest(self) -> None:
        """Fail if a check did; only a failed check can be an expected failure."""
        if self._execution["status"] == "failed" and self._expected_fail:
            pytest.fail(self._why(), pytrace=False)
        if self._execution["status"] in {"failed", "expected-failed"}:
            raise CaseFailed(self._why())

    def _why(self) -> str:
        return _why(self._execution, self.config.invocation_params.dir)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the message of the check, without the traceback through pytest."""
        if isinstance(excinfo.value, CaseFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where it is written."""
        return self.path, None, self.name


class CaseFailed(AssertionError):
    """A check of a case failed."""


@contextmanager
def _own_modules(folder: Path) -> Iterator[None]:
    """Forget what a suite imports from its own folder: the next suite may have a helper of the same name."""
    before, places = set(sys.modules), list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = places
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if isinstance(file, str) and Path(file).is_relative_to(folder):
                del sys.modules[name]


def _mark(tag: str) -> str:
    """Return the mark of a tag."""
    name = re.sub(r"\W", "_", tag)
    return f"tag_{name}" if name in _PYTESTS_OWN or name.startswith("_") else name


def _run(path: Path, items: list[CaseItem]) -> dict[_Key, dict[str, Any]]:
    """Run exactly *items*: one run per runner, because a run runs every case on every runner."""
    results: dict[_Key, dict[str, Any]] = {}
    for runner in dict.fromkeys(item.key[1] for item in items):
        results |= _run_on(path, runner, [item.key[0] for item in items if item.key[1] == runner])
    return results


def _run_on(path: Path, runner: str, cases: list[str]) -> dict[_Key, dict[str, Any]]:
    """Run *cases* by `whet run`, in a process without the threads and hooks of pytest."""
    runs = path.parent / ".whet" / "pytest"
    with tempfile.TemporaryDirectory(prefix="whet-pytest-") as folder:
        results = Path(folder) / "results.json"
        argv = [sys.executable, "-m", "whet", "run", str(path), "--runner", runner]
        argv += ["--output-dir", str(runs), "--reporter", f"json={results}"]
        # `--case` splits at commas. Such ids are rare, so run the whole suite then.
        if not any("," in case for case in cases):
            argv += [word for case in dict.fromkeys(cases) for word in ("--case", case)]
        process = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if process.returncode == _NOTHING_WAS_RUN or not results.exists():
            pytest.fail(process.stderr.strip() or f"whet run ended with {process.returncode}", pytrace=False)
        document = json.loads(results.read_text(encoding="utf-8"))
    run_dir = str(runs / document["run_id"])
    return {
        (case["id"], execution["runner"], execution["arm"]): {**execution, "run_dir": run_dir}
        for case in document["cases"]
        for execution in case["executions"]
    }


def _why(execution: dict[str, Any], start: Path) -> str:
    """Return the message of each failed trial first, since a summary has one line; then the place and the evidence."""
    lines: list[str] = []
    for trial in execution["trials"]:
        failure = trial["failure"]
        if failure is None:
            continue
        lines.append(failure["message"])
        if place := failure["location"]:
            lines.append(f"  at       {path_for_people(Path(place['file']), start)}:{place['line']}")
        lines.append(f"  evidence {path_for_people(Path(execution['run_dir']), start)}/{trial['artifact_dir']}")
    if execution["snapshot"] and not lines:
        lines.append(execution["snapshot"]["message"])
    return "\n".join(lines) or f"status {execution['status']}"
