"""The grammar of claims: what each line and each object says, and what is wrong with the others."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from whet.errors import ClaimError
from whet.reading.claims.forms import (
    Absent,
    Changed,
    Claim,
    Contains,
    Created,
    Exists,
    Fails,
    Matches,
    Passes,
    Prints,
    Quits,
)
from whet.reading.claims.lines import read_claim
from whet.reading.claims.objects import read_object, write_claim, write_object
from whet.reading.paths import clean_path
from whet.reading.patterns import Pattern

_SUITES = json.loads(files("whet.suites").joinpath("bench.schema.json").read_text("utf-8"))
SCHEMA = jsonschema_rs.validator_for({"$ref": "#/$defs/expectation", "$defs": _SUITES["$defs"]})

SAID: list[tuple[str, Claim]] = [
    ("file:src/auth.ts exists", Exists("src/auth.ts")),
    ("  file: src/auth.ts   exists\n", Exists("src/auth.ts")),
    ("file:./src//auth.ts exists", Exists("src/auth.ts")),
    ("file:src/ exists", Exists("src/")),
    ("file:my notes.md exists", Exists("my notes.md")),
    ('file:"my file.txt" exists', Exists("my file.txt")),
    ("file:it exists exists", Exists("it exists")),
    ("file:a contains 'x' exists", Exists("a contains 'x'")),
    ("file:new.txt created", Created("new.txt")),
    ("file:src/auth.ts contains 'export function'", Contains("src/auth.ts", "export function")),
    ("file:a.txt contains 'it\\'s'", Contains("a.txt", "it's")),
    ("file:a.txt contains \"say 'hi'\"", Contains("a.txt", "say 'hi'")),
    ("file:a.txt contains '\\d'", Contains("a.txt", "\\d")),
    ("file:a.txt contains 'it exists'", Contains("a.txt", "it exists")),
    ("file:a.txt contains 'two\nlines'", Contains("a.txt", "two\nlines")),
    ("file:a.ts matches /export\\s+class/", Matches("a.ts", Pattern("export\\s+class"))),
    ("file:a.ts matches /foo/i", Matches("a.ts", Pattern("foo", "i"))),
    ("file:a.ts matches /a/b\\/c/ms", Matches("a.ts", Pattern("a/b\\/c", "ms"))),
    ("diff:src/a b.ts", Changed("src/a b.ts")),
    ("diff:.", Changed(".")),
    ("no-file:old/legacy.js", Absent("old/legacy.js")),
    ("test:npm test passes", Passes("npm test")),
    ("test:npm test", Passes("npm test")),
    ("test:npm test  passes  ", Passes("npm test")),
    ("test:npm test passes passes", Passes("npm test passes")),
    ("test:echo 'it passes'", Passes("echo 'it passes'")),
    ("test:false fails", Fails("false")),
    ("test:node cli.js exits 2", Quits("node cli.js", 2)),
    ("test:node cli.js prints 'usage:'", Prints("node cli.js", "usage:")),
    ("test:echo 'a' prints 'a'", Prints("echo 'a'", "a")),
]


@pytest.mark.parametrize(("line", "claim"), SAID, ids=[line for line, _ in SAID])
def test_a_line_says_what_it_says(line: str, claim: Claim) -> None:
    reading = read_claim(line)

    assert reading.claim == claim
    assert reading.warnings == ()


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("", "is empty", "file:<path> exists"),
        ("just do it", "has no prefix", "test:<command>"),
        ("nofile:x", '"nofile:" does not begin an expectation', "no-file:x"),
        ("File:a exists", '"File:" does not begin an expectation', "file:a exists"),
        ("file :x exists", "a space before the colon", "file:x exists"),
        ("exists:a", '"exists:" does not begin an expectation', "file:a exists"),
        ("dir:src exists", '"dir:" does not begin an expectation', "file:src exists"),
        ("cmd:npm test", '"cmd:" does not begin an expectation', "test:npm test?"),
        ("src/auth.ts exists", "has no prefix", "file:src/auth.ts exists?"),
        ("npm test passes", "has no prefix", "test:npm test passes?"),
        ("file: exists", "path is missing", None),
        ("file:a.ts matches /(?i)a/", "not a regular expression", "/.../i"),
        ("file:a.ts matches /(?P<n>a)/", "not a regular expression", "(?<n>"),
        ("file:src/auth.ts", "does not say what should be true", "exists, created"),
        ("file:a.txt exist", '"exist" is not', '"exists"'),
        ("file:a.txt contain 'x'", '"contain" is not', '"contains"'),
        ("file:a.txt contains ''", "empty", None),
        ("file:a.txt contains", "the text is missing", None),
        ("file:a.txt contains foo", "not in quotes", "contains 'foo'"),
        ("file:a.txt contains 'foo", "not closed", "contains 'foo'"),
        ("file:a.txt contains \u2018foo\u2019", "typographic quotes", "contains 'foo'"),
        ("file:a.ts matches foo", "between slashes", "matches /foo/"),
        ("file:a.ts matches /foo", "not closed by a slash", "matches /foo/"),
        ("file:a.ts matches /(/", "not a regular expression: unbalanced", None),
        ("file:a.ts matches //", "empty", None),
        ("file:a.ts matches /a/v", "flag v is not supported", None),
        ("file:a.ts matches /a/x", 'no flag "x"', "one more slash"),
        ("file:a.ts matches /a/ii", "repeated", None),
        ("file:../etc/passwd exists", "leads out of the workspace", None),
        ("file:a/../../b exists", "leads out of the workspace", None),
        ("diff:/etc/passwd", "absolute", "src/a.ts"),
        ("no-file:~/x", "home", None),
        ("diff:a\0b", "NUL", None),
        ("diff:", "path is missing", None),
        ("test:", "command is missing", None),
        ("test: passes", "command is missing", None),
        ("test:x exits 256", "no command exits with 256", "0 to 255"),
    ],
)
def test_what_is_no_claim_is_told_with_the_near_miss(line: str, message: str, hint: str | None) -> None:
    with pytest.raises(ClaimError) as caught:
        read_claim(line)

    assert message in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("line", "claim", "warning"),
    [
        ("file:a contains 'it's'", Contains("a", "it's"), "not escaped"),
        ("file:a matches /x/g", Matches("a", Pattern("x")), "flag g has no effect"),
        ("file:a matches /\\u{61}/", Matches("a", Pattern("\\u{61}")), "only with the flag u"),
        ("file:src/*.ts exists", Exists("src/*.ts"), "means itself"),
        ("file:a matches /\\Aa/", Matches("a", Pattern("\\Aa")), "is the letter A"),
        ("no-file:a exists", Absent("a exists"), "write no-file:a"),
        ("no-file:a contains 'x'", Absent("a contains 'x'"), "write no-file:a"),
        ("diff:a was changed", Changed("a was changed"), "write diff:a"),
        ("file:a not exists", Exists("a not"), "use no-file:"),
        ("test:npm test pass", Passes("npm test pass"), '"passes"'),
        ("test:npm run x exits zero", Passes("npm run x exits zero"), "a number"),
        ("test:npm run x prints usage", Passes("npm run x prints usage"), "a text in quotes"),
    ],
)
def test_what_looks_unlike_what_was_meant_is_read_and_told(line: str, claim: Claim, warning: str) -> None:
    reading = read_claim(line)

    assert reading.claim == claim
    assert warning in " ".join(reading.warnings)


@pytest.mark.parametrize(
    ("given_object", "message"),
    [
        ({"file": "a"}, "does not say what should be true"),
        ({"file": "a", "contains": "x", "exists": True}, "two expectations"),
        ({"file": "a", "diff": "b"}, "two expectations"),
        ({"file": "a", "exists": False}, "can only be true"),
        ({"file": "a", "containz": "x"}, '"containz" cannot be said'),
        ({"file": 1, "exists": True}, "must be a string"),
        ({"file": "a", "contains": ""}, "must not be empty"),
        ({"file": "a", "matches": "x"}, "between slashes"),
        ({"test": "x", "exits": "2"}, "whole number"),
        ({"test": "x", "exits": True}, "whole number"),
        ({"tests": "x"}, "does not say what it is about"),
        ({}, "does not say what it is about"),
        ({"file:a.md contains 'key": "value'"}, "read as an object, because of a colon"),
    ],
)
def test_an_object_that_makes_no_claim_is_told(given_object: dict[str, Any], message: str) -> None:
    with pytest.raises(ClaimError) as caught:
        read_object(given_object)

    assert message in caught.value.message


def test_a_suffix_in_the_command_of_an_object_is_told() -> None:
    reading = read_object({"test": "npm test passes"})

    assert reading.claim == Passes("npm test passes")
    assert '"passes": true' in reading.warnings[0]


# Words and marks of the grammar, so that what is generated looks like it.
_PIECES = st.sampled_from(
    ["a", "b.ts", " ", "/", "'", '"', "\\", "exists", " exists", " contains ", " matches ", "/x/", " passes", "é", "\n"]
)
_texts = st.lists(_PIECES, min_size=1, max_size=8).map("".join)


def _cleaned(path: str) -> str | None:
    try:
        return clean_path(path)
    except ClaimError:
        return None


_paths = _texts.map(_cleaned).filter(lambda path: path is not None and bool(path.strip()))
_commands = _texts.map(str.strip).filter(bool)
_patterns = st.builds(
    Pattern, st.sampled_from(["a", "a/b", "a\\/b", "\\s+", "'", "a b", "/ matches /"]), st.sampled_from(["", "i", "ms"])
)
claims = st.one_of(
    st.builds(Exists, _paths),
    st.builds(Created, _paths),
    st.builds(Contains, _paths, _texts),
    st.builds(Matches, _paths, _patterns),
    st.builds(Changed, _paths),
    st.builds(Absent, _paths),
    st.builds(Passes, _commands),
    st.builds(Fails, _commands),
    st.builds(Quits, _commands, st.integers(0, 255)),
    st.builds(Prints, _commands, _texts),
)


@given(claims)
@example(Matches("a matches /b", Pattern("c")))
@example(Exists("'a'"))
@example(Prints("a prints 'b", "'"))
def test_a_claim_that_is_written_down_reads_as_the_same_claim(claim: Claim) -> None:
    line = write_claim(claim)

    assert read_claim(line).claim == claim
    assert write_claim(read_claim(line).claim) == line


@given(claims)
def test_an_object_says_what_the_line_says(claim: Claim) -> None:
    said = write_object(claim)

    assert read_object(said).claim == read_claim(write_claim(claim)).claim


@given(claims)
def test_the_schema_of_suites_accepts_every_claim_that_is_written_down(claim: Claim) -> None:
    line, said = write_claim(claim), write_object(claim)

    assert SCHEMA.is_valid(line), line
    assert SCHEMA.is_valid(said), said


@given(st.text())
@example("file:" + " exists" * 50)
def test_any_text_is_a_claim_or_an_error(text: str) -> None:
    try:
        claim = read_claim(text).claim
    except ClaimError as error:
        assume(error.message)
        return

    assert read_claim(write_claim(claim)).claim == claim
