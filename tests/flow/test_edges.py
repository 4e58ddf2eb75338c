"""What can be wrong around a run: limits of the system, places that are not there, a record that is lost."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import re
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
        ("sed -i s/passed/failed/ {root}/.whet/runs/latest/journal.jsonl", "was replaced by something else"),
        (
            "cd {root}/.whet/runs/latest; mv journal.jsonl away; ln -s away journal.jsonl",
            "was replaced by something else",
        ),
        ("cp {root}/suite.py {root}/.whet/runs/latest/journal.jsonl", "was changed by something else"),
        ("echo x >> {root}/.whet/runs/latest/journal.jsonl", "was changed by something else"),
    ],
    ids=["folder deleted", "journal deleted", "moved", "edited into a new file", "linked", "written over", "added to"],
)
def test_a_record_that_is_lost_under_way_is_said_and_no_success(project: Project, agent: str, said: str) -> None:
    project.settings(SHELL)
    project.suite(
        f'suite = [Case(id="a", prompt="true", check=ok), Case(id="b", prompt="{agent.format(root=project.root)}", check=ok), Case(id="c", prompt="true", check=ok)]'
    )

    done = project.run("--schedule", "serial")

    assert done.code == 4, done.stdout
    assert f"journal.jsonl {said} during the run" in done.stderr
    assert f"start a new run; whet verify {project.output_dir}/2" in done.stderr
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
    assert done.stderr.startswith("error[stdout]: cannot write to stdout: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("reporter", ["terminal", "json", "junit"])
@pytest.mark.parametrize("stdout", [">/dev/full", ">&-"])
def test_a_run_whose_report_cannot_be_printed_is_no_success_and_is_recorded(
    passing: Project, reporter: str, stdout: str
) -> None:
    done = shell(passing, f"whet run suite.py --reporter {reporter} {stdout}")

    assert done.returncode == 74, done.stderr
    assert done.stderr.startswith(f'warning: reporter "{reporter}" could not print: ')
    assert len(done.stderr.splitlines()) == 1
    assert (passing.output_dir / "latest/results.json").exists()


def test_a_failed_run_whose_report_cannot_be_printed_has_failed(passing: Project) -> None:
    passing.suite('suite = [Case(id="a", prompt="true", check=no)]')

    done = shell(passing, "whet run suite.py >/dev/full")

    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "os._exit(0)",
        "from os import _exit; _exit(0)",
        "import posix; posix._exit(0)",
        "sys.exit(0)",
        "os.execvp('true', ['true'])",
        "os.execv('/bin/true', ['true'])",
    ],
)
def test_a_suite_that_ends_the_process_while_it_loads_is_an_error(passing: Project, line: str) -> None:
    passing.suite(f'suite = [Case(id="a", prompt="true", check=ok)]\n{line}\n')

    done = passing.run()

    assert done.code == 2, done.stdout
    assert f"{passing.root}/suite.py: line 8: cannot be imported" in done.stderr
    assert not passing.output_dir.exists()


def test_a_process_that_a_suite_forks_while_it_loads_may_end_as_it_likes(passing: Project) -> None:
    passing.suite("""
        if os.fork() == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        suite = [Case(id="a", prompt="true", check=ok)]
    """)

    done = passing.run()

    assert done.code == 0, done.stderr


@pytest.mark.parametrize("base", ["Exception", "BaseException", "AssertionError"])
@pytest.mark.parametrize(
    "method",
    [
        "def __str__(self): raise SystemExit(3)",
        "def __str__(self): raise KeyboardInterrupt",
        "def __str__(self): return 5",
        "def __repr__(self): 1 / 0\n    __str__ = __repr__",
        "def __getattribute__(self, name): raise SystemExit(name)",
        "def __getattr__(self, name): raise KeyboardInterrupt",
        "location = property(lambda self: os.abort and 1 / 0)\n    failure_class = location",
    ],
)
def test_an_exception_of_a_check_that_fights_being_told_is_told_by_its_class(
    project: Project, method: str, base: str
) -> None:
    project.settings(SHELL)
    project.suite(
        f"class Evil({base}):\n    {method}\ndef check(): raise Evil('secret of evil')\nsuite = [Case(id='a', prompt='true', check=check)]"
    )

    done = project.run()

    assert done.codes == {"a": "assertion" if base == "AssertionError" else "check-crash"}, done.message("a")
    assert "Evil" in done.message("a")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ('usage = { input_tokens = "x" }', "usage.input_tokens: must be a whole number of at least 0"),
        ("usage = { output_tokens = -1 }", "usage.output_tokens: must be a whole number of at least 0"),
        ("usage = { cost_usd = nan }", "usage.cost_usd: must be a number of at least 0"),
        ("usage = { input_token = 1 }", 'usage: has no "input_token" (did you mean "input_tokens"?)'),
        ("say = 5", "say: must be a text, not 5"),
        ('say = "x"\nphase = "loud"', "phase: must be"),
        ('write = "x"\ntext = 5', "text: must be a text, not 5"),
        ("wait_s = inf", "wait_s: must be a number of at least 0"),
        ("wait_s = true", "wait_s: must be a number of at least 0"),
        ('exit = "1"', "exit: must be a whole number from 0 to 255"),
        ("exit = 256", "exit: must be a whole number from 0 to 255"),
    ],
)
def test_a_script_that_cannot_be_played_is_found_before_the_run(project: Project, step: str, said: str) -> None:
    project.settings('[runners.demo.agent]\ntype = "scripted"\nscript = "steps.toml"\n')
    project.write("steps.toml", f"[[steps]]\n{step}\n")
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')

    done = project.run()

    assert done.code == 2, done.stdout
    assert f"step 1: {said}" in done.stderr


@pytest.mark.parametrize(
    ("make", "said"),
    [
        ("mkdir whet.toml", "whet.toml: is a folder, not a file"),
        ("mkfifo whet.toml", "whet.toml: is a pipe, not a file"),
        ("ln -s whet.toml whet.toml", "whet.toml: cannot be read: Too many levels of symbolic links"),
        ("ln -s nowhere whet.toml", "whet.toml: is a link to nowhere"),
        (r"printf '\xff\xfe' > whet.toml", "whet.toml: is not UTF-8 text"),
    ],
)
def test_settings_that_are_no_file_are_called_what_they_are(passing: Project, make: str, said: str) -> None:
    (passing.root / "whet.toml").unlink()

    done = shell(passing, f"{make}; whet run suite.py")

    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize("option", ["--output-dir", "--cwd", "--config"])
def test_an_empty_path_is_no_path(passing: Project, option: str) -> None:
    done = passing.run(option, "")

    assert done.code == 2
    assert f"{option}" in done.stderr
    assert "must not be empty" in done.stderr


def test_what_failed_last_time_is_run_with_the_settings_of_that_time(project: Project) -> None:
    project.settings(SHELL, name="other.toml")
    project.suite('suite = [Case(id="a", prompt="true", check=no), Case(id="b", prompt="true", check=ok)]')
    project.run("--config", "other.toml")

    again = project.run("--last-failed")

    assert again.code == 1, again.stderr
    assert list(again.statuses) == ["a"]


def test_an_explanation_has_no_line_for_a_value_whose_text_says_nothing(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        def check(report, ctx): assert ctx.changes().created == ("x",) and report.events
        suite = [Case(id="a", prompt="true", check=check)]
    """)

    done = project.run()

    assert "ctx.changes()" in done.message("a")
    assert "ctx = " not in done.message("a")
    assert "report = " not in done.message("a")


