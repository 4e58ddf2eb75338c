"""Workspaces: what they show an agent, what they tell about its work, and that nothing it leaves stops us."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whet.errors import WorkspaceError
from whet.model.suite import WorkspaceSpec
from whet.sandbox.bubblewrap._stage import clone
from whet.workspace import mounts
from whet.workspace.contract import Workspace
from whet.workspace.copy import remove_tree
from whet.workspace.make import Workspaces
from whet.workspace.mounts import private_mounts, unmount

EMPTY = WorkspaceSpec()


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    folder.mkdir()
    yield folder
    # pytest's own removal recurses, which hostile trees do not survive.
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture(autouse=True)
def _no_mounts_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test of this process may have given it mounts of its own, with which workspaces are overlays."""
    monkeypatch.setattr(mounts._MountsState, "private", False)


@pytest.fixture
def workspaces(scratch: Path) -> Workspaces:
    return Workspaces(scratch)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    folder = tmp_path / "template"
    (folder / "src").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".hidden").write_text("dot\n")
    (folder / "src" / "a.py").write_text("one\ntwo\nthree\n")
    (folder / "src" / "b.py").write_text("b\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("src/a.py")
    (folder / "loop").symlink_to("loop")
    (folder / "etc").symlink_to("/etc")
    os.utime(folder / "src" / "a.py", ns=(10**18, 10**18))
    return folder


def nest(root: Path, depth: int) -> None:
    """Make *depth* folders inside one another, with a file in the last."""
    fd = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("deep.txt", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    os.close(fd)


# ---- making


def test_an_isolated_workspace_without_a_template_is_an_empty_folder(workspaces, scratch):
    workspace = workspaces.isolated(EMPTY)

    assert workspace.path.parent == scratch
    assert workspace.method == "empty"
    assert list(workspace.path.iterdir()) == []


def test_two_isolated_workspaces_are_two_folders(workspaces):
    one, other = workspaces.isolated(EMPTY), workspaces.isolated(EMPTY)

    assert one.path != other.path


def test_a_copy_has_dotfiles_git_links_modes_times_and_empty_folders(workspaces, template):
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))

    path = workspace.path
    assert workspace.method == "copy"
    assert (path / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"
    assert (path / ".hidden").read_text() == "dot\n"
    assert str((path / "link").readlink()) == "src/a.py"
    assert str((path / "loop").readlink()) == "loop"
    assert str((path / "etc").readlink()) == "/etc"
    assert stat.S_IMODE((path / "run.sh").stat().st_mode) == 0o755
    assert (path / "src" / "a.py").stat().st_mtime_ns == 10**18
    assert (path / "empty").is_dir()


def test_writing_in_a_copy_does_not_reach_the_template(workspaces, template):
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))

    with (workspace.path / "src" / "a.py").open("r+") as file:
        file.write("ONE")

    assert (template / "src" / "a.py").read_text() == "one\ntwo\nthree\n"


def test_a_sparse_file_in_a_template_stays_sparse(workspaces, template):
    with (template / "disk.img").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 30)
        file.write(b"here")

    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))

    copy = workspace.path / "disk.img"
    assert copy.stat().st_size == 1 << 40
    assert copy.stat().st_blocks * 512 < 1 << 20
    with copy.open("rb") as file:
        file.seek(1 << 30)
        assert file.read(4) == b"here"


def test_a_fifo_in_a_template_is_left_out(workspaces, template):
    os.mkfifo(template / "pipe")

    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))

    assert not os.path.lexists(workspace.path / "pipe")


def test_a_missing_template_is_named(workspaces, tmp_path):
    missing = tmp_path / "nowhere"

    with pytest.raises(WorkspaceError, match="does not exist") as caught:
        workspaces.isolated(WorkspaceSpec(template_dir=missing))

    assert str(missing) in caught.value.message
    assert caught.value.hint


def test_a_template_that_is_a_file_is_named(workspaces, tmp_path):
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(WorkspaceError, match="is not a folder"):
        workspaces.isolated(WorkspaceSpec(template_dir=file))


