"""What all tests share: an environment of their own, the sandboxes, and honesty about what was skipped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from guard import stand_guard
from pythons import find_pythons
from whet.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from whet.sandbox.contract import Availability

STRICT = "WHET_CI_STRICT"
HARBOR = "harbor==0.25.0"
_HERE = Path(__file__).resolve().parent
CONSTRAINTS = _HERE.parent / "constraints.txt"
# What `make test` leaves to `make test-all`, by folder; a test with a browser is marked wherever it lies.
_MARKS_OF_FOLDERS = {
    "agents": "real_agents",
    "cluster": "cluster",
    "inside": "containers",
    "installing": "packaging",
    "looking": "browser",
}
# What takes longest begins first, so that nobody waits for it in the end. A worker starts one cluster, and keeps it.
_FIRST = ("cluster", "real_agents", "containers", "packaging", "browser", "slow")
_FOR_ROOT = "differs for root, and you are not: make test-root as root, or .ci/run, which does both"


@lru_cache
def bubblewrap_state() -> Availability:
    """Whether bubblewrap can be used here; asked once per process."""
    return BubblewrapSandbox.availability()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make` asks for this, so that killing it ends the tests; a shell in which you type does not."""
    parser.addoption("--with-parent", action="store_true", help="end when the process that started pytest ends")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let nothing outlive the tests; workers of xdist are below the guard of the process that started them."""
    if not hasattr(config, "workerinput"):
        stand_guard(with_parent=config.getoption("--with-parent"))


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test with the tier that its folder or its browser puts it into."""
    folder = item.path.relative_to(_HERE).parts[0]
    if folder in _MARKS_OF_FOLDERS:
        item.add_marker(_MARKS_OF_FOLDERS[folder])
    if "browser" in getattr(item, "fixturenames", ()):
        item.add_marker("browser")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    marks = {mark.name for mark in item.iter_markers()}
    return next((rank for rank, name in enumerate(_FIRST) if name in marks), len(_FIRST))


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
        patch.setenv("PATH", _path_without_shims())
        # A shell that starts us in the background, and nohup, ignore these: whatever we start would do so too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        yield


def _path_without_shims() -> str:
    """PATH, on which `python3` is an interpreter. A script that chooses one takes four times as long to start."""
    python = shutil.which("python3")
    if python is None or Path(python).read_bytes()[:2] != b"#!":
        return os.environ["PATH"]
    return os.pathsep.join([str(Path(sys.base_prefix) / "bin"), os.environ["PATH"]])


@pytest.fixture(params=["local", pytest.param("bubblewrap", marks=pytest.mark.bubblewrap)])
def sandbox_name(request: pytest.FixtureRequest) -> str:
    """Each sandbox in turn."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has Harbor's validator and its reader of tasks; without what only its other commands need."""
    newer = [python for version, python in find_pythons().items() if version != "3.11"]
    if not newer:
        pytest.skip("there is no Python 3.12 or newer, which Harbor needs")
    place = tmp_path_factory.mktemp("harbor")
    python = place / "bin" / "python"
    # By our own pip: to give it one and to compile what it gets takes longer than to install that.
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
    pip += ["install", "--no-compile"]
    for command in (
        [newer[0], "-m", "venv", "--without-pip", str(place)],
        [*pip, "--no-deps", HARBOR],
        [*pip, "--constraint", str(CONSTRAINTS), "pydantic", "toml", "pathspec"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    return python


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under WHET_CI_STRICT a promise that was not tested makes the session red."""
    if os.environ.get(STRICT) == "1" and session.exitstatus == pytest.ExitCode.OK and _untested(_skips(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was skipped and why, and in which order tests ran, also with -q."""
    if (seed := config.getoption("randomly_seed", None)) is not None:
        terminalreporter.write_line(f"order: SEED={seed}")
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
