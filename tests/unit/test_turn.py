"""Whose turn it is, and the signs of it among the lines of an agent's output."""

from __future__ import annotations

import re
import time

import pytest

from whet.agents.contract import Meaning, Signs
from whet.agents.observe.model_activity import ModelActivity, SignFilter
from whet.errors import ContextExhausted, PromptTooLong
from whet.model.events import Trouble
from whet.secrets import Masker

LIMIT_S = 60
DOWN = Trouble(message="Overloaded", kind="overloaded", status=529)
FULL = Trouble(message="too long", kind="context")
SPOKEN = Signs(line=re.compile(rb"piece (?P<what>\w+)"), means={b"last": "said"})
LOGGED = Signs(line=re.compile(rb"(?P<what>try) \d+(?: status (?P<status>\d+))?"), means={b"try": "trouble"}, kept=True)


def long_silent(turn: ModelActivity) -> bool:
    return turn.silent_s > LIMIT_S / 2


def test_a_model_that_was_never_heard_of_has_the_word_from_the_beginning() -> None:
    turn = ModelActivity(LIMIT_S)

    assert not turn.came
    assert long_silent(turn)


def test_a_tool_that_is_running_is_no_silence_of_the_model() -> None:
    turn = ModelActivity(LIMIT_S)

    turn.called("1")
    running = long_silent(turn)
    turn.returned("1")

    assert not running
    assert long_silent(turn)


def test_one_of_two_tools_is_still_a_tool() -> None:
    turn = ModelActivity(LIMIT_S)
    turn.called("1")
    turn.called("2")

    turn.returned("1")

    assert not long_silent(turn)


def test_a_tool_that_only_a_sign_tells_of_runs_until_the_model_is_asked_again() -> None:
    turn = ModelActivity(LIMIT_S)
    turn.sign("speaking")

    turn.sign("tool")
    running = long_silent(turn)
    turn.sign("asked")

    assert not running
    assert long_silent(turn)


def test_a_tool_that_only_a_sign_tells_of_has_ended_once_any_tool_gives_its_result() -> None:
    turn = ModelActivity(LIMIT_S)
    turn.sign("tool")

    turn.returned("1")

    assert long_silent(turn)


def test_after_a_whole_answer_nobody_waits_for_the_model() -> None:
    turn = ModelActivity(LIMIT_S)

    turn.sign("speaking")
    turn.answered()
    turn.sign("said")

    assert not long_silent(turn)


def test_trouble_is_counted_until_an_answer_comes() -> None:
    turn = ModelActivity(LIMIT_S)

    for _ in range(3):
        turn.troubled(DOWN)
    met = turn.troubles
    turn.answered()

    assert met == 3
    assert (turn.unanswered, turn.troubles) == (None, 0)


def test_a_model_that_speaks_again_is_over_its_trouble_and_falls_back_into_it() -> None:
    turn = ModelActivity(LIMIT_S)
    turn.troubled(DOWN)

    turn.sign("speaking")
    speaking = turn.unanswered
    turn.troubled(DOWN)

    assert speaking is None
    assert turn.unanswered is DOWN


def test_trouble_that_is_not_the_providers_is_none_of_its() -> None:
    turn = ModelActivity(LIMIT_S)

    turn.troubled(Trouble(message="refused", kind="permission"))
    turn.troubled(Trouble(message="odd", kind="other"))

    assert turn.unanswered is None


def test_what_comes_after_the_limit_changes_nothing() -> None:
    turn = ModelActivity(0.01)
    turn.called("1")
    time.sleep(0.02)

    turn.returned("1")
    turn.troubled(DOWN)

    assert turn.unanswered is None
    assert turn.silent_s == 0


def test_a_session_that_overflows_again_and_again_is_stopped() -> None:
    turn = ModelActivity(LIMIT_S)
    turn.answered()
    turn.troubled(FULL)
    turn.troubled(FULL)

    with pytest.raises(ContextExhausted, match="no longer fits into its model: too long"):
        turn.troubled(FULL)


def test_a_session_that_goes_on_after_an_overflow_is_not() -> None:
    turn = ModelActivity(LIMIT_S)
    turn.answered()

    for number in range(9):
        turn.troubled(FULL)
        turn.called(str(number))

    assert turn.came


def test_what_does_not_fit_at_first_is_too_long_whatever_a_summary_says_later() -> None:
    turn = ModelActivity(LIMIT_S)

    turn.troubled(FULL)
    turn.answered()

    assert isinstance(turn.no_room(FULL), PromptTooLong)


def sift(signs: Signs, *chunks: bytes) -> tuple[bytes, list[Meaning], list[Trouble]]:
    kept, meanings, troubles = bytearray(), list[Meaning](), list[Trouble]()
    masker = Masker({"sk-very-secret-value"})
    sieve = SignFilter(signs, kept.extend, masker=masker, sign=meanings.append, trouble=troubles.append)
    for chunk in chunks:
        sieve(chunk)
    sieve.finish()
    return bytes(kept), meanings, troubles


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
def test_signs_are_found_and_left_out_however_the_output_is_cut(size: int) -> None:
    output = b"one\npiece first of it\n\ntwo piece\npiece last " + b"x" * 5000 + b"\nthree"

    kept, meanings, _ = sift(SPOKEN, *(output[start : start + size] for start in range(0, len(output), size)))

    assert kept == b"one\n\ntwo piece\nthree"
    assert meanings == ["speaking", "said"]


def test_a_long_line_that_is_no_sign_is_not_held_back() -> None:
    kept = bytearray()
    sieve = SignFilter(SPOKEN, kept.extend, masker=Masker(()), sign=lambda _: None, trouble=lambda _: None)

    sieve(b"y" * 100_000)

    assert len(kept) == 100_000


def test_trouble_in_a_log_has_its_status_and_no_secret() -> None:
    kept, _, troubles = sift(LOGGED, b"try 1 status 529 at sk-very-secret-value\ntry 2: nobody there\nretry 3\n")

    assert [(seen.kind, seen.status) for seen in troubles] == [("overloaded", 529), ("network", None)]
    assert "secret" not in troubles[0].message
    # What is kept is masked on its way to disk.
    assert kept.count(b"\n") == 3
