"""Eval suites: the six kinds of cases and the suite around them, with every default filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

from msgspec import Struct, field

from whet.model.suite import Pairwise, Part, Solution, User

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
# What suites of other tools ask for besides: limits of a session, how often one of Claude Code's tools was called and
# the order of two, calls by patterns, alone and in an order, and files by a glob.
ForeignOp = Literal["at_most", "tool_used", "tool_order", "tool_matched", "tools_in_order", "file_created"]
Op = Literal[TextOp, "json_path", CallOp, FileOp, "skill_triggered", ForeignOp]
TEXT_OPS: tuple[Op, ...] = get_args(TextOp)
FILE_OPS: tuple[Op, ...] = get_args(FileOp)
CALL_OPS: tuple[Op, ...] = get_args(CallOp)
# The ops of eval suites.
OPS: tuple[Op, ...] = tuple(op for op in get_args(Op) if op not in get_args(ForeignOp))
TARGETS = ("output", "commands")
# The texts that suites of other tools look at besides: the last message, every line that the agent printed, the paths
# of the files that it made, one a line, and behind the prefix a file.
LAST_MESSAGE, TRACE, CREATED_FILES, FILE_PREFIX = "last_message", "trace", "created_files", "file:"
# The name that any skill has for `skill_triggered`.
ANY_SKILL = "*"

MOST_CASES = 500
LONGEST_TEXT = 200_000
DEFAULT_VERIFIER = "tests/test.sh"
DEFAULT_SKILL_PLACE = "skill-under-test"
DEFAULT_THRESHOLD = 0.7
DEFAULT_SHARE = 0.5


class _Common(Struct, frozen=True, kw_only=True):
    """What a case of every kind may say: its stable id within the suite, and how much it counts."""

    task_id: str | None = None
    tags: tuple[str, ...] = ()
    weight: float = 1.0
    source: str | None = None
    split: Part | None = None


class CalledTool(Struct, frozen=True, kw_only=True):
    """A tool by its name, and a pattern of JavaScript that the JSON of its input matches."""

    tool: str
    input: str | None = None


class ToolMatch(Struct, frozen=True, kw_only=True):
    """Calls by patterns of JavaScript: of the tool's name, of single arguments, and of the result.

    Of all calls of a session only the `final` one, the one at a step from 0, or those before a step may count.
    """

    name: str | None = None
    args: tuple[tuple[str, str], ...] = ()
    result: str | None = None
    final: bool = False
    at_step: int | None = None
    before_step: int | None = None


class Assertion(Struct, frozen=True, kw_only=True):
    """One thing that is true of the answer, the session or the workspace, or with `negate` is not.

    `target` is what is looked at: a text by name, a file by path, a place in JSON by pointer. `has_value` is
    true also for a value of null. If the path is a `pattern`, one file that it matches is enough.
    `least` and `most` say how often a `regex` matches, or a tool is called.
    With a `turn` it is about that turn of a conversation alone.
    """

    op: Op
    target: str | None = None
    value: Any = None
    has_value: bool = False
    negate: bool = False
    description: str | None = None
    pattern: bool = False
    least: int | None = None
    most: int | None = None
    turn: int | None = None


class EvalTurn(Struct, frozen=True, kw_only=True):
    """One prompt of a conversation, and what is true when it is answered; `soft` goes on if it is not."""

    instruction: str
    assertions: tuple[Assertion, ...] = ()
    soft: bool = False


class _PromptedCase(_Common, frozen=True, kw_only=True):
    """What the agent is asked: `instruction` is also the first of its `turns`, or what its `user` says first."""

    instruction: str
    turns: tuple[EvalTurn, ...] = ()
    user: User | None = None
    # An answer that passes, for an audit.
    solution: Solution | None = None
    # What a judge is asked of pairs of its answers.
    pairwise: Pairwise | None = None


class TriggerQuery(_Common, frozen=True, kw_only=True):
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


class RubricItem(Struct, frozen=True, kw_only=True):
    """One thing that a judge looks for; a required one that is missing fails the case, whatever the rest scores."""

    id: str
    description: str
    weight: float = 1.0
    required: bool = False


class JudgeHints(Struct, frozen=True, kw_only=True):
    """Which model should judge, and how often it is asked; with `majority`, each vote is a yes or a no."""

    model: str | None = None
    votes: int | None = None
    majority: bool = False


class LlmRubric(_PromptedCase, frozen=True, kw_only=True):
    """An answer that a judge holds against a rubric; with a `focus`, another text, by the names of assertions."""

    kind: ClassVar[Literal["llm_rubric"]] = "llm_rubric"
    rubric: tuple[RubricItem, ...]
    pass_threshold: float = DEFAULT_THRESHOLD
    judge: JudgeHints = JudgeHints()
    reference: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    focus: str | None = None


class JavascriptCall(Struct, frozen=True, kw_only=True):
    """An assertion in JavaScript as promptfoo calls it: an expression, the body of a function, or one in a file.

    The function may return true or false, a number that passes from the threshold on, or an object with `pass` and
    `score`.
    """

    code: str = ""
    file: str | None = None
    function: str = ""
    threshold: float | None = None
    negate: bool = False
    prompt: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    config: Any = None


class ExactMatch(_PromptedCase, frozen=True, kw_only=True):
    """An answer that is this value; `path` is a JSON pointer into it."""

    kind: ClassVar[Literal["exact_match"]] = "exact_match"
    expected: Any
    path: str | None = None
    case_sensitive: bool = True
    trim: bool = True
    numeric_tolerance: float = 0.0


class JsonSchema(_PromptedCase, frozen=True, kw_only=True):
    """An answer that is JSON of this shape."""

    kind: ClassVar[Literal["json_schema"]] = "json_schema"
    schema: Any
    extract: Extract = "whole"


class BooleanAssertion(_PromptedCase, frozen=True, kw_only=True):
    """Assertions of which all hold, or any."""

    kind: ClassVar[Literal["boolean_assertion"]] = "boolean_assertion"
    assertions: tuple[Assertion, ...]
    match: Match = "all"


class ResourceHints(Struct, frozen=True, kw_only=True):
    """What a task package takes to run; `more` holds hints of others, which are kept and not followed."""

    working_dir: str = "."
    timeout_ms: float | None = None
    oracle_timeout_ms: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)


class TaskPackage(_Common, frozen=True, kw_only=True):
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


class EvalSuite(Struct, frozen=True, kw_only=True):
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
    """Return the name and the description of a competing skill, or None if *text* is the path of a folder."""
    match = _DESCRIBED.fullmatch(text)
    return (match[1], match[2].strip()) if match else None
