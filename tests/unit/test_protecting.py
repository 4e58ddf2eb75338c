"""Protected files: put back whatever the agent made of them, and from nothing but what they were."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from whet.errors import WorkspaceError
from whet.workspace.protected import ProtectedItem, ProtectedPaths, keep_protected, put_back

TESTS = ProtectedPaths(holds=lambda path: path.startswith("test/"), guards=lambda _: False, leads_to=lambda _: True)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    (folder / "test").mkdir(parents=True)
    (folder / "test" / "a.sh").write_text("exit 1\n")
    (folder / "test" / "a.sh").chmod(0o755)
    (folder / "free.txt").write_text("free\n")
    return folder


@pytest.fixture
def kept(workspace: Path, tmp_path: Path) -> tuple[ProtectedItem, ...]:
    return keep_protected(workspace, TESTS, tmp_path / "store")


def test_a_file_that_was_added_to_a_protected_folder_is_removed(
    workspace: Path, kept: tuple[ProtectedItem, ...]
) -> None:
    (workspace / "test" / "conftest.py").write_text("")
    (workspace / "test" / "deep").mkdir()
    (workspace / "test" / "deep" / "more.sh").symlink_to("../a.sh")
    (workspace / "more.txt").write_text("")

    restored = put_back(workspace, TESTS, kept)

    files = sorted(str(path.relative_to(workspace)) for path in workspace.rglob("*") if not path.is_dir())
    assert files == ["free.txt", "more.txt", "test/a.sh"]
    assert restored == ("test/conftest.py", "test/deep/more.sh")


def test_a_file_of_which_only_the_mode_changed_is_put_back(workspace: Path, kept: tuple[ProtectedItem, ...]) -> None:
    (workspace / "test" / "a.sh").chmod(0o644)

    restored = put_back(workspace, TESTS, kept)

    assert restored == ("test/a.sh",)
    assert stat.S_IMODE((workspace / "test" / "a.sh").stat().st_mode) == 0o755


@pytest.mark.parametrize("tamper", [lambda copy: copy.write_text("exit 0\n"), lambda copy: copy.unlink()])
def test_nothing_is_put_back_from_a_copy_that_is_not_what_it_was(
    workspace: Path, kept: tuple[ProtectedItem, ...], tamper
) -> None:
    (workspace / "test" / "a.sh").unlink()
    tamper(Path(next(item.copy for item in kept if item.copy)))

    with pytest.raises(WorkspaceError, match=r"copy of the protected file test/a\.sh has changed"):
        put_back(workspace, TESTS, kept)

    assert not (workspace / "test" / "a.sh").exists()
