"""Task packages from the archive to the grade: real archives, real scripts, in the real sandboxes of this machine."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from whet.checks.context import Shell
from whet.errors import PackageError
from whet.grade.evidence import Evidence
from whet.grade.verifiers.packages import TaskPackageGrader
from whet.model.eval_cases import ResourceHints, TaskPackage
from whet.model.grade import Changes, Grade
from whet.model.session import SessionSummary
from whet.model.suite import SKILL, Case, Check, Suite
from whet.packages.settings import PackageSettings
from whet.packages.task_packages import Packages, PreparedPackage, package_problems, package_workspace
from whet.workspace.copy import copy_tree


def script(*lines: str) -> str:
    return "\n".join(("#!/bin/bash", "set -u", *lines, ""))


def folder_of(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    return root


def archive_of(root: Path) -> Path:
    archive = root.with_suffix(".tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(root.rglob("*")):
            tar.add(path, path.relative_to(root), recursive=False)
    return archive


class Bench:
    """Prepares one package and grades what an agent, a function here, makes of its workspace."""

    def __init__(self, folder: Path, sandbox: str) -> None:
        self.folder, self.sandbox = folder, sandbox
        self.scratch, self.artifacts = folder / "scratch", folder / "artifacts"
        self.scratch.mkdir()
        self.artifacts.mkdir()
        self.workspace = self.scratch / "w"
        self.packages = Packages(self.scratch, PackageSettings(), {})

    def prepared(self, package: TaskPackage) -> PreparedPackage:
        spec = package_workspace(package, self.folder).package
        assert spec is not None
        return anyio.run(self.packages.prepare, spec)

    def grade(
        self,
        files: dict[str, str],
        agent: Callable[[Path], None] = lambda _: None,
        *,
        arm: str = "no_skill",
        **fields: Any,
    ) -> Grade:
        archive = archive_of(folder_of(self.folder / "package", files))
        package = TaskPackage(environment_ref=archive.name, **fields)
        prepared = self.prepared(package)
        self.workspace.mkdir()
        copy_tree(prepared.template, self.workspace)
        agent(self.workspace)
        check = Check(grader="task-package", params={"package": package}, label="verifier", weight=2.0)
        case = Case(id="case-1", prompt="", checks=(check,))
        suite = Suite(name="s", cases=(case,), source=self.folder / "suite.json", digest="")
        return anyio.run(TaskPackageGrader(suite).grade, check, self._evidence(case, prepared, arm))

    def _evidence(self, case: Case, prepared: PreparedPackage, arm: str) -> Evidence:
        return Evidence(
            case=case,
            session=SessionSummary(runner="none", agent="none", prompt=""),
            events_path=None,
            workspace=self.workspace,
            changes=Changes(),
            artifact_dir=self.artifacts,
            shell=Shell(sandbox=self.sandbox, scratch=str(self.scratch), hidden=(str(self.scratch),)),
            keep=lambda name, text: (self.artifacts / name).write_text(text),
            timeout_s=5,
            prepared=prepared,
            arm=arm,
            skill=self.folder / "skill" if arm == SKILL else None,
        )

    def log(self, name: str = "verifier.log") -> str:
        return (self.artifacts / name).read_text()


@pytest.fixture
def bench(sandbox_name: str, tmp_path: Path) -> Bench:
    return Bench(tmp_path, sandbox_name)


@pytest.fixture
def local(tmp_path: Path) -> Bench:
    return Bench(tmp_path, "local")


def test_the_exit_code_of_the_verifier_decides_where_there_is_no_reward(bench: Bench) -> None:
    grade = bench.grade({"tests/test.sh": script("echo looked", "test -f made.txt")})

    assert (grade.passed, grade.undecided, grade.value) == (False, False, 0.0)
    assert grade.reason == "the verifier ended with exit code 1"
    assert (grade.check, grade.weight, grade.evidence) == ("verifier", 2.0, "looked")


def test_the_verifier_sees_what_the_agent_made(bench: Bench) -> None:
    grade = bench.grade(
        {"tests/test.sh": script("test -f made.txt")}, lambda workspace: (workspace / "made.txt").write_text("")
    )

    assert grade.passed
    assert grade.value == 1.0


def test_the_verifier_is_told_about_its_task_and_nothing_secret(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")

    bench.grade(
        {"tests/test.sh": script("env", "pwd", 'touch "$LOGS_DIR/seen.txt"'), "app/x": ""},
        instruction="Do it",
        skill_bundle_ref="my/skill",
        resource_hints=ResourceHints(working_dir="app", env={"EXTRA": "1", "TASK_ID": "forged"}),
    )

    lines = bench.log().splitlines()
    workspace = str(bench.workspace)
    assert {
        "TASK_INSTRUCTION=Do it",
        "TASK_ID=case-1",
        "EVAL_ARM=no_skill",
        "EXTRA=1",
        f"SKILL_DIR={workspace}/my/skill",
        f"SKILL_BUNDLE={workspace}/my/skill",
        f"WORKING_DIR={workspace}/app",
        f"{workspace}/app",
    } <= set(lines)
    assert "hidden" not in bench.log()
    assert (bench.artifacts / "verifier/seen.txt").exists()


def test_the_arm_tells_whether_the_skill_is_there(local: Bench) -> None:
    grade = local.grade({"tests/test.sh": script('test "$EVAL_ARM" = skill')}, arm="skill")

    assert grade.passed


@pytest.mark.parametrize(
    ("lines", "value", "passed", "reason"),
    [
        (
            ["echo 1 > $LOGS_DIR/reward.txt", "exit 1"],
            1.0,
            True,
            "reward.txt says 1; the verifier ended with exit code 1",
        ),
        (["echo 0.25 > $LOGS_DIR/reward.txt"], 0.25, False, "reward.txt says 0.25"),
        (["echo 7 > $LOGS_DIR/reward.txt"], 1.0, True, "reward.txt says 7; counted as 1"),
        (["echo -3 > $LOGS_DIR/reward.txt"], 0.0, False, "reward.txt says -3; counted as 0"),
        (["echo '{\"reward\": -0.5}' > $LOGS_DIR/reward.json"], 0.0, False, "reward.json says -0.5; counted as 0"),
        (['echo \'{"reward": 0.5, "x": 1}\' > $LOGS_DIR/reward.json'], 0.5, False, "reward.json says 0.5"),
        (['echo \'{"a": 1, "b": 0}\' > $LOGS_DIR/reward.json'], 0.5, False, "the mean of a, b counts"),
        (
            ["echo 1 > $LOGS_DIR/reward.txt", "echo '{\"reward\": 0}' > $LOGS_DIR/reward.json"],
            0.0,
            False,
            "reward.txt says 1 and reward.json 0; reward.json counts",
        ),
        (["echo 1 > $LOGS_DIR/rewards.json", "exit 3"], 0.0, False, "rewards.json is not a reward file"),
    ],
)
def test_a_reward_decides_before_the_exit_code(
    local: Bench, lines: list[str], value: float, passed: bool, reason: str
) -> None:
    grade = local.grade({"tests/test.sh": script(*lines)})

    assert (grade.value, grade.passed, grade.undecided) == (value, passed, False)
    assert reason in grade.reason


@pytest.mark.parametrize(
    "lines",
    [
        [": > $LOGS_DIR/reward.txt"],
        ["echo much > $LOGS_DIR/reward.txt"],
        ["echo nan > $LOGS_DIR/reward.txt"],
        ["echo '[1]' > $LOGS_DIR/reward.json", "echo 1 > $LOGS_DIR/reward.txt"],
        ["echo '{}' > $LOGS_DIR/reward.json"],
        ['echo \'{"reward": "1"}\' > $LOGS_DIR/reward.json'],
        ['echo \'{"reward": {"a": 1}}\' > $LOGS_DIR/reward.json'],
        ["ln -s /etc/hostname $LOGS_DIR/reward.txt"],
        ["mkfifo $LOGS_DIR/reward.txt"],
        ["mkdir $LOGS_DIR/reward.json"],
        ["head -c 2000000 /dev/zero > $LOGS_DIR/reward.txt"],
    ],
)
def test_a_reward_that_cannot_be_read_decides_nothing(local: Bench, lines: list[str]) -> None:
    grade = local.grade({"tests/test.sh": script(*lines)})

    assert grade.undecided
    assert "reward that cannot be read" in grade.reason


def test_a_verifier_that_does_not_end_decides_nothing(bench: Bench) -> None:
    hints = ResourceHints(timeout_ms=500)

    grade = bench.grade({"tests/test.sh": script("echo 1 > $LOGS_DIR/reward.txt", "sleep 60")}, resource_hints=hints)

    assert grade.undecided
    assert grade.failure_class is not None
    assert grade.failure_class.id == "verifier-timeout"
    assert "after 0.5 s" in grade.reason


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("check.sh", "test -f app.txt\n"),
        ("check.py", "import pathlib\nassert pathlib.Path('app.txt').exists()\n"),
        ("check", "#!/usr/bin/env bash\ntest -f app.txt\n"),
    ],
)
@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_script_is_run_by_its_first_line_or_its_name(local: Bench, name: str, text: str, mode: int) -> None:
    files = {f"verify/{name}": text, "app.txt": ""}
    folder_of(local.folder / "package", files)
    (local.folder / "package/verify" / name).chmod(mode)

    grade = local.grade({"app.txt": ""}, verifier_ref=f"verify/{name}")

    assert grade.passed, grade


def test_a_verifier_that_was_killed_decides_nothing_in_any_sandbox(bench: Bench) -> None:
    grade = bench.grade({"tests/test.sh": script("kill -KILL $$")})

    assert grade.undecided
    assert "killed" in grade.reason or "signal 9" in grade.reason


def test_a_reward_that_is_almost_enough_is_not_told_as_enough(local: Bench) -> None:
    grade = local.grade({"tests/test.sh": script('echo 0.99999999 > "$LOGS_DIR/reward.txt"')})

    assert not grade.passed
    assert "says 0.99999999" in grade.reason


def test_a_script_that_nobody_can_run_decides_nothing(local: Bench) -> None:
    grade = local.grade({"tests/test": "test -f app.txt\n"}, verifier_ref="tests/test")

    assert grade.undecided
    assert "could not be run" in grade.reason


def test_the_oracle_goes_before_the_verifier(bench: Bench) -> None:
    files = {
        "solution/solve.sh": script("echo solved | tee made.txt", 'echo 1 > "$LOGS_DIR/reward.txt"'),
        "tests/test.sh": script("grep solved made.txt", 'test -z "$(ls "$LOGS_DIR")"'),
    }

    grade = bench.grade(files, oracle_ref="solution/solve.sh")

    assert (grade.passed, grade.reason) == (True, "the verifier ended with exit code 0")
    assert bench.log("oracle.log") == "solved\n"


@pytest.mark.parametrize("line", ["exit 3", "sleep 60"])
def test_an_oracle_that_fails_decides_nothing(local: Bench, line: str) -> None:
    files = {"solution/solve.sh": script(line), "tests/test.sh": script("exit 0")}
    hints = ResourceHints(oracle_timeout_ms=500)

    grade = local.grade(files, oracle_ref="solution/solve.sh", resource_hints=hints)

    assert grade.undecided
    assert grade.reason.startswith("the oracle solution/solve.sh ")


def test_the_agent_sees_neither_verifier_nor_solution(local: Bench) -> None:
    seen: list[str] = []
    files = {
        "tests/test.sh": script("source tests/helper.sh"),
        "tests/helper.sh": "exit 0\n",
        "solution/solve.sh": script("exit 1"),
        "app/main.py": "",
    }

    grade = local.grade(files, lambda workspace: seen.extend(path.name for path in workspace.rglob("*")))

    assert sorted(seen) == ["app", "main.py"]
    assert grade.passed


def test_a_verifier_beside_the_work_is_held_out_alone(local: Bench) -> None:
    seen: list[str] = []

    grade = local.grade(
        {"app/check.sh": script("test -f main.py"), "app/main.py": ""},
        lambda workspace: seen.extend(path.name for path in workspace.rglob("*")),
        verifier_ref="app/check.sh",
        resource_hints=ResourceHints(working_dir="app"),
    )

    assert sorted(seen) == ["app", "main.py"]
    assert grade.passed


def forge(workspace: Path) -> None:
    """All that an agent might leave in the place of the verifier."""
    (workspace / "tests").mkdir()
    (workspace / "tests/test.sh").write_text(script('echo 1 > "$LOGS_DIR/reward.txt"'))
    (workspace / "tests/conftest.py").write_text("raise SystemExit(0)")
    (workspace / "logs/verifier").mkdir(parents=True)
    (workspace / "logs/verifier/reward.json").write_text('{"reward": 1}')


def test_an_agent_cannot_forge_the_verifier(bench: Bench) -> None:
    grade = bench.grade({"tests/test.sh": script("ls tests", "exit 1")}, forge)

    assert not grade.passed
    assert bench.log() == "test.sh\n"
    assert "was removed: tests/conftest.py" in (grade.evidence or "")


def dig(workspace: Path) -> None:
    """A folder whose paths are longer than the system takes."""
    here = os.open(workspace, os.O_RDONLY)
    for name in ("tests", *("d" * 200 for _ in range(30))):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_an_agent_cannot_make_its_failure_an_error_by_digging_deep(local: Bench) -> None:
    grade = local.grade({"tests/test.sh": script("ls tests", "exit 1")}, dig)

    assert (grade.passed, grade.undecided) == (False, False)
    assert local.log() == "test.sh\n"


def test_an_agent_cannot_lead_the_verifier_astray_by_a_link(bench: Bench, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def agent(workspace: Path) -> None:
        (workspace / "tests").symlink_to(elsewhere)

    grade = bench.grade({"tests/test.sh": script("exit 1")}, agent)

    assert not grade.passed
    assert list(elsewhere.iterdir()) == []


def test_a_working_folder_that_leads_elsewhere_fails_the_agent(bench: Bench, tmp_path: Path) -> None:
    def agent(workspace: Path) -> None:
        (workspace / "app/x").unlink()
        (workspace / "app").rmdir()
        (workspace / "app").symlink_to(tmp_path)

    hints = ResourceHints(working_dir="app")

    grade = bench.grade({"tests/test.sh": script("exit 0"), "app/x": ""}, agent, resource_hints=hints)

    assert (grade.passed, grade.undecided) == (False, False)
    assert "leads out of the workspace" in grade.reason


def test_held_out_files_that_were_altered_meanwhile_decide_nothing(local: Bench) -> None:
    def agent(workspace: Path) -> None:
        for copy in local.scratch.glob("p*/held-out/*"):
            copy.write_text(script('echo 1 > "$LOGS_DIR/reward.txt"'))

    grade = local.grade({"tests/test.sh": script("exit 1")}, agent)

    assert grade.undecided
    assert "has changed" in grade.reason


@pytest.mark.bubblewrap
def test_in_bubblewrap_the_paths_of_containers_are_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "bubblewrap")
    hints = ResourceHints(working_dir="environment", more={"paths": {"/app": "environment"}})
    files = {
        "environment/data.txt": "42",
        "tests/test.sh": script(
            "cat /app/data.txt", "cat /tests/test.sh >/dev/null", "echo 1 > /logs/verifier/reward.txt"
        ),
    }

    grade = bench.grade(files, resource_hints=hints)

    assert (grade.passed, grade.reason) == (True, "reward.txt says 1")
    assert bench.log() == "42"


@pytest.mark.bubblewrap
@pytest.mark.parametrize("network", [False, True])
def test_in_bubblewrap_there_is_network_only_if_asked_for(tmp_path: Path, network: bool) -> None:
    bench = Bench(tmp_path, "bubblewrap")
    files = {"tests/test.sh": script("readlink /proc/self/ns/net")}

    bench.grade(files, resource_hints=ResourceHints(network=network))

    assert (bench.log().strip() == str(Path("/proc/self/ns/net").readlink())) is network


def test_too_much_output_is_cut_at_its_beginning(local: Bench) -> None:
    grade = local.grade({"tests/test.sh": script("head -c 20000000 /dev/zero | tr '\\0' x", "echo end", "exit 1")})

    assert grade.evidence is not None
    assert grade.evidence.endswith("end")
    assert len(local.log()) < 10_000_000


@pytest.mark.parametrize(
    ("files", "fields", "reason"),
    [
        ({"a": ""}, {}, "it has no file tests/test.sh"),
        ({"tests/test.sh": ""}, {"oracle_ref": "solve.sh"}, "it has no file solve.sh"),
        ({"tests/test.sh": ""}, {"resource_hints": ResourceHints(working_dir="app")}, "no folder app"),
        ({"tests/test.sh": ""}, {"environment_sha256": "0" * 64}, "SHA-256"),
    ],
)
def test_a_package_that_lacks_what_its_case_names_is_refused(
    local: Bench, files: dict[str, str], fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PackageError, match=reason) as caught:
        local.grade(files, **fields)

    assert caught.value.message.startswith("package package.tar.gz: ")
    assert not list(local.scratch.glob("p*"))


def test_whoever_packed_the_folder_and_not_what_is_in_it_is_told(local: Bench) -> None:
    with pytest.raises(PackageError) as raised:
        local.grade({"task/tests/test.sh": script("exit 0")})

    assert raised.value.hint == "there is task/tests/test.sh: pack the contents of task, not task itself"


def test_a_verifier_behind_a_link_is_refused(local: Bench) -> None:
    folder_of(local.folder / "package", {"real/test.sh": ""})
    (local.folder / "package/tests").symlink_to("real")

    with pytest.raises(PackageError, match="behind a link"):
        local.grade({})


def test_a_folder_is_a_package_too(local: Bench) -> None:
    folder_of(local.folder / "task", {"tests/test.sh": script("exit 0"), "a": "1"})

    prepared = local.prepared(TaskPackage(environment_ref="task"))

    assert [path.name for path in prepared.template.iterdir()] == ["a"]
    assert (local.folder / "task/tests/test.sh").exists()


def test_a_package_is_prepared_once_whoever_asks(local: Bench) -> None:
    archive = archive_of(folder_of(local.folder / "package", {"tests/test.sh": "", "a": ""}))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest().upper()
    package = TaskPackage(environment_ref=archive.name, environment_sha256=digest)
    spec = package_workspace(package, local.folder).package
    assert spec is not None

    async def ask_together() -> list[PreparedPackage]:
        found: list[PreparedPackage] = []

        async def ask() -> None:
            found.append(await local.packages.prepare(spec))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ask)
        return found

    found = anyio.run(ask_together)

    assert len({each.template for each in found}) == 1


def test_local_files_can_be_forbidden(local: Bench) -> None:
    local.packages.settings = PackageSettings(allow_local_files=False)

    with pytest.raises(PackageError, match="local files are not allowed"):
        local.prepared(TaskPackage(environment_ref="/etc"))


def test_what_is_wrong_can_be_told_before_anything_is_fetched(tmp_path: Path) -> None:
    hints = ResourceHints(more={"paths": {"/usr/lib": "a", "app": "b", "/app": "../c"}})
    package = TaskPackage(environment_ref="nowhere.tar.gz", resource_hints=hints)

    problems = dict(package_problems(package, tmp_path))
    all_of_them = [message for _, message in package_problems(package, tmp_path)]

    assert problems["environment_ref"] == f"{tmp_path}/nowhere.tar.gz does not exist"
    assert len(all_of_them) == 4


@pytest.mark.parametrize("place", [".", "./", "tests", "tests/skill", "tests/test.sh", "solve.sh"])
def test_a_skill_that_would_make_way_for_the_verifier_is_refused_before_anything_starts(
    tmp_path: Path, place: str
) -> None:
    package = TaskPackage(environment_ref=str(tmp_path), oracle_ref="solve.sh", skill_bundle_ref=place)

    problems = dict(package_problems(package, tmp_path))

    assert list(problems) == ["skill_bundle_ref"]