def test_a_template_that_holds_the_scratch_folder_is_refused(workspaces, tmp_path):
    with pytest.raises(WorkspaceError, match="is inside its template"):
        workspaces.isolated(WorkspaceSpec(template_dir=tmp_path))


def test_a_scratch_folder_that_is_gone_is_told_without_an_os_error(workspaces, scratch):
    scratch.rmdir()

    with pytest.raises(WorkspaceError, match="cannot make workspace"):
        workspaces.isolated(EMPTY)


def test_a_full_disk_is_told_with_what_to_do_and_leaves_no_half_copy(workspaces, template, scratch, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("whet.workspace.copy._copy_bytes", full)

    with pytest.raises(WorkspaceError, match="No space left") as caught:
        workspaces.isolated(WorkspaceSpec(template_dir=template))

    assert "free some space" in (caught.value.hint or "")
    assert list(scratch.iterdir()) == []


# ---- shared


def test_a_shared_workspace_with_a_cwd_is_that_folder_and_stays(workspaces, tmp_path):
    project = tmp_path / "new" / "project"
    workspace = workspaces.shared(WorkspaceSpec(mode="shared", cwd=project))
    (project / "file").touch()

    problems = workspace.remove()

    assert workspace.path == project
    assert workspace.method == "given"
    assert problems == []
    assert (project / "file").exists()


def test_a_template_is_copied_into_an_empty_cwd(workspaces, template, tmp_path):
    workspace = workspaces.shared(WorkspaceSpec(mode="shared", cwd=tmp_path / "cwd", template_dir=template))

    assert (workspace.path / "src" / "a.py").exists()


def test_a_template_is_not_copied_over_what_a_cwd_holds(workspaces, template, tmp_path):
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    (cwd / "mine").touch()

    with pytest.raises(WorkspaceError, match="is not empty"):
        workspaces.shared(WorkspaceSpec(mode="shared", cwd=cwd, template_dir=template))

    assert [item.name for item in cwd.iterdir()] == ["mine"]


def test_a_shared_workspace_is_made_once(workspaces, template):
    spec = WorkspaceSpec(mode="shared", template_dir=template)

    assert workspaces.shared(spec) is workspaces.shared(spec)


def test_a_shared_workspace_without_a_cwd_lies_in_scratch_and_is_removed(workspaces, template, scratch):
    workspace = workspaces.shared(WorkspaceSpec(mode="shared", template_dir=template))

    assert workspace.path == scratch / "shared"
    assert workspace.remove() == []
    assert not workspace.path.exists()


def test_each_mark_of_a_shared_workspace_begins_anew(workspaces, tmp_path):
    workspace = workspaces.shared(WorkspaceSpec(mode="shared", cwd=tmp_path / "cwd"))
    workspace.mark()
    (workspace.path / "first").write_text("1\n")
    workspace.mark()
    (workspace.path / "second").write_text("2\n")
    (workspace.path / "first").write_text("more\n")

    changes = workspace.changes()

    assert changes.created == ("second",)
    assert changes.modified == ("first",)
    assert "+2" in changes.diff
    assert "the old content of a shared workspace is not kept" in changes.diff


def test_a_given_folder_is_copied_when_it_is_kept(workspaces, tmp_path):
    workspace = workspaces.shared(WorkspaceSpec(mode="shared", cwd=tmp_path / "cwd"))
    (workspace.path / "file").write_text("x")

    workspace.keep(tmp_path / "kept")

    assert (tmp_path / "kept" / "file").read_text() == "x"
    assert (workspace.path / "file").exists()


# ---- changes, in a copy and over a template alike


def nothing(path: Path) -> None:
    """An agent that does nothing."""


def busy(path: Path) -> None:
    """An agent that does one of each."""
    (path / "src" / "a.py").write_text("one\n2\nthree\n")
    (path / "src" / "b.py").unlink()
    (path / "run.sh").chmod(0o644)
    (path / "new").mkdir()
    (path / "new" / "c.txt").write_text("c\n")
    (path / ".git" / "HEAD").write_text("elsewhere\n")
    (path / "link").unlink()
    (path / "link").symlink_to("src/b.py")


def touching(path: Path) -> None:
    """An agent that leaves all content as it was."""
    os.utime(path / "src" / "a.py")
    text = (path / "src" / "b.py").read_text()
    (path / "src" / "b.py").unlink()
    (path / "src" / "b.py").write_text(text)
    (path / "run.sh").chmod(0o600)
    (path / "run.sh").chmod(0o755)


def sly(path: Path) -> None:
    """An agent that sets size and time back to what they were."""
    before = (path / "src" / "a.py").stat()
    (path / "src" / "a.py").write_text("ONE\ntwo\nthree\n")
    os.utime(path / "src" / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))


