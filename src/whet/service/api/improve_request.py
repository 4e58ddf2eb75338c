"""What callers may ask of an improve run: the body of a request, and why a suite or a server is not ready for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import Field
from sqlalchemy import Connection

from whet.errors import Problem, SuiteError, UsageError
from whet.improve.ready import parts_of_suite, refuse_few_cases
from whet.improve.request import MOST_CANDIDATES, MOST_ROUNDS
from whet.record.improve.split_lock import draw_parts
from whet.sandbox.local import LocalSandbox
from whet.service.api.run_request import SKILL_REFERENCE, Label, RunBody, find_skills, too_long
from whet.service.errors import Refused, invalid_request
from whet.service.http import Strict
from whet.service.service import Service, reasons_against
from whet.service.store import skills
from whet.service.store.improve_folder import ImproveRunFolder
from whet.service.store.proposals import ProposalStatus
from whet.service.store.suites import StoredSuite
from whet.suites.evals.documents import needs_of, not_runnable_reasons
from whet.suites.format import load_suite

_NO_BOUNDARY = "this server runs without a boundary that hides files, and a proposer could read the held-out cases"


class OptionsBody(Strict):
    """The options of `whet improve`."""

    part: Literal["description", "body", "all"] | None = Field(
        default=None, description="What may change; by default the description if every case is a query, else the body."
    )
    goal: Literal["better", "cheaper"] = "better"
    candidates: int = Field(default=6, ge=1, le=MOST_CANDIDATES, description="Made at once in a round.")
    rounds: int = Field(default=1, ge=1, le=MOST_ROUNDS, description="Each starts from what the last one accepted.")
    max_cost_usd: float = Field(ge=0.01, le=1_000_000, description="Of all phases together.")
    accept: Literal["like-these", "these"] | None = Field(
        default=None,
        description="Better on cases like these, or on these; by default like-these if 12 are held out.",
    )


class ImproveBody(Strict):
    """What to improve, and on which suite."""

    eval_suite_id: str = Field(max_length=100)
    suite_version: int | None = Field(default=None, ge=1, le=2**31 - 1, description="The newest by default.")
    skill: str = Field(min_length=1, max_length=2000, description=SKILL_REFERENCE)
    runner: str = Field(min_length=1, max_length=200, description="One of the server's runners.")
    proposer: str | None = Field(
        default=None, max_length=200, description="The runner that writes candidates; the same by default."
    )
    label: Label | None = Field(default=None, description="What people call this improve run.")
    options: OptionsBody


class ProposalBody(Strict):
    """What people decided about a proposal; applied says that somebody applied it elsewhere."""

    status: ProposalStatus


class ApplyBody(Strict):
    """What to apply, and as what."""

    candidate_id: str | None = Field(default=None, max_length=200, description="The candidate that was accepted.")
    target: Literal["draft"]


def request_of(connection: Connection, service: Service, organisation_id: str, body: ImproveBody) -> dict[str, Any]:
    """Return what is asked, with the digest of the skill; refuses what this server cannot do."""
    wrong = []
    if (problem := skills.reference_problem(body.skill)) is not None:
        wrong.append(("skill", problem))
    names = ", ".join(service.runners) or "none is configured"
    for field, runner in (("runner", body.runner), ("proposer", body.proposer)):
        if runner is not None and runner not in service.runners:
            wrong.append((field, f"is not a runner of this service; known: {names}"))
    if wrong:
        raise invalid_request(*wrong)
    asked = find_skills(connection, organisation_id, RunBody(runner=body.runner, skill=body.skill))
    return {**asked, "proposer": body.proposer, "options": body.options.model_dump()}


def refuse_unready(service: Service, stored: StoredSuite, lock: bytes | None) -> None:
    """Refuse a suite that no skill can be improved on, with every reason that is known before anything runs."""
    suite = stored.suite()
    reasons = [
        *([_NO_BOUNDARY] if service.sandbox == LocalSandbox.name else []),
        *not_runnable_reasons(suite),
        *reasons_against(needs_of(suite, agent=True), service.lacking),
        *too_long(service, suite),
        *_split_problems(stored, suite.name, lock),
    ]
    if reasons:
        raise Refused(409, "the suite is not ready to improve a skill on", details=[("", reason) for reason in reasons])


def _split_problems(stored: StoredSuite, name: str, lock: bytes | None) -> Iterator[str]:
    """Yield what is wrong with the parts that the cases of a suite have, or would get."""
    with TemporaryDirectory(prefix="whet-ready-") as place:
        folder = ImproveRunFolder(Path(place).resolve())
        folder.prepare(stored.document())
        folder.prepare_split(lock, name)
        try:
            draw_parts(load_suite(folder.suite))
            suite = load_suite(folder.suite)
            refuse_few_cases(parts_of_suite(suite), suite)
        except SuiteError as error:
            yield from (_said(problem) for problem in error.problems)
        except UsageError as error:
            yield f"{error.message}; {error.hint}" if error.hint else error.message


def _said(problem: Problem) -> str:
    place = f"{problem.case}: {problem.field} " if problem.case and problem.field else ""
    return f"{place}{problem.message}"
