"""The record of a run: written as it goes, whole at the end, and found again."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import jsonschema
from project import SHELL, Project, wait_for


def test_the_journal_has_each_trial_as_soon_as_it_ends(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id="quick", prompt="true", check=ok),
                 Case(id="slow", prompt=": > {outside}/begun; while [ ! -e {outside}/go ]; do sleep 0.02; done", check=ok)]
    """)
    running = project.start("suite.py", "--schedule", "serial")
    wait_for(project.outside / "begun")

    journal = project.journal()
    early = (project.output_dir / "latest" / "results.json").exists()
    (project.outside / "go").touch()
    done = project.outcome(running)

    assert [line["key"]["case"] for line in journal] == ["quick"]
    assert not early
    assert done.code == 0
    assert len(project.journal()) == 2


def test_latest_points_at_the_newest_run_and_runs_never_share_a_folder(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')
    first = project.run().folder
    second = project.run().folder

    both = [project.start("suite.py") for _ in range(2)]
    ended = [project.outcome(process) for process in both]

    assert first != second
    assert [done.code for done in ended] == [0, 0]
    assert len([path for path in project.output_dir.iterdir() if not path.is_symlink()]) == 4
    assert (project.output_dir / "latest").is_symlink()
    assert not (project.output_dir / "latest").readlink().is_absolute()


def test_a_run_says_what_was_asked_and_hides_what_looks_secret(project: Project) -> None:
    project.settings(SHELL + 'env = { A_TOKEN = "secret-value-1", PLAIN = "shown" }\n[run]\ntrials = 2\n')
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')

    done = project.run("--retries", "1")

    facts = json.loads((done.folder / "run.json").read_text())
    settings = {item["key"]: (item["value"], item["origin"]) for item in facts["settings"]}
    assert facts["plan"] == ["a@sh/default x2"]
    assert settings["run.retries"] == ("1", "flag --retries")
    assert settings["run.trials"] == ("2", "whet.toml")
    assert settings["runners.sh.agent.env.A_TOKEN"][0] == "***"
    assert settings["runners.sh.agent.env.PLAIN"][0] == "shown"


def test_a_run_folder_can_be_moved_because_its_paths_are_relative(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="echo x > file; exit 1", check=ok)]')
    done = project.run()

    moved = shutil.move(done.folder, project.outside / "moved")

    results = json.loads((project.outside / "moved" / "results.json").read_text())
    first = results["cases"][0]["executions"][0]["trials"][0]
    assert (project.outside / moved / first["artifact_dir"]).is_dir()
    assert (project.outside / moved / first["workspace_dir"] / "file").is_file()


def test_nothing_stays_in_the_temporary_folder(boxed: Project) -> None:
    scratch = boxed.root.parent / "tmp"
    scratch.mkdir()
    boxed.settings(SHELL)
    boxed.write("template/file", "x")
    boxed.suite("""
        workspace = Workspace(mode="isolated", template_dir="template")
        suite = [Case(id=f"c{n}", prompt=f"echo x > $HOME/x; echo y > $TMPDIR/y; exit {n}", check=ok) for n in range(3)]
    """)

    done = boxed.run(env={"TMPDIR": str(scratch)})

    assert done.code == 1
    assert list(scratch.iterdir()) == []


def test_a_disk_that_fills_up_is_one_clear_error_and_the_run_can_be_resumed(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id=f"c{n:03}", prompt="true", check=ok) for n in range(40)]')
    # So that no module has to be compiled, of which half would stay.
    project.run("--case", "c000")

    # A ceiling on the size of files is the one full disk that needs no disk.
    limited = subprocess.run(
        ["bash", "-c", f"ulimit -f 36; exec {sys.executable} -m whet run suite.py"],
        cwd=project.root, env=project.environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    folder = (project.output_dir / "latest").resolve().relative_to(project.root)
    done = project.whet("run", "--resume", str(folder))

    assert limited.returncode == 4
    assert f"free some space, and continue with: whet run --resume {folder}" in limited.stderr
    assert "error[record]" in limited.stderr, limited.stderr
    assert "Traceback" not in limited.stderr
    assert done.code == 0, done.stderr
    assert done.results["counts"]["passed"] == 40
    assert len({line["key"]["case"] for line in project.journal()}) == len(project.journal()) == 40


def test_the_published_schema_describes_results(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=ok), Case(id="b", prompt="exit 1", check=ok)]')
    done = project.run()

    schema = project.whet("schema", "results")

    assert schema.code == 0, schema.stderr
    jsonschema.validate(done.results, json.loads(schema.stdout))