def test_settings_that_a_person_names_may_be_a_pipe_but_have_an_end(passing: Project) -> None:
    (passing.root / "whet.toml").rename(passing.root / "other.toml")

    piped = shell(passing, "whet run suite.py --output-dir runs --config <(cat other.toml)")
    endless = shell(passing, "whet run suite.py --config /dev/zero")

    assert piped.returncode == 0, piped.stderr
    assert endless.returncode == 2
    assert "/dev/zero: is larger than" in endless.stderr


def test_a_suite_that_is_a_pipe_is_called_no_file(passing: Project) -> None:
    done = shell(passing, "mkfifo pipe.py; whet run pipe.py")
    checked = shell(passing, "whet validate pipe.py")

    said = "pipe.py: is a pipe or a device, not a file; name a file\n"
    assert (checked.returncode, checked.stderr) == (2, f"error[suite]: {said}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error[usage]: {said}  a suite is a JSON or YAML file"), done.stderr


@pytest.mark.parametrize("mark", ["@case", "@case()", "@case(tags=['a'])"])
def test_a_mark_without_a_prompt_says_what_to_write(project: Project, mark: str) -> None:
    project.settings(SHELL)
    project.suite(f"{mark}\ndef greets(session): pass\n")

    done = project.run()

    assert done.code == 2
    assert "greets" in done.stderr
    assert "prompt: is missing" in done.stderr
    assert 'write @case(prompt="...") above the function' in done.stderr


