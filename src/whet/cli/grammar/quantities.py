"""Times, shares and points as people type them: with a unit, or as a bare number in the unit of the command."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isnan
from typing import Any, Literal

import click

from whet.cli.grammar.application import TYPED

TimeUnit = Literal["ms", "s", "days"]
_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "days": 86_400_000}
_PIECE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d)")
_BARE = re.compile(r"[0-9]+(?:\.[0-9]+)?")
# Ten years: a longer time is a mistake.
_MOST_MS = 315_360_000_000
TIME_METAVAR = "TIME"
_EXAMPLES: Mapping[TimeUnit, str] = {"ms": "30s, 500ms or 2m", "s": "30s, 500ms or 2m", "days": "30d or 12h"}


class Duration(click.ParamType[int]):
    """A time such as 500ms, 30s, 2m or 1h30m, in whole milliseconds; a bare number is in the *unit* of the command."""

    name = "time"

    def __init__(self, unit: TimeUnit) -> None:
        self.unit = unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return *value* in milliseconds; says how a bare number is read, because commands differ in it."""
        if isinstance(value, int):
            return value
        text = str(value).strip().lower()
        time_ms = self._read(text)
        if time_ms is None:
            self.fail(f"'{value}' is not a time: write {_EXAMPLES[self.unit]}", param, ctx)
        if not 1 <= time_ms <= _MOST_MS:
            self.fail(f"{value} must be more than 0 and at most ten years", param, ctx)
        if _BARE.fullmatch(text):
            _say_unit(text, self.unit, param, ctx)
        return max(1, round(time_ms))

    def _read(self, text: str) -> float | None:
        if _BARE.fullmatch(text):
            return float(text) * _MS[self.unit]
        pieces = _PIECE.findall(text)
        if not pieces or _PIECE.sub("", text).strip():
            return None
        return sum(float(number) * _MS[unit] for number, unit in pieces)


def _say_unit(text: str, unit: TimeUnit, param: click.Parameter | None, ctx: click.Context | None) -> None:
    """Print how a bare number is read, unless the name that was typed ends in its unit."""
    if param is None or ctx is None or ctx.resilient_parsing:
        return
    words = [word.partition("=")[0] for word in ctx.meta.get(TYPED, ())]
    flag = next((name for name in param.opts if name in words), None)
    if flag is not None:
        short = "d" if unit == "days" else unit
        click.echo(f"note: {flag} {text} is {text} {unit}; write {text}{short} to be clear", err=True)


class Number(click.FloatRange):
    """A number in a range, which NaN is not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return *value* as a number."""
        number = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number", param, ctx) if isnan(number) else number


class Share(Number):
    """A share from 0 to 1 that may also be typed as a percentage: 0.7 or 70%."""

    name = "share"

    def __init__(self) -> None:
        super().__init__(0, 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return *value* as a share."""
        text = str(value).strip()
        if text.endswith("%"):
            percent = Percent(0, 100).convert(text, param, ctx)
            return percent / 100
        return super().convert(value, param, ctx)


class Percent(Number):
    """A number of points or percent of 100, with or without its sign: 80 or 80%."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return *value* without its sign."""
        return super().convert(str(value).strip().removesuffix("%"), param, ctx)


class Points(Percent):
    """A difference in points of 100. Less than one is noted: it is rarely what was meant."""

    name = "points"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return *value* in points."""
        points = super().convert(value, param, ctx)
        is_typed = isinstance(value, str) and param is not None
        if is_typed and 0 < points < 1:
            assert param is not None
            click.echo(f"note: {param.opts[0]} {value} is less than one point of 100; 5 is five points", err=True)
        return points


def min_completion(help_text: str) -> Callable[[Any], Any]:
    """Return the option for the least share of tasks that a skill has to complete."""
    return click.option("--min-completion", type=Share(), metavar="RATE", help=help_text)
