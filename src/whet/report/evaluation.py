"""What people want to know about an evaluation: how each skill did, and why calls did not pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.model.benchmark import CompletionReport, Interval, SampleStatus, Summary
from whet.reading.text import duration, middle, money, number, one_line

_WIDEST_SKILL = 32


def ranked(reports: Sequence[CompletionReport]) -> list[CompletionReport]:
    """Return *reports* with the best composite first."""
    return sorted(reports, key=lambda report: -(report.summary.composite or 0))


def skill_figures(report: CompletionReport) -> dict[str, str]:
    """Return the figures of one skill by the headings of their columns; an unknown one is empty."""
    summary, latency = report.summary, report.summary.latency
    judging, usage = report.judging, report.usage
    return {
        "skill": middle(one_line(report.skill), _WIDEST_SKILL),
        "completion": _completion(summary.completion),
        "score": _score(summary),
        "errors": "" if summary.error_rate is None else f"{summary.error_rate.value * 100:.0f} %",
        "p50": duration(latency.p50_ms / 1000) if latency else "",
        "p95": duration(latency.p95_ms / 1000) if latency else "",
        **{f"pass^{found.k}": f"{found.all:.3f}" for found in summary.passes if found.k > 1},
        **{f"pass@{found.k}": f"{found.at:.3f}" for found in summary.passes if found.k > 1},
        "consistency": "" if summary.consistency is None else f"{summary.consistency:.3f}",
        "composite": "" if summary.composite is None else f"{summary.composite:.3f}",
        "tokens": "" if usage.total_tokens is None else number(usage.total_tokens),
        "judge": "" if judging is None or judging.cost_usd is None else money(judging.cost_usd),
        "errored": _errored(summary),
    }


def _completion(found: Interval | None) -> str:
    """Such as "90 % (60-98 %)"."""
    return "" if found is None else f"{found.value * 100:.0f} % ({found.low * 100:.0f}-{found.high * 100:.0f} %)"


def _score(summary: Summary) -> str:
    if summary.score is None:
        return ""
    around = summary.score_interval
    return f"{summary.score:.3f}" + (f" ({around.low:.2f}-{around.high:.2f})" if around else "")


def _errored(summary: Summary) -> str:
    """Such as "2 (60-80 %)": how many errored, and the completion if all of them had failed or passed."""
    if not summary.errored:
        return ""
    passed = 0 if summary.completion is None else summary.completion.value * (summary.samples - summary.errored)
    least, most = passed / summary.samples, (passed + summary.errored) / summary.samples
    return f"{number(summary.errored)} ({least * 100:.0f}-{most * 100:.0f} %)"


@dataclass(slots=True)
class Shortcoming:
    """Calls that did not pass for the same reason."""

    status: SampleStatus
    reason: str
    count: int = 0
    # In order, each once.
    tasks: dict[str, None] = field(default_factory=dict)


def shortcomings(report: CompletionReport) -> list[Shortcoming]:
    """Group the calls that did not pass by their reason, the most frequent first."""
    found: dict[tuple[str, str], Shortcoming] = {}
    for call in report.calls:
        status = call.sample.status
        if status == "pass":
            continue
        reason = one_line(call.error or call.reason or "no reason was given", 160)
        alike = found.setdefault((status, reason), Shortcoming(status, reason))
        alike.count += 1
        alike.tasks[call.sample.task] = None
    return sorted(found.values(), key=lambda each: -each.count)


def flagged_tasks(report: CompletionReport) -> list[str]:
    """Return the tasks with an answer that speaks to its judge, whether or not it passed."""
    return list(dict.fromkeys(call.sample.task for call in report.calls if call.flags))
