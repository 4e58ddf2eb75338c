"""What callers may ask of a run: the body of a request, what is wrong with it, and the bundles that its labels name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from sqlalchemy import Connection

from whet.model.eval_cases import EvalSuite, TaskPackage
from whet.model.run import NO_AGENT
from whet.service.errors import invalid_request, worded
from whet.service.http import Strict
from whet.service.service import Service
from whet.service.store import skills
from whet.service.store.runs import UntilDecided
from whet.suites.evals.documents import WITHOUT_AGENT

_NAME = worded(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$", "up to 60 letters, digits, dots, - and _, and begin with a letter or a digit"
)
# No comma, which separates the parts of `--arm`, and nothing that could be an option or a path upwards.
_MODEL = worded(
    r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$",
    "up to 200 letters, digits and . _ : / @ + -, and begin with a letter or a digit",
)
SKILL_REFERENCE = (
    "The address of an archive (https, r2, s3), sha256:DIGEST of one that was uploaded before, or label:NAME of one."
)


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("must be one line of text, without spaces around it")
    return text


Label = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printable)]


class ArmBody(Strict):
    """One version to compare; what it leaves out is as the run says."""

    name: str = Field(pattern=_NAME)
    skill: str | None = Field(default=None, max_length=2000, description=f"{SKILL_REFERENCE} none is without a skill.")
    runner: str | None = Field(default=None, max_length=200, description="One of the server's runners.")
    model: str | None = Field(default=None, pattern=_MODEL, description="The model of its runner.")


class RunBody(Strict):
    """What to run a suite with."""

    runner: str | None = Field(
        default=None, max_length=200, description="One of the server's runners; none for no agent."
    )
    skill: str | None = Field(default=None, max_length=2000, description=SKILL_REFERENCE)
    arm: Literal["skill", "no_skill"] | None = Field(default=None, description="Only this arm of the suite.")
    arms: list[ArmBody] | None = Field(
        default=None, min_length=2, max_length=8, description="Arms to compare instead, the baseline first."
    )
    trials: int | None = Field(default=None, ge=1, le=100, description="Samples of every case.")
    until_decided: UntilDecided | None = Field(
        default=None, description="Run in rounds until one arm is known to be better, instead of so many trials."
    )
    label: Label | None = Field(default=None, description="What people call this run.")
    suite_version: int | None = Field(default=None, ge=1, le=2**31 - 1, description="The newest by default.")


class LabelBody(Strict):
    """The label that a run should have; null for none."""

    label: Label | None


def find_skills(connection: Connection, organisation_id: str, body: RunBody) -> dict[str, Any]:
    """Return what is asked, with the digest of the bundle in the place of each label: a label may move.

    Raises Refused for a label or a digest that no bundle of the organisation has.
    """
    wrong: list[tuple[str, str]] = []

    def resolve_skill(request: dict[str, Any], path: str) -> dict[str, Any]:
        skill = request.get("skill")
        name = skills.labelled(skill) if skill is not None else None
        digest = skills.uploaded_digest(skill) if skill is not None else None
        if name is not None:
            digest = skills.digest_of_label(connection, organisation_id, name)
            if digest is None:
                wrong.append((path, f'no skill has the label "{name}"'))
                return request
            request = {**request, "skill": f"{skills.UPLOADED}{digest}", "skill_label": name}
        # The archive must be there until the run has its own copy.
        if digest is not None and not skills.lock_bundle(connection, organisation_id, digest):
            wrong.append((path, "no such archive was uploaded"))
        return request

    request = resolve_skill(body.model_dump(exclude_none=True, exclude={"suite_version", "label"}), "skill")
    if body.arms is not None:
        request["arms"] = [resolve_skill(arm, f"arms[{number}].skill") for number, arm in enumerate(request["arms"])]
    if wrong:
        raise invalid_request(*wrong)
    return request


def problems_of(service: Service, suite: EvalSuite, body: RunBody) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a request for a run of *suite*, as pairs of a path and a message."""
    yield from rounds_problems(suite, body)
    if body.arms is None:
        yield from _skill_problems(suite, body)
        yield from _runner_problems(service, suite, body.runner, "runner")
        return
    if body.arm is not None:
        yield "arm", "cannot be given together with arms"
    names = [arm.name for arm in body.arms]
    yield from ((f"arms[{at}].name", "is given twice") for at, name in enumerate(names) if name in names[:at])
    if body.skill is not None and (problem := skills.reference_problem(body.skill)) is not None:
        yield "skill", problem
    for number, arm in enumerate(body.arms):
        yield from _arm_problems(service, suite, body, arm, f"arms[{number}]")


