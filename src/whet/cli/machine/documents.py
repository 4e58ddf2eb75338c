"""The documents that `--json` prints and no other module has, and the JSON Schemas that are made from classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal

from msgspec import Struct

from whet.agents.programs import ReadinessFinding
from whet.model.suite import Part


class ValidatedFile(Struct, frozen=True, kw_only=True):
    """A suite, benchmark or skill that whet can run."""

    file: str
    summary: str
    warnings: int
    # Of a suite of another tool: what it asks for and whet does not check, and cases that are left out.
    lost_checks: int = 0
    lost_cases: int = 0


class ValidationProblem(Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and where."""

    file: str
    case: str | None
    field: str | None
    message: str
    hint: str | None
    # Of a skill, and of a text that it shares with its cases: the name of the rule.
    rule: str | None = None


class ValidationDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/validation/1"):
    """What `whet validate --json` prints."""

    ok: bool
    files: tuple[ValidatedFile, ...]
    problems: tuple[ValidationProblem, ...]
    warnings: tuple[ValidationProblem, ...]
    # What suites of other tools say and whet does not read.
    not_carried_over: tuple[ValidationProblem, ...]


class SuiteSplit(Struct, frozen=True, kw_only=True):
    """The part of each case of a suite, and the lock that keeps it; `written` says whether this command changed that.

    `drawn` are the cases that got their part now, `edited` those that ask something else than when they were held out,
    and `gone` those of the lock that the suite no longer has.
    """

    suite: str
    file: str
    lock: str
    seed: str
    written: bool
    cases: dict[str, Part]
    drawn: tuple[str, ...]
    edited: tuple[str, ...]
    gone: tuple[str, ...]


class SplitsDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/splits/1"):
    """What `whet split --json` prints; with `dry_run`, it wrote nothing."""

    dry_run: bool
    splits: tuple[SuiteSplit, ...]


class VerifiedRun(Struct, frozen=True, kw_only=True):
    """Whether the record of one run is as whet wrote it; `problems` say where it is not."""

    run: str
    whole: bool
    lines: int
    last_hash: str | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]


class VerificationDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/verification/1"):
    """What `whet verify --json` prints."""

    whole: bool
    runs: tuple[VerifiedRun, ...]


class ReadinessDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/readiness/1"):
    """What `whet doctor --json` prints."""

    ready: bool
    findings: tuple[ReadinessFinding, ...]


class SettingInForce(Struct, frozen=True, kw_only=True):
    """The value of a setting, and where it comes from."""

    value: Any
    origin: str


class ConfigDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/config/1"):
    """What `whet config --json` prints: the settings file, and every setting in force by its dotted name."""

    file: str | None
    settings: dict[str, SettingInForce]


class CleanedThing(Struct, frozen=True, kw_only=True):
    """A container, a folder of fetched tasks or an image; the size of an image includes layers that it shares."""

    kind: Literal["container", "tasks", "image"]
    name: str
    bytes: int | None


class CleaningDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/cleaning/1"):
    """What `whet clean --json` prints: what it removed, or would remove, and what could not be removed."""

    dry_run: bool
    removed: tuple[CleanedThing, ...]
    problems: tuple[str, ...]


class SkillMatch(Struct, frozen=True, kw_only=True):
    """A callable skill that a search matched, and its folder."""

    id: str
    name: str
    version: str
    adapter: str
    tags: tuple[str, ...]
    path: str


class SkillsDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/skills/1"):
    """What `whet find --json` prints: how many skills match, and the best of them."""

    total: int
    skills: tuple[SkillMatch, ...]


class KeyFacts(Struct, frozen=True, kw_only=True):
    """What the service knows of a key."""

    id: str
    prefix: str
    organisation: str
    scopes: tuple[str, ...]
    revoked: bool
    label: str | None
    created_at: str | None
    used_at: str | None


class KeyDocument(KeyFacts, frozen=True, kw_only=True, tag_field="schema", tag="whet/key/1"):
    """What `whet keys create --json` and `revoke --json` print; only a new key has its `key`, and only there."""

    key: str | None = None


class KeysDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/keys/1"):
    """What `whet keys list --json` prints."""

    keys: tuple[KeyFacts, ...]


class OrganisationFacts(Struct, frozen=True, kw_only=True):
    """What an organisation keeps, and the quotas that are its own; null is what `whet serve` says for all."""

    organisation: str
    runs: int
    bytes: int
    quota_runs: int | None
    quota_bytes: int | None


class OrganisationDocument(OrganisationFacts, frozen=True, kw_only=True, tag_field="schema", tag="whet/organisation/1"):
    """What `whet orgs quota --json` prints."""


class OrganisationsDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/organisations/1"):
    """What `whet orgs list --json` prints."""

    organisations: tuple[OrganisationFacts, ...]


class ServiceSuite(Struct, frozen=True, kw_only=True):
    """A suite of a service, without its cases; a newer service may say more of it."""

    id: str
    version: int
    name: str
    case_count: int
    runnable: bool
    not_runnable_reasons: tuple[str, ...]


class ServiceSuitesDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/service-suites/1"):
    """What `whet suites list --json` prints."""

    suites: tuple[ServiceSuite, ...]


class ServiceRunDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/service-run/1"):
    """What `whet suites run --json` prints: the run as the service shows it, which may say more."""

    id: str
    suite_id: str
    suite_version: int
    status: Literal["queued", "running", "completed", "failed", "cancelled"]
    outcome: Literal["passed", "failed", "errored", "compared"] | None
    summary: dict[str, Any] | None
    error: str | None


