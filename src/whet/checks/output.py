"""Expectations over the answer of the agent, as text or JSON, and over what the session took."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import isnan
from typing import Any, Literal, Unpack, get_args

from whet.checks.matching import TextMatcher, check_matcher, check_predicate, describe_matcher, matches, says
from whet.checks.message import ExpectationOptions, Expectations, Report, session_of, shorten, with_length
from whet.model.run import figure

TokenKind = Literal["total", "input", "output", "cached", "cache_write", "reasoning"]
_KINDS: tuple[TokenKind, ...] = get_args(TokenKind)
_SHOWN = 1000
_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\n(.*)\n```\s*\Z", re.DOTALL)


class OutputGroup(Expectations):
    """Expectations over the final output."""

    def includes(self, report: Report, matcher: TextMatcher, **words: Unpack[ExpectationOptions]) -> None:
        """The output matches."""
        check_matcher(matcher)
        output = session_of(report).final_output
        self._miss(
            None if matches(matcher, output) else f"the output to match {describe_matcher(matcher)}", output, words
        )

    def not_includes(self, report: Report, matcher: TextMatcher, **words: Unpack[ExpectationOptions]) -> None:
        """The output does not match."""
        check_matcher(matcher)
        output = session_of(report).final_output
        self._miss(
            f"the output not to match {describe_matcher(matcher)}" if matches(matcher, output) else None, output, words
        )

    def not_empty(self, report: Report, **words: Unpack[ExpectationOptions]) -> None:
        """The output says something other than white space."""
        output = session_of(report).final_output
        self._miss(None if output.strip() else "some output", output, words)

    def json(
        self, report: Report, where: Callable[[Any], bool] | None = None, **words: Unpack[ExpectationOptions]
    ) -> Any:
        """The output is JSON, also inside one fenced block, and satisfies *where*; returns its value."""
        if where is not None:
            check_predicate(where, "where is a function of the value")
        output = session_of(report).final_output
        value, expectation = _parse(output)
        if expectation is None and where is not None and not says(where, value):
            expectation = f"the output to be JSON that satisfies {describe_matcher(where)}"
        self._miss(expectation, output, words)
        return value

    def matches_schema(
        self, report: Report, schema: Mapping[str, Any] | bool, **words: Unpack[ExpectationOptions]
    ) -> Any:
        """The output is JSON that *schema* (JSON Schema 2020-12 unless it says otherwise) allows; returns its value."""
        find_problems = _schema(schema)
        output = session_of(report).final_output
        value, expectation = _parse(output)
        if expectation is None and (problems := find_problems(value)):
            expectation = "\n  ".join(("the output to match the schema, but", *problems))
        self._miss(expectation, output, words)
        return value

    def _miss(self, expectation: str | None, output: str, words: ExpectationOptions) -> None:
        """Fail if something else than the output was expected."""
        observation = f"observed {with_length(output)}" if output else "observed no output"
        self._expect(expectation and f"expected {expectation}\n{observation}", words)


class UsageGroup(Expectations):
    """Ceilings of usage; an unknown or guessed figure fails."""

    def tokens(
        self, report: Report, *, at_most: int, kind: TokenKind = "total", **words: Unpack[ExpectationOptions]
    ) -> None:
        """So many tokens of this kind, or fewer."""
        if kind not in _KINDS:
            raise ValueError(f'kind is one of {", ".join(_KINDS)}, not "{kind}"')
        amount = session_of(report).usage.reported(f"{kind}_tokens")
        self._expect(_above(at_most, f"{kind.replace('_', ' ')} tokens", amount), words)

    def cost(self, report: Report, *, at_most: float, **words: Unpack[ExpectationOptions]) -> None:
        """So many US dollars, or fewer."""
        self._expect(_above(at_most, "US dollars", session_of(report).usage.cost_usd), words)

    def steps(self, report: Report, *, at_most: int, **words: Unpack[ExpectationOptions]) -> None:
        """So many model rounds, or fewer."""
        self._expect(_above(at_most, "steps", session_of(report).steps), words)

    def duration(self, report: Report, *, at_most_s: float, **words: Unpack[ExpectationOptions]) -> None:
        """So many seconds, or fewer."""
        self._expect(_above(at_most_s, "seconds", session_of(report).duration_s), words)


def _above(most: float, unit: str, amount: float | None) -> str | None:
    """Return what is wrong unless at most so much was *amount*."""
    foreign: object = most
    if isinstance(foreign, bool) or not isinstance(foreign, int | float) or isnan(foreign):
        raise TypeError(f"a limit is a number, not {most!r}")
    limit = f"at most {figure(most)} {unit.removesuffix('s') if most == 1 else unit}"
    if amount is None:
        return f"expected {limit}, but the agent did not report it"
    return f"expected {limit}, observed {figure(amount)}" if amount > most else None


def _parse(text: str) -> tuple[Any, str | None]:
    """Return the value of *text*, and what was expected instead if it has none."""
    fence = _FENCE.match(text)
    try:
        return json.loads(fence.group(1) if fence else text), None
    except (ValueError, RecursionError) as error:
        return None, f"the output to be JSON, but {error}"


def _schema(schema: Mapping[str, Any] | bool) -> Callable[[Any], list[str]]:
    """Return a function that finds the problems of a value; raises `ValueError` for an invalid schema."""
    # Only here: a check that needs no schema should not wait for the library.
    import jsonschema_rs

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
        problems = [
            f"{'/'.join(map(str, error.instance_path)) or '(the whole)'}: {shorten(error.message)}"
            for error, _ in zip(validator.iter_errors(value), range(most + 1), strict=False)
        ]
        return problems if len(problems) <= most else [*problems[:most], "and more"]

    return find_problems


def _stay_inside(address: str) -> Any:
    # A check that asks a server decides differently when the server does.
    raise ValueError(f"{address} is outside of the schema, and whet fetches nothing")
