"""What a suite is, and whether a service runs it: the rules of its verifier families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from whet.evals.kinds import CaseKind, EvalCase, EvalSuite, SuiteKind, TaskPackage, VerifierKind

FAMILIES: Mapping[VerifierKind, frozenset[CaseKind]] = {
    "llm_judge": frozenset({"trigger_query", "llm_rubric"}),
    "deterministic": frozenset({"exact_match", "json_schema", "boolean_assertion", "task_package"}),
    "structured_rubric": frozenset(),
}


# What a service must have to run a suite: an agent, a judge, and the buckets of packages by their scheme.
Need = Literal["agent", "judge", "r2", "s3"]
_BUCKETS: tuple[Need, ...] = ("r2", "s3")
# A judge decides the one if there is no agent, and the verifier alone the other.
WITHOUT_AGENT: frozenset[CaseKind] = frozenset({"trigger_query", "task_package"})


def needs_of(suite: EvalSuite, *, agent: bool = True) -> tuple[Need, ...]:
    """What the suite cannot be run without; with no *agent*, a judge decides whether a skill is triggered."""
    needs: list[Need] = []
    for case in suite.cases:
        if case.kind not in WITHOUT_AGENT:
            needs.append("agent")
        if case.kind == "llm_rubric" or (case.kind == "trigger_query" and not agent):
            needs.append("judge")
        if isinstance(case, TaskPackage):
            scheme = case.environment_ref.partition("://")[0].lower()
            needs += [need for need in _BUCKETS if need == scheme]
    return tuple(sorted(set(needs)))


def suite_kind(cases: Sequence[EvalCase]) -> SuiteKind:
    """The kind that all cases have, or `mixed`."""
    kinds = {case.kind for case in cases}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def not_runnable_reasons(suite: EvalSuite) -> tuple[str, ...]:
    """Why a service does not run the suite; none where it does. The command line runs whatever can run."""
    reasons: list[str] = []
    if suite.source_kind not in {"manual", "imported"}:
        reasons.append(f"source_kind {suite.source_kind} is not runnable; manual and imported are")
    if suite.source_kind == "imported":
        if suite.verifier_kind != "deterministic":
            reasons.append(f"an imported suite must be deterministic, not {suite.verifier_kind}")
        if suite_kind(suite.cases) != "task_package":
            reasons.append("every case of an imported suite must be a task_package")
    if suite.verifier_kind == "structured_rubric":
        reasons.append("verifier_kind structured_rubric is not runnable; llm_judge and deterministic are")
    else:
        reasons += _outside_family(suite)
    return tuple(reasons)


def _outside_family(suite: EvalSuite) -> list[str]:
    """A line for each kind that the suite's verifier does not decide, with where it stands."""
    places: dict[str, list[int]] = {}
    for index, case in enumerate(suite.cases):
        if case.kind not in FAMILIES[suite.verifier_kind]:
            places.setdefault(case.kind, []).append(index)
    return [
        f"verifier_kind {suite.verifier_kind} does not allow {kind} (cases_json[{found[0]}]"
        + (f" and {len(found) - 1} more)" if len(found) > 1 else ")")
        for kind, found in places.items()
    ]
