"""Claims decided over real folders, by real workers and real commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from msgspec import Struct, field

from whet.checks.context import Shell
from whet.grade.claims import grader as grader_module
from whet.grade.claims.grader import ClaimGrader
from whet.grade.evidence import Evidence
from whet.model.grade import Changes, Grade
from whet.model.session import SessionSummary
from whet.model.suite import Case, Check, Suite
from whet.reading.claims.lines import read_claim
from whet.workspace.protected import WorkspaceSurvey

Agent = Callable[[Path], object]


def nothing(workspace: Path) -> None:
    """An agent that does nothing."""


class Stage(Struct):
    """A workspace, before and after an agent that is a function."""

    root: Path
    timeout_s: float = 20.0
    command_timeout_s: float = 20.0
    env: dict[str, str] = field(default_factory=dict)
    protect: tuple[str, ...] = ()
    surveyed: bool = True
    before: WorkspaceSurvey = field(default_factory=WorkspaceSurvey)

    def __post_init__(self) -> None:
        self.workspace.mkdir()

    @property
    def workspace(self) -> Path:
        return self.root / "w"

    def write(self, name: str, text: str = "") -> Path:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run(self, *lines: str, agent: Agent = nothing, changes: Changes | None = None) -> list[Grade]:
        """The grades of the expectations in *lines* after *agent* has worked."""
        checks = tuple(
            Check(grader="claim", params={"claim": read_claim(line).claim, "line": number}, label=line)
            for number, line in enumerate(lines, 1)
        )
        case = Case(id="a", prompt="p", checks=checks, env=self.env, protect=self.protect)
        grader = ClaimGrader(Suite(name="s", cases=(case,), source=self.root / "suite.json", digest=""))
        try:
            return anyio.run(self._run, grader, case, agent, changes or Changes())
        finally:
            grader.close()

    async def _run(self, grader: ClaimGrader, case: Case, agent: Agent, changes: Changes) -> list[Grade]:
        self.before = await grader.survey(case, self.workspace, self.root / "store", timeout_s=self.timeout_s)
        agent(self.workspace)
        evidence = Evidence(
            case=case,
            session=SessionSummary(runner="r", agent="command", prompt="p"),
            events_path=None,
            workspace=self.workspace,
            changes=changes,
            artifact_dir=self.root,
            shell=Shell(sandbox="local"),
            keep=lambda name, text: None,
            timeout_s=self.timeout_s,
            surveyed=self.before if self.surveyed else None,
            command_timeout_s=self.command_timeout_s,
        )
        return [await grader.grade(check, evidence) for check in case.checks]

    def one(self, line: str, agent: Agent = nothing) -> Grade:
        [grade] = self.run(line, agent=agent)
        return grade


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_a_file_that_is_there_exists_and_was_there_before(stage: Stage) -> None:
    stage.write("a.txt")

    grade = stage.one("file:a.txt exists")

    assert grade.passed
    assert grade.evidence == "it existed before the agent started"


def test_a_folder_exists_too_and_a_slash_asks_for_one(stage: Stage) -> None:
    stage.write("src/a.txt")

    grades = stage.run("file:src exists", "file:src/ exists", "file:src/a.txt/ exists")

    assert [grade.passed for grade in grades] == [True, True, False]
    assert grades[2].reason.endswith("src/a.txt/ is not a folder")


def test_what_is_not_there_does_not_exist(stage: Stage) -> None:
    grade = stage.one("file:a.txt exists")

    assert not grade.passed
    assert grade.reason == "file:a.txt exists: a.txt was not found"
    assert grade.location is not None
    assert grade.location.line == 1


def test_only_what_was_not_there_before_is_created(stage: Stage) -> None:
    stage.write("old.txt")

    def agent(workspace: Path) -> None:
        (workspace / "new.txt").write_text("")
        (workspace / "old.txt").write_text("more")

    grades = stage.run("file:old.txt created", "file:new.txt created", "file:none.txt created", agent=agent)

    assert [grade.passed for grade in grades] == [False, True, False]


def test_a_link_is_followed_inside_of_the_workspace_and_not_out_of_it(stage: Stage) -> None:
    (stage.root / "secret.txt").write_text("secret")
    stage.write("real.txt", "hello")
    for name, target in [("in", "real.txt"), ("out", "../secret.txt"), ("none", "gone"), ("self", "self")]:
        (stage.workspace / name).symlink_to(target)

    grades = stage.run(
        "file:in contains 'hello'",
        "file:out contains 'secret'",
        "file:out exists",
        "file:none exists",
        "file:self exists",
    )

    assert [grade.passed for grade in grades] == [True, False, False, False, False]
    assert "leads out of the workspace" in grades[1].reason
    assert "link to nothing" in grades[3].reason


def test_a_text_is_found_letter_for_letter(stage: Stage) -> None:
    stage.write("a.txt", "one\nTwo\r\nthree  four\n")

    grades = stage.run(
        "file:a.txt contains 'one'",
        "file:a.txt contains 'two'",
        "file:a.txt contains 'Two\nthree'",
        "file:a.txt contains 'three four'",
        "file:a.txt contains 'five'",
    )

    assert [grade.passed for grade in grades] == [True, False, False, False, False]
    assert grades[0].evidence == "line 1"
    assert "letter case" in grades[1].reason
    assert "line ends" in grades[2].reason
    assert "blank space" in grades[3].reason
    assert "one" in (grades[4].evidence or "")


def test_a_text_is_found_in_a_file_that_is_too_large_for_a_pattern(stage: Stage) -> None:
    with (stage.workspace / "big").open("wb") as file:
        file.write(b"x" * (1024 * 1024 - 3) + b"needle")
        file.truncate(17 * 1024 * 1024)

    grades = stage.run("file:big contains 'needle'", "file:big matches /needle/")

    assert grades[0].passed
    assert grades[1].undecided
    assert "16 MiB" in grades[1].reason


def test_a_folder_and_a_fifo_contain_nothing(stage: Stage) -> None:
    stage.write("src/a.txt")
    os.mkfifo(stage.workspace / "pipe")

    grades = stage.run("file:src contains 'a'", "file:pipe contains 'a'", "file:pipe matches /a/", "file:pipe exists")

    assert [grade.passed for grade in grades] == [False, False, False, True]


def test_a_pattern_is_searched_anywhere_in_the_file(stage: Stage) -> None:
    stage.write("a.ts", "// é\nexport   class A {}\n")

    grades = stage.run(
        "file:a.ts matches /export\\s+class/", "file:a.ts matches /^export/", "file:a.ts matches /^EXPORT/mi"
    )

    assert [grade.passed for grade in grades] == [True, False, True]
    assert grades[0].evidence == "line 2: export   class"


def test_bytes_that_are_no_text_do_not_keep_the_rest_from_being_searched(stage: Stage) -> None:
    (stage.workspace / "a.bin").write_bytes(b"\xff\xfehello\x00")

    grades = stage.run("file:a.bin contains 'hello'", "file:a.bin matches /hel+o/")

    assert [grade.passed for grade in grades] == [True, True]


def test_a_pattern_that_backtracks_without_end_is_stopped_and_the_rest_is_decided(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grader_module, "PATTERN_TIMEOUT_S", 0.5)
    stage.timeout_s = 60

    def agent(workspace: Path) -> None:
        (workspace / "a.txt").write_text("a" * 40 + "b")

    hung, other = stage.run("file:a.txt matches /^(a+)+$/", "file:a.txt exists", agent=agent)

    assert hung.undecided
    assert "backtracks" in hung.reason
    assert other.passed


@pytest.mark.parametrize(
    ("path", "agent", "passes"),
    [
        ("old.txt", lambda w: (w / "old.txt").write_text("other"), True),
        ("old.txt", nothing, False),
        ("old.txt", lambda w: (w / "old.txt").chmod(0o700), False),
        ("old.txt", lambda w: os.utime(w / "old.txt", (1, 1)), False),
        ("old.txt", lambda w: (w / "old.txt").write_text("old"), False),
        ("old.txt", lambda w: (w / "old.txt").unlink(), False),
        ("new.txt", lambda w: (w / "new.txt").write_text(""), True),
        ("new.txt", nothing, False),
        ("src", lambda w: (w / "src/a.txt").write_text("other"), True),
        ("src", lambda w: (w / "src/b.txt").write_text(""), True),
        ("src", lambda w: (w / "src/a.txt").unlink(), True),
        ("src", nothing, False),
        ("src", lambda w: (w / "old.txt").write_text("other"), False),
        (".", lambda w: (w / "old.txt").write_text("other"), True),
    ],
)
def test_a_diff_is_of_content_and_counts_what_was_created_but_not_what_was_deleted(
    stage: Stage, path: str, agent: Agent, passes: bool
) -> None:
    stage.write("old.txt", "old")
    stage.write("src/a.txt", "a")

    grade = stage.one(f"diff:{path}", agent)

    assert grade.passed is passes


def test_a_deleted_file_is_told_from_one_that_never_was(stage: Stage) -> None:
    stage.write("old.txt", "old")

    gone, never = stage.run("diff:old.txt", "diff:new.txt", agent=lambda w: (w / "old.txt").unlink())

    assert "use no-file:old.txt" in gone.reason
    assert "was not found" in never.reason


def test_a_file_that_must_not_be_may_not_even_be_a_link_to_nothing(stage: Stage) -> None:
    stage.write("a.txt")
    stage.write("src/b.txt")
    (stage.workspace / "link").symlink_to("gone")

    grades = stage.run("no-file:a.txt", "no-file:src", "no-file:link", "no-file:other")

    assert [grade.passed for grade in grades] == [False, False, False, True]
    assert "before" in (grades[3].evidence or "")


def test_a_command_is_judged_by_how_it_ends_and_what_it_prints(stage: Stage) -> None:
    grades = stage.run(
        "test:true passes",
        "test:exit 3 passes",
        "test:exit 3 fails",
        "test:true fails",
        "test:exit 3 exits 3",
        "test:echo hello there prints 'hello'",
        "test:echo oops >&2; exit 1 prints 'oops'",
        "test:echo hello prints 'bye'",
        "test:kill -9 $$ fails",
    )

    assert [grade.passed for grade in grades] == [True, False, True, False, True, True, True, False, True]
    assert grades[1].reason.endswith("the command ended with exit code 3")
    assert "hello" in (grades[7].evidence or "")


def test_a_command_that_is_not_there_is_the_fault_of_the_suite_and_no_failing_one(stage: Stage) -> None:
    stage.write("plain.txt")

    grades = stage.run("test:no-such-program", "test:no-such-program fails", "test:./plain.txt", "test:nope exits 127")

    assert [grade.passed for grade in grades] == [False, False, False, True]
    assert "was not found" in grades[1].reason
    assert "cannot be executed" in grades[2].reason


def test_a_command_has_no_input_knows_that_it_is_tested_and_has_the_variables_of_its_case(stage: Stage) -> None:
    stage.env = {"COLOUR": "red"}

    grades = stage.run("test:[ $(cat | wc -c) = 0 ]", "test:[ $CI-$COLOUR = 1-red ]", "test:[ ${PWD##*/} = w ]")

    assert [grade.passed for grade in grades] == [True, True, True]


def test_a_command_that_does_not_end_is_stopped_and_fails(stage: Stage) -> None:
    stage.command_timeout_s = 0.3

    slow, other = stage.run("test:sleep 600", "test:true")

    assert not slow.passed
    assert not slow.undecided
    assert "still running after 0.3 s" in slow.reason
    assert other.passed


def test_what_a_command_leaves_running_is_ended(stage: Stage) -> None:
    stage.run("test:(setsid sleep 600 & echo $! > pid) ; sleep 0.2")

    pid = int((stage.workspace / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_protected_files_are_put_back_before_a_command_runs(stage: Stage) -> None:
    stage.protect = ("test/**",)
    stage.write("test/a.test", "exit 1").chmod(0o755)
    stage.write("test/deep/b.test", "exit 0")

    def cheat(workspace: Path) -> None:
        (workspace / "test/a.test").write_text("exit 0")
        (workspace / "test/deep/b.test").unlink()
        (workspace / "test/extra.test").write_text("")
        (workspace / "src.txt").write_text("kept")

    edited, ran, files, kept = stage.run(
        "diff:test/a.test",
        "test:sh test/a.test",
        # Compared as a whole: `prints` would hold as well where there is more.
        "test:[ \"$(find test -type f | sort | tr '\n' ' ')\" = 'test/a.test test/deep/b.test ' ]",
        "file:src.txt contains 'kept'",
        agent=cheat,
    )

    assert edited.passed
    assert not ran.passed
    assert "put back (test/a.test, test/deep/b.test, test/extra.test)" in ran.reason
    assert files.passed
    assert kept.passed


def _link_folder(workspace: Path) -> None:
    (workspace / "test").rename(workspace / "hidden")
    (workspace / "test").symlink_to("hidden")


def _link_out(workspace: Path) -> None:
    (workspace / "test/a.test").unlink()
    (workspace / "test/a.test").symlink_to(workspace.parent / "outside.txt")


def _folder_for_file(workspace: Path) -> None:
    (workspace / "test/a.test").unlink()
    (workspace / "test/a.test/x").mkdir(parents=True)
    (workspace / "test/a.test/x/y").write_text("")


def _file_for_folder(workspace: Path) -> None:
    (workspace / "test/a.test").unlink()
    (workspace / "test").rmdir()
    (workspace / "test").write_text("a file")


def _take_permissions(workspace: Path) -> None:
    (workspace / "test/a.test").write_text("exit 0")
    (workspace / "test/a.test").chmod(0)
    (workspace / "test").chmod(0)


@pytest.mark.parametrize("cheat", [_link_folder, _link_out, _folder_for_file, _file_for_folder, _take_permissions])
@pytest.mark.parametrize("pattern", ["test", "test/**", "test/*.test", "**/*.test"])
def test_no_trick_keeps_a_protected_file_from_being_put_back(stage: Stage, cheat: Agent, pattern: str) -> None:
    (stage.root / "outside.txt").write_text("not ours")
    stage.protect = (pattern,)
    stage.write("test/a.test", "exit 4")

    grade = stage.run("test:test ! -L test && test ! -L test/a.test && sh test/a.test exits 4", agent=cheat)[0]

    assert grade.passed, grade
    assert (stage.root / "outside.txt").read_text() == "not ours"


def test_a_case_is_vacuous_where_all_of_its_claims_held_before(stage: Stage) -> None:
    stage.write("a.txt", "hello")

    stage.run("file:a.txt exists", "file:a.txt matches /hel+o/", "no-file:b.txt")
    vacuous = stage.before
    stage.run("file:a.txt exists", "diff:a.txt")
    changed = stage.before
    stage.run("file:a.txt exists", "test:true")
    tested = stage.before

    assert vacuous.vacuous
    assert changed.held == (True, False)
    assert not changed.vacuous
    assert tested.held == (True, None)
    assert not tested.vacuous


def test_a_pattern_that_backtracks_over_a_file_of_the_project_does_not_hold_the_survey(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grader_module, "PATTERN_TIMEOUT_S", 0.5)
    stage.timeout_s = 60
    stage.write("a.txt", "a" * 40 + "b")

    hung, other = stage.run("file:a.txt matches /^(a+)+$/", "file:a.txt exists")

    assert (hung.undecided, other.passed) == (True, True)
    assert stage.before.held == (None, True)


def test_without_a_survey_the_list_of_changes_tells_what_was_before(stage: Stage) -> None:
    stage.surveyed = False
    changes = Changes(created=("new.txt", "lib/x"), modified=("old.txt",), deleted=("gone.txt",))
    for name in ("new.txt", "lib/x", "old.txt", "same.txt"):
        stage.write(name, "text")

    grades = stage.run(
        "file:new.txt created", "file:old.txt created", "diff:old.txt", "diff:same.txt", "diff:gone.txt", "diff:lib",
        "diff:.", changes=changes,
    )  # fmt: skip

    assert [grade.passed for grade in grades] == [True, False, True, False, False, True, True]


def test_without_a_survey_commands_beside_protected_files_are_not_decided(stage: Stage) -> None:
    stage.surveyed = False
    stage.protect = ("test/**",)

    grade = stage.one("test:true")

    assert grade.undecided
    assert not grade.passed


def test_a_survey_of_a_folder_that_is_gone_finds_nothing(stage: Stage) -> None:
    stage.workspace.rmdir()

    grade = stage.one("file:a.txt exists")

    assert not grade.passed
    assert stage.before.held == (False,)
