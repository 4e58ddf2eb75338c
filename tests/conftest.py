"""What all tests share: an environment of their own, the sandboxes, and honesty about what was skipped."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from whet.ground.bubblewrap import BubblewrapSandbox
from whet.ground.sandbox import Availability

STRICT = "WHET_CI_STRICT"
HARBOR = "harbor==0.25.0"
CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
_FOR_ROOT = "differs for root, and you are not: make test-root as root, or .ci/run, which does both"


@lru_cache
def bubblewrap_state() -> Availability:
    """Whether bubblewrap can be used here; asked once per process."""
    return BubblewrapSandbox.availability()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs root or bubblewrap where there is none, and say why."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip(_FOR_ROOT)
    if item.get_closest_marker("bubblewrap") and not bubblewrap_state().usable:
        pytest.skip(f"bubblewrap cannot be used here: {bubblewrap_state().reason}")


@pytest.fixture(scope="session", autouse=True)
def _nobodys_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests see nothing of the person who runs them, and neither do the processes that they start."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.delenv("XDG_CONFIG_HOME", raising=False)
        for name in [name for name in os.environ if name.startswith("WHET_")]:
            patch.delenv(name)
        # A shell that starts us in the background has these ignored, and whatever we start would ignore them too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        yield


@pytest.fixture(params=["local", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)])
def sandbox_name(request: pytest.FixtureRequest) -> str:
    """Each sandbox in turn."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has Harbor's validator and its reader of tasks; without what only its other commands need."""
    newer = next(_newer_pythons(), None)
    if newer is None:
        pytest.skip("there is no Python 3.12 or newer, which Harbor needs")
    place = tmp_path_factory.mktemp("harbor")
    python = place / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [newer, "-m", "venv", str(place)],
        [*pip, "--no-deps", HARBOR],
        [*pip, "--constraint", str(CONSTRAINTS), "pydantic", "toml", "pathspec"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return python


def _newer_pythons() -> Iterator[str]:
    """The Pythons that are new enough; where pyenv chooses, also those that it does not choose."""
    named = [found for name in ("3", "3.12", "3.13", "3.14") if (found := shutil.which(f"python{name}"))]
    kept = [str(path) for found in named for path in Path(found).parent.parent.glob("versions/3.1[2-9]*/bin/python3")]
    asked = "import ensurepip, sys; print(sys.version_info >= (3, 12))"
    for python in (sys.executable, *named, *sorted(set(kept)), "/usr/bin/python3"):
        said = subprocess.run([python, "-c", asked], capture_output=True, check=False, text=True)
        if re.fullmatch(r"True\n", said.stdout):
            yield python


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under WHET_CI_STRICT a promise that was not tested makes the session red."""
    if os.environ.get(STRICT) == "1" and session.exitstatus == pytest.ExitCode.OK and _untested(_skips(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was skipped and why, also with -q."""
    skips = _skips(config)
    for reason, tests in sorted(skips.items()):
        terminalreporter.write_line(f"skipped: {reason} ({len(tests)}): {', '.join(sorted(tests)[:3])}")
    if os.environ.get(STRICT) == "1" and _untested(skips):
        terminalreporter.write_line(f"{STRICT}=1: the skips above leave promises untested, so this session is red")


def _skips(config: pytest.Config) -> dict[str, set[str]]:
    """The tests that were skipped, by reason; on a worker of xdist there are none to tell."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    found: dict[str, set[str]] = {}
    for report in reporter.stats.get("skipped", []) if reporter else []:
        said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found.setdefault(said.removeprefix("Skipped: "), set()).add(Path(report.nodeid).name)
    return found


def _untested(skips: dict[str, set[str]]) -> bool:
    """Whether anything was skipped but for what is run as root elsewhere."""
    return any(reason != _FOR_ROOT for reason in skips)
