"""The contracts of a grader and of a format, tried with real evidence and real files."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio

from whet.errors import GraderError, SuiteError
from whet.grade.context import Shell
from whet.grade.evidence import Evidence
from whet.grade.grader import Grader
from whet.ground.protecting import Surveyed
from whet.model import wire
from whet.model.grade import Changes, Failure, FailureClass, Grade
from whet.model.run import TrialKey, TrialResult
from whet.model.seen import Event
from whet.model.session import SessionSummary
from whet.model.suite import Case, Check, Suite
from whet.suites.format import Format

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
        stage = _Stage(Path(folder), _case_of(suite, checks), tuple(checks), output, tuple(events), files or {})
        # Before there is an event loop, as in a run.
        grader = grader_class(suite)
        want(isinstance(grader, Grader), f"{grader!r} does not derive from whet.grade.grader.Grader")
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


@dataclass(frozen=True, slots=True)
class _Stage:
    """What an agent left, for a grader to look at."""

    folder: Path
    case: Case
    checks: tuple[Check, ...]
    output: str
    events: tuple[Event, ...]
    files: Mapping[str, str]

    def evidence(self, name: str, surveyed: Surveyed | None = None, *, touched: bool = True) -> Evidence:
        """Make the evidence in folders of its own; an agent that touched nothing did not answer either."""
        home = self.folder / name
        workspace, artifacts = home / "workspace", home / "artifacts"
        workspace.mkdir(parents=True)
        artifacts.mkdir()
        created = self.files if touched else {}
        for path, text in {**_HERE_BEFORE, **created}.items():
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace / path).write_text(text, encoding="utf-8")
        events = artifacts / "events.jsonl"
        events.write_bytes(b"".join(wire.encode(event) + b"\n" for event in (self.events if touched else ())))
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
            changes=Changes(created=tuple(sorted(created))),
            artifact_dir=artifacts,
            shell=Shell(sandbox="local"),
            keep=partial(_keep, artifacts),
            timeout_s=_TIMEOUT_S,
            surveyed=surveyed,
        )


def _keep(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


async def _decide(grader: Grader, stage: _Stage) -> tuple[Grade, ...]:
    try:
        untouched = stage.evidence("untouched", touched=False)
        surveyed = await _survey(grader, stage, untouched.workspace)
        await _check_untouched(grader, stage.checks, replace(untouched, surveyed=surveyed))
        evidence = stage.evidence("alone", surveyed)
        alone = [await _grade(grader, check, evidence) for check in stage.checks]
        evidence = stage.evidence("together", surveyed)
        together = [given async for given in grader.grade_all(stage.checks, evidence)]
        want(
            [_decision(given) for given in together] == [_decision(given) for given in alone],
            f"`grade_all` decides {together}, and `grade` decides {alone}",
        )
        want(not [given async for given in grader.grade_all((), evidence)], "`grade_all` gives grades without a check")
        await _check_classes(grader, stage)
        return tuple(alone)
    finally:
        await grader.release()


async def _survey(grader: Grader, stage: _Stage, workspace: Path) -> Surveyed | None:
    """Let the grader look at a workspace before an agent starts: it may not change it."""
    store = stage.folder / "store"
    store.mkdir()
    before = _contents(workspace)
    surveyed = await grader.survey(stage.case, workspace, store, timeout_s=_TIMEOUT_S)
    want(surveyed is None or isinstance(surveyed, Surveyed), f"`survey` returns {surveyed!r}, not a Surveyed or None")
    want(_contents(workspace) == before, "`survey` changes the workspace; copies belong into the folder `store`")
    return surveyed


async def _check_untouched(grader: Grader, checks: Sequence[Check], evidence: Evidence) -> None:
    """Let the grader decide about an agent that did nothing, as a run does to find out who caused an error."""
    for check in checks:
        try:
            await _grade(grader, check, evidence)
        except GraderError:
            continue


async def _check_classes(grader: Grader, stage: _Stage) -> None:
    """Let the grader name the class of a failure."""
    key = TrialKey(suite=grader.suite.name, case=stage.case.id, runner="contract", arm="default", number=1)
    failed = TrialResult(
        key=key,
        status="failed",
        score=0.0,
        duration_s=1.0,
        started_at="2025-01-02T03:04:05Z",
        artifact_dir="trials/contract",
        failure=Failure(phase="check", code="check-failed", cause="agent", message="It does not hold."),
    )
    try:
        found = await grader.classify(stage.case, failed, timeout_s=_TIMEOUT_S)
    except GraderError:
        return
    except Exception as error:
        raise ContractBroken(f"`classify` raises {error!r}; return None, or raise a GraderError") from error
    is_class = found is None or isinstance(found, FailureClass)
    want(is_class, f"`classify` returns {found!r}, not a FailureClass or None")


async def _grade(grader: Grader, check: Check, evidence: Evidence) -> Grade:
    try:
        given = await grader.grade(check, evidence)
    except GraderError:
        raise
    except Exception as error:
        raise ContractBroken(f"`grade` raises {error!r}; if there is no decision, raise a GraderError") from error
    _check_grade(given, check)
    return given


def _check_grade(given: Grade, check: Check) -> None:
    want(isinstance(given, Grade), f"`grade` returns {given!r}, not a Grade")
    want(given.check == check.label, f'a grade is of the check "{given.check}", not of "{check.label}"')
    want(isinstance(given.passed, bool), f"`passed` of a grade is {given.passed!r}, not True or False")
    is_share = math.isfinite(given.value) and 0 <= given.value <= 1
    want(is_share, f"the value of a grade is {given.value}; it is from 0 to 1")
    want(given.weight == check.weight, f"the weight of a grade is {given.weight}, and that of its check {check.weight}")
    want(not (given.undecided and given.passed), "a grade is undecided and passed; one that is undecided is not passed")
    want(given.passed or bool(given.reason.strip()), "a grade that is not passed gives no reason")
    want(given.duration_s is None or given.duration_s >= 0, f"`duration_s` of a grade is {given.duration_s}")
    want(given.evidence is None or isinstance(given.evidence, str), "`evidence` of a grade is not a string")


def _decision(given: Grade) -> Grade:
    """Leave out what may differ from one time to the next."""
    return replace(given, duration_s=None, evidence=None, reason="")


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check_format(format_class: Callable[[], Format], path: Path) -> Suite:
    """Read the suite in *path*, and raise `ContractBroken` unless the format does so as it must; return the suite.

    The format also gets spoiled copies of the file, or of the files of a folder, and files of other kinds.
    """
    path = path.resolve()
    want(format_class().recognizes(path) is True, f"`recognizes` does not return True for {path.name}")
    before = _names(path.parent)
    suite, again = format_class().lower(path), format_class().lower(path)
    want(isinstance(suite, Suite), f"`lower` returns {suite!r}, not a Suite")
    made = sorted(_names(path.parent) - before)
    want(not made, f"`lower` makes files next to the suite: {', '.join(made)}")
    _check_suite(suite, path)
    want(suite.digest == again.digest, "`lower` gives the same file another digest each time")
    with tempfile.TemporaryDirectory(prefix="whet-check-") as folder:
        _check_others(format_class, Path(folder) / "notes.unknown")
        copy = Path(folder) / path.name
        for file in _copied(path, copy):
            whole = file.read_bytes()
            for data in _spoiled(whole):
                _check_spoiled(format_class, copy, file, data)
            file.write_bytes(whole)
    return suite


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
    twice = sorted({each for each in ids if ids.count(each) > 1})
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
    shown = f"a file that ends with {data[-40:]!r}"
    try:
        suite = format_class().lower(path)
    except SuiteError as error:
        for problem in error.problems:
            is_told = bool(problem.file and problem.message)
            want(is_told, f"a SuiteError has a problem without a file or a message: {problem!r}")
    except Exception as error:
        raise ContractBroken(f"`lower` raises {error!r} for {shown}; raise a SuiteError") from error
    else:
        want(isinstance(suite, Suite), f"`lower` returns {suite!r} for {shown}")


def _recognizes(format_class: Callable[[], Format], path: Path) -> bool:
    try:
        found = format_class().recognizes(path)
    except Exception as error:
        raise ContractBroken(f"`recognizes` raises {error!r} for {path.name}") from error
    want(isinstance(found, bool), f"`recognizes` returns {found!r}, not True or False")
    return found
