"""Where bubblewrap cannot do its work: what was asked of it is refused or said, and the hint is the right one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from project import Project

QUIET = '[runners.sh.agent]\ntype = "command"\ncommand = "sh"\nnetwork = false\n'


@pytest.fixture
def quiet(project: Project) -> Project:
    """A project whose agent is to have no network."""
    project.settings(QUIET)
    project.suite("suite = [Case(id='a', prompt='echo hello', check=ok)]")
    return project


def programs(folder: Path, **scripts: str) -> str:
    """A PATH with a shell and Python, without bubblewrap, and with these programs."""
    folder.mkdir()
    for name in ("sh", "python3", "env"):
        (folder / name).symlink_to(str(shutil.which(name)))
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return str(folder)


REFUSED = "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"


def test_a_network_that_cannot_be_off_is_an_error_before_the_run(quiet: Project) -> None:
    done = quiet.run("--sandbox", "local")

    assert done.code == 2
    assert "runners.sh.agent.network = false: the local sandbox cannot turn the network off" in done.stderr
    assert "network_required = false" in done.stderr
    assert not quiet.output_dir.exists()


def test_it_is_one_too_where_bubblewrap_is_missing(quiet: Project, tmp_path: Path) -> None:
    done = quiet.run("--sandbox", "auto", env={"PATH": programs(tmp_path / "bin")})

    assert done.code == 2
    assert "the local sandbox cannot turn the network off" in done.stderr
    assert not quiet.output_dir.exists()


def test_settings_may_say_that_the_network_may_be_there(quiet: Project) -> None:
    quiet.settings(QUIET + "network_required = false\n")

    done = quiet.run("--sandbox", "local")

    assert done.code == 0, done.stderr
    assert "runner sh has the network, although it says `network = false`" in done.stdout


def test_a_runner_that_is_not_run_is_no_reason_to_refuse(quiet: Project) -> None:
    quiet.settings(QUIET + '[runners.open.agent]\ntype = "command"\ncommand = "sh"\n')

    done = quiet.run("--sandbox", "local", "--runner", "open")

    assert done.code == 0, done.stderr


@pytest.mark.bubblewrap
def test_bubblewrap_keeps_the_network_off_and_says_nothing(quiet: Project) -> None:
    done = quiet.run("--sandbox", "bubblewrap")

    assert done.code == 0, done.stderr
    assert "has the network" not in done.stdout


def test_where_it_is_not_installed_the_hint_says_to_install_it(quiet: Project, tmp_path: Path) -> None:
    done = quiet.run("--sandbox", "bubblewrap", env={"PATH": programs(tmp_path / "bin")})

    assert done.code == 2
    assert "install the package bubblewrap" in done.stderr


def test_where_it_may_not_make_namespaces_the_hint_does_not_say_to_install_it(quiet: Project, tmp_path: Path) -> None:
    done = quiet.run("--sandbox", "bubblewrap", env={"PATH": programs(tmp_path / "bin", bwrap=REFUSED)})

    assert done.code == 2
    assert "No permissions to create new namespace" in done.stderr
    assert "allow user namespaces" in done.stderr
    assert "install" not in done.stderr.replace("is installed", "")


@pytest.mark.parametrize("scripts", [{}, {"bwrap": REFUSED}], ids=["missing", "refused"])
def test_the_service_does_not_start_where_its_sandbox_cannot_work(
    project: Project, tmp_path: Path, scripts: dict[str, str]
) -> None:
    path = programs(tmp_path / "bin", **scripts)

    done = project.whet("serve", "--port", "0", "--data-dir", str(tmp_path / "data"), env={"PATH": path})

    assert done.code == 2
    assert "sandbox bubblewrap: bubblewrap" in done.stderr
    assert "answers on" not in done.stdout


def test_the_doctor_says_which_of_the_two_it_is(project: Project, tmp_path: Path) -> None:
    missing = project.whet("doctor", env={"PATH": programs(tmp_path / "one")})
    refused = project.whet("doctor", env={"PATH": programs(tmp_path / "two", bwrap=REFUSED)})

    assert "install the package bubblewrap" in missing.stdout
    assert "allow user namespaces" in refused.stdout
    assert "install the package bubblewrap" not in refused.stdout
    assert os.fspath(tmp_path / "two" / "bwrap") in refused.stdout


# It leaves a sign that it was started, whatever it is asked.
CLAUDE = ": > {outside}/started; echo '{}'"
REAL = '[runners.real.agent]\ntype = "{type}"\ncommand = "claude"\n'
COULD = "could read, change and delete everything that your user can"
KEYS = {"ANTHROPIC_API_KEY": "sk-000000000000000000", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}


@pytest.fixture
def bare(project: Project, tmp_path: Path) -> Project:
    """A project on a machine without bubblewrap, with the program of an agent."""
    path = programs(tmp_path / "bin", claude=CLAUDE.replace("{outside}", str(project.outside)))
    project.env = {"PATH": path, **KEYS}
    project.sandbox = "auto"
    project.settings(REAL.format(type="claude-code"))
    project.suite("suite = [Case(id='a', prompt='Hello.', check=ok)]")
    return project


def was_started(project: Project) -> bool:
    return (project.outside / "started").exists()


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini", "opencode", "copilot", "cursor-agent", "acp"])
def test_an_agent_that_asks_nobody_is_not_started_without_a_boundary(bare: Project, agent: str) -> None:
    bare.settings(REAL.format(type=agent))

    done = bare.run()

    assert done.code == 2
    assert f"runners.real: its agent acts without asking, and {COULD}" in done.stderr
    assert "install the package bubblewrap" in done.stderr
    assert "--sandbox local" in done.stderr
    assert "--sandbox container" in done.stderr
    assert not was_started(bare)
    assert not bare.output_dir.exists()


@pytest.mark.parametrize("how", ["flag", "settings"])
def test_it_is_started_if_you_say_so(bare: Project, how: str) -> None:
    flags = ("--sandbox", "local") if how == "flag" else ()
    if how == "settings":
        # Nothing else says it: a variable would come before the settings.
        bare.starter = ("env", "-u", "WHET_SANDBOX")
        bare.settings('[run]\nsandbox = "local"\n' + REAL.format(type="claude-code"))

    bare.run(*flags)

    assert was_started(bare)


@pytest.fixture
def judged(bare: Project) -> Project:
    """A project in which a program of your own works, and an agent judges."""
    bare.settings(
        QUIET.replace("network = false\n", "") + REAL.format(type="claude-code") + '[judge]\nrunner = "real"\n'
    )
    bare.write(
        "suite.json",
        '{"name": "s", "source_kind": "manual", "verifier_kind": "llm_judge", "cases_json": [{"task_id": "a", '
        '"case_kind": "llm_rubric", "instruction": "echo hello", "rubric": "polite"}]}',
    )
    return bare


def test_a_judge_that_is_an_agent_is_not_started_either(judged: Project) -> None:
    done = judged.whet("run", "suite.json", "--runner", "sh")

    assert done.code == 2
    assert f"runners.real: its agent acts without asking, and {COULD}" in done.stderr
    assert not was_started(judged)


def test_nor_does_it_start_to_judge_what_a_run_left(judged: Project) -> None:
    judged.whet("run", "suite.json", "--runner", "sh", "--sandbox", "local")
    (judged.outside / "started").unlink()

    done = judged.whet("regrade", "latest")

    assert done.code == 2, done.stdout
    assert f"runners.real: its agent acts without asking, and {COULD}" in done.stderr
    assert not was_started(judged)
    # A run that starts no agent needs no boundary.
    judged.suite("suite = [Case(id='a', prompt='x', check=ok)]")
    judged.settings(REAL.format(type="claude-code"))
    judged.run("--sandbox", "local")
    (judged.outside / "started").unlink()
    assert judged.whet("regrade", "latest").code != 2
    assert not was_started(judged)


def test_a_program_of_your_own_runs_with_a_warning(bare: Project) -> None:
    bare.settings(QUIET.replace("network = false\n", ""))
    bare.suite("suite = [Case(id='a', prompt='echo hello', check=ok)]")

    done = bare.run()

    assert done.code == 0, done.stderr
    assert "agents run without a boundary and can read, change and delete your files" in done.stdout


def test_the_doctor_says_that_the_runner_cannot_start(bare: Project) -> None:
    done = bare.whet("doctor")

    assert done.code == 1
    assert COULD in done.stdout