class ServiceProposal(Struct, frozen=True, kw_only=True):
    """What an improve run of a service proposes; rates and differences are from 0 to 1."""

    id: str
    improve_run_id: str
    status: Literal["pending", "approved", "rejected", "applied"]
    skill_name: str
    proposal_type: Literal["description", "body", "package"]
    candidate_id: str
    current_value: str
    proposed_value: str
    reason: str
    difference: float
    low: float
    high: float
    pass_rate_before: float
    projected_pass_rate: float
    # The digest that it was applied as.
    skill: str | None


class ServiceProposalsDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/service-proposals/1"):
    """What `whet suites proposals --json` prints."""

    proposals: tuple[ServiceProposal, ...]


class ServiceImproveRunDocument(
    Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/service-improve-run/1"
):
    """What `whet suites improve --json` prints: the improve run as the service shows it, which may say more."""

    id: str
    eval_suite_id: str
    suite_version: int
    status: Literal[
        "queued", "running", "succeeded", "no_winner", "undecided", "failed_transient", "failed_terminal", "cancelled"
    ]
    phase: str | None
    proposal_id: str | None
    proposal: ServiceProposal | None
    summary: dict[str, Any] | None
    error: str | None


class ServicePlanDocument(Struct, frozen=True, kw_only=True, tag_field="schema", tag="whet/service-plan/1"):
    """What `whet suites run --dry-run --json` prints: the plan as the service shows it, which may say more."""

    cases: int
    arms: int
    trials: int
    trials_per_case: int
    rounds: int | None
    cost_usd: float | None
    seconds: float | None
    finds_points: float | None
    needed: dict[str, Any] | None
    learned_from: str | None


# The class of each document, which is imported when its schema is asked for. The name is the one in its field
# `schema`, whet/NAME/1, except of a history, which is a document of the pages.
DOCUMENTS: Mapping[str, tuple[str, str]] = {
    "audit": ("whet.report.audit", "AuditDocument"),
    "audits": ("whet.report.audit", "AuditsDocument"),
    "batch": ("whet.record.batches", "Batch"),
    "cleaning": (__name__, "CleaningDocument"),
    "comparison": ("whet.report.decisions.documents", "ComparisonDocument"),
    "comparisons": ("whet.report.decisions.documents", "ComparisonsDocument"),
    "config": (__name__, "ConfigDocument"),
    "dry-run": ("whet.plan.dry_run", "DryRunDocument"),
    "dry-runs": ("whet.plan.dry_run", "DryRunsDocument"),
    "failures": ("whet.run.explain.last_failures", "FailuresDocument"),
    "gate": ("whet.report.decisions.documents", "GateDocument"),
    "histories": ("whet.view.history.documents", "HistoriesDocument"),
    "history": ("whet.view.history.documents", "HistoryDocument"),
    "improve": ("whet.record.improve.document", "ImproveDocument"),
    "judge-pairs": ("whet.record.judging.tries", "JudgePairs"),
    "judge-report": ("whet.report.judging.documents", "JudgeReport"),
    "judge-try": ("whet.record.judging.tries", "JudgeTry"),
    "key": (__name__, "KeyDocument"),
    "keys": (__name__, "KeysDocument"),
    "organisation": (__name__, "OrganisationDocument"),
    "organisations": (__name__, "OrganisationsDocument"),
    "plan": ("whet.report.decisions.documents", "PlanDocument"),
    "plans": ("whet.report.decisions.documents", "PlansDocument"),
    "readiness": (__name__, "ReadinessDocument"),
    "removal": ("whet.record.removal", "Removal"),
    "runs": ("whet.record.listing", "RunListing"),
    "search": ("whet.view.search", "SearchDocument"),
    "service-improve-run": (__name__, "ServiceImproveRunDocument"),
    "service-plan": (__name__, "ServicePlanDocument"),
    "service-proposals": (__name__, "ServiceProposalsDocument"),
    "service-run": (__name__, "ServiceRunDocument"),
    "service-suites": (__name__, "ServiceSuitesDocument"),
    "skill-changes": ("whet.callable.report_files", "SkillChangesDocument"),
    "skills": (__name__, "SkillsDocument"),
    "splits": (__name__, "SplitsDocument"),
    "stored-baseline": ("whet.report.decisions.documents", "StoredBaseline"),
    "status": ("whet.plan.outstanding", "StatusDocument"),
    "validation": (__name__, "ValidationDocument"),
    "verification": (__name__, "VerificationDocument"),
}


# What a service says of them depends on its version.
_OPEN = ("ServiceImproveRunDocument", "ServicePlanDocument", "ServiceProposal", "ServiceRunDocument", "ServiceSuite")


def document_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of the document *name*, made from the class that writes it."""
    from msgspec import json

    module, class_name = DOCUMENTS[name]
    make_schema: Callable[[Any], dict[str, Any]] = json.schema
    schema = make_schema(getattr(import_module(module), class_name))
    for definition in schema["$defs"].values():
        _close(definition)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:whet:{name}:1",
        "title": f"whet {name}",
    }
    return head | schema


def _close(definition: dict[str, Any]) -> None:
    """Say of a definition what holds of a document that whet writes: every field is there, and no other one."""
    properties = definition.get("properties", {})
    for field in properties.values():
        field.pop("default", None)
    if properties:
        definition |= {"required": list(properties), "additionalProperties": definition["title"] in _OPEN}
    if definition.get("title") == "Interval":
        properties["high"] = {"type": ["number", "null"], "description": "Null if the interval has no upper end."}
