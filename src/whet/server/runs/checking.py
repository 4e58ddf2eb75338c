"""Whether a run can be: everything that is known to be wrong before it is queued."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from whet.evals import WITHOUT_AGENT, EvalSuite, needs_of, not_runnable_reasons
from whet.model.run import NO_AGENT
from whet.server.lacking import reasons_against
from whet.server.problems import Refused
from whet.server.runs.skills import skill_problem, uploaded_digest
from whet.server.service import Service
from whet.server.shapes import RunBody
from whet.server.storage.bundles import has_bundle
from whet.server.storage.runs import count_waiting


def refuse_what_cannot_run(service: Service, suite: EvalSuite, asked: RunBody) -> None:
    """Refuse a suite that the service does not run, or not as it is asked, with every reason."""
    needs = needs_of(suite, agent=asked.runner not in (None, NO_AGENT))
    reasons = [*not_runnable_reasons(suite), *reasons_against(needs, service.lacking)]
    if reasons:
        raise Refused(409, "the suite is not runnable", details=[("", reason) for reason in reasons])


def refuse_wrong_request(
    service: Service, connection: Connection, organisation_id: str, suite: EvalSuite, asked: RunBody
) -> None:
    """Refuse a request that asks for what is not there, or for too much."""
    problems = [*_skill_problems(connection, organisation_id, suite, asked), *_runner_problems(service, suite, asked)]
    if problems:
        raise Refused(422, "the request is not valid", details=problems)
    if count_waiting(connection, organisation_id) >= service.limits.max_waiting_runs:
        raise Refused(429, "too many runs are waiting", headers={"retry-after": "60"})


def _skill_problems(
    connection: Connection, organisation_id: str, suite: EvalSuite, asked: RunBody
) -> Iterator[tuple[str, str]]:
    if asked.variant == "no_skill" and not suite.supports_no_skill:
        yield "variant", "the suite does not support no_skill"
    if asked.skill is None:
        if asked.variant == "skill" or not suite.supports_no_skill:
            yield "skill", "is missing: upload an archive, or name one"
        return
    if (problem := skill_problem(asked.skill)) is not None:
        yield "skill", problem
    digest = uploaded_digest(asked.skill)
    if digest is not None and not has_bundle(connection, organisation_id, digest):
        yield "skill", "no such archive was uploaded"


def _runner_problems(service: Service, suite: EvalSuite, asked: RunBody) -> Iterator[tuple[str, str]]:
    known = ", ".join(service.runners) or "none is configured"
    if asked.runner in (None, NO_AGENT):
        needing = next((index for index, case in enumerate(suite.cases) if case.kind not in WITHOUT_AGENT), None)
        if needing is not None:
            yield "runner", f"is missing, and cases_json[{needing}] needs an agent; known: {known}"
    elif asked.runner not in service.runners:
        yield "runner", f"is no runner of this service; known: {known}"
