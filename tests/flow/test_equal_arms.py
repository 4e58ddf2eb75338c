"""No arm has an advantage: the same skill looks the same to an agent, however it came to be in its arm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from project import Outcome, Project
from seeing import AGENT, SETTINGS, leveled, seen_by_arm

SKILL = "---\nname: my-skill\ndescription: Writes commit messages.\n---\n\nWrite them like this.\n"
ANSWERS = "THE-ANSWER-IS-42"
EVALS = {"skill_name": "my-skill", "evals": [{"id": 1, "prompt": "Go.", "expectations": [ANSWERS]}]}
LOCK = {"schema": "whet/split/1", "suite": "my-skill", "file": "evals.json", "seed": ANSWERS}
# What is of the skill, and what nobody may see of it.
PARTS = {
    "SKILL.md": SKILL,
    "scripts/run.sh": "#!/bin/sh\ntrue\n",
    "tests/fixture.json": '{"kept": true}',
    "reference/data.json": '{"cases": "are described here"}',
    "reference/evals/notes.md": "How others write evals.",
    "prompts.json": '[{"prompt": "Say hello."}]',
    "pyproject.toml": '[project]\nname = "scripts"\n[tool.whet.run]\ntrials = 1\n',
}
SECRETS = {
    "evals/evals.json": json.dumps(EVALS),
    "evals/files/expected.txt": ANSWERS,
    "evals/labels.jsonl": ANSWERS,
    "evals/split.lock.json": json.dumps(LOCK),
    "evals/judge.lock.json": ANSWERS,
    "checks.whet.py": f"# {ANSWERS}",
    "suite.json": json.dumps({"name": ANSWERS, "cases": [{"name": "a", "prompt": "Go.", "expect": ["exit:0"]}]}),
    "whet.toml": f"# {ANSWERS}\n",
    "inner/SKILL.md": "---\nname: inner\ndescription: Another.\n---\n",
    "inner/evals/evals.json": json.dumps(EVALS),
    "inner/tests/eval.yaml": ANSWERS,
}
CASE = {"task_id": "a", "case_kind": "exact_match", "instruction": "Go.", "expected": "nothing"}
PACKAGE = {"task_id": "a", "case_kind": "task_package", "instruction": "Go.", "environment_ref": "package"}
ARMS = ("folder", "elsewhere", "commit", "archive", "zipped")


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True)


def _zip(folder: Path, archive: Path) -> None:
    """An archive without a folder around it, with the modes that zip keeps."""
    with zipfile.ZipFile(archive, "w") as made:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                made.write(path, path.relative_to(folder))


@pytest.fixture
def reading(project: Project) -> Project:
    """A project with one skill in five layouts, and an agent that reads everything."""
    for name, text in (PARTS | SECRETS).items():
        project.write(f"my-skill/{name}", text, mode=0o755 if name.endswith(".sh") else 0o644)
    suite: dict[str, Any] = {"name": "s", "source_kind": "manual", "verifier_kind": "deterministic"}
    project.write("my-skill/evals/one.json", json.dumps({**suite, "cases_json": [CASE]}))
    project.write("my-skill/evals/packaged.json", json.dumps({**suite, "cases_json": [PACKAGE]}))
    project.write("my-skill/evals/package/tests/test.sh", "exit 0\n", mode=0o755)
    project.write("agent.py", AGENT)
    project.settings(SETTINGS)
    skill = project.root / "my-skill"
    _git(project.root, "init", "-q")
    _git(project.root, "add", "my-skill")
    _git(project.root, "commit", "-q", "-m", "Add the skill")
    # Neither git nor a plain zip archive keeps these.
    (skill / "assets").mkdir()
    project.write("my-skill/scripts/__pycache__/run.cpython-311.pyc", "left by a script")
    (skill / "scripts").chmod(0o700)
    shutil.copytree(skill, project.root / "elsewhere" / "v2")
    os.utime(project.root / "elsewhere/v2/SKILL.md", (1_000_000_000, 1_000_000_000))
    with tarfile.open(project.root / "v1.tgz", "w:gz") as archive:
        archive.add(skill, "skill-1.0")
    _zip(skill, project.root / "v1.zip")
    return project


def _whet(project: Project, suite: str, *more: str) -> Outcome:
    """A run with the settings of the project: the skill has some of its own."""
    return project.whet("run", suite, "--skill", "my-skill", "--config", "whet.toml", *more)


def _run(project: Project, suite: str, *more: str) -> Outcome:
    arms = {
        "folder": "my-skill",
        "elsewhere": "elsewhere/v2",
        "commit": "git:HEAD",
        "archive": "v1.tgz",
        "zipped": "v1.zip",
    }
    typed = [word for name, place in arms.items() for word in ("--arm", f"{name}=skill:{place}")]
    return _whet(project, suite, *typed, *more)


@pytest.mark.parametrize("suite", ["one", "packaged"])
def test_the_same_skill_looks_the_same_in_every_arm_byte_by_byte(reading: Project, sandbox_name: str, suite: str):
    reading.sandbox = sandbox_name
    done = _run(reading, f"my-skill/evals/{suite}.json")

    told = done.stdout + done.stderr
    seen = seen_by_arm(done, "a")
    words = done.asked["watermarks"]
    views = {arm: leveled(view, words) for arm, view in seen.items()}
    assert tuple(seen) == ARMS, told
    assert {arm: view["variables"]["WHET_ARM"] for arm, view in seen.items()} == {arm: arm for arm in ARMS}
    for arm in ARMS[1:]:
        assert views[arm] == views["folder"]
    assert f"the arms {' and '.join(ARMS)} do not differ in anything" in told
    assert len(set(words.values())) == 1


@pytest.mark.parametrize("suite", ["one", "packaged"])
def test_an_agent_is_given_the_skill_without_its_suites_answers_and_settings(reading: Project, suite: str):
    done = _run(reading, f"my-skill/evals/{suite}.json")

    for arm, view in seen_by_arm(done, "a").items():
        skill = view["variables"]["WHET_SKILL"]
        inside = {path.removeprefix(f"{skill}/"): seen for path, seen in view["paths"].items() if skill in path}
        files = {path for path, seen in inside.items() if seen[0].startswith("-")}
        assert files - {done.asked["watermarks"][arm]} == {*PARTS, "inner/SKILL.md"}, arm
        assert ANSWERS not in json.dumps(view["paths"])
        assert inside["scripts/run.sh"][0] == "-rwxr-xr-x"
        assert "assets" not in inside


def test_a_suite_outside_of_the_skill_leaves_out_what_is_in_it_too(reading: Project):
    shutil.copytree(reading.root / "my-skill/evals", reading.root / "suites")
    done = _whet(reading, "suites/one.json", "--arm", "skill")

    (view,) = seen_by_arm(done, "a").values()
    assert ANSWERS not in json.dumps(view["paths"]), done.stdout + done.stderr


def test_copies_are_without_the_suite_of_the_run_wherever_in_a_skill_it_is(reading: Project):
    for place in ("my-skill", "elsewhere/v2", "third"):
        # No name says that this is a suite.
        reading.write(f"{place}/qa/deep/ours.json", (reading.root / "my-skill/evals/one.json").read_text())
        reading.write(f"{place}/qa/deep/expected.txt", ANSWERS)
        reading.write(f"{place}/qa/manual.md", "How to try it.")
        reading.write(f"{place}/SKILL.md", SKILL)
    arms = ("--arm", "old=skill:elsewhere/v2", "--arm", "new=skill:third")
    done = reading.whet("run", "my-skill/qa/deep/ours.json", "--config", "whet.toml", *arms)

    views = seen_by_arm(done, "a")
    assert tuple(views) == ("old", "new"), done.stdout + done.stderr
    for view in views.values():
        inside = {path.partition("/qa/")[2] for path in view["paths"] if "/qa/" in path}
        assert inside == {"manual.md"}
        assert ANSWERS not in json.dumps(view["paths"])


def test_a_suite_that_is_in_one_version_only_is_no_difference_and_another_file_is(reading: Project):
    shutil.rmtree(reading.root / "elsewhere/v2/evals")
    (reading.root / "elsewhere/v2/tests/eval.yaml").write_text(ANSWERS)
    arms = ("--arm", "old=skill:my-skill", "--arm", "new=skill:elsewhere/v2")
    same = _whet(reading, "my-skill/evals/one.json", *arms)
    views = {arm: leveled(view, same.asked["watermarks"]) for arm, view in seen_by_arm(same, "a").items()}
    (reading.root / "elsewhere/v2/scripts/run.sh").chmod(0o644)
    other = _whet(reading, "my-skill/evals/one.json", *arms)

    assert "the arms old and new do not differ in anything" in same.stdout + same.stderr
    assert views["old"] == views["new"]
    # The tests of one version hold a suite, so no version has them.
    assert "tests/fixture.json" not in views["old"]
    assert "do not differ in anything" not in other.stdout + other.stderr


def test_a_link_to_answers_leads_nowhere_and_a_folder_of_suites_may_be_a_link_or_in_capitals(reading: Project):
    skill = reading.root / "my-skill"
    shutil.copytree(skill / "evals", reading.root / "suites")
    shutil.rmtree(skill / "evals")
    (skill / "evals").symlink_to("../suites")
    (skill / "hint.txt").symlink_to("evals/files/expected.txt")
    (skill / "inner/evals").rename(skill / "inner/EVALS")
    done = _whet(reading, "suites/one.json", "--arm", "skill")

    (view,) = seen_by_arm(done, "a").values()
    assert ANSWERS not in json.dumps(view["paths"]), done.stdout + done.stderr
    assert f"{view['variables']['WHET_SKILL']}/hint.txt" in view["paths"]
    # The one in `reference` is of the skill: no manifest is beside it.
    assert [path for path in view["paths"] if path.lower().endswith("/evals")] == [
        f"{view['variables']['WHET_SKILL']}/reference/evals"
    ]


def test_a_skill_that_a_package_brings_is_without_its_suites_too(reading: Project):
    package = reading.root / "my-skill/evals/package"
    shutil.copytree(reading.root / "elsewhere/v2", package / "skill-under-test")
    done = reading.whet("run", "my-skill/evals/packaged.json", "--config", "whet.toml")

    (view,) = seen_by_arm(done, "a").values()
    assert any(path.endswith("/skill-under-test/scripts/run.sh") for path in view["paths"]), done.stdout + done.stderr
    assert ANSWERS not in json.dumps(view["paths"])
    assert (package / "skill-under-test/evals/evals.json").is_file()


def test_other_skills_of_a_runner_are_without_their_suites_too(reading: Project):
    reading.settings(f'[runners.reader]\nskills = ["elsewhere/v2"]\n{SETTINGS}')
    reading.suite("suite = [Case(id='a', prompt='Go.', check=ok)]\n")
    done = reading.run()

    (view,) = seen_by_arm(done, "a").values()
    assert ANSWERS not in json.dumps(view["paths"]), done.stdout + done.stderr
    assert any(path.endswith("/v2/scripts/run.sh") for path in view["paths"])


def test_a_skill_that_names_what_is_left_out_of_it_is_warned_of_once(reading: Project):
    text = f"{SKILL}\nRead [the guide](./evals/guide.md), .git/config, scripts/run.sh and no evals.\n"
    for place in ("my-skill", "elsewhere/v2"):
        reading.write(f"{place}/evals/guide.md", "Be brief.")
        reading.write(f"{place}/SKILL.md", text)
    arms = ("--arm", "old=skill:elsewhere/v2", "--arm", "new=skill:my-skill")
    done = _whet(reading, "my-skill/evals/one.json", "--dry-run", *arms)
    checked = reading.whet("validate", "my-skill/evals/one.json")
    reading.write("my-skill/SKILL.md", SKILL)
    fine = reading.whet("validate", "my-skill/evals/one.json")

    said = "SKILL.md names evals/guide.md, but agents are not given the suites of a skill"
    assert (done.stdout + done.stderr).count(said) == 1, done.stdout + done.stderr
    assert (checked.code, (checked.stdout + checked.stderr).count(said)) == (0, 1), checked.stderr
    assert "1 warning" in checked.stdout
    assert (fine.code, "guide.md" in fine.stdout + fine.stderr) == (0, False)


def test_a_manifest_that_is_a_link_to_a_suite_is_refused_with_one_sentence(reading: Project):
    skill = reading.root / "my-skill"
    (skill / "SKILL.md").rename(skill / "evals/real.md")
    (skill / "SKILL.md").symlink_to("evals/real.md")
    done = _whet(reading, "my-skill/evals/one.json", "--arm", "skill")

    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error[usage]: --skill: {skill}/SKILL.md is a link to what agents are not given")


def test_a_pipe_in_a_skill_is_refused_with_one_sentence(reading: Project):
    os.mkfifo(reading.root / "my-skill/scripts/pipe")
    done = _whet(reading, "my-skill/evals/one.json", "--arm", "skill")

    assert (done.code, done.stdout) == (2, "")
    said = f"--skill: {reading.root}/my-skill/scripts/pipe is a pipe, a socket or a device, which no agent can be given"
    assert done.stderr.startswith(f"error[usage]: {said}\n"), done.stderr


def test_a_dry_run_says_what_is_left_out_of_the_skill(reading: Project):
    done = _run(reading, "my-skill/evals/one.json", "--dry-run")

    assert done.code == 0, done.stderr
    left = "checks.whet.py, evals, inner/evals, inner/tests, scripts/__pycache__, suite.json, whet.toml"
    assert f"left out of the skill: {left}\n" in done.stdout
    assert not reading.output_dir.exists()
