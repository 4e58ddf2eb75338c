"""Expectations over the answer of the agent, as text or JSON, and over what the session took."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import isnan
from typing import Any, Literal, Unpack, get_args

from whet.grade.expect.group import Group, Report, Words, session_of, shorten, with_length
from whet.grade.expect.matching import TextMatcher, check_matcher, check_predicate, matches, says, shown
from whet.model.run import figure

TokenKind = Literal["total", "input", "output", "cached", "cache_write", "reasoning"]
_KINDS: tuple[TokenKind, ...] = get_args(TokenKind)
_SHOWN = 1000
_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\n(.*)\n```\s*\Z", re.DOTALL)


class OutputGroup(Group):
    """Expectations over the final output."""

    def includes(self, report: Report, matcher: TextMatcher, **words: Unpack[Words]) -> None:
        """It matches."""
        check_matcher(matcher)
        output = session_of(report).final_output
        self._miss(None if matches(matcher, output) else f"the output to match {shown(matcher)}", output, words)

    def not_includes(self, report: Report, matcher: TextMatcher, **words: Unpack[Words]) -> None:
        """It does not match."""
        check_matcher(matcher)
        output = session_of(report).final_output
        self._miss(f"the output not to match {shown(matcher)}" if matches(matcher, output) else None, output, words)

    def not_empty(self, report: Report, **words: Unpack[Words]) -> None:
        """It says something other than white space."""
        output = session_of(report).final_output
        self._miss(None if output.strip() else "some output", output, words)

    def json(self, report: Report, where: Callable[[Any], bool] | None = None, **words: Unpack[Words]) -> Any:
        """It is JSON, also inside one fenced block, and satisfies *where*; the value that it is."""
        if where is not None:
            check_predicate(where, "where is a function of the value")
        output = session_of(report).final_output
        value, expected = _parse(output)
        if expected is None and where is not None and not says(where, value):
            expected = f"the output to be JSON that satisfies {shown(where)}"
        self._miss(expected, output, words)
        return value

    def matches_schema(self, report: Report, schema: Mapping[str, Any] | bool, **words: Unpack[Words]) -> Any:
        """It is JSON that this JSON Schema (2020-12 unless it says otherwise) allows; the value that it is."""
        find_problems = _schema(schema)
        output = session_of(report).final_output
        value, expected = _parse(output)
        if expected is None and (problems := find_problems(value)):
            expected = "\n  ".join(("the output to match the schema, but", *problems))
        self._miss(expected, output, words)
        return value

    def _miss(self, expected: str | None, output: str, words: Words) -> None:
        """Fail if something else than the output was expected."""
        observed = f"observed {with_length(output)}" if output else "observed no output"
        self._expect(expected and f"expected {expected}\n{observed}", words)


class UsageGroup(Group):
    """Ceilings; a figure that is unknown or a guess does not hold."""

    def tokens(self, report: Report, *, at_most: int, kind: TokenKind = "total", **words: Unpack[Words]) -> None:
        """So many tokens of this kind, or fewer."""
        if kind not in _KINDS:
            raise ValueError(f'kind is one of {", ".join(_KINDS)}, not "{kind}"')
        seen = session_of(report).usage.reported(f"{kind}_tokens")
        self._expect(_above(at_most, f"{kind.replace('_', ' ')} tokens", seen), words)

    def cost(self, report: Report, *, at_most: float, **words: Unpack[Words]) -> None:
        """So many US dollars, or fewer."""
        self._expect(_above(at_most, "US dollars", session_of(report).usage.cost_usd), words)

    def steps(self, report: Report, *, at_most: int, **words: Unpack[Words]) -> None:
        """So many model rounds, or fewer."""
        self._expect(_above(at_most, "steps", session_of(report).steps), words)

    def duration(self, report: Report, *, at_most_s: float, **words: Unpack[Words]) -> None:
        """So many seconds, or fewer."""
        self._expect(_above(at_most_s, "seconds", session_of(report).duration_s), words)


def _above(most: float, unit: str, seen: float | None) -> str | None:
    """Return what is wrong unless at most so much was *seen*."""
    foreign: object = most
    if isinstance(foreign, bool) or not isinstance(foreign, int | float) or isnan(foreign):
        raise TypeError(f"a limit is a number, not {most!r}")
    wanted = f"at most {figure(most)} {unit.removesuffix('s') if most == 1 else unit}"
    if seen is None:
        return f"expected {wanted}, but the agent did not report it"
    return f"expected {wanted}, observed {figure(seen)}" if seen > most else None


def _parse(text: str) -> tuple[Any, str | None]:
    """Return the value of *text*, and what was expected instead if it has none."""
    fenced = _FENCE.match(text)
    try:
        return json.loads(fenced.group(1) if fenced else text), None
    except (ValueError, RecursionError) as error:
        return None, f"the output to be JSON, but {error}"


def _schema(schema: Mapping[str, Any] | bool) -> Callable[[Any], list[str]]:
    """Return a function that finds the problems of a value; raises `ValueError` for an invalid schema."""
    # Only here: a check that needs no schema should not wait for the library.
    import jsonschema_rs  # noqa: PLC0415

    if not isinstance(schema, Mapping | bool):
        raise TypeError(f"a schema is a map, not a {type(schema).__name__}")
    try:
        validator = jsonschema_rs.validator_for(
            schema if isinstance(schema, bool) else dict(schema), retriever=_stay_inside
        )
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        reason = getattr(error, "message", None) or str(error)
        raise ValueError(f"this is not a JSON Schema: {shorten(reason, _SHOWN)}") from None

    def find_problems(value: Any) -> list[str]:
        most = 10
        found = [
            f"{'/'.join(map(str, error.instance_path)) or '(the whole)'}: {shorten(error.message)}"
            for error, _ in zip(validator.iter_errors(value), range(most + 1), strict=False)
        ]
        return found if len(found) <= most else [*found[:most], "and more"]

    return find_problems


def _stay_inside(address: str) -> Any:
    # A check that asks a server decides differently when the server does.
    raise ValueError(f"{address} is outside of the schema, and whet fetches nothing")
