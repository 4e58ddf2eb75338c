"""How well skills were loaded, in words: figures of each arm, a row for each query, and sessions that ended early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from whet.decide.scores import wilson_interval
from whet.model.arm import DEFAULT
from whet.model.callable import Interval
from whet.model.grade import QueryLoads, TriggerFigures
from whet.model.run import TrialResult
from whet.model.run_events import Results
from whet.reading.text import aligned, count, one_line, percent, percent_range

TRIGGERS = "Triggers"
_SHOWN = 80
_OTHERS_SHOWN = 5


class SessionCost(Struct, frozen=True):
    """What one session of an execution took, by the name of the execution."""

    execution: str
    rounds: int
    seconds: float
    cost_usd: float | None

    @classmethod
    def of(cls, result: TrialResult) -> SessionCost:
        """Return what the session of *result* took."""
        key = result.key
        name = f"{key.case}@{key.runner}/{key.arm}"
        return cls(name, result.steps, result.session_s or 0.0, result.usage.cost_usd)


class TriggerReport(Struct, frozen=True, kw_only=True):
    """What the end of a run says of triggers; *prompts* are those of its cases."""

    figures: tuple[TriggerFigures, ...] = ()
    prompts: Mapping[str, str] = {}
    early: int = 0
    sessions: int = 0
    saved: str = ""

    def __bool__(self) -> bool:
        return bool(self.figures or self.early)

    def lines(self) -> Iterator[str]:
        """Yield the figures of each arm on each runner, and how many sessions were ended early."""
        yield from aligned([(*self._names(figures), *_shares(figures)) for figures in self.figures])
        if self.figures:
            most = max(len(figures.queries) for figures in self.figures)
            yield f"95 % intervals over {count(most, 'query', 'queries')}, each the wider of a bootstrap and Wilson's"
        if self.early:
            yield f"ended early: {self.early:,} of {count(self.sessions, 'session')}; {self.saved}"

    def _names(self, figures: TriggerFigures) -> tuple[str, ...]:
        arms = {figures_of_arm.arm for figures_of_arm in self.figures}
        runner = one_line(figures.runner, _SHOWN)
        return (runner,) if arms == {DEFAULT} else (runner, one_line(figures.arm, _SHOWN))

    def rows(self, *, all_queries: bool) -> list[tuple[str, ...]]:
        """Return a row for each query, or only for those that did not go as they should or loaded other skills."""
        return [
            (*self._names(figures), *self._row(query))
            for figures in self.figures
            for query in figures.queries
            if all_queries or query.others or not query.is_right
        ]

    @property
    def columns(self) -> tuple[str, ...]:
        """The headings of the rows."""
        names = ("runner", "arm") if self.figures and len(self._names(self.figures[0])) > 1 else ("runner",)
        return (*names, "case", "should", "loaded", "others loaded", "prompt")

    def _row(self, query: QueryLoads) -> tuple[str, ...]:
        should = "load it" if query.wanted else "leave it"
        prompt = one_line(self.prompts.get(query.case, ""), _SHOWN)
        return one_line(query.case, _SHOWN), should, _loaded(query), _others(query), prompt


def read_triggers(
    results: Results, figures: tuple[TriggerFigures, ...], early: Sequence[SessionCost], run_dir: Path
) -> TriggerReport:
    """Return what *figures* say of triggers; *early* are the sessions of the run in *run_dir* that were ended early."""
    prompts = {execution.case.id: execution.case.prompt for execution in results.plan.executions}
    ended = results.counts.get("total", 0) - results.counts.get("not-run", 0)
    return TriggerReport(
        figures=figures,
        prompts=prompts,
        early=len(early),
        sessions=ended,
        saved=_saved_text(early, run_dir) if early else "",
    )


def _saved_text(early: Sequence[SessionCost], run_dir: Path) -> str:
    # Only now: most runs read no earlier one.
    text: str = import_module("whet.report.saved").saved_text(early, run_dir)
    return text


def _shares(figures: TriggerFigures) -> Sequence[str]:
    counts = [
        f"{figures.rightly:,} loaded rightly",
        f"{figures.wrongly:,} wrongly",
        f"{figures.missed:,} missed",
        f"{figures.left_alone:,} left alone",
        *([f"{figures.unknown:,} not known"] if figures.unknown else []),
    ]
    return (
        f"precision {_share(figures.precision)}",
        f"recall {_share(figures.recall)}",
        f"F1 {_share(figures.f1)}",
        ", ".join(counts),
    )


def _share(share: Interval | None) -> str:
    return "not known" if share is None else f"{percent(share.value)} ({percent_range(share.low, share.high)})"


def _loaded(query: QueryLoads) -> str:
    """Return how often a query loaded the skill, with the interval of that rate if there are several sessions."""
    if not query.told:
        return "not known"
    text = f"{query.loaded:,} of {query.told:,}"
    if query.told == 1:
        return text
    return f"{text} ({percent_range(*wilson_interval(query.loaded / query.told, query.told))})"


def _others(query: QueryLoads) -> str:
    by_number = sorted(query.others.items(), key=lambda other: (-other[1], other[0]))
    shown_others = [f"{one_line(name, _SHOWN)} {number:,}" for name, number in by_number[:_OTHERS_SHOWN]]
    hidden = len(by_number) - len(shown_others)
    return ", ".join([*shown_others, *([f"{hidden:,} more"] if hidden else [])])
