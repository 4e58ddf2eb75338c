"""Eval suites: the six kinds of cases and the suite around them, with every default settled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal, get_args

from whet.dataclass import dataclass
from whet.model.suite import Solution, User

SourceKind = Literal["manual", "imported", "contributor_aggregate", "org_exemplars"]
SOURCE_KINDS: tuple[SourceKind, ...] = get_args(SourceKind)
VerifierKind = Literal["llm_judge", "deterministic", "structured_rubric"]
VERIFIER_KINDS: tuple[VerifierKind, ...] = get_args(VerifierKind)
Expectation = Literal["should_trigger", "should_not_trigger"]
EXPECTATIONS: tuple[Expectation, ...] = get_args(Expectation)
InvocationType = Literal["explicit", "implicit", "contextual", "negative"]
INVOCATION_TYPES: tuple[InvocationType, ...] = get_args(InvocationType)
Extract = Literal["whole", "first_json_block"]
EXTRACTS: tuple[Extract, ...] = get_args(Extract)
Match = Literal["all", "any"]
MATCHES: tuple[Match, ...] = get_args(Match)
TextOp = Literal["contains", "not_contains", "equals", "regex"]
FileOp = Literal["file_exists", "file_contains", "file_matches"]
CallOp = Literal["tool_called", "tool_not_called", "command_run"]
Op = Literal[TextOp, "json_path", CallOp, FileOp, "skill_triggered", "at_most"]
TEXT_OPS: tuple[Op, ...] = get_args(TextOp)
FILE_OPS: tuple[Op, ...] = get_args(FileOp)
CALL_OPS: tuple[Op, ...] = get_args(CallOp)
# The ops of eval suites; suites of other tools also say what a session may take at most.
OPS: tuple[Op, ...] = tuple(op for op in get_args(Op) if op != "at_most")
TARGETS = ("output", "commands")

MOST_CASES = 500
LONGEST_TEXT = 200_000
DEFAULT_VERIFIER = "tests/test.sh"
DEFAULT_SKILL_PLACE = "skill-under-test"
DEFAULT_THRESHOLD = 0.7
DEFAULT_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    """What a case of every kind may say: its stable id within the suite, and how much it counts."""

    task_id: str | None = None
    tags: tuple[str, ...] = ()
    weight: float = 1.0
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """One thing that is true of the answer, the session or the workspace, or with `negate` is not.

    `target` is what is looked at: a text by name, a file by path, a place in JSON by pointer. `has_value` is
    true also for a value of null. If the path is a `pattern`, one file that it matches is enough.
    """

    op: Op
    target: str | None = None
    value: Any = None
    has_value: bool = False
    negate: bool = False
    description: str | None = None
    pattern: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalTurn:
    """One prompt of a conversation, and what is true when it is answered; `soft` goes on if it is not."""

    instruction: str
    assertions: tuple[Assertion, ...] = ()
    soft: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked(_Common):
    """What the agent is asked: `instruction` is also the first of its `turns`, or what its `user` says first."""

    instruction: str
    turns: tuple[EvalTurn, ...] = ()
    user: User | None = None
    # An answer that passes, for an audit.
    solution: Solution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerQuery(_Common):
    """Whether the skill is loaded for a query, among competing skills.

    `threshold` is the share of a judge's votes that decides; `runs` is how often is asked.
    """

    kind: ClassVar[Literal["trigger_query"]] = "trigger_query"
    query: str
    expectation: Expectation
    invocation_type: InvocationType | None = None
    competing_skills: tuple[str, ...] = ()
    runs: int | None = None
    threshold: float = DEFAULT_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricItem:
    """One thing that a judge looks for; a required one that is missing fails the case, whatever the rest scores."""

    id: str
    description: str
    weight: float = 1.0
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeHints:
    """Which model should judge, and how often it is asked."""

    model: str | None = None
    votes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmRubric(_Asked):
    """An answer that a judge holds against a rubric."""

    kind: ClassVar[Literal["llm_rubric"]] = "llm_rubric"
    rubric: tuple[RubricItem, ...]
    pass_threshold: float = DEFAULT_THRESHOLD
    judge: JudgeHints = JudgeHints()
    reference: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMatch(_Asked):
    """An answer that is this value; `path` is a JSON pointer into it."""

    kind: ClassVar[Literal["exact_match"]] = "exact_match"
    expected: Any
    path: str | None = None
    case_sensitive: bool = True
    trim: bool = True
    numeric_tolerance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema(_Asked):
    """An answer that is JSON of this shape."""

    kind: ClassVar[Literal["json_schema"]] = "json_schema"
    schema: Any
    extract: Extract = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class BooleanAssertion(_Asked):
    """Assertions of which all hold, or any."""

    kind: ClassVar[Literal["boolean_assertion"]] = "boolean_assertion"
    assertions: tuple[Assertion, ...]
    match: Match = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceHints:
    """What a task package takes to run; `more` holds hints of others, which are kept and not followed."""

    working_dir: str = "."
    timeout_ms: float | None = None
    oracle_timeout_ms: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPackage(_Common):
    """An archive or folder with an environment and a verifier; paths are relative to its root."""

    kind: ClassVar[Literal["task_package"]] = "task_package"
    environment_ref: str
    instruction: str | None = None
    environment_sha256: str | None = None
    verifier_ref: str = DEFAULT_VERIFIER
    skill_bundle_ref: str = DEFAULT_SKILL_PLACE
    oracle_ref: str | None = None
    resource_hints: ResourceHints = ResourceHints()


EvalCase = TriggerQuery | LlmRubric | ExactMatch | JsonSchema | BooleanAssertion | TaskPackage
CaseKind = Literal["trigger_query", "llm_rubric", "exact_match", "json_schema", "boolean_assertion", "task_package"]
CASE_KINDS: tuple[CaseKind, ...] = get_args(CaseKind)
SuiteKind = CaseKind | Literal["mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSuite:
    """An eval suite as its document says it."""

    name: str
    source_kind: SourceKind
    verifier_kind: VerifierKind
    cases: tuple[EvalCase, ...]
    source_id: str | None = None
    supports_no_skill: bool = False
    resource_limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def timeout_ms(self) -> float | None:
        """The time limit of cases that say none."""
        return self.resource_limits.get("timeout_ms")


_DESCRIBED = re.compile(r"\s*([a-z0-9][a-z0-9-]{0,63})\s*:\s+(\S.*)", re.DOTALL)


def competitor_of(text: str) -> tuple[str, str] | None:
    """Return its name and description, or None if *text* is the path of a folder."""
    found = _DESCRIBED.fullmatch(text)
    return (found[1], found[2].strip()) if found else None
