"""What can be wrong around a run: limits of the system, places that are not there, a record that is lost."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import subprocess
import sys

import pytest
from project import PATIENCE_S, SHELL, Project


def shell(project: Project, line: str) -> subprocess.CompletedProcess[str]:
    """Type *line* into a shell, with `whet` for the command."""
    return subprocess.run(
        ["bash", "-c", f'whet() {{ "{sys.executable}" -m whet "$@"; }}; {line}'],
        cwd=project.root,
        env=project.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture
def passing(project: Project) -> Project:
    """A project whose only case passes."""
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')
    return project


def test_a_low_limit_of_open_files_is_raised_as_far_as_it_may_be(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.suite('suite = [Case(id=f"c{n}", prompt="sleep 0.3", check=ok) for n in range(24)]')

    done = shell(boxed, "ulimit -Sn 40; whet run suite.py --max-parallel 64")

    assert done.returncode == 0, done.stdout
    assert "files may be open" not in done.stdout + done.stderr


def test_where_it_may_not_be_fewer_trials_run_at_a_time_and_one_line_says_so(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.suite('suite = [Case(id=f"c{n}", prompt="sleep 0.1", check=ok) for n in range(24)]')

    done = shell(boxed, "ulimit -n 64; whet run suite.py --max-parallel 64")

    assert done.returncode == 0, done.stdout
    assert (done.stdout + done.stderr).count("2 at a time instead of 24") == 1


def test_mounts_and_templates_that_are_not_there_are_found_before_anything_starts(passing: Project) -> None:
    passing.settings(
        SHELL
        + 'mounts = [".", "gone"]\n[run]\nmounts = ["absent", "suite.py/below"]\n[run.workspace]\nmode = "isolated"\ntemplate_dir = "nowhere"\n'
    )

    done = passing.run()

    assert done.code == 2
    for line in (
        f"run.mounts[0]: {passing.root}/absent does not exist",
        f"run.mounts[1]: {passing.root}/suite.py/below cannot be used: Not a directory",
        f"runners.sh.agent.mounts[1]: {passing.root}/gone does not exist",
        f"run.workspace.template_dir: {passing.root}/nowhere does not exist",
    ):
        assert line in done.stderr
    assert not passing.output_dir.exists()


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("rm -rf {root}/.whet/runs/*", "is gone"),
        ("rm {root}/.whet/runs/latest/journal.jsonl", "is gone"),
        ("mv {root}/.whet {root}/elsewhere", "is gone"),
        ("cp {root}/suite.py {root}/.whet/runs/latest/journal.jsonl", "was changed by something else"),
        ("echo x >> {root}/.whet/runs/latest/journal.jsonl", "was changed by something else"),
    ],
    ids=["folder deleted", "journal deleted", "moved", "replaced", "added to"],
)
def test_a_record_that_is_lost_under_way_is_said_and_no_success(project: Project, agent: str, said: str) -> None:
    project.settings(SHELL)
    project.suite(
        f'suite = [Case(id="a", prompt="true", check=ok), Case(id="b", prompt="{agent.format(root=project.root)}", check=ok), Case(id="c", prompt="true", check=ok)]'
    )

    done = project.run("--schedule", "serial")

    assert done.code == 4, done.stdout
    assert f"journal.jsonl {said}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_record_that_is_lost_by_the_last_check_is_noticed_too(project: Project) -> None:
    project.settings(SHELL)
    project.suite(
        """
        import shutil
        def spoils(): shutil.rmtree("{root}/.whet/runs")
        suite = [Case(id="a", prompt="true", check=spoils)]
    """.replace("{root}", str(project.root))
    )

    done = project.run()

    assert done.code == 4, done.stdout
    assert "is gone" in done.stderr


def test_a_disk_that_fills_up_during_a_run_has_an_exit_code_of_its_own(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id=f"c{n}", prompt="true", check=ok) for n in range(60)]')

    done = shell(project, "ulimit -f 24; whet run suite.py")

    assert done.returncode == 4, done.stderr
    assert "error[record]: " in done.stderr
    assert "--resume" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("args", [("--resume", "latest"), ("suite.py", "--last-failed")])
@pytest.mark.parametrize("garbage", [b"nonsense\n", b"\x00\xff\xfe\n", b'{"case": 1}\n'])
def test_a_garbled_journal_is_named(passing: Project, args: tuple[str, ...], garbage: bytes) -> None:
    first = passing.run()
    with (first.folder / "journal.jsonl").open("ab") as journal:
        journal.write(garbage)

    done = passing.whet("run", *args)

    assert done.code == 2
    assert f"{first.folder}/journal.jsonl" in done.stderr.replace("/latest/", f"/{first.folder.name}/")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", ["config", "config --json", "--help", "--version", "schema results", "doctor", "run suite.py --dry-run"]
)
@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"])
def test_what_cannot_be_printed_is_one_line_and_no_success(passing: Project, command: str, stdout: str) -> None:
    done = shell(passing, f"whet {command} {stdout}")

    assert done.returncode == 74, done.stderr
    assert done.stderr.startswith("error[stdout]: what was to be printed could not be: ")
    assert len(done.stderr.splitlines()) == 1
