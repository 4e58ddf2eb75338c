"""Task packages by the real command: fetched, laid out, worked on, verified, with and without the skill."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from project import Outcome, Project, wait_for

# The instruction is the program, and what the verifier wants is what it should have made.
AGENT = """
[runners.sh.agent]
type = "command"
command = "sh"
"""
WANTS_MADE = "#!/bin/bash\ngrep -q made made.txt\n"


def package(project: Project, files: dict[str, str], name: str = "task") -> str:
    for path, text in files.items():
        project.write(f"{name}/{path}", text, mode=0o755 if text.startswith("#!") else 0o644)
    return name


def archive(project: Project, files: dict[str, str], name: str = "task.tar.gz") -> str:
    with tarfile.open(project.root / name, "w:gz") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(text), 0o755 if text.startswith("#!") else 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
    return name


def suite(project: Project, *cases: dict[str, Any], **fields: Any) -> None:
    document = {
        "name": "packages",
        "source_kind": "manual",
        "verifier_kind": "deterministic",
        "cases_json": [{"case_kind": "task_package", **case} for case in cases],
        **fields,
    }
    (project.root / "suite.json").write_text(json.dumps(document))


def run(project: Project, *args: str) -> Outcome:
    return project.whet("run", "suite.json", *args)


def by_arm(outcome: Outcome) -> dict[str, str]:
    return {
        execution["arm"]: trial["status"]
        for case in outcome.results["cases"]
        for execution in case["executions"]
        for trial in execution["trials"]
    }


def test_a_package_needs_no_agent_and_no_settings(boxed: Project) -> None:
    project = boxed
    suite(project, {"id": "a", "environment_ref": archive(project, {"tests/test.sh": "#!/bin/bash\nexit 0\n"})})

    outcome = run(project)

    assert (outcome.code, outcome.statuses) == (0, {"a": "passed"})


def test_an_agent_works_in_the_package_and_its_verifier_comes_after_it(boxed: Project) -> None:
    project = boxed
    project.settings(AGENT)
    files = {"tests/test.sh": WANTS_MADE, "solution/solve.sh": "#!/bin/bash\n", "data.txt": "42"}
    instruction = "ls -R > seen.txt; cp data.txt made.txt; echo made >> made.txt"
    suite(project, {"id": "a", "environment_ref": archive(project, files), "instruction": instruction})

    outcome = run(project)

    assert outcome.code == 0
    patch = outcome.artifact("a", "diff.patch").read_text()
    assert "+data.txt" in patch
    assert "tests" not in patch
    assert "solution" not in patch


def test_what_an_agent_changed_is_told_without_the_files_of_the_verifier(project: Project) -> None:
    project.settings(AGENT)
    ref = archive(project, {"tests/test.sh": "#!/bin/bash\nexit 1\n", "data.txt": "42"})
    suite(project, {"id": "a", "environment_ref": ref, "instruction": "echo made > made.txt"})

    outcome = run(project)

    trial = outcome.trial("a")
    assert (trial["status"], trial["failure"]["code"], trial["changed_files"]) == ("failed", "assertion", 1)
    assert (outcome.folder / trial["workspace_dir"] / "tests/test.sh").exists()


def test_the_skill_is_there_in_its_own_arm_only(boxed: Project) -> None:
    project = boxed
    project.write("my-skill/SKILL.md", "---\nname: my-skill\ndescription: Helps.\n---\nDo it.\n")
    check = '#!/bin/bash\ntest -f "$SKILL_DIR/SKILL.md" && test "$EVAL_ARM" = skill\n'
    # The package brings a skill of its own to that place, which must not pass for the one under test.
    files = {"tests/test.sh": check, "place/SKILL.md": "old"}
    suite(
        project,
        {"id": "a", "environment_ref": archive(project, files), "skill_bundle_ref": "place"},
        supports_no_skill=True,
    )

    outcome = run(project, "--skill", "my-skill")

    assert outcome.code == 0
    found = by_arm(outcome)
    assert found["skill"] == "passed"
    assert found["no_skill"] != "passed"


@pytest.mark.bubblewrap
def test_an_agent_that_sees_the_folder_of_the_suite_finds_no_answer_in_it(project: Project) -> None:
    project.sandbox = "bubblewrap"
    project.settings(AGENT + 'mounts = ["."]\n')
    files = {"tests/test.sh": "#!/bin/bash\nexit 0\n"}
    project.write("checks/test.sh", files["tests/test.sh"])
    root = project.root
    # Those of other cases too: tasks that are alike have answers that are alike.
    told = f"{root}/folder/tests/test.sh {root}/task.tar.gz {root}/checks/test.sh {root}/suite.json"
    look = {"instruction": f"cat {told} | wc -c; ls {root}"}
    suite(
        project,
        {"id": "folder", "environment_ref": package(project, files, "folder"), **look},
        {"id": "archive", "environment_ref": archive(project, files), **look},
        {"id": "around", "environment_ref": ".", "verifier_ref": "checks/test.sh", **look},
        {"case_kind": "exact_match", "id": "exact", "expected": 42, **look},
    )

    outcome = run(project)

    for case in ("folder", "archive", "around", "exact"):
        size, *names = outcome.session(case)["final_output"].split()
        assert (size, "suite.json" in names) == ("0", True), case


@pytest.mark.bubblewrap
def test_an_agent_finds_the_paths_that_its_task_was_written_for(project: Project) -> None:
    project.sandbox = "bubblewrap"
    project.settings(AGENT)
    files = {
        "environment/data.txt": "42",
        "tests/test.sh": "#!/bin/bash\ngrep -q 42 /app/made.txt && echo 1 > /logs/verifier/reward.txt\n",
    }
    hints = {"working_dir": "environment", "paths": {"/app": "environment"}}
    suite(
        project,
        {
            "id": "a",
            "environment_ref": archive(project, files),
            "instruction": "cat data.txt > /app/made.txt; ls /tests /logs; true",
            "resource_hints": hints,
        },
    )

    outcome = run(project)

    assert (outcome.code, outcome.statuses) == (0, {"a": "passed"})
    assert outcome.session("a")["final_output"] == ""


@pytest.mark.parametrize(
    ("case", "code", "said"),
    [
        ({"environment_ref": "http://127.0.0.1:9/a.tar.gz"}, "package-unreachable", "cannot be fetched"),
        ({"environment_ref": "bad.tar.gz"}, "package", "cannot be read"),
        ({"environment_ref": "evil.tar.gz"}, "package", "contains `..`"),
        ({"environment_ref": "good.tar.gz", "verifier_ref": "other.sh"}, "package", "it has no file other.sh"),
        ({"environment_ref": "good.tar.gz", "oracle_ref": "oracle.sh"}, "grader", "the oracle oracle.sh ended with"),
        ({"environment_ref": "good.tar.gz", "resource_hints": {"timeout_ms": 300}}, "grader", "still running"),
    ],
)
def test_what_keeps_a_verifier_from_deciding_is_errored(
    project: Project, case: dict[str, Any], code: str, said: str
) -> None:
    (project.root / "bad.tar.gz").write_text("no archive")
    archive(project, {"../evil": "", "tests/test.sh": ""}, "evil.tar.gz")
    slow = "#!/bin/bash\nsleep 60\n"
    archive(project, {"tests/test.sh": slow, "oracle.sh": "#!/bin/bash\nexit 9\n"}, "good.tar.gz")
    suite(project, {"id": "a", **case}, {"id": "b", "environment_ref": archive(project, {"tests/test.sh": "exit 0"})})

    outcome = run(project)

    assert outcome.code == 3
    assert outcome.statuses == {"a": "errored", "b": "passed"}
    assert (outcome.codes["a"], outcome.trial("a")["score"]) == (code, None)
    assert said in outcome.message("a")


def test_a_local_package_that_is_not_there_is_told_before_anything_starts(project: Project) -> None:
    suite(project, {"id": "a", "environment_ref": "nowhere.tar.gz"})

    outcome = run(project)

    assert outcome.code == 2
    assert "cases_json[0].environment_ref (line 1): " in outcome.stderr
    assert "nowhere.tar.gz does not exist" in outcome.stderr
    assert not outcome.output_dir.exists()


class _Server:
    """Serves a folder, and counts."""

    def __init__(self, folder: Path) -> None:
        seen = self.seen = list[str]()

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args, directory=str(folder))

            def do_GET(self) -> None:
                seen.append(self.path)
                super().do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(project: Project) -> Iterator[_Server]:
    made = _Server(project.root)
    yield made
    made.close()


def test_a_package_of_the_web_is_fetched_once_for_all_trials(project: Project, server: _Server) -> None:
    ref = f"{server.url}/{archive(project, {'tests/test.sh': 'exit 0'})}"
    suite(project, *({"id": f"c{number}", "environment_ref": ref} for number in range(3)))

    outcome = run(project, "--trials", "2")

    assert outcome.code == 0
    assert server.seen == ["/task.tar.gz"]


def test_the_guard_can_be_set_for_a_run(project: Project, server: _Server) -> None:
    project.settings("[packages]\nallow_private_addresses = false\n")
    ref = f"{server.url}/{archive(project, {'tests/test.sh': 'exit 0'})}"
    suite(project, {"id": "a", "environment_ref": ref})

    outcome = run(project)

    assert outcome.statuses == {"a": "errored"}
    assert "not a public address" in outcome.message("a")
    assert server.seen == []


def test_nothing_of_a_package_stays_in_the_temporary_folder(project: Project) -> None:
    (project.root.parent / "tmp").mkdir()
    suite(project, {"id": "a", "environment_ref": archive(project, {"tests/test.sh": "exit 1"})})

    outcome = project.whet("run", "suite.json", env={"TMPDIR": str(project.root.parent / "tmp")})

    assert outcome.statuses == {"a": "failed"}
    assert list((project.root.parent / "tmp").iterdir()) == []


def test_a_failed_package_can_be_regraded_with_another_verifier(project: Project) -> None:
    project.settings(AGENT)
    folder = package(project, {"tests/test.sh": "#!/bin/bash\nexit 1\n"})
    suite(project, {"id": "a", "environment_ref": folder, "instruction": "echo made > made.txt"})
    run(project)
    project.write(f"{folder}/tests/test.sh", WANTS_MADE)

    outcome = project.whet("regrade", "latest")

    assert (outcome.code, outcome.statuses) == (0, {"a": "passed"})


def test_a_package_that_passed_keeps_nothing_to_regrade(project: Project) -> None:
    suite(project, {"id": "a", "environment_ref": archive(project, {"tests/test.sh": "exit 0"})})
    run(project)

    outcome = project.whet("regrade", "latest")

    assert outcome.codes == {"a": "not-recorded"}
    assert "it started as a package" in outcome.message("a")


def test_what_is_secret_in_the_variables_of_a_package_is_not_recorded(project: Project) -> None:
    project.settings('[packages.s3]\nsecret_variable = "OPENS_IT"\n')
    check = "#!/bin/bash\necho $API_TOKEN | tee $LOGS_DIR/log.txt; echo open-sesame-1\nexit 1\n"
    hints = {"env": {"API_TOKEN": "tok-1234567890"}}
    suite(
        project,
        {"id": "a", "environment_ref": archive(project, {"tests/test.sh": check}), "resource_hints": hints},
    )

    outcome = project.whet("run", "suite.json", env={"OPENS_IT": "open-sesame-1"})

    kept = [
        path.read_bytes() for path in outcome.folder.rglob("*") if path.is_file() and "workspaces" not in path.parts
    ]
    assert outcome.artifact("a", "verifier/log.txt").exists()
    assert not [data for data in kept if b"tok-1234567890" in data or b"open-sesame-1" in data]


@pytest.mark.bubblewrap
def test_an_agent_cannot_have_its_links_followed_into_the_sandbox_of_the_verifier(project: Project) -> None:
    project.sandbox = "bubblewrap"
    project.settings(AGENT)
    (project.root.parent / "private").mkdir()
    (project.root.parent / "private/secret.txt").write_text("mine")
    check = "#!/bin/bash\ncat /solution/secret.txt /app/secret.txt solution/secret.txt\nexit 1\n"
    files = {"tests/test.sh": check, "environment/x": "", "work/x": ""}
    private = f"{project.root.parent}/private"
    instruction = f"ln -s {private} solution; rm -r environment; ln -s {private} environment"
    case = {"instruction": instruction, "environment_ref": archive(project, files)}
    suite(
        project,
        {"id": "plain", **case},
        {"id": "shown", **case, "resource_hints": {"paths": {"/app": "environment"}}},
    )

    outcome = run(project)

    assert outcome.statuses == {"plain": "failed", "shown": "failed"}
    assert "mine" not in outcome.artifact("plain", "verifier.log").read_text()
    assert "leads out of the workspace" in outcome.message("shown")


def test_a_run_that_was_killed_while_a_verifier_ran_is_taken_up_again(project: Project) -> None:
    check = f"#!/bin/bash\ntouch {project.outside}/began-$TASK_ID\ntest -e {project.outside}/go || sleep 60\n"
    ref = archive(project, {"tests/test.sh": check})
    suite(project, {"id": "a", "environment_ref": ref}, {"id": "b", "environment_ref": ref})
    process = project.start("suite.json", "--max-parallel", "1")
    wait_for(project.outside / "began-a")
    process.kill()
    process.communicate()
    (project.outside / "go").touch()

    outcome = project.whet("run", "--resume", "latest")

    assert (outcome.code, outcome.statuses) == (0, {"a": "passed", "b": "passed"})
