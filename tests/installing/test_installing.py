"""whet comes out of a wheel, a source distribution and a clone, by every tool and on every Python that is here."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from building import CONSTRAINTS, GIT, ROOT, Built, run

from pythons import find_pythons

_SUITE = """
from whet import case

@case(prompt="Write a greeting into hello.txt.")
def greets(session, ctx):
    assert ctx.changes().created == ("hello.txt",)
"""
_SETTINGS = """
[runners.main.agent]
type = "scripted"
script = "agent.toml"
"""
_SCRIPT = """
[[steps]]
write = "hello.txt"
text = "Hello!"
"""
_TOOLS = Path(sys.executable).parent


def _with_pip(built: Built, python: str, place: Path) -> Path:
    run([python, "-m", "venv", "--without-pip", "env"], place)
    pip = [str(_TOOLS / "pip"), "--python", "env/bin/python", "install", "--no-compile"]
    run([*pip, "--constraint", str(CONSTRAINTS), str(built.wheel)], place)
    return place / "env/bin"


def _with_pipx(built: Built, python: str, place: Path) -> Path:
    return _pipx(
        place, python, "whet-eval==0.1.0", f"--pip-args=--find-links={built.folder} --constraint={CONSTRAINTS}"
    )


def _with_uv(built: Built, python: str, place: Path) -> Path:
    where = {"UV_TOOL_DIR": str(place / "tools"), "UV_TOOL_BIN_DIR": str(place / "bin")}
    uv = [str(_TOOLS / "uv"), "tool", "install", "--python", python, "--constraint", str(CONSTRAINTS)]
    run([*uv, "--find-links", str(built.folder), "whet-eval==0.1.0"], place, **where)
    return place / "bin"


def _pipx(place: Path, python: str, *arguments: str) -> Path:
    where = {"PIPX_HOME": str(place / "pipx"), "PIPX_BIN_DIR": str(place / "bin"), "PIPX_MAN_DIR": str(place / "man")}
    run([str(_TOOLS / "pipx"), "install", "--python", python, *arguments], place, **where)
    return place / "bin"


@pytest.mark.parametrize("python", find_pythons())
@pytest.mark.parametrize("install", [_with_pip, _with_pipx, _with_uv])
def test_each_tool_installs_whet_on_each_python(
    built: Built, tmp_path: Path, python: str, install: Callable[[Built, str, Path], Path]
) -> None:
    commands = install(built, find_pythons()[python], tmp_path)

    assert run([str(commands / "whet"), "--version"], tmp_path) == built.version_line
    assert run([str(commands / "whet-eval"), "--version"], tmp_path) == built.version_line
    _try_out(commands / "whet", tmp_path)


def _try_out(whet: Path, place: Path) -> None:
    """Use what needs files of the package besides its modules."""
    for name, text in (("suite.py", _SUITE), ("whet.toml", _SETTINGS), ("agent.toml", _SCRIPT)):
        (place / name).write_text(text)
    run([str(whet), "run", "suite.py", "--reporter", "html=run.html"], place)

    assert "greets" in (place / "run.html").read_text()
    assert '"$id"' in run([str(whet), "schema", "suite"], place)


def test_uvx_runs_whet_by_the_name_of_the_distribution(built: Built, tmp_path: Path) -> None:
    uvx = [str(_TOOLS / "uvx"), "--python", sys.executable, "--constraints", str(CONSTRAINTS)]
    printed = run([*uvx, "--find-links", str(built.folder), "whet-eval@0.1.0", "--version"], tmp_path)

    assert printed == built.version_line


def test_pipx_installs_a_clone_and_whet_says_when_that_has_moved_on(built: Built, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    run(["git", "clone", "--quiet", str(built.clone), str(clone)], tmp_path)
    commands = _pipx(tmp_path, sys.executable, f"--pip-args=--constraint={CONSTRAINTS}", str(clone))
    version = [str(commands / "whet"), "--version"]

    fresh = subprocess.run(version, cwd=tmp_path, capture_output=True, text=True, check=True)
    run([*GIT, "commit", "--quiet", "--allow-empty", "--message", "Go on"], clone)
    stale = subprocess.run(version, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert (fresh.stdout, fresh.stderr) == (built.version_line, "")
    assert stale.stdout == built.version_line
    assert stale.stderr.startswith(f"note: it was installed from {clone}, which is at ")


def test_a_source_distribution_knows_its_commit_without_git(built: Built, tmp_path: Path) -> None:
    run(["tar", "--extract", "--file", str(built.sdist)], tmp_path)
    source = next(tmp_path.iterdir())

    run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "dist"], source, PATH="")
    built_again = zipfile.ZipFile(next((source / "dist").iterdir()))

    commit = built_again.read("whet/commit.txt").decode().strip()
    assert built.version_line == f"whet 0.1.0 ({commit})\n"


def test_a_folder_without_git_builds_and_says_that_its_commit_is_unknown(built: Built, tmp_path: Path) -> None:
    run(["git", "worktree", "add", "--detach", str(tmp_path / "copy")], built.clone)
    (tmp_path / "copy/.git").unlink()

    run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "dist"], tmp_path / "copy")
    wheel = zipfile.ZipFile(next((tmp_path / "copy/dist").iterdir()))

    assert "whet/commit.txt" not in wheel.namelist()
    assert "whet/version.py" in wheel.namelist()


def test_an_index_shows_the_readme_without_links_of_the_repository(built: Built) -> None:
    metadata = zipfile.ZipFile(built.wheel).read("whet_eval-0.1.0.dist-info/METADATA").decode()

    assert "\nDescription-Content-Type: text/markdown\n\n# whet\n" in metadata
    assert re.findall(r"\]\((?!https://)[^)]*\)", metadata) == []


def test_the_wheel_holds_every_file_of_the_package(built: Built) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    files = [path for path in (ROOT / "src/whet").rglob("*") if path.is_file() and "__pycache__" not in path.parts]

    wanted = {str(path.relative_to(ROOT / "src")) for path in files}
    assert {name for name in names if not name.startswith("whet_eval-0.1.0.dist-info/")} == {*wanted, "whet/commit.txt"}
