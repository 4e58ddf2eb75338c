"""The tools `validate`, `plan`, `compare` and `gate`: they start no agent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from whet.decide.comparison import MARGIN
from whet.errors import Problem, UsageError
from whet.mcp_server.answers import (
    CompareAnswer,
    DecidedArms,
    GatePart,
    GateResult,
    Omissions,
    PlanAnswer,
    ValidateAnswer,
)
from whet.mcp_server.calls import load_by_whet, refuse_failed
from whet.mcp_server.project import ServedProject
from whet.model.comparison import CaseChange, Comparison
from whet.reading.text import count, one_line, shorten
from whet.report.decisions.compare import compare, gate

# Importing a Python suite is all that takes time.
_LOADING_S = 120.0
_LINES, _LONGEST = 100, 500
_CASES, _COMPARISONS = 20, 50
_ELSEWHERE = "run whet compare --json RUN in a shell for all of it"


class AskedOfJudge(Struct, frozen=True, kw_only=True):
    """What a gate asks of the judge: to be right so often of 100, to be counted by labels, to find answers better."""

    agreement: float | None = None
    counted: bool = False
    pairwise: bool = False

    @property
    def of_comparisons(self) -> bool:
        """Whether something is asked that only a comparison has."""
        return self.agreement is not None or self.counted


async def validate_path(project: ServedProject, path: str, *, strict: bool) -> ValidateAnswer:
    """Check the suites at *path* as `whet validate` does."""
    place = project.path(path)
    options = ["--json", "--strict"] if strict else ["--json"]
    call = await load_by_whet(["validate", *options, "--", str(place)], cwd=project.root, seconds=_LOADING_S)
    if call.timed_out or call.code not in (0, 2) or not call.out.lines:
        refuse_failed(call, _LOADING_S)
    omissions = Omissions()
    remedy = f"run whet validate {path} in a shell"
    document = _document(call.out.lines)
    warnings = [_problem_line(problem) for problem in (*document["warnings"], *document["not_carried_over"])]
    return ValidateAnswer(
        ok=document["ok"],
        suites=omissions.first([_suite_line(project, file) for file in document["files"]], _LINES, "suites", remedy),
        problems=omissions.first([*map(_problem_line, document["problems"])], _LINES, "problems", remedy),
        warnings=omissions.first(warnings, _LINES, "warnings", remedy),
        left_out=omissions.sentences,
    )


def _suite_line(project: ServedProject, file: Mapping[str, Any]) -> str:
    place = file["file"].replace(f"{project.root}/", "")
    verdict = count(file["warnings"], "warning") if file["warnings"] else "no problems"
    return f"{place}: {file['summary']}, {verdict}"


def _problem_line(fields: Mapping[str, Any]) -> str:
    """Return a problem with its place and its hint in one line."""
    hint = f" ({fields['hint']})" if fields["hint"] else ""
    problem = Problem(file=fields["file"], message=fields["message"], case=fields["case"], field=fields["field"])
    return one_line(f"{problem}{hint}", _LONGEST)


async def plan_decision(
    project: ServedProject, suite: str, *, effect: float, arms: int, power: float, pilot: str | None
) -> PlanAnswer:
    """Say how many trials it takes to find a difference of *effect* points."""
    place = project.path(suite)
    settings = project.settings(place)
    words = [
        f"--effect={effect:g}",
        f"--arms={arms}",
        f"--power={power:g}",
        "--json",
        f"--output-dir={settings.output_dir}",
    ]
    if pilot is not None:
        words.append(f"--from={project.run_folder(pilot, settings).name}")
    call = await load_by_whet(["plan", *words, "--", str(place)], cwd=project.root, seconds=_LOADING_S)
    refuse_failed(call, _LOADING_S)
    document = _document(call.out.lines)
    if "plans" in document:
        names = ", ".join(part["suite"] for part in document["plans"])
        raise UsageError(f"{suite} has several suites: {names}", hint="name one of them")
    cost = document["cost_usd"] or {}
    trials = document["trials"]
    return PlanAnswer(
        trials_per_case_and_arm=trials,
        low=document["low"],
        high=document["high"],
        trials_in_all=trials * document["cases"] * document["arms"] * document["runners"],
        cases=document["cases"],
        arms=document["arms"],
        runners=document["runners"],
        cost_usd_low=cost.get("low"),
        cost_usd_high=cost.get("high"),
        seconds=document["seconds"],
        learned_from_run=document["pilot"],
        next=f"call run with trials={trials} and the arms to compare, the baseline first; "
        "or with until_decided=true, which takes fewer trials as a rule",
    )


def _document(lines: Sequence[str]) -> dict[str, Any]:
    """Return the JSON that a command printed at its end; a Python suite may have printed before it."""
    starts = [number for number, line in enumerate(lines) if line == "{"]
    try:
        document: dict[str, Any] = json.loads("\n".join(lines[starts[-1] :]))
    except (IndexError, ValueError):
        raise UsageError(
            "the suite prints so much while it is loaded that the answer is lost", hint="let its module print less"
        ) from None
    return document


def compare_runs(
    project: ServedProject,
    *,
    run: str,
    earlier_run: str | None,
    arms: Sequence[str],
    margin: float | None,
    shared: bool,
) -> CompareAnswer:
    """Compare arms of a run, or a run with an earlier one."""
    names, settings = _compared_names(project, run, earlier_run, arms)
    outcome = compare(names, settings, margin=_share(margin), shared=shared)
    omissions = Omissions()
    comparisons = omissions.first(outcome.comparisons, _COMPARISONS, "comparisons", _ELSEWHERE)
    lines = omissions.first(list(outcome.lines()), _LINES, "explanation", _ELSEWHERE)
    return CompareAnswer(
        run=outcome.samples.name,
        comparisons=[_decided(comparison, omissions) for comparison in comparisons],
        explanation=[shorten(line, _LONGEST) for line in lines],
        left_out=omissions.sentences,
    )


def _compared_names(
    project: ServedProject, run: str, earlier_run: str | None, arms: Sequence[str]
) -> tuple[list[str], Any]:
    settings = project.settings()
    later = project.run_folder(run, settings).name
    if earlier_run is None:
        return [later, *arms], settings
    if arms:
        raise UsageError(
            "arms are those of one run, and earlier_run compares two", hint="leave out arms or earlier_run"
        )
    return [project.run_folder(earlier_run, settings).name, later], settings


def _share(points: float | None) -> float | None:
    return None if points is None else points / 100


def _decided(comparison: Comparison, omissions: Omissions) -> DecidedArms:
    changes = sorted((case for case in comparison.cases if case.value), key=lambda case: -abs(case.value))
    return DecidedArms(
        baseline=comparison.baseline,
        candidate=comparison.candidate,
        runner=comparison.runner,
        verdict=comparison.verdict,
        difference_points=round(100 * comparison.difference, 2),
        low_points=round(100 * comparison.low, 2),
        high_points=round(100 * comparison.high, 2),
        level=comparison.level,
        changed_cases=omissions.first([_changed(case) for case in changes], _CASES, "changed cases", _ELSEWHERE),
    )


def _changed(case: CaseChange) -> str:
    chance = ", may be chance" if case.may_be_chance else ""
    return f"{case.case}: {case.baseline or 0:.0%} to {case.candidate or 0:.0%}{chance}"


def gate_run(
    project: ServedProject,
    *,
    run: str,
    earlier_run: str | None,
    arms: Sequence[str],
    margin: float | None,
    min_rate: float | None,
    baseline: str | None,
    asked_of_judge: AskedOfJudge,
) -> GateResult:
    """Decide whether a candidate may replace its baseline, or whether enough trials pass."""
    if min_rate is not None and (earlier_run or arms or baseline or asked_of_judge.of_comparisons):
        compared = "earlier_run, arms, stored_baseline, judge_agreement_percent and judge_counted"
        raise UsageError("min_rate_percent is for one run by itself", hint=f"leave out {compared}")
    names, settings = _compared_names(project, run, earlier_run, arms)
    outcome = gate(
        names,
        settings,
        margin=_share(margin) if baseline is None or margin is not None else MARGIN,
        min_rate=_share(min_rate),
        baseline=baseline,
        judge_agreement=_share(asked_of_judge.agreement),
        judge_counted=asked_of_judge.counted,
        pairwise=asked_of_judge.pairwise,
    )
    omissions = Omissions()
    parts = [GatePart(answer=part.answer, reason=one_line(part.reason, _LONGEST)) for part in outcome.gated]
    return GateResult(
        answer=outcome.answer,
        exit_code=outcome.code,
        parts=omissions.first(parts, _LINES, "parts", "name fewer arms"),
        notes=omissions.first(outcome.notes, _LINES, "notes", "run whet gate RUN in a shell"),
        advice=outcome.advice if outcome.answer == "unknown" else None,
        left_out=omissions.sentences,
    )
