"""The contract suites for extensions: they pass what keeps a contract, and say what breaks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from whet.errors import AgentNotFound, GraderError, Problem, SandboxError, SuiteError
from whet.grade.contract import Grader
from whet.grade.evidence import Evidence
from whet.model.grade import Grade
from whet.model.run import TrialResult
from whet.model.run_events import RunEnded, RunEvent, TrialEnded
from whet.model.suite import Case, Check, Suite
from whet.report.contract import ReporterContext
from whet.sandbox.contract import Availability, Boundary, Command, Ended, Sink
from whet.sandbox.local import LocalSandbox
from whet.testing import ContractBroken, check_format, check_grader, check_reporter, check_sandbox
from whet.testing.sandbox import PROMISES, check_promise

CHECK = Check(grader="short", params={"most": 5}, label="is short", weight=2.0)


class ShortGrader(Grader):
    """Does everything right: an answer passes if it is short."""

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        size = len(evidence.session.final_output)
        held = size <= check.params["most"]
        reason = f"it has {size} characters"
        return Grade(check=check.label, value=float(held), passed=held, reason=reason, weight=check.weight)


def changed(**changes: Any) -> type[ShortGrader]:
    """A grader that is right but for some fields of its grades."""

    class Changed(ShortGrader):
        async def grade(self, check: Check, evidence: Evidence) -> Grade:
            return replace(await super().grade(check, evidence), **changes)

    return Changed


class Raising(ShortGrader):
    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        return Grade(check=check.label, value=1 / len(evidence.session.final_output), passed=True, weight=check.weight)


class Undecided(ShortGrader):
    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        raise GraderError("there is nothing to decide by")


class Tidying(ShortGrader):
    async def survey(self, case: Case, workspace: Path, store: Path, *, timeout_s: float) -> None:
        for path in workspace.iterdir():  # noqa: ASYNC240 - as somebody may write it
            path.unlink()


class Forgetful(ShortGrader):
    async def grade_all(self, checks: Sequence[Check], evidence: Evidence) -> AsyncIterator[Grade]:
        for check in checks[1:]:
            yield await self.grade(check, evidence)


class Unsure(ShortGrader):
    informs = None  # type: ignore[assignment]


class Labelling(ShortGrader):
    async def classify(self, case: Case, result: TrialResult, *, timeout_s: float) -> Any:
        return "too long"


class Alone:
    informs = False

    def __init__(self, suite: Suite) -> None:
        self.suite = suite

    def close(self) -> None:
        pass


def test_a_good_grader_keeps_its_contract_and_its_grades_are_given_back() -> None:
    (short,) = check_grader(ShortGrader, [CHECK], output="yes")
    (long,) = check_grader(ShortGrader, [CHECK], output="yes indeed")

    assert (short.passed, long.passed) == (True, False)
    assert long.reason == "it has 10 characters"


def test_what_a_grader_cannot_decide_arrives_as_its_own_error() -> None:
    with pytest.raises(GraderError, match="nothing to decide by"):
        check_grader(Undecided, [CHECK])


@pytest.mark.parametrize(
    ("grader", "said"),
    [
        (Raising, "`grade` raises ZeroDivisionError.*raise a GraderError"),
        (Tidying, "`survey` changes the workspace"),
        (Forgetful, "`grade_all` decides"),
        (Unsure, "`informs` is None"),
        (Labelling, "`classify` returns 'too long', not a FailureClass or None"),
        (Alone, "does not derive from whet.grade.contract.Grader"),
        (changed(value=1.5), "the value of a grade is 1.5; it is from 0 to 1"),
        (changed(value=float("nan")), "the value of a grade is nan"),
        (changed(check="other"), 'a grade is of the check "other", not of "is short"'),
        (changed(passed=1), "`passed` of a grade is 1, not True or False"),
        (changed(weight=1.0), "the weight of a grade is 1.0, and that of its check 2.0"),
        (changed(passed=False, reason=" "), "a grade that is not passed gives no reason"),
        (changed(undecided=True), "undecided and passed"),
    ],
)
def test_what_is_wrong_with_a_grader_is_said(grader: type[ShortGrader], said: str) -> None:
    with pytest.raises(ContractBroken, match=said):
        check_grader(grader, [CHECK], output="yes")


class LinesFormat:
    """Does everything right: each line of a .lines file is a prompt."""

    def recognizes(self, path: Path) -> bool:
        return path.suffix == ".lines"

    def lower(self, path: Path) -> Suite:
        try:
            prompts = path.read_text().splitlines()
        except UnicodeDecodeError:
            raise SuiteError([Problem(file=str(path), message="is not text")]) from None
        cases = tuple(
            Case(id=f"line-{number}", prompt=prompt, checks=(CHECK,)) for number, prompt in enumerate(prompts, 1)
        )
        return Suite(name=path.stem, cases=cases, source=path, digest=str(hash(tuple(prompts))))


class Trusting(LinesFormat):
    def lower(self, path: Path) -> Suite:
        path.read_bytes().decode()
        return super().lower(path)


class Greedy(LinesFormat):
    def recognizes(self, path: Path) -> bool:
        return True


class Nosy(LinesFormat):
    def recognizes(self, path: Path) -> bool:
        return bool(path.read_text()) and path.suffix == ".lines"


class Twice(LinesFormat):
    def lower(self, path: Path) -> Suite:
        suite = super().lower(path)
        return replace(suite, cases=suite.cases * 2)


class Littering(LinesFormat):
    def lower(self, path: Path) -> Suite:
        path.with_suffix(".cache").touch()
        return super().lower(path)


class Elsewhere(LinesFormat):
    def lower(self, path: Path) -> Suite:
        return replace(super().lower(path), source=Path("elsewhere"))


class Unchecked(LinesFormat):
    def lower(self, path: Path) -> Suite:
        suite = super().lower(path)
        return replace(suite, cases=tuple(replace(case, checks=()) for case in suite.cases))


class Fickle(LinesFormat):
    def lower(self, path: Path) -> Suite:
        return replace(super().lower(path), digest=os.urandom(4).hex())


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "greetings.lines"
    path.write_text("Say yes.\nSay no.\n")
    return path


def test_a_good_format_keeps_its_contract_and_its_suite_is_given_back(lines: Path) -> None:
    suite = check_format(LinesFormat, lines)

    assert [case.id for case in suite.cases] == ["line-1", "line-2"]


@pytest.mark.parametrize(
    ("format_class", "said"),
    [
        (Trusting, "`lower` raises UnicodeDecodeError.*raise a SuiteError"),
        (Greedy, "`recognizes` takes notes.unknown"),
        (Nosy, "`recognizes` raises UnicodeDecodeError"),
        (Twice, "several cases have the id line-1, line-2"),
        (Littering, "`lower` makes files next to the suite: greetings.cache"),
        (Elsewhere, "`source` of the suite is elsewhere"),
        (Unchecked, 'case "line-1" has no checks'),
        (Fickle, "another digest each time"),
    ],
)
def test_what_is_wrong_with_a_format_is_said(lines: Path, format_class: type[LinesFormat], said: str) -> None:
    with pytest.raises(ContractBroken, match=said):
        check_format(format_class, lines)


def test_a_file_that_a_format_does_not_know_is_said(tmp_path: Path) -> None:
    (tmp_path / "suite.txt").write_text("Say yes.\n")

    with pytest.raises(ContractBroken, match=r"does not return True for suite\.txt"):
        check_format(LinesFormat, tmp_path / "suite.txt")


class Listing:
    """Does everything right: a line for each trial."""

    def __init__(self, context: ReporterContext) -> None:
        self.context = context

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, TrialEnded):
            self.context.stdout.write(f"{event.result.key.case}: {event.result.status}\n")


class Document(Listing):
    """Does everything right: one document at the end."""

    document = True

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, RunEnded):
            text = json.dumps(event.results.counts)
            if self.context.target:
                self.context.target.write_text(text)
            else:
                self.context.stdout.write(text)


class Misunderstood(Document):
    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, RunEnded):
            self.context.stdout.write("{}")


class Impatient(Listing):
    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, RunEnded):
            first = next(iter(event.results.trials(event.results.plan.executions[0])))
            self.context.stdout.write(first.status)


class Closing(Listing):
    def __init__(self, context: ReporterContext) -> None:
        super().__init__(context)
        self.lines: list[str] | None = []

    def close(self) -> None:
        assert self.lines is not None
        self.lines = None


class Slamming(Listing):
    def close(self) -> None:
        self.context.stdout.close()


class Leaving(Listing):
    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, TrialEnded) and event.result.status == "errored":
            sys.exit(3)


@pytest.mark.parametrize("reporter", [Listing, Document])
def test_a_good_reporter_keeps_its_contract_and_what_it_wrote_is_given_back(reporter: type[Listing]) -> None:
    shown = check_reporter(reporter)

    assert "expected-failed" in shown.stdout
    assert shown.stderr == ""


@pytest.mark.parametrize(
    ("reporter", "said"),
    [
        (Misunderstood, "a `document` with a target does not write it"),
        (Impatient, r"the reporter, called with RunEnded, raises StopIteration"),
        (Closing, "`close`, called again, raises AssertionError"),
        (Slamming, "closes stdout, which others use too"),
        (Leaving, r"called with TrialEnded, raises SystemExit\(3\)"),
        (lambda context: None, "the factory returns None"),
        (lambda context: context.nothing, "the factory raises AttributeError"),
    ],
)
def test_what_is_wrong_with_a_reporter_is_said(reporter: Callable[..., Any], said: str) -> None:
    with pytest.raises(ContractBroken, match=said):
        check_reporter(reporter)


class CarelessSandbox:
    """Starts a process as anybody would, and ends nothing but that."""

    name = "careless"

    @staticmethod
    def availability() -> Availability:
        return Availability(usable=True)

    async def run(self, command: Command, boundary: Boundary, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        try:
            done = subprocess.run(  # noqa: ASYNC221 - as somebody may write it
                command.argv, cwd=command.cwd, input=command.stdin, capture_output=True, timeout=timeout_s, check=False
            )
        except FileNotFoundError as error:
            raise AgentNotFound(str(error)) from error
        except subprocess.TimeoutExpired:
            return Ended(exit_code=None, signal=9, timed_out=True, duration_s=timeout_s)
        stdout(done.stdout)
        stderr(done.stderr)
        return Ended(exit_code=done.returncode, signal=None, timed_out=False, duration_s=0.1)

    @asynccontextmanager
    async def open(self, command: Command, boundary: Boundary, *, stdout: Sink, stderr: Sink) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield

    async def close(self) -> None:
        pass


def broken_by(sandbox: Any, *names: str) -> dict[str, str]:
    """What each of these promises says of a sandbox that does not keep it."""
    found = {}
    for promise in PROMISES:
        if promise.__name__ in names:
            try:
                check_promise(sandbox, promise)
            except ContractBroken as broken:
                found[promise.__name__] = str(broken)
    return found


def test_what_is_wrong_with_a_sandbox_is_said() -> None:
    found = broken_by(
        CarelessSandbox, "has_a_name", "tells_a_signal", "keeps_environment_and_folder", "answers_line_by_line"
    )

    assert found == {
        "tells_a_signal": "The death of a process by a signal is neither an exit nor a timeout: "
        "exit_code is -9, signal is None",
        "keeps_environment_and_folder": "A process has only its own environment, and works in its folder: "
        "it sees a variable of whet's environment",
        "answers_line_by_line": "An open process answers one line after another, and ends by itself when its input is "
        "closed: it raised NotImplementedError()",
    }


def test_the_first_promise_that_a_sandbox_breaks_ends_its_check() -> None:
    with pytest.raises(ContractBroken, match=r"^A process has only its own environment"):
        check_sandbox(CarelessSandbox)


class Leaky(LocalSandbox):
    """Lets a process start others that nobody ends."""

    async def run(self, command: Command, boundary: Boundary, *, timeout_s: float, stdout: Sink, stderr: Sink) -> Ended:
        done = await anyio.run_process(command.argv, cwd=command.cwd, stdout=subprocess.DEVNULL, stderr=None)
        return Ended(exit_code=done.returncode, signal=None, timed_out=False, duration_s=0.1)


def test_what_outlives_its_process_is_found() -> None:
    found = broken_by(Leaky, "ends_what_a_process_left")

    assert found["ends_what_a_process_left"].startswith(
        "Nothing outlives a process that ends by itself: still running: ["
    )


class Unusable(LocalSandbox):
    @staticmethod
    def availability() -> Availability:
        return Availability(usable=False, reason="there is no kernel", remedy="install one")


def test_a_sandbox_that_cannot_be_used_here_is_not_called_broken() -> None:
    with pytest.raises(SandboxError, match="cannot be used here: there is no kernel"):
        check_sandbox(Unusable)
