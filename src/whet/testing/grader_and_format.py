"""The contracts of a grader and of a format, tried with real evidence and real files."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct
from msgspec.structs import replace

from whet import plugins
from whet.checks.context import Shell
from whet.errors import GraderError, SuiteError
from whet.grade.contract import Grader
from whet.grade.evidence import Evidence
from whet.model import codec
from whet.model.events import Event
from whet.model.grade import Changes, Failure, FailureClass, Grade
from whet.model.run import TrialKey, TrialResult
from whet.model.session import SessionSummary
from whet.model.suite import Case, Check, Suite
from whet.suites.format import BENCH, Format, format_of, is_surely_bench
from whet.workspace.protected import WorkspaceSurvey

_TIMEOUT_S = 60.0
_HERE_BEFORE = {"README.md": "Here before the agent.\n"}
_CUTS = 12
_NONSENSE = (b"", b"\n", b"{", b"[]", b"null", b"text", b"\x00\xff\xfe", b"\xff" * 100, b"[" * 5000, b"---\n- : :\n")


class ContractBroken(AssertionError):
    """An extension does something that its contract does not allow."""


def want(holds: bool, message: str) -> None:
    """Raise `ContractBroken` with *message* unless it *holds*."""
    if not holds:
        raise ContractBroken(message)


def check_grader(
    grader_class: type[Grader],
    checks: Sequence[Check],
    *,
    output: str = "",
    events: Sequence[Event] = (),
    files: Mapping[str, str] | None = None,
    suite: Suite | None = None,
) -> tuple[Grade, ...]:
    """Let a grader decide *checks*, and raise `ContractBroken` unless it does so as it must; return its grades.

    The agent has answered with *output*, its session has *events*, and it has created *files*, by their paths in the
    workspace. Without a *suite* the checks are those of its only case. What the grader cannot decide raises
    `GraderError`, as in a run.
    """
    with tempfile.TemporaryDirectory(prefix="whet-check-") as folder:
        suite = suite or _suite_of(checks, Path(folder))
        stage = _GradingStage(Path(folder), _case_of(suite, checks), tuple(checks), output, tuple(events), files or {})
        # Before there is an event loop, as in a run.
        grader = grader_class(suite)
        want(isinstance(grader, Grader), f"{grader!r} does not derive from whet.grade.contract.Grader")
        want(isinstance(grader.informs, bool), f"`informs` is {grader.informs!r}, not True or False")
        try:
            return anyio.run(_decide, grader, stage)
        finally:
            grader.close()


def _suite_of(checks: Sequence[Check], folder: Path) -> Suite:
    case = Case(id="contract", prompt="Keep the contract.", checks=tuple(checks))
    return Suite(name="contract", cases=(case,), source=folder / "suite", digest="0")


def _case_of(suite: Suite, checks: Sequence[Check]) -> Case:
    for case in suite.cases:
        if all(check in case.checks for check in checks):
            return case
    raise ValueError("no case of the suite has these checks; give those of one of its cases")


class _GradingStage(Struct, frozen=True):
    """What an agent left, for a grader to look at."""

    folder: Path
    case: Case
    checks: tuple[Check, ...]
    output: str
    events: tuple[Event, ...]
    files: Mapping[str, str]

    def evidence(self, name: str, surveyed: WorkspaceSurvey | None = None, *, touched: bool = True) -> Evidence:
        """Make the evidence in folders of its own; an agent that touched nothing did not answer either."""
        home = self.folder / name
        workspace, artifacts = home / "workspace", home / "artifacts"
        workspace.mkdir(parents=True)
        artifacts.mkdir()
        files = self.files if touched else {}
        for path, text in {**_HERE_BEFORE, **files}.items():
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace / path).write_text(text, encoding="utf-8")
        events = artifacts / "events.jsonl"
        events.write_bytes(b"".join(codec.encode(event) + b"\n" for event in (self.events if touched else ())))
        return Evidence(
            case=self.case,
            session=SessionSummary(
                runner="contract",
                agent="contract",
                prompt=self.case.prompt,
                final_output=self.output if touched else "",
            ),
            events_path=events,
            workspace=workspace,
            changes=Changes(created=tuple(sorted(files))),
            artifact_dir=artifacts,
            shell=Shell(sandbox="local"),
            keep=partial(_keep, artifacts),
            timeout_s=_TIMEOUT_S,
            surveyed=surveyed,
        )


def _keep(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


async def _decide(grader: Grader, stage: _GradingStage) -> tuple[Grade, ...]:
    try:
        idle_evidence = stage.evidence("untouched", touched=False)
        surveyed = await _survey(grader, stage, idle_evidence.workspace)
        await _check_untouched(grader, stage.checks, replace(idle_evidence, surveyed=surveyed))
        evidence = stage.evidence("alone", surveyed)
        alone = [await _grade(grader, check, evidence) for check in stage.checks]
        evidence = stage.evidence("together", surveyed)
        together = [grade async for grade in grader.grade_all(stage.checks, evidence)]
        want(
            [_decision(grade) for grade in together] == [_decision(grade) for grade in alone],
            f"`grade_all` decides {together}, and `grade` decides {alone}",
        )
        want(not [grade async for grade in grader.grade_all((), evidence)], "`grade_all` gives grades without a check")
        await _check_classes(grader, stage)
        return tuple(alone)
    finally:
        await grader.release()


async def _survey(grader: Grader, stage: _GradingStage, workspace: Path) -> WorkspaceSurvey | None:
    """Let the grader look at a workspace before an agent starts: it may not change it."""
    store = stage.folder / "store"
    store.mkdir()
    before = _contents(workspace)
    surveyed = await grader.survey(stage.case, workspace, store, timeout_s=_TIMEOUT_S)
    want(
        surveyed is None or isinstance(surveyed, WorkspaceSurvey),
        f"`survey` returns {surveyed!r}, not a WorkspaceSurvey or None",
    )
    want(_contents(workspace) == before, "`survey` changes the workspace; copies belong into the folder `store`")
    return surveyed


async def _check_untouched(grader: Grader, checks: Sequence[Check], evidence: Evidence) -> None:
    """Let the grader decide about an agent that did nothing, as a run does to find out who caused an error."""
    for check in checks:
        try:
            await _grade(grader, check, evidence)
        except GraderError:
            continue


async def _check_classes(grader: Grader, stage: _GradingStage) -> None:
    """Let the grader name the class of a failure."""
    key = TrialKey(suite=grader.suite.name, case=stage.case.id, runner="contract", arm="default", number=1)
    failure = TrialResult(
        key=key,
        status="failed",
        score=0.0,
        duration_s=1.0,
        started_at="2025-01-02T03:04:05Z",
        artifact_dir="trials/contract",
        failure=Failure(phase="check", code="check-failed", cause="agent", message="It does not hold."),
    )
    try:
        failure_class = await grader.classify(stage.case, failure, timeout_s=_TIMEOUT_S)
    except GraderError:
        return
    except Exception as error:
        raise ContractBroken(f"`classify` raises {error!r}; return None, or raise a GraderError") from error
    is_class = failure_class is None or isinstance(failure_class, FailureClass)
    want(is_class, f"`classify` returns {failure_class!r}, not a FailureClass or None")


async def _grade(grader: Grader, check: Check, evidence: Evidence) -> Grade:
    try:
        grade = await grader.grade(check, evidence)
    except GraderError:
        raise
    except Exception as error:
        raise ContractBroken(f"`grade` raises {error!r}; if there is no decision, raise a GraderError") from error
    _check_grade(grade, check)
    return grade


def _check_grade(grade: Grade, check: Check) -> None:
    want(isinstance(grade, Grade), f"`grade` returns {grade!r}, not a Grade")
    want(grade.check == check.label, f'a grade is of the check "{grade.check}", not of "{check.label}"')
    want(isinstance(grade.passed, bool), f"`passed` of a grade is {grade.passed!r}, not True or False")
    is_share = math.isfinite(grade.value) and 0 <= grade.value <= 1
    want(is_share, f"the value of a grade is {grade.value}; it is from 0 to 1")
    want(grade.weight == check.weight, f"the weight of a grade is {grade.weight}, and that of its check {check.weight}")
    want(not (grade.undecided and grade.passed), "a grade is undecided and passed; one that is undecided is not passed")
    want(grade.passed or bool(grade.reason.strip()), "a grade that is not passed gives no reason")
    want(grade.duration_s is None or grade.duration_s >= 0, f"`duration_s` of a grade is {grade.duration_s}")
    want(grade.evidence is None or isinstance(grade.evidence, str), "`evidence` of a grade is not a string")


def _decision(grade: Grade) -> Grade:
    """Leave out what may differ from one time to the next."""
    return replace(grade, duration_s=None, evidence=None, reason="")


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check_format(format_class: Callable[[], Format], path: Path) -> Suite:
    """Read the suite in *path*, and raise `ContractBroken` unless the format does so as it must; return the suite.

    The format also gets spoiled copies of the file, or of the files of a folder, and files of other kinds.
    """
    path = path.resolve()
    want(format_class().recognizes(path) is True, f"`recognizes` does not return True for {path.name}")
    _check_asked(format_class, path)
    before = _names(path.parent)
    suite, again = format_class().lower(path), format_class().lower(path)
    want(isinstance(suite, Suite), f"`lower` returns {suite!r}, not a Suite")
    new_files = sorted(_names(path.parent) - before)
    want(not new_files, f"`lower` makes files next to the suite: {', '.join(new_files)}")
    _check_suite(suite, path)
    want(suite.digest == again.digest, "`lower` gives the same file another digest each time")
    with tempfile.TemporaryDirectory(prefix="whet-check-") as folder:
        _check_others(format_class, Path(folder) / "notes.unknown")
        copy = Path(folder) / path.name
        for file in _copied(path, copy):
            original = file.read_bytes()
            for data in _spoiled(original):
                _check_spoiled(format_class, copy, file, data)
            file.write_bytes(original)
    return suite


def _check_asked(format_class: Callable[[], Format], path: Path) -> None:
    """A format that whet does not ask about a file is never used for it."""
    suite_format = format_class()
    takes_folders = getattr(suite_format, "takes_folders", False) is True
    want(path.is_file() or takes_folders, "the suite is a folder, and the format has no `takes_folders = True`")
    name = format_of(path)
    if name is None or type(plugins.find("formats", name)()) is type(suite_format):
        return
    # The bench format is asked last, so a format that is installed comes before it.
    want(
        name == BENCH and not is_surely_bench(path),
        f'whet reads {path.name} as "{name}", so it never asks this format',
    )


def _copied(path: Path, copy: Path) -> list[Path]:
    """Copy a suite, and return the files to spoil: itself, or of a folder those at its top."""
    if path.is_file():
        shutil.copyfile(path, copy)
        return [copy]
    shutil.copytree(path, copy)
    return sorted(file for file in copy.iterdir() if file.is_file())


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name != "__pycache__"}


def _check_suite(suite: Suite, path: Path) -> None:
    want(bool(suite.name), "the suite has no name")
    want(suite.source == path, f"`source` of the suite is {suite.source}, not {path}")
    want(bool(suite.digest), "the suite has no digest, by which a resumed run sees that it changed")
    want(bool(suite.arms), "the suite has no arms; `default` is one")
    ids = [case.id for case in suite.cases]
    twice = sorted({id_ for id_ in ids if ids.count(id_) > 1})
    want(not twice, f"several cases have the id {', '.join(twice)}")
    for case in suite.cases:
        want(bool(case.id), "a case has no id")
        want(bool(case.checks), f'case "{case.id}" has no checks, so it decides nothing')
        for workspace in filter(None, (suite.workspace, case.workspace)):
            relative = [str(at) for at in (workspace.cwd, workspace.template_dir) if at and not at.is_absolute()]
            want(not relative, f'a workspace of case "{case.id}" has a path that is not absolute: {relative}')


def _check_others(format_class: Callable[[], Format], path: Path) -> None:
    """A format must not recognize other files: it would take them from their own format."""
    for data in _NONSENSE:
        path.write_bytes(data)
        want(_recognizes(format_class, path) is False, f"`recognizes` takes {path.name} with {data[:20]!r} for its own")


def _spoiled(data: bytes) -> Iterator[bytes]:
    yield from _NONSENSE
    for part in range(1, _CUTS):
        at = len(data) * part // _CUTS
        yield data[:at]
        yield data[:at] + b"\xff\x00" + data[at:]


def _check_spoiled(format_class: Callable[[], Format], path: Path, file: Path, data: bytes) -> None:
    file.write_bytes(data)
    if not _recognizes(format_class, path):
        return
    description = f"a file that ends with {data[-40:]!r}"
    try:
        suite = format_class().lower(path)
    except SuiteError as error:
        for problem in error.problems:
            is_told = bool(problem.file and problem.message)
            want(is_told, f"a SuiteError has a problem without a file or a message: {problem!r}")
    except Exception as error:
        raise ContractBroken(f"`lower` raises {error!r} for {description}; raise a SuiteError") from error
    else:
        want(isinstance(suite, Suite), f"`lower` returns {suite!r} for {description}")


def _recognizes(format_class: Callable[[], Format], path: Path) -> bool:
    try:
        verdict = format_class().recognizes(path)
    except Exception as error:
        raise ContractBroken(f"`recognizes` raises {error!r} for {path.name}") from error
    want(isinstance(verdict, bool), f"`recognizes` returns {verdict!r}, not True or False")
    return verdict
