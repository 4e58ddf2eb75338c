"""Settings in force for a run: who stands above whom, what is wrong, and where each value came from."""

from __future__ import annotations

import json
import os
import shutil

import pytest
from project import SHELL, Project

ONE = 'suite = [Case(id="a", prompt="true", check=ok)]'


def effective(project: Project) -> dict[str, tuple[object, str]]:
    done = project.whet("config", "suite.py", "--json")
    assert done.code == 0, done.stderr
    return {key: (item["value"], item["origin"]) for key, item in json.loads(done.stdout)["settings"].items()}


def test_flag_before_variable_before_project_before_user_before_built_in(project: Project) -> None:
    project.suite(ONE)
    user = project.root.parent / "home" / ".config" / "whet" / "config.toml"
    user.parent.mkdir(parents=True)
    seen = []

    for text, env, flags in [
        ("", {}, []),
        ("user", {}, []),
        ("user project", {}, []),
        ("user project", {"WHET_TRIALS": "4"}, []),
        ("user project", {"WHET_TRIALS": "4"}, ["--trials", "5"]),
    ]:
        user.write_text("[run]\ntrials = 2\n" if "user" in text else "")
        project.settings(SHELL + ("[run]\ntrials = 3\n" if "project" in text else ""))
        project.env = env
        seen.append(len(project.run(*flags).trials))

    assert seen == [1, 2, 3, 4, 5]


def test_a_case_stands_above_the_file_and_below_a_flag(project: Project) -> None:
    project.settings(SHELL + "[defaults]\ntimeout_ms = 60000\n")
    project.suite('suite = [Case(id="a", prompt="true", check=ok, timeout_ms=5000)]')

    own = project.run("--dry-run")
    typed = project.run("--dry-run", "--timeout-ms", "7000")

    assert " 5 s" in own.stdout
    assert " 7 s" in typed.stdout


@pytest.mark.root
def test_settings_that_another_user_put_above_a_suite_run_nothing_as_us(project: Project) -> None:
    foreign = project.settings('[runners.evil.agent]\ntype = "command"\ncommand = "touch"\nargs = ["{outside}/evil"]\n')
    os.chown(foreign, 65534, 65534)
    suite = project.suite(ONE, "mine/suite.py")

    done = project.whet("run", str(suite))

    assert done.code == 2
    assert f"{foreign} is not read: it belongs to " in done.stderr
    assert not (project.outside / "evil").exists()


def test_the_header_names_every_file_with_settings(project: Project) -> None:
    user = project.root.parent / "home/.config/whet/config.toml"
    user.parent.mkdir(parents=True)
    user.write_text("[run]\ntrials = 2\n")
    project.settings(SHELL)
    project.suite(ONE)

    done = project.run()

    assert f"  settings   whet.toml and {user}\n" in done.stdout


def test_where_no_settings_are_found_it_is_said_how_far_they_were_searched_for(project: Project) -> None:
    project.settings(SHELL)
    (project.root / "repo/.git").mkdir(parents=True)
    suite = project.suite(ONE, "repo/suite.py")

    done = project.whet("run", str(suite))

    assert done.code == 2
    assert "no runners are configured" in done.stderr
    assert f"settings were searched for up to {project.root}/repo" in done.stderr


def test_settings_are_found_upwards_and_paths_are_taken_from_their_file(project: Project) -> None:
    project.settings(SHELL.replace('"sh"', '"./agents/mine.sh"') + '[run]\noutput_dir = "out"\n')
    project.write("agents/mine.sh", "#!/bin/sh\necho mine\n", mode=0o755)
    path = project.suite(
        'suite = [Case(id="a", prompt="x", check=lambda r, c: expect.ok(c.final_output() == "mine"))]',
        "deep/er/suite.py",
    )

    done = project.whet("run", str(path), cwd=project.outside)

    assert done.code == 0, done.stderr
    assert (project.root / "out" / "latest" / "results.json").exists()


def test_pyproject_holds_settings_too(project: Project) -> None:
    project.write("pyproject.toml", '[tool.whet.runners.p.agent]\ntype = "command"\ncommand = "true"\n')
    project.suite(ONE)

    done = project.run()

    assert done.code == 0, done.stderr
    assert done.trials[0]["runner"] == "p"


def test_every_wrong_setting_is_told_at_once_with_its_dotted_path(project: Project) -> None:
    project.settings("""
        [run]
        trails = 3
        retries = -1
        schedule = "sometimes"
        [defaults]
        timeout_ms = "long"
        [runners.a.agent]
        type = "command"
        comand = "x"
        [runners.b]
    """)
    project.suite(ONE)

    done = project.run()

    assert done.code == 2
    for said in ("run.trails", 'did you mean "trials"?', "run.retries", "run.schedule", "defaults.timeout_ms",
                 "runners.a.agent.comand", "runners.b"):  # fmt: skip
        assert said in done.stderr
    assert done.stderr.count("error[config]") >= 6
    assert not project.output_dir.exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("", "no runners are configured"),
        ('[runners.a.agent]\ntype = "comand"\n', 'did you mean "command"?'),
        ('[runners.a.agent]\ntype = "command"\n', "runners.a.agent.command: is missing"),
        ('[runners.a.agent]\ntype = "scripted"\n', "runners.a.agent.script: is missing"),
        ("[run\n", "whet.toml"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_runs(project: Project, settings: str, said: str) -> None:
    project.settings(settings)
    project.suite(ONE)

    done = project.run()

    assert done.code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not project.output_dir.exists()


def test_config_tells_every_value_and_where_it_came_from(project: Project) -> None:
    project.settings(SHELL + 'env = { MY_TOKEN = "hush-hush" }\n[run]\nretries = 2\n')
    project.suite(ONE)
    project.env = {"WHET_MAX_PARALLEL": "3"}

    found = effective(project)
    text = project.whet("config", "suite.py")

    assert found["run.retries"] == (2, "whet.toml")
    assert found["run.max_parallel"] == (3, "WHET_MAX_PARALLEL")
    assert found["run.trials"] == (1, "built-in")
    assert found["runners.sh.agent.env.MY_TOKEN"][0] == "***"
    assert "hush-hush" not in text.stdout
    assert "run.retries" in text.stdout


def test_the_local_sandbox_is_named_and_an_unknown_one_refused(project: Project) -> None:
    project.settings(SHELL)
    project.suite(ONE)

    shell = shutil.which("sh")
    assert shell is not None
    (project.outside / "sh").symlink_to(shell)
    done = project.run("--sandbox", "local")
    unknown = project.run("--sandbox", "cellar")
    lacking = project.run("--sandbox", "bubblewrap", env={"PATH": str(project.outside)})
    fallback = project.run("--sandbox", "auto", env={"PATH": f"{project.outside}:/nowhere"})

    assert done.results["sandbox"] == "local"
    assert unknown.code == lacking.code == 2
    assert "not installed" in lacking.stderr
    assert "without a boundary" in fallback.stdout
