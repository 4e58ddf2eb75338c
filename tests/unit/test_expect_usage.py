"""expect.usage: ceilings on tokens, money, steps and time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from whet import Session, Usage, expect
from whet.model.session import guessed

USAGE = Usage(
    input_tokens=900, output_tokens=100, cached_tokens=300, cache_write_tokens=50, reasoning_tokens=40, cost_usd=0.25
)
REPORT = Session(runner="demo", agent="scripted", prompt="Go.", usage=USAGE, steps=4, duration_s=2.5)
SILENT = Session(runner="demo", agent="scripted", prompt="Go.")


def _said(call: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "seen"),
    [("total", 1000), ("input", 900), ("output", 100), ("cached", 300), ("cache_write", 50), ("reasoning", 40)],
)
def test_tokens_of_every_kind_have_a_ceiling(kind: str, seen: int) -> None:
    expect.usage.tokens(REPORT, at_most=seen, kind=kind)

    said = _said(lambda: expect.usage.tokens(REPORT, at_most=seen - 1, kind=kind))

    words = kind.replace("_", " ")
    assert said == f"expected at most {seen - 1} {words} tokens, observed {seen:,}"
    assert _said(lambda: expect.usage.tokens(SILENT, at_most=5, kind=kind)) == (
        f"expected at most 5 {words} tokens, but the agent did not report it"
    )


def test_a_guess_holds_nothing() -> None:
    guess = Session(runner="demo", agent="command", prompt="Go.", usage=guessed(400, 40))

    said = _said(lambda: expect.usage.tokens(guess, at_most=1_000))

    assert guess.usage.total_tokens == 110
    assert said == "expected at most 1,000 total tokens, but the agent did not report it"


def test_a_total_of_which_one_part_is_unknown_is_unknown() -> None:
    assert Usage(input_tokens=5).total_tokens is None
    assert Usage(output_tokens=5).total_tokens is None


def test_all_tokens_count_unless_a_kind_is_named() -> None:
    expect.usage.tokens(REPORT, at_most=1000)

    said = _said(lambda: expect.usage.tokens(REPORT, at_most=999))

    assert said == "expected at most 999 total tokens, observed 1,000"


def test_money_has_a_ceiling() -> None:
    expect.usage.cost(REPORT, at_most=0.25)

    assert _said(lambda: expect.usage.cost(REPORT, at_most=0.1)) == "expected at most 0.1 US dollars, observed 0.25"
    assert "but the agent did not report it" in _said(lambda: expect.usage.cost(SILENT, at_most=1))


def test_steps_have_a_ceiling() -> None:
    expect.usage.steps(REPORT, at_most=4)
    expect.usage.steps(SILENT, at_most=0)

    assert _said(lambda: expect.usage.steps(REPORT, at_most=3)) == "expected at most 3 steps, observed 4"


def test_time_has_a_ceiling() -> None:
    expect.usage.duration(REPORT, at_most_s=2.5)

    assert _said(lambda: expect.usage.duration(REPORT, at_most_s=2)) == "expected at most 2 seconds, observed 2.5"
    assert "but the agent did not report it" in _said(lambda: expect.usage.duration(SILENT, at_most_s=2))


def test_large_figures_are_written_out() -> None:
    usage = Usage(input_tokens=1_234_568, output_tokens=0)
    report = Session(runner="demo", agent="scripted", prompt="Go.", usage=usage)

    said = _said(lambda: expect.usage.tokens(report, at_most=1_234_567))

    assert said == "expected at most 1,234,567 total tokens, observed 1,234,568"


def test_the_words_of_the_author_come_first() -> None:
    said = _said(lambda: expect.usage.steps(REPORT, at_most=1, message="one round is enough"))

    assert said == "one round is enough\nexpected at most 1 step, observed 4"