def swapping(path: Path) -> None:
    """An agent that puts files where folders were, and folders where files were."""
    shutil.rmtree(path / "src")
    (path / "src").write_text("now a file\n")
    (path / "run.sh").unlink()
    (path / "run.sh").mkdir()
    (path / "run.sh" / "inner").write_text("i\n")


def rebuilding(path: Path) -> None:
    """An agent that deletes a folder and makes one of the same name."""
    shutil.rmtree(path / "src")
    (path / "src").mkdir()
    (path / "src" / "a.py").write_text("one\ntwo\nthree\n")
    shutil.rmtree(path / ".git")


def renaming(path: Path) -> None:
    """An agent that renames a folder."""
    subprocess.run(["mv", str(path / "src"), str(path / "lib")], check=True)


def told(workspace: Workspace, agent: Callable[[Path], None]) -> tuple[tuple[str, ...], ...]:
    workspace.mark()
    agent(workspace.path)
    changes = workspace.changes()
    return changes.created, changes.modified, changes.deleted


WORK: list[tuple[Callable[[Path], None], tuple[tuple[str, ...], ...]]] = [
    (nothing, ((), (), ())),
    (busy, (("new/c.txt",), ("link", "run.sh", "src/a.py"), ("src/b.py",))),
    (touching, ((), (), ())),
    (sly, ((), ("src/a.py",), ())),
    (swapping, (("run.sh/inner", "src"), (), ("run.sh", "src/a.py", "src/b.py"))),
    (rebuilding, ((), (), ("src/b.py",))),
    (renaming, (("lib/a.py", "lib/b.py"), (), ("src/a.py", "src/b.py"))),
]
AGENTS = pytest.mark.parametrize(("agent", "expected"), WORK, ids=[agent.__name__ for agent, _ in WORK])


@AGENTS
def test_a_copy_tells_what_an_agent_did(workspaces, template, agent, expected):
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))

    assert told(workspace, agent) == expected


def bootstrap(path: Path) -> None:
    """A bootstrap command that changes, adds and takes away."""
    (path / "src" / "a.py").write_text("boot\ntwo\nthree\n")
    (path / "deps").mkdir()
    (path / "deps" / "lib.txt").write_text("lib 1\n")
    (path / ".hidden").unlink()


def after_bootstrap(workspace: Workspace) -> None:
    bootstrap(workspace.path)
    workspace.mark()
    assert not workspace.changes()
    (workspace.path / "src" / "a.py").write_text("boot\n2\nthree\n")
    (workspace.path / "deps" / "lib.txt").unlink()
    (workspace.path / ".hidden").write_text("back\n")

    changes = workspace.changes()

    assert changes.created == (".hidden",)
    assert changes.modified == ("src/a.py",)
    assert changes.deleted == ("deps/lib.txt",)
    assert "-two\n+2\n" in changes.diff
    assert " boot\n" in changes.diff
    assert "-lib 1\n" in changes.diff


def test_what_a_bootstrap_wrote_is_not_the_agents_doing_in_a_copy(workspaces, template):
    after_bootstrap(workspaces.isolated(WorkspaceSpec(template_dir=template)))


def test_what_a_bootstrap_wrote_in_an_empty_workspace_is_the_old_side(workspaces, scratch):
    workspace = workspaces.isolated(EMPTY)
    (workspace.path / "made.txt").write_text("by bootstrap\n")
    workspace.mark()
    (workspace.path / "made.txt").write_text("by agent\n")

    changes = workspace.changes()

    assert changes.modified == ("made.txt",)
    assert "-by bootstrap\n+by agent\n" in changes.diff
    assert workspace.remove() == []
    assert list(scratch.iterdir()) == []


