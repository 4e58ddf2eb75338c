"""Observing: printed lines become steps, usage and an answer, however they are cut."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.agents.contract import Output
from whet.agents.observe.observer import Observer, SessionLimits
from whet.errors import BudgetSpent, StepLimitReached
from whet.model.codec import encode
from whet.model.events import Event, Message


def unread(_: bytes) -> Iterable[Event]:
    raise AssertionError("never asked")


def observer(output: Output = "events", *, max_steps: int | None = None, folder: Path = Path("nowhere")) -> Observer:
    return Observer(output, unread, events_path=folder / "events.jsonl", watch=SessionLimits(max_steps=max_steps))


def call(number: int) -> bytes:
    return b'{"type":"tool_call","id":"%d","tool":"t"}\n{"type":"tool_result","id":"%d"}\n' % (number, number)


SESSION = (
    b'{"type":"message","role":"user","text":"do"}\n'
    b'{"type":"message","role":"assistant","phase":"thinking","text":"hm"}\n'
    b'{"type":"message","role":"assistant","text":"on it"}\n' + call(1) + b"\n  \n" + call(2) +
    b'{"type":"usage","input_tokens":3,"cost_usd":0.5}\n{"type":"usage","input_tokens":4}\n'
    b'{"type":"message","role":"assistant","text":"d\xc3\xb6ne"}'
)  # fmt: skip


@given(cuts=st.lists(st.integers(0, len(SESSION)), max_size=12))
def test_it_does_not_matter_how_the_output_is_cut(cuts: list[int]) -> None:
    seen = observer()
    places = sorted({0, len(SESSION), *cuts})

    for start, end in pairwise(places):
        seen.feed(SESSION[start:end])
    seen.finish()

    assert seen.unreadable is None
    assert seen.steps == 3
    assert seen.final_output(Path("nowhere")) == "döne"
    assert (seen.usage().input_tokens, seen.usage().cost_usd, seen.usage().output_tokens) == (7, 0.5, None)


def test_calls_in_one_round_are_one_step() -> None:
    seen = observer()

    seen.feed(b'{"type":"tool_call","tool":"a"}\n{"type":"tool_call","tool":"b"}\n{"type":"tool_result"}\n' + call(3))

    assert seen.steps == 2


def test_the_step_after_the_last_allowed_one_raises() -> None:
    seen = observer(max_steps=2)
    seen.feed(call(1) + call(2))

    with pytest.raises(StepLimitReached, match="began step 3 and may take 2"):
        seen.feed(call(3))


def test_what_is_read_already_costs_more_than_the_budget_before_it_is_known_what_was_written() -> None:
    watch = SessionLimits(budget_usd=0.01, model="claude-sonnet-4-5")
    seen = Observer("events", unread, events_path=Path("nowhere"), watch=watch)

    seen.feed(b'{"type":"usage","input_tokens":3000}\n')

    assert seen.usage().cost_usd is None
    with pytest.raises(BudgetSpent, match=r"has spent \$0\.012 of"):
        seen.feed(b'{"type":"usage","input_tokens":1000}\n')


def test_a_guess_counts_what_every_round_reads_again() -> None:
    seen = Observer("events", unread, events_path=Path("nowhere"), watch=SessionLimits(prompt="p" * 40))
    seen.feed(b'{"type":"tool_call","id":"1","tool":"t","args":{"command":"12345678"}}\n')
    seen.feed(b'{"type":"tool_result","id":"1","output":"0123456789ab"}\n')
    seen.feed(b'{"type":"message","role":"assistant","text":"done"}\n')

    guess = seen.usage_or_guess(Path("nowhere"))

    # 40, and then 40 + 8 + 12 characters were read; 8 + 4 were written.
    assert (guess.input_tokens, guess.output_tokens) == (25, 3)
    assert seen.usage().input_tokens is None


def test_what_is_told_is_not_mixed_with_guesses() -> None:
    seen = observer()

    seen.feed(b'{"type":"usage","input_tokens":7}\n{"type":"message","role":"assistant","text":"done"}\n')

    assert seen.usage_or_guess(Path("nowhere")) == seen.usage()
    assert seen.usage().output_tokens is None


def test_the_first_bad_line_is_the_trouble_and_the_rest_is_still_read() -> None:
    seen = observer()

    seen.feed(b'{"type":"final_output","text":"a"}\nnonsense\nmore nonsense\n{"type":"final_output","text":"b"}\n')

    assert seen.unreadable is not None
    assert "line 2" in seen.unreadable.message
    assert seen.final_output(Path("nowhere")) == "b"


def test_a_misspelt_event_is_answered_with_the_nearest() -> None:
    seen = observer()

    seen.feed(b'{"type":"tool_cal"}\n')

    assert seen.unreadable is not None
    assert seen.unreadable.hint == 'did you mean "tool_call"?'


def test_text_is_not_read_at_all_and_the_whole_of_it_is_the_answer(tmp_path: Path) -> None:
    seen = observer("text")
    (tmp_path / "transcript.txt").write_bytes(b"a\n\xffb\r\n\n")

    seen.feed(b"not json\n")
    seen.finish()

    assert seen.unreadable is None
    assert seen.final_output(tmp_path / "transcript.txt") == "a\n\ufffdb"
    assert seen.final_output(tmp_path / "missing") == ""


def test_records_are_read_by_the_agent_and_their_events_kept(tmp_path: Path) -> None:
    def read(line: bytes) -> Iterable[Event]:
        yield Message(role="assistant", text=line.decode())

    seen = Observer("records", read, events_path=tmp_path / "events.jsonl")

    seen.feed(b"one\ntwo")
    seen.finish()
    seen.close()

    kept = (tmp_path / "events.jsonl").read_bytes().splitlines()
    assert kept == [encode(Message(role="assistant", text=text)) for text in ("one", "two")]
    assert seen.final_output(Path("nowhere")) == "two"


def test_what_an_agent_did_before_it_was_stopped_is_on_disk_at_once(tmp_path: Path) -> None:
    said = [Message(role="user", text="do"), Message(role="assistant", text="on it")]
    path = tmp_path / "events.jsonl"
    seen = Observer("records", lambda _: said, events_path=path, watch=SessionLimits(max_steps=1))

    with pytest.raises(StepLimitReached):
        seen.feed(b"one\ntwo\nthree\n")

    assert path.read_bytes().splitlines() == [encode(event) for event in said * 2]


def test_events_that_are_all_told_at_the_end_are_written_in_order(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    seen = observer("records", folder=tmp_path)
    told = [Message(role="user", text=str(number)) for number in range(2500)]

    for event in told:
        seen.take(event)
    before = path.read_bytes().count(b"\n")
    seen.close()

    assert before >= 1000
    assert path.read_bytes().splitlines() == [encode(event) for event in told]


def echoed(line: bytes) -> Iterable[Event]:
    """A message for each line, and the time of those that tell it."""
    at, _, said = line.decode().rpartition("@")
    yield Message(role="assistant", text=said, at=at or None)


def times(path: Path) -> dict[str, str]:
    return {event["text"]: event["at"] for event in map(json.loads, path.read_text().splitlines())}


def test_an_event_without_a_time_has_the_one_at_which_it_came_also_when_it_is_read_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    (tmp_path / "transcript").write_bytes(output := b"early\nhalf of a line\n2020-01-01T00:00:00Z@told\nlate")
    seen = Observer("records", echoed, events_path=first, timed=True)
    for start, end in pairwise((0, 10, len(output) - 4, len(output))):
        seen.feed(output[start:end])
        time.sleep(0.01)
    seen.finish()
    seen.close()
    again = Observer("records", echoed, events_path=second, timed=True)

    with (tmp_path / "transcript").open("rb") as file:
        seen.read_again(file, again)
    again.close()

    at = times(first)
    assert at["told"] == "2020-01-01T00:00:00Z"
    assert at["early"] < at["half of a line"] < at["late"]
    assert times(second) == at


@pytest.mark.parametrize(("line", "kept"), [("said", True), ("2020-01-01T00:00:00Z@said", False)])
def test_events_that_a_program_prints_are_kept_a_second_time_only_if_they_have_no_times(
    tmp_path: Path, line: str, kept: bool
) -> None:
    seen = Observer("events", unread, events_path=tmp_path / "events.jsonl", timed=True)

    seen.feed(encode(next(iter(echoed(line.encode())))) + b"\n")
    seen.close()

    assert (tmp_path / "events.jsonl").exists() is kept


def test_what_a_recording_prints_gets_no_times_also_when_it_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "transcript").write_bytes(b"said\n")
    seen = Observer("records", echoed, events_path=tmp_path / "first.jsonl")
    seen.feed(b"said\n")
    seen.take(Message(role="user", text="do"))
    seen.close()
    again = Observer("records", echoed, events_path=tmp_path / "second.jsonl")

    with (tmp_path / "transcript").open("rb") as file:
        seen.read_again(file, again)
    again.close()

    assert times(tmp_path / "first.jsonl") == {"said": None, "do": None}
    assert times(tmp_path / "second.jsonl") == {"said": None}
