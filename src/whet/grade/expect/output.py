"""Expectations over the answer of the agent, as text or JSON, and over what the session took."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import isnan
from typing import Any, Literal, get_args

from whet.grade.expect.group import Group, Report, Words, characters, session_of, shorten
from whet.grade.expect.matching import TextMatcher, check_matcher, check_predicate, matches, says, shown
from whet.model.run import figure

TokenKind = Literal["total", "input", "output", "cached", "cache_write", "reasoning"]
_KINDS: tuple[TokenKind, ...] = get_args(TokenKind)
_SHOWN = 1000
_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\n(.*)\n```\s*\Z", re.DOTALL)


class OutputGroup(Group):
    """Expectations over the final output."""

    def includes(
        self, report: Report, matcher: TextMatcher, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """It matches."""
        check_matcher(matcher)
        if not matches(matcher, session_of(report).final_output):
            self._miss(f"the output to match {shown(matcher)}", report, Words(message, explain))

    def not_includes(
        self, report: Report, matcher: TextMatcher, *, message: str | None = None, explain: str | None = None
    ) -> None:
        """It does not match."""
        check_matcher(matcher)
        if matches(matcher, session_of(report).final_output):
            self._miss(f"the output not to match {shown(matcher)}", report, Words(message, explain))

    def not_empty(self, report: Report, *, message: str | None = None, explain: str | None = None) -> None:
        """It says something other than white space."""
        if not session_of(report).final_output.strip():
            self._miss("some output", report, Words(message, explain))

    def json(
        self,
        report: Report,
        where: Callable[[Any], bool] | None = None,
        *,
        message: str | None = None,
        explain: str | None = None,
    ) -> Any:
        """It is JSON, also inside one fenced block, and satisfies *where*; the value that it is."""
        if where is not None:
            check_predicate(where, "where is a function of the value")
        value, problem = _parse(session_of(report).final_output)
        if problem is not None:
            self._miss(f"the output to be JSON, but {problem}", report, Words(message, explain))
        elif where is not None and not says(where, value):
            self._miss(f"the output to be JSON that satisfies {shown(where)}", report, Words(message, explain))
        return value

    def matches_schema(
        self,
        report: Report,
        schema: Mapping[str, Any] | bool,
        *,
        message: str | None = None,
        explain: str | None = None,
    ) -> Any:
        """It is JSON that this JSON Schema (2020-12 unless it says otherwise) allows; the value that it is."""
        find_problems = _schema(schema)
        value, problem = _parse(session_of(report).final_output)
        if problem is not None:
            self._miss(f"the output to be JSON, but {problem}", report, Words(message, explain))
            return value
        problems = find_problems(value)
        if problems:
            listed = "".join(f"\n  {problem}" for problem in problems)
            self._miss(f"the output to be as its schema says, but{listed}", report, Words(message, explain))
        return value

    def _miss(self, expected: str, report: Report, words: Words) -> None:
        output = session_of(report).final_output
        observed = f"observed {characters(output)}: {shorten(output, _SHOWN)}" if output else "observed no output"
        self._say(f"expected {expected}\n{observed}", words)


class UsageGroup(Group):
    """Ceilings; a figure that is unknown or a guess does not hold."""

    def tokens(
        self,
        report: Report,
        *,
        at_most: int,
        kind: TokenKind = "total",
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """So many tokens of this kind, or fewer."""
        if kind not in _KINDS:
            raise ValueError(f'kind is one of {", ".join(_KINDS)}, not "{kind}"')
        seen = session_of(report).usage.told(f"{kind}_tokens")
        self._ceiling(seen, at_most, f"{kind.replace('_', ' ')} tokens", Words(message, explain))

    def cost(self, report: Report, *, at_most: float, message: str | None = None, explain: str | None = None) -> None:
        """So many US dollars, or fewer."""
        self._ceiling(session_of(report).usage.cost_usd, at_most, "US dollars", Words(message, explain))

    def steps(self, report: Report, *, at_most: int, message: str | None = None, explain: str | None = None) -> None:
        """So many model rounds, or fewer."""
        self._ceiling(session_of(report).steps, at_most, "steps", Words(message, explain))

    def duration(
        self, report: Report, *, at_most_s: float, message: str | None = None, explain: str | None = None
    ) -> None:
        """So many seconds, or fewer."""
        self._ceiling(session_of(report).duration_s, at_most_s, "seconds", Words(message, explain))

    def _ceiling(self, seen: float | None, most: float, unit: str, words: Words) -> None:
        foreign: object = most
        if isinstance(foreign, bool) or not isinstance(foreign, int | float) or isnan(foreign):
            raise TypeError(f"a ceiling is a number, not {most!r}")
        wanted = f"at most {figure(most)} {unit.removesuffix('s') if most == 1 else unit}"
        if seen is None:
            self._say(f"expected {wanted}, but the agent did not tell", words)
        elif seen > most:
            self._say(f"expected {wanted}, observed {figure(seen)}", words)


def _parse(text: str) -> tuple[Any, str | None]:
    fenced = _FENCE.match(text)
    try:
        return json.loads(fenced.group(1) if fenced else text), None
    except (ValueError, RecursionError) as error:
        return None, str(error)


def _schema(schema: Mapping[str, Any] | bool) -> Callable[[Any], list[str]]:
    """Return a function that finds the problems of a value; refuse an invalid schema, whatever the agent said."""
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
    raise ValueError(f"{address} is not part of the schema, and is not looked for anywhere else")