def test_a_program_beside_the_settings_is_offered_by_the_path_that_would_start_it(project: Project) -> None:
    project.write("agent.sh", "#!/bin/sh\necho hi\n", mode=0o755)
    project.settings('[runners.a.agent]\ntype = "command"\ncommand = "agent.sh"\n')
    project.suite("suite = [Case(id='a', prompt='p', check=ok)]\n")

    done = project.run()

    assert done.code == 2
    assert 'did you mean "./agent.sh"?' in done.stderr


def test_the_header_says_that_a_workspace_is_empty(project: Project) -> None:
    project.settings(SHELL)
    project.suite("suite = [Case(id='a', prompt='true', check=ok)]\n")

    done = project.run()

    assert re.search(r"workspace +isolated, empty\n", done.stdout)


def test_a_folder_of_suites_is_validated_file_by_file_with_every_problem(project: Project) -> None:
    project.write(
        "bench/a.json", '{"name": "a", "cases": [{"id": "x", "prompt": "p", "expect": ["file:a.txt created"]}]}'
    )
    project.write("bench/b.yaml", "name: b\ncases: []\n")
    project.suite("suite = [Case(id='c', prompt='p')]\n", name="bench/c.py")
    project.write("bench/helpers.py", "WORD = 'hi'\n")

    done = project.whet("validate", "bench")

    assert done.code == 2
    assert "bench/a.json: 1 case with 1 check, no problems" in done.stdout
    assert "bench/b.yaml" in done.stderr
    assert "bench/c.py" in done.stderr
    assert "helpers" not in done.stdout + done.stderr


def test_a_folder_without_suites_says_what_was_looked_for(project: Project) -> None:
    (project.root / "empty").mkdir()

    done = project.whet("validate", "empty")

    assert done.code == 2
    assert "there are no suites in this folder" in done.stderr


def test_init_writes_a_python_suite_that_can_be_run(project: Project) -> None:
    project.write("package.json", '{"scripts": {"test": "true"}}')

    written = project.whet("init", "--python")
    project.settings(SHELL.replace('"sh"', '"sh"\nargs = ["-c", "echo Getting started > README.md"]'))
    done = project.whet("run", "bench/suite.py")

    assert "name the agent to run in whet.toml" in written.stdout
    assert done.statuses == {"getting_started": "passed"}, done.stdout


def test_json_that_is_nested_too_deeply_is_one_error(project: Project) -> None:
    deep = project.write("deep.json", "[" * 100_000)
    project.settings('[runners.a.agent]\ntype = "scripted"\nscript = "deep.json"\n')
    project.suite("suite = [Case(id='a', prompt='x', check=lambda session: None)]")

    played = project.whet("run", "suite.py")
    pushed = project.whet("suites", "push", str(deep), "--server", "http://127.0.0.1:1", env={"WHET_API_KEY": "whet_x"})

    assert (played.code, pushed.code) == (2, 2)
    assert "deep.json: cannot be read: is nested deeper than 200 levels" in played.stderr
    assert "deep.json is nested deeper than 200 levels" in pushed.stderr


def test_init_goes_on_without_a_package_json_that_is_nested_too_deeply(project: Project) -> None:
    project.write("shop/package.json", "[" * 100_000)

    done = project.whet("init", "shop")

    assert done.code == 0
    assert "found no test command" in done.stdout
