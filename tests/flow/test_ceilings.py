"""Ceilings in a run: an agent that takes too much of the machine fails its own trial and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from project import PYTHON, Project

from whet.errors import WorkspaceError
from whet.model.suite import WorkspaceSpec
from whet.workspace.make import Workspaces

HOG = "held = bytearray(400 * 1024 * 1024); print('had it')"


def test_an_agent_beyond_its_memory_fails_its_trial_alone(boxed: Project) -> None:
    boxed.settings(PYTHON + "[defaults]\nmax_memory_mb = 120\n")
    boxed.suite(f"""
        suite = [Case(id="hog", prompt={HOG!r}, check=ok), Case(id="modest", prompt="print(1)", check=ok)]
    """)

    outcome = boxed.run()

    assert outcome.statuses == {"hog": "failed", "modest": "passed"}
    assert outcome.codes["hog"] == "ceiling"
    assert "ran into its ceiling of 120 MB of memory" in outcome.message("hog")


def test_the_header_names_the_ceilings_in_force(boxed: Project) -> None:
    boxed.settings(PYTHON + "[defaults]\nmax_memory_mb = 2048\nmax_processes = 500\n")
    boxed.suite('suite = [Case(id="a", prompt="print(1)", check=ok)]')

    outcome = boxed.run()

    assert "ceilings   2,048 MB of memory and 500 processes" in outcome.stdout


def test_a_command_of_a_check_has_the_same_ceilings(boxed: Project) -> None:
    boxed.settings(PYTHON + "[defaults]\nmax_memory_mb = 120\n")
    boxed.suite(f"""
        def check(report, ctx):
            ran = ctx.run(["python3", "-c", {HOG!r}])
            assert not ran.ok
            assert "had it" not in ran.stdout
        suite = [Case(id="a", prompt="print(1)", check=check)]
    """)

    outcome = boxed.run()

    assert outcome.statuses == {"a": "passed"}


def test_a_bootstrap_command_has_them_too(boxed: Project) -> None:
    boxed.settings(PYTHON + "[defaults]\nmax_memory_mb = 120\n")
    boxed.suite(f"""
        workspace = Workspace(mode="isolated", bootstrap=Bootstrap(command="python3", args=["-c", {HOG!r}]))
        suite = [Case(id="a", prompt="print(1)", check=ok)]
    """)

    outcome = boxed.run()

    assert outcome.statuses == {"a": "errored"}
    assert outcome.codes == {"a": "bootstrap"}
    assert "ran into its ceiling of 120 MB of memory" in outcome.message("a")


def test_a_ceiling_that_nothing_could_start_under_is_refused(project: Project) -> None:
    project.settings(PYTHON + "[defaults]\nmax_memory_mb = 1\nmax_processes = 0\nmax_cpus = 0.001\n")
    project.suite('suite = [Case(id="a", prompt="1", check=ok)]')

    outcome = project.run()

    assert outcome.code == 2
    for key in ("max_memory_mb", "max_processes", "max_cpus"):
        assert f"defaults.{key}" in outcome.stderr


FILLER = "import time; open('large', 'wb').write(bytes(40_000_000)); time.sleep(0.5); time.sleep({rest})"


def test_an_agent_beyond_its_disk_fails_its_trial_alone_while_it_runs_and_at_its_end(boxed: Project) -> None:
    boxed.settings(PYTHON + "[defaults]\nmax_disk_mb = 20\n")
    boxed.suite(f"""
        suite = [
            Case(id="filler", prompt={FILLER.format(rest=600)!r}, check=ok, timeout_ms=100_000),
            Case(id="hasty", prompt={FILLER.format(rest=0).replace("0.5", "0")!r}, check=ok),
            Case(id="modest", prompt="open('small', 'wb').write(bytes(1_000_000))", check=ok),
        ]
    """)

    outcome = boxed.run()

    assert outcome.statuses == {"filler": "failed", "hasty": "failed", "modest": "passed"}
    assert {outcome.codes["filler"], outcome.codes["hasty"]} == {"ceiling"}
    assert "ran into its ceiling of 20 MB of disk" in outcome.message("filler")
    assert "ceilings   20 MB of disk" in outcome.stdout


def test_what_a_workspace_starts_with_is_not_what_an_agent_wrote(boxed: Project) -> None:
    boxed.settings(PYTHON + "[defaults]\nmax_disk_mb = 20\n")
    (boxed.root / "template").mkdir()
    (boxed.root / "template/large").write_bytes(bytes(40_000_000))
    boxed.suite("""
        workspace = Workspace(mode="isolated", template_dir="template")
        suite = [Case(id="a", prompt="open('small', 'wb').write(bytes(1_000_000))", check=ok)]
    """)

    outcome = boxed.run()

    assert outcome.statuses == {"a": "passed"}, outcome.message("a")


def test_a_bootstrap_command_that_takes_too_much_disk_is_the_fault_of_the_suite(boxed: Project) -> None:
    boxed.settings(PYTHON + "[defaults]\nmax_disk_mb = 20\n")
    boxed.suite(f"""
        filler = Bootstrap(command="python3", args=["-c", {FILLER.format(rest=60)!r}])
        workspace = Workspace(mode="isolated", bootstrap=filler)
        suite = [Case(id="a", prompt="print(1)", check=ok)]
    """)

    outcome = boxed.run()

    assert outcome.codes == {"a": "bootstrap"}
    assert "ran into its ceiling of 20 MB of disk" in outcome.message("a")


@pytest.mark.bubblewrap
@pytest.mark.parametrize("ceiling", ["max_disk_mb", "max_memory_mb"])
def test_no_folder_in_memory_takes_more_than_a_ceiling(project: Project, ceiling: str) -> None:
    project.sandbox = "bubblewrap"
    project.settings(PYTHON + f"[defaults]\n{ceiling} = 64\n")
    project.suite("""
        FILL = '''
        try:
            with open("PLACE/large", "wb") as file:
                for _ in range(100): file.write(bytes(1_000_000)); file.flush()
            print("wrote all of it")
        except OSError as error:
            print("stopped:", error.strerror)
        '''
        def stopped(session): expect.match(session.final_output, "stopped: (No space|Read-only|Permission)")
        places = {"tmp": "/tmp", "var": "/var/tmp", "run": "/run", "shm": "/dev/shm", "dev": "/dev", "root": ""}
        import textwrap
        suite = [
            Case(id=name, prompt=textwrap.dedent(FILL).replace("PLACE", place), check=stopped)
            for name, place in places.items()
        ]
    """)

    outcome = project.run("--max-parallel", "1")

    # If the kernel ends it for its memory first, nothing was taken beyond the ceiling either.
    assert {name: code for name, code in outcome.codes.items() if code not in (None, "ceiling")} == {}, outcome.stdout


@pytest.mark.bubblewrap
def test_a_hidden_folder_takes_nothing(project: Project) -> None:
    project.sandbox = "bubblewrap"
    project.settings(PYTHON + f'[run]\nmounts = ["{project.root}"]\n')
    project.suite(f"""
        FILL = '''
        try:
            open("{project.root}/.whet/runs/large", "wb").write(bytes(1_000_000))
        except OSError as error:
            print("stopped:", error.strerror)
        '''
        import textwrap
        suite = [Case(id="a", prompt=textwrap.dedent(FILL), check=lambda s: expect.match(s.final_output, "stopped"))]
    """)

    outcome = project.run()

    assert outcome.statuses == {"a": "passed"}, outcome.message("a")


MANY = "import time\nfor number in range(3000): open(str(number), 'w').close()\ntime.sleep({rest})"


def test_an_agent_that_leaves_too_many_files_has_failed_and_they_are_not_kept(boxed: Project) -> None:
    boxed.settings(PYTHON + "[defaults]\nmax_files = 1000\n")
    boxed.suite(f"""
        suite = [
            Case(id="waits", prompt={MANY.format(rest=600)!r}, check=ok, timeout_ms=100_000),
            Case(id="many", prompt={MANY.format(rest=0)!r}, check=ok),
            Case(id="few", prompt="open('small', 'w').close()", check=ok),
        ]
    """)

    outcome = boxed.run()

    assert outcome.codes == {"waits": "ceiling", "many": "ceiling", "few": None}
    assert "ran into its ceiling of 1,000 new files" in outcome.message("many")
    assert "ceilings   1,000 new files" in outcome.stdout


@pytest.mark.parametrize("template", [False, True])
def test_whet_looks_at_no_more_files_than_there_may_be(tmp_path: Path, template: bool) -> None:
    began_as = tmp_path / "template"
    began_as.mkdir()
    for number in range(20):
        (began_as / f"old{number}").touch()
    (tmp_path / "scratch").mkdir()
    workspaces = Workspaces(tmp_path / "scratch", most_files=50)
    workspace = workspaces.isolated(WorkspaceSpec(template_dir=began_as if template else None))
    workspace.mark()
    for number in range(50):
        (workspace.path / f"new{number}").touch()

    assert len(workspace.changes()) == 50
    (workspace.path / "one-more").touch()
    with pytest.raises(WorkspaceError, match="more than 50 new files"):
        workspace.changes()
    with pytest.raises(WorkspaceError, match="more than 50 new files"):
        workspace.keep(tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    workspaces.close()
