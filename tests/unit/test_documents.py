"""JSON and YAML read with lines, and with nothing that could be read in two ways."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.reading.documents import Document, DocumentError, read_json
from whet.reading.yaml import read_document, read_yaml

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_values, st.sampled_from([None, 2]))
def test_json_reads_as_the_standard_library_reads_it(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)

    assert read_json(text).root.plain() == json.loads(text)


@given(st.text(alphabet='{}[]",: \n0123456789.eE+-truefalsn\\"/'))
def test_any_text_is_json_for_us_if_and_only_if_it_is_for_the_standard_library(text: str) -> None:
    try:
        theirs = json.loads(text)
    except ValueError:
        with pytest.raises(DocumentError):
            read_json(text)
        return

    assert read_json(text).root.plain() == theirs


def test_every_value_knows_its_line(tmp_path: Path) -> None:
    for name, text in [("a.json", '{\n "a": [\n  1,\n  2]\n}'), ("a.yaml", "#\na:\n- 1\n- 2")]:
        (tmp_path / name).write_text(text)

    documents = [read_document(tmp_path / name) for name in ("a.json", "a.yaml")]

    assert [_lines(document) for document in documents] == [[3, 4], [3, 4]]


def _lines(document: Document) -> list[int]:
    assert isinstance(document.root.value, dict)
    items = document.root.value["a"].value
    assert isinstance(items, tuple)
    return [item.line for item in items]


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_a_key_that_stands_twice_is_told_with_both_lines(read: Any) -> None:
    document = read('{"a": 1,\n"b": 2,\n"a": 3}')

    [repeat] = document.repeats
    assert (repeat.key, repeat.first, repeat.line) == ("a", 1, 3)


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("", 1, "is empty", None),
        ('{"a": 1,}', 1, 'a comma before "}"', "none after the last"),
        ('{"a": 1\n"b": 2}', 2, "needs a comma", None),
        ("{a: 1}", 1, "key in double quotes", None),
        ("{'a': 1}", 1, "key in double quotes", None),
        ('{"a": True}', 1, '"True"', "true"),
        ('{"a": NaN}', 1, '"NaN"', None),
        ('{"a": 010}', 1, '"010"', None),
        ("// hello\n{}", 1, "comment", "YAML"),
        ('{"a":\n"b\nc"}', 2, "control character", "\\n"),
        ('{"a": [1', 1, "ends before", None),
        ("{}\n{}", 2, "continues after its end", None),
        ("[" * 101, 1, "nested too deeply", None),
    ],
)
def test_what_is_no_json_is_told_with_its_line(text: str, line: int, message: str, hint: str | None) -> None:
    with pytest.raises(DocumentError) as caught:
        read_json(text)

    assert (caught.value.line, message in caught.value.message) == (line, True), caught.value.message
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("y", "y"),
        ("010", 10),
        ("0o10", 8),
        ("0x10", 16),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2026-01-31", "2026-01-31"),
        ("1e3", 1000.0),
        (".5", 0.5),
        (".inf", math.inf),
        ("~", None),
        ("null", None),
        ("true", True),
        ("True", True),
        ("'true'", "true"),
        ("!!str 010", "010"),
        ("'010'", "010"),
        ("file:a.txt contains 'x'", "file:a.txt contains 'x'"),
        ("test:npm test", "test:npm test"),
    ],
)
def test_a_plain_word_of_yaml_means_what_it_means_in_its_core_schema(text: str, value: Any) -> None:
    document = read_yaml(f"a: {text}")

    assert document.root.plain() == {"a": value}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "is empty"),
        ("a: 1\nb: c: d", 2, "mapping values are not allowed"),
        ("a:\n\tb: 1", 2, "cannot start any token"),
        ("a: 1\n---\nb: 2", 2, "second document"),
        ("a: !!python/object/apply:os.system [x]", 1, "apply:os.system is not supported"),
        ("a: !!python/name:os.system x", 1, "cannot be read as"),
        ("a: &x [*x]", 1, "is not defined before this line"),
        ("1: a", 1, "is not a string"),
        ("[" * 100_000, 1, "nested too deeply"),
        ("- " * 100_000, 1, "nested too deeply"),
        ("a: é\nb: x\x07y", 2, "has the control character U+0007"),
        ("a: \x1b[2J", 1, "has the control character U+001B"),
    ],
)
def test_what_is_no_plain_yaml_is_told_with_its_line(text: str, line: int | None, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_yaml(text)

    assert message in caught.value.message
    assert line is None or caught.value.line == line


def test_aliases_that_unfold_without_measure_are_refused() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 10)}]" for n in range(9)]

    with pytest.raises(DocumentError, match="has aliases that expand too far"):
        read_yaml("\n".join(levels))


def test_a_byte_order_mark_is_no_part_of_a_document_and_other_encodings_are_told(tmp_path: Path) -> None:
    (tmp_path / "mark.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    (tmp_path / "latin.json").write_bytes(b'{\n"a": "\xe9"}')

    assert read_document(tmp_path / "mark.json").root.plain() == {"a": 1}
    with pytest.raises(DocumentError, match="is not UTF-8") as caught:
        read_document(tmp_path / "latin.json")
    assert caught.value.line == 2