# ---- the diff


def test_a_diff_reads_like_one_of_git(workspaces, template):
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))
    workspace.mark()
    (workspace.path / "src" / "a.py").write_text("one\n2\nthree")
    (workspace.path / "src" / "b.py").unlink()
    (workspace.path / "c.txt").write_text("c\n")

    diff = workspace.changes().diff

    assert diff == (
        "--- /dev/null\n+++ b/c.txt\n@@ -0,0 +1 @@\n+c\n"
        "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,3 +1,3 @@\n one\n"
        "-two\n-three\n+2\n+three\n\\ No newline at end of file\n"
        "--- a/src/b.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"
    )


def test_patch_understands_a_diff(workspaces, template, tmp_path):
    rng = random.Random(7)
    old = [f"line {rng.randrange(50)}" for _ in range(400)]
    (template / "many.txt").write_text("\n".join(old) + "\n")
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))
    workspace.mark()
    new = [line for line in old if rng.random() > 0.05] + ["last"]
    new[7:7] = ["more", "and more"]
    (workspace.path / "many.txt").write_text("\n".join(new) + "\n")
    if shutil.which("git") is None:
        pytest.skip("git is not installed")

    diff = workspace.changes().diff

    subprocess.run(["git", "apply", "-p1", "-"], cwd=template, input=diff.encode(), check=True)
    assert (template / "many.txt").read_text() == (workspace.path / "many.txt").read_text()


def test_binary_large_and_empty_files_are_named_and_not_shown(workspaces):
    workspace = workspaces.isolated(EMPTY)
    workspace.mark()
    (workspace.path / "binary").write_bytes(b"a\0b")
    (workspace.path / "latin").write_bytes(b"\xff\xfe")
    (workspace.path / "large").write_text("x\n" * 200_000)
    (workspace.path / "empty").touch()

    lines = workspace.changes().diff.splitlines()

    assert lines == [
        "Binary file binary differs",
        "Created empty file empty",
        "Created file large is not shown: it has 400,000 bytes",
        "Binary file latin differs",
    ]


def test_a_diff_ends_at_a_mebibyte_and_says_how_many_files_are_not_shown(workspaces):
    workspace = workspaces.isolated(EMPTY)
    workspace.mark()
    for number in range(12):
        (workspace.path / f"f{number:02}").write_text("x" * 199_999 + "\n")

    diff = workspace.changes().diff

    assert len(diff) <= 1024 * 1024 + 100
    assert diff.endswith("7 more changed files are not shown\n")


@pytest.mark.parametrize("distinct", [2, 90, 130, 10**9])
def test_twenty_thousand_changed_lines_do_not_take_long(workspaces, template, distinct):
    rng = random.Random(1)
    (template / "big").write_text("".join(f"{rng.randrange(distinct)}\n" for _ in range(20_000)))
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))
    workspace.mark()
    (workspace.path / "big").write_text("".join(f"{rng.randrange(distinct)}\n" for _ in range(20_000)))
    started = time.process_time()

    changes = workspace.changes()

    assert changes.modified == ("big",)
    assert "+++ b/big\n" in changes.diff
    assert time.process_time() - started < 5


# ---- hostile content


def test_names_that_cannot_be_printed_are_shown_as_escapes(workspaces):
    workspace = workspaces.isolated(EMPTY)
    workspace.mark()
    (Path(os.fsdecode(os.fsencode(workspace.path) + b"/bad\xff"))).write_text("x\n")
    (workspace.path / "new\nline").write_text("y\n")

    changes = workspace.changes()

    assert changes.created == ("bad\\udcff", "new\nline")
    assert '+++ b/"new\\nline"\n' in changes.diff
    changes.diff.encode()


def test_what_is_no_file_is_listed_and_never_opened(workspaces, tmp_path):
    workspace = workspaces.isolated(EMPTY)
    workspace.mark()
    os.mkfifo(workspace.path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(workspace.path / "sock"))
    (workspace.path / "root").symlink_to("/")
    (workspace.path / "loop").symlink_to("loop")

    changes = workspace.changes()
    workspace.keep(tmp_path / "kept")

    assert changes.created == ("loop", "pipe", "root", "sock")
    assert "pipe is a fifo" in changes.diff
    assert sorted(item.name for item in (tmp_path / "kept").iterdir()) == ["loop", "root"]


