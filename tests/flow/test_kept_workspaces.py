"""Workspaces that are kept: whole, without secrets, and a person can look into them and delete them."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from project import SHELL, Outcome, Project

SECRET = "sk-whet-0123456789-abcdef"
RUNNER = SHELL + f'env = {{ DEMO_API_KEY = "{SECRET}" }}\n'


def kept(done: Outcome, case: str = "a") -> Path:
    place: str = done.trial(case)["workspace_dir"]
    return done.folder / place


def test_a_kept_workspace_opens_to_its_owner_and_can_be_deleted(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.write("template/t.txt", "x\n")
    boxed.suite("""
        AGENT = "mkdir -p a/b c; echo x > a/b/f; echo y > c/g; chmod 400 c/g; chmod 000 a/b; chmod 500 a; chmod 000 c; exit 1"
        suite = [Case(id="a", prompt=AGENT, check=ok)]
    """)
    empty = boxed.run()
    boxed.settings(SHELL + '[run.workspace]\nmode = "isolated"\ntemplate_dir = "template"\n')
    copied = boxed.run()

    for done in (empty, copied):
        folders = [kept(done), *(path for path in kept(done).rglob("*") if path.is_dir())]
        assert len(folders) == 4
        assert all(path.stat().st_mode & stat.S_IRWXU == stat.S_IRWXU for path in folders)
        assert (kept(done) / "a" / "b" / "f").read_text() == "x\n"
        assert stat.S_IMODE((kept(done) / "c" / "g").stat().st_mode) == 0o400
    shutil.rmtree(boxed.root / ".whet")


@pytest.mark.parametrize("mode", ["400", "444", "000"])
def test_a_file_that_had_to_be_opened_for_masking_keeps_its_mode_and_is_its_owners_alone(
    boxed: Project, mode: str
) -> None:
    boxed.settings(RUNNER)
    boxed.suite(f'suite = [Case(id="a", prompt="echo k $DEMO_API_KEY > f; chmod {mode} f; exit 1", check=ok)]')

    done = boxed.run()

    file = kept(done) / "f"
    assert stat.S_IMODE(file.stat().st_mode) == int(mode, 8) & 0o700
    file.chmod(0o600)
    assert file.read_text() == "k ***\n"
    assert not [note for note in done.trial("a")["notes"] if "not kept" in note]


POWERFUL = """
import os, shutil, struct, sys
for name in ("mode", "capable"):
    shutil.copy("/bin/sh", name)
os.chmod("mode", 0o6755)
os.setxattr("capable", "security.capability", struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0))
sys.exit(1)
"""


@pytest.mark.root
def test_no_program_that_is_kept_may_do_more_than_who_starts_it(project: Project) -> None:
    project.write("agent.py", POWERFUL)
    project.settings("[runners.py.agent]\ntype = 'command'\ncommand = 'python3'\nargs = ['./agent.py']\n")
    project.suite('suite = [Case(id="a", prompt="x", check=ok)]')

    done = project.run()

    assert done.codes == {"a": "agent-crashed"}, done.message("a")
    assert "Error" not in done.message("a")
    assert stat.S_IMODE((kept(done) / "mode").stat().st_mode) == 0o755
    assert "security.capability" not in os.listxattr(kept(done) / "capable")


def test_a_file_that_cannot_be_masked_is_not_kept_and_the_record_says_so(boxed: Project) -> None:
    boxed.settings(RUNNER)
    boxed.suite("""
        AGENT = "echo fine > small; truncate -s 70000000 sparse; cp sparse big; echo $DEMO_API_KEY >> big; exit 1"
        suite = [Case(id="a", prompt=AGENT, check=ok)]
    """)

    done = boxed.run()

    assert sorted(path.name for path in kept(done).iterdir()) == ["small", "sparse"]
    (note,) = (note for note in done.trial("a")["notes"] if "secret" in note)
    assert note.startswith("big was not kept")
    assert "70,000,026 bytes" in note


def test_names_that_become_alike_by_masking_stay_two_files(boxed: Project) -> None:
    boxed.settings(RUNNER)
    boxed.suite("""
        AGENT = "echo 1 > $DEMO_API_KEY; mkdir -p d/$DEMO_API_KEY; echo 2 > d/$DEMO_API_KEY/f; echo 3 > '***'; exit 1"
        suite = [Case(id="a", prompt=AGENT, check=ok)]
    """)

    done = boxed.run()

    files = {path.read_text() for path in kept(done).rglob("*") if path.is_file()}
    assert files == {"1\n", "2\n", "3\n"}
    assert (kept(done) / "d" / "***" / "f").exists()


def test_a_secret_with_slashes_in_it_is_hidden_though_it_is_several_folders(boxed: Project) -> None:
    boxed.settings(SHELL + 'env = { DEMO_API_KEY = "abcdef/ghijkl/mnopqr" }\n')
    boxed.suite("""
        AGENT = "mkdir -p x/$DEMO_API_KEY y/abcdef; echo 1 > x/$DEMO_API_KEY/f; exit 1"
        suite = [Case(id="a", prompt=AGENT, check=ok)]
    """)

    done = boxed.run()

    names = sorted(str(path.relative_to(kept(done))) for path in kept(done).rglob("*"))
    assert names == ["x", "x/***", "x/***/***", "x/***/***/***", "x/***/***/***/f", "y", "y/abcdef"]


def test_the_shared_workspace_of_a_failed_run_is_kept_without_secrets(boxed: Project) -> None:
    boxed.settings(RUNNER + '[run.workspace]\nmode = "shared"\n')
    boxed.suite("""
        suite = [Case(id="a", prompt="echo $DEMO_API_KEY > a; mkdir shut; chmod 0 shut", check=ok),
                 Case(id="b", prompt="echo work > b; exit 1", check=ok),
                 Case(id="c", prompt="echo work > c", check=ok)]
    """)

    done = boxed.run()

    folder = done.folder / "workspaces" / "shared"
    assert {path.name for path in folder.iterdir()} == {"a", "b", "c", "shut"}
    assert (folder / "a").read_text() == "***\n"
    assert f"the shared workspace is kept in {folder}" in " ".join((done.stdout + done.stderr).split())
    shutil.rmtree(done.folder)


def test_the_shared_workspace_of_a_run_that_passed_is_removed(project: Project) -> None:
    project.settings(SHELL + '[run.workspace]\nmode = "shared"\n')
    project.suite('suite = [Case(id="a", prompt="echo work > a", check=ok)]')

    done = project.run()

    assert done.code == 0, done.stderr
    assert not (done.folder / "workspaces").exists()


def test_the_workspace_of_a_case_that_failed_otherwise_than_expected_is_kept(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.suite("""
        suite = [Case(id="crashes", prompt="echo x > made; exit 1", check=no, expected_fail=True),
                 Case(id="passes", prompt="echo x > made", check=ok, expected_fail=True),
                 Case(id="fails", prompt="echo x > made", check=no, expected_fail=True)]
    """)

    done = boxed.run()

    assert done.statuses == {"crashes": "failed", "passes": "unexpected-passed", "fails": "expected-failed"}
    assert (kept(done, "crashes") / "made").exists()
    assert (kept(done, "passes") / "made").exists()
    assert done.trial("fails")["workspace_dir"] is None
