"""`whet import`: manifests and folders of Harbor tasks become suites that run, and what is lost is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from project import Project

TASK = """
schema_version = "1.4"
[task]
name = "someone/hello"
keywords = ["files"]
[metadata]
difficulty = "easy"
tags = ["shell"]
[agent]
timeout_sec = 900
[verifier]
timeout_sec = 60
[verifier.env]
GREETING = "hello"
FROM_HOST = "${SOME_KEY}"
WITH_DEFAULT = "${OTHER:-fallback}"
[environment]
network_mode = "no-network"
"""
DOCKERFILE = """
FROM python:3.12-slim
RUN apt-get update \\
    && apt-get install -y curl
ENV MODE=test
WORKDIR /job
COPY data /job/data
COPY extra /srv/extra
COPY --from=builder /x /y
"""
CANARY = "<!-- This is a canary GUID 123 -->\n\n# harbor canary 456\n\n"
VERIFIER = """#!/bin/bash
set -x
if grep 42 /job/out.txt && test "$GREETING$WITH_DEFAULT$MODE" = hellofallbacktest && ls /srv/extra/more.txt; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""


def task(project: Project, name: str = "tasks/hello", toml: str = TASK, **files: str) -> None:
    given = {
        "task.toml": toml,
        "instruction.md": f"{CANARY}cat /job/data/n.txt > out.txt\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/data/n.txt": "42",
        "environment/extra/more.txt": "",
        "tests/test.sh": VERIFIER,
        "solution/solve.sh": "#!/bin/bash\ncp /job/data/n.txt /job/out.txt\n",
        **files,
    }
    for path, text in given.items():
        (project.root / name / path).parent.mkdir(parents=True, exist_ok=True)
        (project.root / name / path).write_text(text)
        (project.root / name / path).chmod(0o755 if text.startswith("#!") else 0o644)