def test_five_thousand_nested_folders_are_told_kept_and_removed(workspaces, scratch):
    workspace = workspaces.isolated(EMPTY)
    workspace.mark()
    nest(workspace.path, 5_000)

    changes = workspace.changes()
    workspace.keep(scratch / "kept")
    other = workspaces.isolated(EMPTY)
    nest(other.path, 5_000)

    assert changes.created == ("d/" * 5_000 + "deep.txt",)
    assert (scratch / "kept" / "d" / "d").is_dir()
    assert other.remove() == []
    assert [item.name for item in scratch.iterdir()] == ["kept"]


def test_a_deep_workspace_can_be_kept_on_another_disk(workspaces, monkeypatch, scratch):
    def elsewhere(self: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    workspace = workspaces.isolated(EMPTY)
    nest(workspace.path, 5_000)
    os.mkfifo(workspace.path / "pipe")
    monkeypatch.setattr(Path, "rename", elsewhere)

    workspace.keep(scratch / "kept")

    after = Workspaces(scratch).shared(WorkspaceSpec(mode="shared", cwd=scratch / "kept")).changes()
    assert after.created == ("d/" * 5_000 + "deep.txt",)
    assert not workspace.path.exists()


def test_a_sparse_terabyte_is_told_at_once(workspaces, template):
    with (template / "disk").open("wb") as file:
        file.truncate(1 << 40)
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))
    workspace.mark()
    os.utime(workspace.path / "disk")
    with (workspace.path / "other").open("wb") as file:
        file.truncate(1 << 40)
    started = time.process_time()

    changes = workspace.changes()

    assert changes.created == ("other",)
    assert changes.modified == ()
    assert time.process_time() - started < 2


def test_a_workspace_that_the_agent_deleted_counts_as_all_deleted(workspaces, template):
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))
    workspace.mark()
    shutil.rmtree(workspace.path)

    changes = workspace.changes()

    assert "src/a.py" in changes.deleted
    assert workspace.remove() == []
    with pytest.raises(WorkspaceError):
        workspace.keep(template.parent / "kept")


def test_a_workspace_replaced_by_a_link_is_told_and_the_target_stays(workspaces, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    workspace = workspaces.isolated(EMPTY)
    workspace.mark()
    workspace.path.rmdir()
    workspace.path.symlink_to(precious)

    with pytest.raises(WorkspaceError, match="cannot compare"):
        workspace.changes()
    with pytest.raises(WorkspaceError, match="cannot keep"):
        workspace.keep(tmp_path / "kept")

    assert workspace.remove() == []
    assert not os.path.lexists(workspace.path)
    assert (precious / "file").exists()


def test_removing_does_not_follow_links(workspaces, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    workspace = workspaces.isolated(EMPTY)
    (workspace.path / "inside").mkdir()
    (workspace.path / "inside" / "link").symlink_to(precious)

    assert workspace.remove() == []
    assert (precious / "file").exists()


def test_a_process_that_still_writes_does_not_stop_us(workspaces):
    workspace = workspaces.isolated(EMPTY)
    workspace.mark()
    script = "i=0; while :; do i=$((i+1)); mkdir -p d$i/e; echo x >d$i/e/f; rm -rf d$((i-3)); done"
    daemon = subprocess.Popen(["sh", "-c", script], cwd=workspace.path, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.05)
        for _ in range(200):
            workspace.changes()
    finally:
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()

    assert workspace.remove() == []
    assert not workspace.path.exists()


def test_a_workspace_is_moved_to_where_it_is_kept(workspaces, template, tmp_path, scratch):
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))
    bootstrap(workspace.path)
    workspace.mark()

    workspace.keep(tmp_path / "run" / "case" / "1")

    assert (tmp_path / "run" / "case" / "1" / "deps" / "lib.txt").exists()
    assert list(scratch.iterdir()) == []


