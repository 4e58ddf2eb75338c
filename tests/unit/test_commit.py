"""Which commit a whet was made from."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from whet import commit
from whet.cli.machine.installation import describe_stale
from whet.commit import commit_of_clone

_GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with one commit."""
    root = tmp_path / "clone"
    package = root / "src" / "whet"
    package.mkdir(parents=True)
    shutil.copy(commit.__file__, package / "commit.py")
    _git(root, "init", "--quiet")
    _git(root, "add", ".")
    _git(root, "commit", "--quiet", "--message", "Begin", "--date", "2026-01-02T03:04:05Z")
    return root


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run([*_GIT, *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def test_a_clone_names_its_commit_and_the_date(clone: Path) -> None:
    named = commit_of_clone(clone)

    assert named == _git(clone, "log", "-1", "--abbrev=9", "--format=%h %cs")


@pytest.mark.parametrize("file", ["src/whet/commit.py", "src/whet/new.py"])
def test_a_clone_says_that_its_source_differs_from_the_commit(clone: Path, file: str) -> None:
    before = commit_of_clone(clone)

    (clone / file).write_text("changed")

    assert commit_of_clone(clone) == f"{before}, with changes"


def test_notes_beside_the_source_are_no_change(clone: Path) -> None:
    before = commit_of_clone(clone)

    (clone / "notes.txt").write_text("mine")

    assert commit_of_clone(clone) == before


def test_a_copy_in_a_repository_of_somebody_else_does_not_name_their_commit(clone: Path) -> None:
    copy = clone / "vendor"
    (copy / "src").mkdir(parents=True)

    assert commit_of_clone(copy) is None


def test_a_hook_of_another_repository_does_not_lead_astray(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = commit_of_clone(clone)
    _git(tmp_path, "init", "--quiet", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))

    assert commit_of_clone(clone) == before


def test_without_git_no_commit_is_named(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert commit_of_clone(clone) is None


def test_a_repository_without_commits_names_none(tmp_path: Path) -> None:
    _git(tmp_path, "init", "--quiet")

    assert commit_of_clone(tmp_path) is None


@pytest.fixture
def installed(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What pip notes when it installs the clone, before everything else on the path; the package that it installs."""
    facts = tmp_path / "site" / "whet_eval-0.1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: whet-eval\nVersion: 0.1.0\n")
    (facts / "direct_url.json").write_text(json.dumps({"url": clone.as_uri(), "dir_info": {}}))
    (facts.parent / commit.BUILT).write_text(f"{commit_of_clone(clone)}\n")
    monkeypatch.syspath_prepend(facts.parent)
    return facts.parent


def test_an_installation_is_stale_once_its_clone_moves_on(clone: Path, installed: Path) -> None:
    before = describe_stale(installed)
    _git(clone, "commit", "--quiet", "--allow-empty", "--message", "Go on")

    now = describe_stale(installed)

    assert before is None
    assert (
        now
        == f"it was installed from {clone}, which is at {commit_of_clone(clone)} by now: install it again from there"
    )


@pytest.mark.parametrize(
    "noted", ["", "{", "[]", '{"url": "file:///gone", "dir_info": {}}', '{"url": "file:///a.whl", "archive_info": {}}']
)
def test_without_a_clone_that_can_be_asked_nothing_is_called_stale(clone: Path, installed: Path, noted: str) -> None:
    _git(clone, "commit", "--quiet", "--allow-empty", "--message", "Go on")

    next(installed.glob("*.dist-info/direct_url.json")).write_text(noted)

    assert describe_stale(installed) is None


def test_an_editable_installation_is_never_stale(clone: Path, installed: Path) -> None:
    (installed / commit.BUILT).unlink()

    assert describe_stale(installed) is None


def test_what_was_built_names_the_commit_of_the_build(tmp_path: Path) -> None:
    (tmp_path / commit.BUILT).write_text("0123456789 2026-01-02\n")

    assert commit.commit_of_build(tmp_path) == "0123456789 2026-01-02"


@pytest.mark.parametrize("text", ["", "0123456789", "0123456789 2026-01-02\x1b[31m", "\xff"])
def test_a_damaged_file_of_the_build_names_no_commit(tmp_path: Path, text: str) -> None:
    (tmp_path / commit.BUILT).write_bytes(text.encode("latin-1"))

    assert commit.commit_of_build(tmp_path) is None