def read(project: Project, name: str = "suite.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.root / name).read_text())
    return found


def test_a_task_becomes_a_case_with_all_that_a_case_can_say(project: Project) -> None:
    task(project)

    outcome = project.whet("import", "tasks", "--output", "suite.json")

    assert outcome.code == 0
    suite = read(project)
    assert (suite["source_kind"], suite["verifier_kind"], suite["supports_no_skill"]) == (
        "imported",
        "deterministic",
        True,
    )
    assert suite["cases_json"] == [
        {
            "case_kind": "task_package",
            "task_id": "hello",
            "tags": ["shell", "files", "easy"],
            "source": "someone/hello",
            "environment_ref": "tasks/hello",
            "instruction": "cat /job/data/n.txt > out.txt",
            "verifier_ref": "tests/test.sh",
            "skill_bundle_ref": "skill-under-test",
            "resource_hints": {
                "working_dir": "environment",
                "timeout_ms": 60000.0,
                "env": {"MODE": "test", "GREETING": "hello", "WITH_DEFAULT": "fallback"},
                "paths": {"/job": "environment", "/srv/extra": "environment/extra"},
            },
        }
    ]


def test_what_is_lost_is_told_task_by_task(project: Project) -> None:
    task(project)

    outcome = project.whet("import", "tasks", "--output", "suite.json")

    for word in ("FROM_HOST", "--from=builder", "python:3.12-slim", "1 RUN step", "--timeout-ms 900000"):
        assert word in outcome.stderr
    assert outcome.stderr.count("hello: not carried over: ") == 4
    assert outcome.stderr.endswith("imported 1 task to suite.json\n")


@pytest.mark.bubblewrap
def test_a_task_may_say_itself_where_it_works_and_its_verifier_has_the_usual_time(project: Project) -> None:
    task(project, toml='version = "1.0"\n[environment]\nworkdir = "/srv/there/"\n')

    outcome = project.whet("import", "tasks", "--output", "suite.json")

    assert outcome.code == 0
    hints = read(project)["cases_json"][0]["resource_hints"]
    assert (hints["paths"]["/srv/there"], hints["timeout_ms"]) == ("environment", 600_000)


def test_an_imported_task_runs_with_an_agent(project: Project) -> None:
    project.sandbox = "bubblewrap"
    task(project)
    project.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n')
    project.whet("import", "tasks", "--output", "suite.json")

    outcome = project.whet("run", "suite.json")

    assert (outcome.code, outcome.statuses) == (0, {"hello": "passed"})


@pytest.mark.bubblewrap
def test_its_solution_tells_whether_a_task_can_be_solved_and_nothing_that_it_is_not_solved_already(
    project: Project,
) -> None:
    project.sandbox = "bubblewrap"
    task(project)
    project.whet("import", "tasks", "--oracle", "--output", "solved.json")
    project.whet("import", "tasks", "--output", "untouched.json")

    solved = project.whet("run", "solved.json").statuses
    untouched = project.whet("run", "untouched.json").statuses

    assert (solved, untouched) == ({"hello": "passed"}, {"hello": "failed"})


def test_the_one_skill_of_a_task_is_where_the_skill_under_test_goes(project: Project) -> None:
    task(project, **{"environment/skills/helper/SKILL.md": "---\nname: helper\ndescription: Helps.\n---\n"})

    project.whet("import", "tasks/hello", "--output", "suite.json")

    assert read(project)["cases_json"][0]["skill_bundle_ref"] == "environment/skills/helper"


def test_several_skills_of_a_task_are_told(project: Project) -> None:
    task(project, **{f"environment/skills/{name}/SKILL.md": "x" for name in ("a", "b")})

    outcome = project.whet("import", "tasks/hello", "--output", "suite.json")

    assert "its 2 skills in environment/skills (a, b): they are there in every arm" in outcome.stderr


@pytest.mark.parametrize(
    ("toml", "reason"),
    [
        ('[[steps]]\nname = "one"\n', "several steps"),
        ('[environment]\nos = "windows"\n', "Windows"),
        ('[verifier]\nenvironment_mode = "separate"\n', "container of its own"),
        ("[verifier.environment]\n", "container of its own"),
        ("not toml", "cannot be read"),
    ],
)
def test_a_task_that_cannot_be_a_case_is_left_out_and_the_others_are_not(
    project: Project, toml: str, reason: str
) -> None:
    task(project)
    task(project, "tasks/odd", toml)

    outcome = project.whet("import", ".", "--output", "suite.json")

    assert outcome.code == 1
    assert [case["task_id"] for case in read(project)["cases_json"]] == ["hello"]
    assert "odd: left out: " in outcome.stderr
    assert reason in outcome.stderr


@pytest.mark.parametrize(
    ("toml", "word"),
    [
        ("[environment]\ngpus = 1\n", "environment.gpus"),
        ('[environment]\ndocker_image = "x"\n', "environment.docker_image"),
        ("[environment]\nmemory_mb = 4096\n", "defaults.max_memory_mb"),
        ('[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a"]\n', "one by one"),
        ("[environment]\n", "the network"),
        ('[[environment.mcp_servers]]\nname = "x"\n', "mcp_servers"),
        ('[agent]\nuser = "root"\n', "agent.user"),
        ('[agent]\nnetwork_mode = "no-network"\n', "agent.network_mode"),
        ('schema_version = "2.0"\n', "schema_version 2.0: whet reads it as 1.4"),
        ('[environment]\nworkdir = "/usr/src"\n', "environment.workdir /usr/src"),
    ],
)
def test_what_a_machine_without_containers_cannot_do_is_told(project: Project, toml: str, word: str) -> None:
    task(project, toml=toml)

    outcome = project.whet("import", "tasks", "--output", "suite.json")

    assert outcome.code == 0
    assert word in outcome.stderr


def test_a_wrong_field_of_a_task_is_reported_and_left_out(project: Project) -> None:
    task(project, toml='[agent]\ntimeout_sec = "long"\n[metadata]\ntags = ["shell", 3]\n')

    outcome = project.whet("import", "tasks", "--output", "suite.json")

    assert outcome.code == 0
    assert 'agent.timeout_sec: must be a number above 0, not "long"; it is left out' in outcome.stderr
    assert "metadata.tags[1]: must be a string, not 3; it is left out" in outcome.stderr
    assert read(project)["cases_json"][0]["tags"] == ["shell"]


@pytest.mark.parametrize(
    ("toml", "network"),
    [
        ('version = "1.0"\n[environment]\nallow_internet = true\n', True),
        ('[environment]\nnetwork_mode = "public"\n', True),
        ('[environment]\nnetwork_mode = "no-network"\n', None),
    ],
)
def test_the_network_is_on_only_where_the_task_asks_for_it(project: Project, toml: str, network: bool | None) -> None:
    task(project, toml=toml)

    project.whet("import", "tasks", "--output", "suite.json")

    assert read(project)["cases_json"][0]["resource_hints"].get("network") is network


def test_a_manifest_becomes_a_suite_that_finds_its_packages(project: Project) -> None:
    project.write("bench/pack/tests/test.sh", "exit 0\n")
    manifest = {"name": "bench", "supports_no_skill": True, "cases": [{"task_id": "a", "environment_ref": "pack"}]}
    project.write("bench/manifest.json", json.dumps(manifest))

    outcome = project.whet("import", "bench/manifest.json", "--output", "suite.json")
    ran = project.whet("run", "suite.json")

    assert outcome.code == 0
    assert read(project)["cases_json"][0]["environment_ref"] == "bench/pack"
    assert "a: not carried over: the manifest does not say instruction" in outcome.stderr
    assert (ran.code, ran.statuses) == (0, {"a": "passed"})


def test_a_wrong_manifest_is_told_with_all_that_is_wrong(project: Project) -> None:
    project.write("manifest.json", json.dumps({"cases": [{"environment_ref": "ftp://x"}, {}]}))

    outcome = project.whet("import", "manifest.json")

    assert outcome.code == 2
    assert "name" in outcome.stderr
    assert "cases[0].environment_ref" in outcome.stderr
    assert "cases[1].environment_ref" in outcome.stderr


def test_without_an_output_the_suite_is_printed(project: Project) -> None:
    task(project)

    outcome = project.whet("import", "tasks", "--name", "mine")

    assert json.loads(outcome.stdout)["name"] == "mine"


def test_nothing_is_overwritten(project: Project) -> None:
    task(project)
    project.write("suite.json", "mine")

    outcome = project.whet("import", "tasks", "--output", "suite.json")

    assert outcome.code == 2
    assert (project.root / "suite.json").read_text() == "mine"


@pytest.mark.parametrize("path", [".", "nowhere"])
def test_a_place_without_tasks_is_told(project: Project, path: str) -> None:
    outcome = project.whet("import", path)

    assert outcome.code == 2
    assert "holds no tasks" in outcome.stderr or "does not exist" in outcome.stderr