def test_a_destination_that_is_taken_is_named(workspaces, tmp_path):
    workspace = workspaces.isolated(EMPTY)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "other").touch()

    with pytest.raises(WorkspaceError, match="cannot keep workspace") as caught:
        workspace.keep(tmp_path / "kept")

    assert caught.value.hint == "choose a destination that does not exist yet"


def test_an_empty_workspace_costs_next_to_nothing(workspaces):
    took = []
    for _ in range(200):
        started = time.process_time()
        workspace = workspaces.isolated(EMPTY)
        workspace.mark()
        workspace.changes()
        workspace.remove()
        took.append(time.process_time() - started)

    assert sorted(took)[100] < 0.005


def test_no_descriptor_is_left_open(workspaces, template):
    before = len(list(Path("/proc/self/fd").iterdir()))
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))
    bootstrap(workspace.path)
    workspace.mark()
    swapping(workspace.path)
    workspace.changes()
    workspace.remove()

    assert len(list(Path("/proc/self/fd").iterdir())) == before


# ---- in a process of its own: without root's rights, or with private mounts


def _call(function: Callable[[Path], None], folder: str, reports: multiprocessing.queues.Queue[str]) -> None:
    try:
        function(Path(folder))
    except BaseException:
        reports.put(traceback.format_exc())
    else:
        reports.put("")


def in_a_child(function: Callable[[Path], None], folder: Path) -> None:
    """Call *function* in a child process and fail as it fails."""
    context = multiprocessing.get_context("spawn")
    reports = context.Queue()
    child = context.Process(target=_call, args=(function, str(folder), reports))
    child.start()
    report = reports.get(timeout=300)
    child.join()
    reports.close()
    reports.join_thread()
    if report:
        pytest.fail(report)


def _become_nobody() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that anybody may write to, also below root's own."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def _forbidding(folder: Path) -> None:
    _become_nobody()
    scratch = folder / "scratch"
    scratch.mkdir()
    workspaces = Workspaces(scratch)
    workspace = workspaces.isolated(EMPTY)
    locked = workspace.path / "locked"
    (locked / "inner").mkdir(parents=True)
    (locked / "inner" / "file").write_text("before\n")
    workspace.mark()
    (locked / "inner" / "added").write_text("x\n")
    (locked / "inner").chmod(0o400)
    locked.chmod(0)
    workspace.path.chmod(0)

    changes = workspace.changes()

    assert changes.created == ("locked/inner/added",)
    assert changes.modified == changes.deleted == ()
    assert stat.S_IMODE(workspace.path.lstat().st_mode) == 0
    assert workspace.remove() == []
    assert list(scratch.iterdir()) == []


def test_permissions_that_the_agent_took_away_do_not_stop_us(open_folder):
    in_a_child(_forbidding, open_folder)


def _keeping_forbidden(folder: Path) -> None:
    _become_nobody()
    workspaces = Workspaces(folder)
    workspace = workspaces.isolated(EMPTY)
    (workspace.path / "locked").mkdir(mode=0)
    workspace.path.chmod(0o500)

    workspace.keep(folder / "kept")

    assert (folder / "kept" / "locked").is_dir()


def test_a_workspace_without_permissions_can_be_kept(open_folder):
    in_a_child(_keeping_forbidden, open_folder)


def _unreadable_template(folder: Path) -> None:
    _become_nobody()
    template = folder / "template"
    (template / "secret").mkdir(parents=True)
    (template / "secret").chmod(0)
    (folder / "scratch").mkdir()

    with pytest.raises(WorkspaceError, match="secret: Permission denied"):
        Workspaces(folder / "scratch").isolated(WorkspaceSpec(template_dir=template))

    assert list((folder / "scratch").iterdir()) == []
    assert stat.S_IMODE((template / "secret").stat().st_mode) == 0


def test_a_template_that_may_not_be_read_is_named_and_left_alone(open_folder):
    in_a_child(_unreadable_template, open_folder)


def _not_allowed(folder: Path) -> None:
    _become_nobody()

    assert private_mounts() is False


def test_private_mounts_says_no_where_they_are_not_allowed(open_folder):
    in_a_child(_not_allowed, open_folder)