def arms_with_skill(suite: EvalSuite, body: RunBody) -> list[bool]:
    """Return for each arm of a run whether it has a skill."""
    if body.arms is not None:
        return [arm.skill != skills.WITHOUT and (arm.skill or body.skill) is not None for arm in body.arms]
    if body.arm is not None:
        return [body.arm == "skill"]
    if not suite.supports_no_skill:
        return [True]
    return [False] if body.skill is None else [False, True]


def rounds_problems(suite: EvalSuite, body: RunBody) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a request for a run until decided."""
    if body.until_decided is None:
        return
    if body.trials is not None:
        yield "trials", "cannot be given together with until_decided; max_rounds is the most trials per case and arm"
    if len(arms_with_skill(suite, body)) == 1:
        yield "until_decided", "compares arms, and this run has one: give arms"


def too_long(service: Service, suite: EvalSuite) -> Iterator[str]:
    """Yield the time limits of *suite* that are longer than this server allows."""
    most_s = service.limits.max_time_limit_s
    limits = [("resource_limits_json.timeout_ms", suite.timeout_ms)]
    for number, case in enumerate(suite.cases):
        if isinstance(case, TaskPackage):
            hints, place = case.resource_hints, f"cases_json[{number}].resource_hints"
            limits.append((f"{place}.timeout_ms", hints.timeout_ms))
            limits.append((f"{place}.oracle_timeout_ms", hints.oracle_timeout_ms))
    for place, limit_ms in limits:
        if limit_ms is not None and limit_ms > most_s * 1000:
            yield f"{place} is {limit_ms / 1000:g} s, and this server allows {most_s:g} s"


def _arm_problems(
    service: Service, suite: EvalSuite, body: RunBody, arm: ArmBody, path: str
) -> Iterator[tuple[str, str]]:
    if arm.skill == skills.WITHOUT or (arm.skill is None and body.skill is None):
        if not suite.supports_no_skill:
            yield f"{path}.skill", "is missing, and the suite does not support no_skill"
    elif arm.skill is not None and (problem := skills.reference_problem(arm.skill)) is not None:
        yield f"{path}.skill", f"{problem}, or none"
    if arm.runner == NO_AGENT or (arm.runner is not None and "," in arm.runner):
        yield f"{path}.runner", "cannot be the runner of an arm"
        return
    runner = arm.runner or body.runner
    yield from _runner_problems(service, suite, runner, f"{path}.runner" if arm.runner else "runner")
    if arm.model is not None and runner in (None, NO_AGENT):
        yield f"{path}.model", "is of no use without a runner"
    if runner in (None, NO_AGENT) and any(other_arm.runner for other_arm in body.arms or ()):
        yield f"{path}.runner", "is missing: other arms name one"


def _skill_problems(suite: EvalSuite, body: RunBody) -> Iterator[tuple[str, str]]:
    if body.arm == "no_skill" and not suite.supports_no_skill:
        yield "arm", "the suite does not support no_skill"
    if body.skill is None:
        if body.arm == "skill" or not suite.supports_no_skill:
            yield "skill", "is missing: upload an archive, or name one"
    elif (problem := skills.reference_problem(body.skill)) is not None:
        yield "skill", problem


def _runner_problems(service: Service, suite: EvalSuite, runner: str | None, path: str) -> Iterator[tuple[str, str]]:
    names = ", ".join(service.runners) or "none is configured"
    if runner in (None, NO_AGENT):
        needing = next((index for index, case in enumerate(suite.cases) if case.kind not in WITHOUT_AGENT), None)
        if needing is not None:
            yield path, f"is missing, and cases_json[{needing}] needs an agent; known: {names}"
    elif runner not in service.runners:
        yield path, f"is not a runner of this service; known: {names}"
