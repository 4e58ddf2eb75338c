"""Finding skills by words, tags and kind, and choosing among them by how they did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from whet.fields import Fields
from whet.model.completion import CompletionReport
from whet.model.skill import ADAPTERS, Adapter, CallableSkill

SortBy = Literal["compositeScore", "completionRate", "latency", "tokenCost"]
SORTS: tuple[SortBy, ...] = ("compositeScore", "completionRate", "latency", "tokenCost")
_ORDERS = ("desc", "asc")
_NAME, _DESCRIPTION, _TAG = 3, 2, 1


def search(
    skills: Iterable[CallableSkill],
    *,
    query: str = "",
    tags: Sequence[str] = (),
    adapter: Adapter | None = None,
    min_completion: float | None = None,
) -> list[CallableSkill]:
    """The skills that fit, the best first: by where the query stands, or without one by what they reached before."""
    fitting = [
        skill
        for skill in skills
        if set(tags) <= set(skill.tags)
        and (adapter is None or skill.adapter == adapter)
        and (min_completion is None or best_before(skill) >= min_completion)
    ]
    if not query:
        return sorted(fitting, key=best_before, reverse=True)
    points = {skill.id: _points(skill, query.casefold()) for skill in fitting}
    found = [skill for skill in fitting if points[skill.id]]
    return sorted(found, key=lambda skill: points[skill.id], reverse=True)


def best_before(skill: CallableSkill) -> float:
    """The best completion rate that the skill's own manifest tells of."""
    told = skill.metadata.get("benchmarkResults")
    rates = [item.get("completionRate") for item in told if isinstance(item, Mapping)] if isinstance(told, list) else []
    return max((float(rate) for rate in rates if isinstance(rate, int | float)), default=0.0)


def _points(skill: CallableSkill, query: str) -> int:
    return (
        _NAME * (query in skill.name.casefold())
        + _DESCRIPTION * (query in skill.description.casefold())
        + _TAG * any(query in tag.casefold() for tag in skill.tags)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Which skills are good enough, and in which order; bounds are part of what is allowed."""

    min_completion: float | None = None
    max_errors: float | None = None
    max_p95_ms: float | None = None
    adapters: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    sort_by: SortBy = "compositeScore"
    descending: bool = True
    top: int | None = None


def read_strategy(fields: Fields) -> Strategy:
    """A strategy as it is written; what is wrong is noted in *fields*."""
    fields.mention_unknown(("filters", "sortBy", "order", "topK"))
    filters = fields.table("filters")
    filters.mention_unknown(("minCompletionRate", "maxErrorRate", "maxLatencyP95Ms", "adapterTypes", "requiredTags"))
    sort = fields.choice("sortBy", SORTS)
    adapters = filters.texts("adapterTypes")
    for name in adapters:
        if name not in ADAPTERS:
            filters.problem("adapterTypes", f'holds "{name}", which is none of {", ".join(ADAPTERS)}')
    top = fields.number("topK", least=0)
    return Strategy(
        min_completion=filters.number("minCompletionRate", least=0, most=1.0),
        max_errors=filters.number("maxErrorRate", least=0, most=1.0),
        max_p95_ms=filters.number("maxLatencyP95Ms"),
        adapters=adapters,
        tags=filters.texts("requiredTags"),
        sort_by=next((word for word in SORTS if word == sort), "compositeScore"),
        descending=fields.choice("order", _ORDERS) != "asc",
        top=int(top) if top else None,
    )


def select(
    skills: Iterable[CallableSkill], reports: Iterable[CompletionReport], strategy: Strategy
) -> list[tuple[CallableSkill, CompletionReport]]:
    """The skills with a report that are good enough, the best first; of equals the one with the smaller id."""
    by_skill = {report.skill: report for report in reports}
    pairs = [(skill, by_skill[skill.id]) for skill in skills if skill.id in by_skill]
    kept = [(skill, report) for skill, report in pairs if _fits(skill, report, strategy)]
    kept.sort(key=lambda pair: pair[0].id)
    known = [pair for pair in kept if _figure(pair[1], strategy.sort_by) is not None]
    unknown = [pair for pair in kept if _figure(pair[1], strategy.sort_by) is None]
    known.sort(key=lambda pair: _figure(pair[1], strategy.sort_by) or 0, reverse=strategy.descending)
    return [*known, *unknown][: strategy.top]


def _fits(skill: CallableSkill, report: CompletionReport, strategy: Strategy) -> bool:
    summary = report.summary
    completion = summary.completion.value if summary.completion else 0.0
    errors = summary.error_rate.value if summary.error_rate else 1.0
    p95_ms = summary.latency.p95_ms if summary.latency else inf
    return (
        (strategy.min_completion is None or completion >= strategy.min_completion)
        and (strategy.max_errors is None or errors <= strategy.max_errors)
        and (strategy.max_p95_ms is None or p95_ms <= strategy.max_p95_ms)
        and (not strategy.adapters or skill.adapter in strategy.adapters)
        and set(strategy.tags) <= set(skill.tags)
    )


def _figure(report: CompletionReport, sort_by: SortBy) -> Any:
    summary = report.summary
    match sort_by:
        case "compositeScore":
            return summary.composite
        case "completionRate":
            return summary.completion.value if summary.completion else None
        case "latency":
            return summary.latency.p95_ms if summary.latency else None
        case "tokenCost":
            return report.usage.cost_usd