def _few_descriptors(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    workspace = Workspaces(folder).isolated(EMPTY)
    workspace.mark()
    nest(workspace.path, 2_000)

    assert len(workspace.changes().created) == 1
    assert workspace.remove() == []


def test_depth_does_not_use_up_descriptors(open_folder):
    in_a_child(_few_descriptors, open_folder)


_OVERLAY_PROBE = """
import sys, tempfile
from pathlib import Path
from whet.model.suite import WorkspaceSpec
from whet.workspace.mounts import private_mounts
from whet.workspace.make import Workspaces
folder = Path(sys.argv[1])
(folder / "t").mkdir(); (folder / "s").mkdir()
if not private_mounts():
    sys.exit("a private mount namespace is not allowed here")
workspace = Workspaces(folder / "s").isolated(WorkspaceSpec(template_dir=folder / "t"))
if workspace.method != "overlay":
    sys.exit("overlayfs cannot be mounted on " + str(folder))
"""


@pytest.fixture
def overlay(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("probe")
    probe = subprocess.run(
        [sys.executable, "-c", _OVERLAY_PROBE, str(folder)], capture_output=True, text=True, check=False
    )
    if probe.returncode:
        pytest.skip(f"no overlay: {probe.stderr.strip().splitlines()[-1]}")


def _overlaid(folder: Path) -> Workspace:
    assert private_mounts()
    assert private_mounts()
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    workspace = Workspaces(scratch).isolated(WorkspaceSpec(template_dir=folder / "template"))
    assert workspace.method == "overlay"
    return workspace


def _overlay_work(folder: Path) -> None:
    for agent, expected in WORK:
        workspace = _overlaid(folder)

        assert told(workspace, agent) == expected, agent.__name__
        assert workspace.remove() == []
        assert list((folder / "scratch").iterdir()) == []


@pytest.mark.root
def test_an_overlay_tells_what_an_agent_did(overlay, template):
    in_a_child(_overlay_work, template.parent)

    assert (template / "src" / "a.py").read_text() == "one\ntwo\nthree\n"


def _stale_clone(folder: Path) -> None:
    assert private_mounts()
    (folder / "file").touch()
    first = clone(str(folder))
    assert clone(str(folder)) == first
    # As it is in a view that has the id of one that has ended: the folder is on the stage, and the mount is not.
    unmount(first)

    again = clone(str(folder))

    assert (again / "file").exists()


@pytest.mark.root
def test_a_folder_that_an_earlier_view_left_on_the_stage_is_not_taken_for_a_mount(overlay, tmp_path):
    in_a_child(_stale_clone, tmp_path)


def _overlay_bootstrap(folder: Path) -> None:
    workspace = _overlaid(folder)
    after_bootstrap(workspace)
    swapping(workspace.path)

    changes = workspace.changes()

    assert changes.deleted == ("deps/lib.txt", "run.sh", "src/a.py", "src/b.py")
    assert "-boot\n" in changes.diff
    assert workspace.remove() == []
    assert list((folder / "scratch").iterdir()) == []


@pytest.mark.root
def test_what_a_bootstrap_wrote_is_not_the_agents_doing_over_a_template(overlay, template):
    in_a_child(_overlay_bootstrap, template.parent)


def _overlay_keep(folder: Path) -> None:
    workspace = _overlaid(folder)
    workspace.mark()
    busy(workspace.path)
    os.mkfifo(workspace.path / "pipe")
    nest(workspace.path, 2_000)
    assert len(workspace.changes().created) == 3

    workspace.keep(folder / "run" / "kept")

    assert list((folder / "scratch").iterdir()) == []


@pytest.mark.root
def test_an_overlay_is_kept_as_the_agent_saw_it(overlay, template, tmp_path):
    in_a_child(_overlay_keep, template.parent)

    kept = tmp_path / "run" / "kept"
    assert (kept / "src" / "a.py").read_text() == "one\n2\nthree\n"
    assert (kept / ".hidden").read_text() == "dot\n"
    assert not (kept / "src" / "b.py").exists()
    assert not os.path.lexists(kept / "pipe")
    subprocess.run(["rm", "-rf", str(kept)], check=True)


@pytest.mark.root
def test_paths_with_the_characters_that_separate_options_are_no_obstacle(overlay, template, tmp_path):
    odd = tmp_path / "a:b,c\\d=e f"
    odd.mkdir()
    template.rename(odd / "template")

    in_a_child(_overlay_work, odd)


def _overlay_close(folder: Path) -> None:
    assert private_mounts()
    workspaces = Workspaces(folder / "scratch")
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=folder / "template"))
    (workspace.path / "file").touch()

    workspaces.close()

    assert str(folder) not in Path("/proc/self/mounts").read_text()
    assert list(workspace.path.iterdir()) == []
    assert workspace.remove() == []


