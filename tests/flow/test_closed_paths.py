"""Paths that may not be read or written: one line that says which, why and what to do, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from evaluating import skill
from project import SHELL, Outcome, Project

PASSING = 'suite = [Case(id="a", prompt="true", check=ok)]'
# Root may read and write everything; without these two it is held to modes as everybody is.
AS_EVERYBODY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@pytest.fixture
def closed(project: Project) -> Iterator[Project]:
    """A project with a suite, and a folder that nobody may enter."""
    project.starter = AS_EVERYBODY if os.geteuid() == 0 else ()
    project.settings(SHELL)
    project.suite(PASSING)
    folder = project.root / "closed"
    folder.mkdir(mode=0)
    yield project
    subprocess.run(["chmod", "-R", "u+rwX", str(project.root)], check=True)


def assert_one_line(done: Outcome, path: str, code: int = 2) -> None:
    """Nothing but one error with its hint, which names the path."""
    assert done.code == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    error, *hint = done.stderr.splitlines()
    assert error.startswith("error[")
    assert path in error
    assert "Permission denied" in error or "not readable" in error
    assert all(line.startswith("  ") for line in hint)


@pytest.mark.parametrize(
    "typed",
    [
        "run closed/suite.py",
        "bench closed/suite.json",
        "validate closed/suite.py",
        "validate closed",
        "config closed/suite.py",
        "doctor closed/suite.py",
        "import closed/tasks",
        "explain closed/trial",
        "regrade closed/run",
        "run --resume closed/run",
        "find --skills-dir closed/skills",
        "select --from closed/skill --reports closed/reports.json",
        "eval --skills closed/skill --benchmark coding-easy",
        "eval --skills whet.toml --benchmark closed/benchmark.json",
        "serve --data-dir closed/data --port 0",
        "keys list --data-dir closed/data",
        "run suite.py --output-dir closed/runs",
        "run suite.py --config closed/whet.toml",
        "run suite.py --reporter junit=closed/junit.xml",
        "report diff closed/a.json closed/b.json",
        "suites push closed/suite.json --server http://127.0.0.1:9",
    ],
)
def test_a_path_in_a_closed_folder_is_one_line(closed: Project, typed: str) -> None:
    done = closed.whet(*typed.split(), env={"WHET_API_KEY": "k"})

    assert_one_line(done, "closed")


def test_the_line_says_what_was_tried_whose_the_path_is_and_what_to_do(closed: Project) -> None:
    done = closed.whet("run", "closed/suite.py")

    assert done.stderr.splitlines()[0] == "error[path]: closed/suite.py: cannot be reached: Permission denied"
    assert f"{closed.root}/closed belongs to " in done.stderr
    assert ", mode 0000: let " in done.stderr


@pytest.mark.parametrize("folder", ["closed", "closed/inner", "readable", "read-only/new/inner"])
def test_a_folder_to_work_in_that_may_not_be_entered_is_one_line_before_anything_starts(
    closed: Project, folder: str
) -> None:
    for name, mode in (("readable", 0o444), ("read-only", 0o555)):
        (closed.root / name).mkdir()
        (closed.root / name).chmod(mode)

    done = closed.run("--cwd", folder)

    assert_one_line(done, folder.removesuffix("/inner"))
    assert not closed.output_dir.exists()


def test_a_folder_to_work_in_that_is_a_file_is_one_line_before_anything_starts(project: Project) -> None:
    project.settings(SHELL)
    project.suite(PASSING)

    done = project.run("--cwd", "suite.py")

    assert done.code == 2
    assert len(done.stderr.splitlines()) == 2
    assert "suite.py" in done.stderr
    assert "Not a directory" in done.stderr
    assert not project.output_dir.exists()


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ('[runners.demo.agent]\ntype = "scripted"\nscript = "closed/steps.toml"', "closed/steps.toml"),
        ('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n[runners.sh]\nskills = ["closed/one"]', "closed/one"),
        (SHELL + '[run.workspace]\nmode = "isolated"\ntemplate_dir = "closed/template"', "closed/template"),
        (SHELL + '[run]\nmounts = ["closed/data"]', "closed/data"),
    ],
    ids=["script", "skill", "template", "mount"],
)
def test_a_closed_path_in_the_settings_is_one_line(closed: Project, setting: str, told: str) -> None:
    closed.settings(setting)

    done = closed.run()

    assert_one_line(done, told)
    assert not closed.output_dir.exists()


@pytest.mark.parametrize(
    ("mode", "path", "tried"),
    [
        (0o444, ".lock", "cannot be written to"),
        (0o555, ".", "cannot be made or replaced"),
        (0o000, ".", "cannot be reached"),
        (0o000, "run.json", "cannot be read"),
        (0o444, "journal.jsonl", "cannot be opened"),
    ],
)
def test_a_record_that_cannot_be_gone_on_with_is_one_line(closed: Project, mode: int, path: str, tried: str) -> None:
    folder = closed.run().folder
    (folder / path).chmod(mode)

    done = closed.whet("run", "--resume", str(folder))
    (folder / path).chmod(0o755)

    assert_one_line(done, str(folder))
    assert tried in done.stderr


def test_a_record_that_is_closed_under_a_run_has_the_exit_code_for_it(closed: Project) -> None:
    closed.suite(f"""
        def closes(): Path("{closed.output_dir}/latest").resolve().chmod(0o555)
        suite = [Case(id="a", prompt="true", check=closes)]
    """)

    done = closed.run()

    assert done.code == 4, done.stderr
    assert "results.json cannot be written: Permission denied" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_other_files_are_validated_beside_one_that_cannot_be_read(closed: Project) -> None:
    done = closed.whet("validate", "closed/suite.py", "suite.py")

    assert done.code == 2
    assert done.stdout == "suite.py: 1 case with 1 check, no problems\n"
    assert "error[suite]: closed/suite.py: cannot be reached: Permission denied" in done.stderr


def test_a_folder_of_suites_says_which_folder_below_it_cannot_be_read(closed: Project) -> None:
    done = closed.whet("run", ".", "--dry-run")

    assert done.code == 0
    assert done.stderr == "skipped: closed: cannot be read: Permission denied\n"


def test_a_folder_of_tasks_does_not_pass_over_one_that_cannot_be_read(closed: Project) -> None:
    closed.write("tasks/open/task.toml", "")
    closed.write("tasks/shut/task.toml", "")
    (closed.root / "tasks/shut").chmod(0)

    done = closed.whet("run", "tasks", "--dry-run")
    (closed.root / "tasks/shut").chmod(0o755)

    assert_one_line(done, "tasks/shut/task.toml")


def test_the_other_skills_are_found_beside_one_that_cannot_be_read(closed: Project) -> None:
    skill(closed.root, name="good")
    skill(closed.root, name="shut").chmod(0)

    done = closed.whet("find")

    assert done.code == 2
    assert "1 found" in done.stdout
    assert "error[suite]: skills/shut/skill.json: cannot be reached: Permission denied" in done.stderr


def test_the_doctor_goes_on_with_a_home_that_it_may_not_look_into(closed: Project) -> None:
    done = closed.whet("doctor", env={"HOME": str(closed.root / "closed")})

    assert done.code == 0, done.stderr
    assert f"HOME is {closed.root}/closed, which you cannot read" in done.stdout
    assert "command (" in done.stdout


def test_the_doctor_names_the_runner_whose_files_are_closed_and_goes_on(closed: Project) -> None:
    script = '[runners.demo.agent]\ntype = "scripted"\nscript = "closed/steps.toml"\n'
    closed.settings(script + SHELL)

    done = closed.whet("doctor", "suite.py")

    assert done.code == 1, done.stderr
    assert "closed/steps.toml" in done.stdout
    assert "+ sh " in done.stdout


def test_a_closed_folder_on_the_path_of_programs_is_passed_over(closed: Project, sandbox_name: str) -> None:
    closed.sandbox = sandbox_name
    path = f"{closed.root}/closed/bin:{closed.root}/closed/shims:{os.environ['PATH']}"

    done = closed.run(env={"PATH": path})

    assert done.code == 0, done.stdout + done.stderr


@pytest.mark.parametrize("typed", ["run {root}/suite.py", "config", "doctor", "init", "import x", "regrade x", "serve"])
def test_a_current_folder_that_was_deleted_is_one_line(closed: Project, typed: str) -> None:
    line = f"mkdir gone && cd gone && rmdir ../gone && {typed.format(root=closed.root)}"

    done = _shell(closed, line)

    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[0] == "error[usage]: the current folder does not exist any more"
    assert "Traceback" not in done.stderr


def _shell(project: Project, line: str) -> subprocess.CompletedProcess[str]:
    command = line.rpartition(" && ")
    return subprocess.run(
        ["bash", "-c", f'{command[0]} && "{sys.executable}" -m whet {command[2]}'],
        cwd=project.root,
        env=project.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
