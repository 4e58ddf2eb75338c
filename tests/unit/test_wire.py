"""The codec: what goes in comes out, and what is no event is refused with a reason."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from whet.model import codec
from whet.model.events import EVENT_TYPES, Message, ToolCall
from whet.model.grade import Failure, FailureClass, Grade, Location
from whet.model.run import AttemptResult, TrialKey, TrialResult
from whet.model.session import Usage
from whet.reading.text import escape_surrogates


def result(**fields: object) -> TrialResult:
    key = TrialKey(suite="s", case="c", runner="r", arm="default", number=1)
    base = {"key": key, "status": "passed", "score": 1.0, "duration_s": 0.5, "started_at": "t", "artifact_dir": "a"}
    return TrialResult(**(base | fields))  # type: ignore[arg-type]


def test_a_result_comes_back_as_it_was() -> None:
    failure = Failure(
        phase="check", code="assertion", cause="agent", message="é\n", location=Location(file="f", line=3)
    )
    whole = result(
        grades=(Grade(check="c", value=0.5, passed=False),),
        failure=failure,
        failure_class=FailureClass(id="x", label=None),
        usage=Usage(input_tokens=3, cost_usd=0.1),
        attempts=(AttemptResult(number=1, status="failed", duration_s=0.1, artifact_dir="a", failure=failure),),
        notes=("one",),
    )

    assert codec.decode(codec.encode(whole), TrialResult) == whole


def test_a_line_is_one_line_and_pretty_text_ends_with_a_newline() -> None:
    line = codec.encode(result(final_output="a\nb"))

    assert b"\n" not in line
    assert codec.encode_pretty({"a": 1}).endswith(b"}\n")


def test_text_that_is_no_unicode_is_kept_as_an_escape() -> None:
    encoded = codec.encode({"name\udcff": ["bad\udcff", Path("p\udcff"), {"x"}]})

    assert msgspec.json.decode(encoded) == {"name\\udcff": ["bad\\udcff", "p\\udcff", ["x"]]}


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="object has no JSON form"):
        codec.encode({"a": object()})


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"key": 3}'])
def test_bytes_that_are_something_else_are_a_wire_error(data: bytes) -> None:
    with pytest.raises(codec.WireError):
        codec.decode(data, TrialResult)


def test_every_event_has_a_name_and_comes_back() -> None:
    assert len(codec.EVENT_NAMES) == len(EVENT_TYPES) == len(set(codec.EVENT_NAMES))
    for event in (Message(role="assistant", text="x", phase="final"), ToolCall(tool="t", args={"a": [1, None]})):
        assert codec.decode_event(codec.encode(event)) == event


def test_an_event_may_say_more_than_we_know() -> None:
    event = codec.decode_event(b'{"type":"command","command":"ls","colour":"red"}')

    assert event.type == "command"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"type":"mesage"}', 'no event is called "mesage"'),
        (b'{"type":3}', "str"),
        (b"{}", "type"),
        (b"[]", "object"),
        (b"text", "JSON"),
        (b'{"type":"command"}', "command"),
        (b'{"type":"usage","input_tokens":"many"}', "int"),
    ],
)
def test_a_line_that_is_no_event_is_refused_with_the_reason(line: bytes, said: str) -> None:
    with pytest.raises(codec.WireError, match=said):
        codec.decode_event(line)


def test_printable_shows_what_cannot_be_written() -> None:
    assert escape_surrogates("a\udcffé") == "a\\udcffé"


@pytest.mark.parametrize("content", [b"", b"{", b'{"key": 1}'])
def test_a_file_that_cannot_be_read_is_an_error_and_nothing_else(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(content)

    with pytest.raises(codec.WireError):
        codec.decode_file(file, TrialResult)


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(codec.encode(result()))

    assert codec.decode_file(file, TrialResult) == result()