@pytest.mark.root
def test_closing_unmounts_what_is_still_mounted(overlay, template, scratch):
    in_a_child(_overlay_close, template.parent)


def _overlay_leave(folder: Path) -> None:
    workspace = _overlaid(folder)

    assert str(workspace.path) in Path("/proc/self/mounts").read_text()


@pytest.mark.root
def test_a_mount_ends_with_the_process_and_was_never_seen_by_others(overlay, template):
    in_a_child(_overlay_leave, template.parent)

    assert str(template.parent) not in Path("/proc/self/mounts").read_text()


def _no_overlay_here(folder: Path) -> None:
    from whet.workspace import mounts

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    assert private_mounts()
    mounts.mount = refused
    workspace = Workspaces(folder / "scratch").isolated(WorkspaceSpec(template_dir=folder / "template"))

    assert workspace.method == "copy"
    assert told(workspace, busy) == WORK[1][1]


@pytest.mark.root
def test_where_an_overlay_cannot_be_mounted_a_copy_is_made(overlay, template, scratch):
    in_a_child(_no_overlay_here, template.parent)


def test_what_is_left_out_of_workspaces_is_not_taken_over_from_a_template(scratch, template):
    (template / ".whet" / "runs" / "old").mkdir(parents=True)
    (template / ".whet" / "runs" / "old" / "answer.txt").write_text("42\n")

    own = (template / ".whet" / "runs", template / ".whet" / "runs" / "old")
    workspace = Workspaces(scratch, own=own).isolated(WorkspaceSpec(template_dir=template))
    workspace.mark()

    assert list((workspace.path / ".whet").iterdir()) == []
    assert (workspace.path / "src" / "a.py").exists()
    assert not workspace.changes()
    assert (template / ".whet" / "runs" / "old" / "answer.txt").exists()


def _overlay_left_out(folder: Path) -> None:
    assert private_mounts()
    template = folder / "template"
    (template / "src" / "runs" / "old").mkdir(parents=True)
    (template / "src" / "runs" / "old" / "answer.txt").write_text("42\n")
    (template / "src").chmod(0o750)
    workspaces = Workspaces(folder / "scratch", own=(template / "src" / "runs",))
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=template))
    assert workspace.method == "overlay"
    workspace.mark()

    assert sorted(path.name for path in (workspace.path / "src").iterdir()) == ["a.py", "b.py"]
    assert stat.S_IMODE((workspace.path / "src").stat().st_mode) == 0o750

    (workspace.path / "src" / "runs").mkdir()
    (workspace.path / "src" / "runs" / "new.txt").write_text("new\n")

    assert [path.name for path in (workspace.path / "src" / "runs").iterdir()] == ["new.txt"]
    assert workspace.changes().created == ("src/runs/new.txt",)
    workspaces.close()


@pytest.mark.root
def test_an_overlay_hides_the_folders_of_whet_in_its_template(overlay, template, scratch):
    in_a_child(_overlay_left_out, template.parent)

    assert (template / "src" / "runs" / "old" / "answer.txt").read_text() == "42\n"


def _overlay_removal(folder: Path) -> None:
    nest(folder / "template" / "src", 2_000)
    workspace = _overlaid(folder)

    assert remove_tree(workspace.path / "src") == []
    assert not (workspace.path / "src").exists()
    assert workspace.remove() == []


@pytest.mark.root
def test_a_deep_folder_of_the_template_can_be_removed_through_an_overlay(overlay, template):
    in_a_child(_overlay_removal, template.parent)

    assert (template / "src" / "a.py").exists()
    subprocess.run(["rm", "-rf", str(template)], check=True)
