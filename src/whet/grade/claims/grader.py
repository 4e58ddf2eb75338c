"""Grade claims: ask a worker for each decision, within a time limit of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from msgspec.structs import replace

from whet.checks.context import NotRecorded
from whet.errors import CheckerDied, CheckTimedOut, GraderError
from whet.grade.claims._worker import ClaimAnswer, ClaimDecider, ClaimRequest, SurveyAnswer, SurveyRequest
from whet.grade.claims.files import Outcome, undecided
from whet.grade.contract import WorkerGrader
from whet.grade.evidence import Evidence
from whet.model.grade import Changes, Grade, Location
from whet.model.suite import Case, Check, Suite
from whet.reading.claims.forms import Absent, Claim, CommandClaim, Contains, Exists, Matches, path_of
from whet.reading.text import listed
from whet.workspace.protected import Before, WorkspaceSurvey, find

# How long a pattern may search, and what starting and ending a command may take in addition to its own time.
PATTERN_TIMEOUT_S = 10.0
_GRACE_S = 15.0


class ClaimGrader(WorkerGrader):
    """Asks workers that were forked when the suite had just been loaded."""

    informs = True

    def __init__(self, suite: Suite) -> None:
        super().__init__(suite, ClaimDecider(suite).serve)
        self._source = str(suite.source)

    async def survey(self, case: Case, workspace: Path, store: Path, *, timeout_s: float) -> WorkspaceSurvey:
        """Note what the claims of *case* need later, between setup and agent.

        Copies of protected files go to the folder *store*, which the agent cannot reach.
        """
        claims: list[Claim] = [check.params["claim"] for check in case.checks if check.grader == "claim"]
        request = SurveyRequest(
            case=case.id, workspace=str(workspace), store=str(store), search=_could_be_vacuous_by_a_pattern(claims)
        )
        answer = await self._request_survey(request, timeout_s)
        if answer.surveyed is None:
            raise GraderError(f"the workspace cannot be looked at: {answer.trouble}")
        return answer.surveyed

    async def _request_survey(self, request: SurveyRequest, timeout_s: float) -> SurveyAnswer:
        limit_s = PATTERN_TIMEOUT_S if request.search else timeout_s
        try:
            return await self.ask(request, SurveyAnswer, timeout_s=limit_s, what="looking at the workspace")
        except CheckTimedOut:
            if not request.search:
                raise
            # The same search is made after the agent has ended, and says then what is wrong with it.
            return await self._request_survey(replace(request, search=False), timeout_s)

    async def grade(self, check: Check, evidence: Evidence) -> Grade:
        """Decide one claim; an undecided one is a grade too, so that the others are decided as well."""
        return (await self._grades([check], evidence))[0]

    async def grade_all(self, checks: Sequence[Check], evidence: Evidence) -> AsyncIterator[Grade]:
        """Decide all of *checks*, in order; claims about files that follow one another are decided at once."""
        for group in _together(checks, evidence):
            for grade in await self._grades(group, evidence):
                yield grade

    async def _grades(self, checks: list[Check], evidence: Evidence) -> list[Grade]:
        for check in checks:
            _refuse_gaps(check.params["claim"], evidence)
        return [
            self._grade(check, answer)
            for check, answer in zip(checks, await self._answers(checks, evidence), strict=True)
        ]

    def _grade(self, check: Check, answer: ClaimAnswer) -> Grade:
        outcome = answer.outcome
        return Grade(
            check=check.label,
            value=float(outcome.state == "passed"),
            passed=outcome.state == "passed",
            reason=f"{check.label}: {_reason(answer)}",
            evidence=outcome.evidence,
            location=Location(file=self._source, line=check.params["line"]),
            duration_s=answer.duration_s,
            weight=check.weight,
            undecided=outcome.state == "undecided",
        )

    async def _answers(self, checks: list[Check], evidence: Evidence) -> Sequence[ClaimAnswer]:
        claims: list[Claim] = [check.params["claim"] for check in checks]
        if evidence.case.protect and evidence.surveyed is None and isinstance(claims[0], CommandClaim):
            return [ClaimAnswer(outcome=undecided("the protected files were not kept")) for _ in checks]
        request = _request(checks, claims, evidence)
        limit_s = max(_limit(claim, evidence) for claim in claims)
        try:
            return await self.ask(request, tuple[ClaimAnswer, ...], timeout_s=limit_s, what="deciding the claim")
        except (CheckTimedOut, CheckerDied) as error:
            if len(checks) > 1:
                # Asked one by one, the claim that did it is the only one without a decision.
                return [(await self._answers([check], evidence))[0] for check in checks]
            hung = isinstance(error, CheckTimedOut)
            outcome = _timeout_outcome(claims[0], limit_s) if hung else undecided("the process that decides it ended")
            return [ClaimAnswer(outcome=outcome, duration_s=limit_s if hung else 0.0)]


def _could_be_vacuous_by_a_pattern(claims: Sequence[Claim]) -> bool:
    """Return whether it takes a search to know: a case with a command or a comparison is not vacuous anyway."""
    plain = all(isinstance(claim, Exists | Contains | Matches | Absent) for claim in claims)
    return plain and any(isinstance(claim, Matches) for claim in claims)


def _together(checks: Sequence[Check], evidence: Evidence) -> Iterator[list[Check]]:
    """Group the claims that one request can ask; a command is alone, and so is each claim about a record."""
    is_record = evidence.gaps is not None

    def alone(position: tuple[int, Check]) -> int | None:
        number, check = position
        return number if is_record or isinstance(check.params["claim"], CommandClaim) else None

    for _, group in groupby(enumerate(checks), key=alone):
        yield [check for _, check in group]


def _request(checks: list[Check], claims: list[Claim], evidence: Evidence) -> ClaimRequest:
    claim_checks = [candidate for candidate in evidence.case.checks if candidate.grader == checks[0].grader]
    survey = evidence.surveyed
    return ClaimRequest(
        case=evidence.case.id,
        numbers=tuple(claim_checks.index(check) for check in checks),
        workspace=str(evidence.workspace),
        before={path: _before(path, evidence) for path in map(path_of, claims) if path is not None},
        protected=survey.protected if survey and isinstance(claims[0], CommandClaim) else (),
        shell=evidence.shell,
        env=evidence.case.env,
        timeout_s=evidence.command_timeout_s,
    )


def _limit(claim: Claim, evidence: Evidence) -> float:
    if isinstance(claim, CommandClaim):
        return evidence.command_timeout_s + _GRACE_S
    return PATTERN_TIMEOUT_S if isinstance(claim, Matches) else evidence.timeout_s


def _timeout_outcome(claim: Claim, limit_s: float) -> Outcome:
    if isinstance(claim, Matches):
        return undecided(f"the search for {claim.pattern} did not end within {limit_s:g} s: the pattern backtracks")
    return undecided(f"no decision within {limit_s:g} s")


def _reason(answer: ClaimAnswer) -> str:
    if not answer.restored:
        return answer.outcome.reason
    names = listed([path if path.isprintable() else repr(path) for path in answer.restored])
    first, newline, details = answer.outcome.reason.partition("\n")
    return f"{first}; protected files were put back ({names}){newline}{details}"


def _refuse_gaps(claim: Claim, evidence: Evidence) -> None:
    """Raise `NotRecorded` if the claim looks at something that the record does not have."""
    gaps = evidence.gaps
    if gaps is None:
        return
    path = path_of(claim)
    if gaps.workspace is not None and (path is None or path.rstrip("/") not in gaps.paths):
        raise NotRecorded(f"the claim looks at {path or 'the workspace'}, which was not recorded: {gaps.workspace}")
    if gaps.changes is not None and evidence.surveyed is None and path is not None:
        raise NotRecorded(f"what {path} was before was not recorded: {gaps.changes}")


def _before(path: str, evidence: Evidence) -> Before:
    """Return what was at the path of a claim: from the survey, or else from the list of changes."""
    if evidence.surveyed is not None and path in evidence.surveyed.before:
        return evidence.surveyed.before[path]
    path = path.rstrip("/")
    before = _before_changes(path, evidence.workspace, evidence.changes)
    was_there = path in evidence.folders
    return Before(kind="folder", changed=True) if before.kind == "absent" and was_there else before


def _before_changes(path: str, workspace: Path, changes: Changes) -> Before:
    """Return what was there, from the list of changes; a folder that only got new files is taken for a new one."""
    if path == ".":
        return Before(kind="folder", changed=bool(changes))

    def among(paths: tuple[str, ...]) -> bool:
        return any(changed_path == path or changed_path.startswith(f"{path}/") for changed_path in paths)

    if among(changes.deleted) or among(changes.modified):
        is_file = path in changes.deleted or path in changes.modified
        return Before(kind="file" if is_file else "folder", changed=True)
    if among(changes.created):
        return Before(kind="absent")
    return Before(kind=find(workspace, path).kind, changed=False)
