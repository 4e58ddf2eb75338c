"""What agents do while they run, for --verbose: a line for each step, below each other and told apart by trial."""

from __future__ import annotations

from itertools import cycle

from whet.model.arm import DEFAULT
from whet.model.run import Execution, Plan, TrialKey
from whet.model.run_events import SessionSeen
from whet.reading.text import fitted, left, one_line, width
from whet.report.finding import describe
from whet.report.screen import Screen, Style

_WIDEST = 200
_NARROWEST = 40
# What an agent does is worth more of a line than the name of its trial.
_WIDEST_NAME = 32
_COLOURS: tuple[Style, ...] = ("cyan", "magenta", "blue")


class SessionLines:
    """Formats what agents do, in a column that fits all names of the plan."""

    def __init__(self, plan: Plan, screen: Screen) -> None:
        self._screen = screen
        widths = (width(_name(execution, execution.trials)) for execution in plan.executions)
        self._width = min(max(widths, default=0), _WIDEST_NAME)
        self._styles: dict[TrialKey, Style] = {}
        self._next_style = cycle(_COLOURS)

    def line(self, progress: SessionSeen) -> str | None:
        """Return a line for what an agent did, after the name of its trial; None if there is nothing to show."""
        text = describe(progress.event)
        if text is None:
            return None
        key = progress.trial.key
        if key not in self._styles:
            self._styles[key] = next(self._next_style)
        name = left(fitted(_name(progress.trial.execution, key.number), self._width), self._width)
        columns = self._screen.columns
        room = _WIDEST if columns is None else max(_NARROWEST, min(_WIDEST, columns - self._width - 5))
        return self._screen.fit(f"  {self._screen.paint(name, self._styles[key])} │ {one_line(text, room)}")


def _name(execution: Execution, number: int) -> str:
    hash_number = f"#{number}" if execution.trials > 1 else ""
    arm = "" if execution.arm == DEFAULT else f"/{one_line(execution.arm)}"
    return f"{one_line(execution.case.id)}{arm}@{one_line(execution.runner.id)}{hash_number}"
