"""Patterns of claims mean what they mean in JavaScript: each is tried in Node.js as well."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from whet.errors import ClaimError
from whet.reading.patterns import Pattern, compiled, read_pattern

# Pattern, flags, text.
TABLE = [
    ("export\\s+class", "", "export  class A"),
    ("foo", "", "FOO"),
    ("foo", "i", "FOO"),
    ("é", "i", "É"),
    ("^b$", "", "a\nb\nc"),
    ("^b$", "m", "a\nb\nc"),
    ("^b$", "m", "a\r\nb\r\nc"),
    ("a$", "", "a\n"),
    ("a.c", "", "a\nc"),
    ("a.c", "s", "a\nc"),
    ("a.c", "", "a\u2028c"),
    ("a.c", "", "a\rc"),
    ("[^]", "", "\n"),
    ("[]", "", "a"),
    ("\\d", "", "\u0663"),
    ("\\w", "", "é"),
    ("\\W", "", "é"),
    ("\\s", "", "\u00a0"),
    ("\\s", "", "\ufeff"),
    ("\\s", "", "\u180e"),
    ("\\s", "", "\x1c"),
    ("\\bé", "", "é"),
    ("(?<year>\\d{4})-\\k<year>", "", "2026-2026"),
    ("(?<year>\\d{4})-\\k<year>", "", "2026-2027"),
    ("(a)|b\\1", "", "b"),
    ("\\1(a)", "", "a"),
    ("(?:(a)|b)*\\1", "", "ab"),
    ("(?<=a+)b", "", "aaab"),
    ("(?<=\\$\\d+\\.)\\d\\d", "", "$10.42"),
    ("(?<!a)b", "", "ab"),
    ("(?=a)b", "", "b"),
    ("\\u0061", "", "a"),
    ("\\u{61}", "u", "a"),
    ("\\x41", "", "A"),
    ("\\cJ", "", "\n"),
    ("\\0", "", "\0"),
    ("\\/", "", "/"),
    ("\\/", "u", "/"),
    ("a{,2}", "", "a{,2}"),
    ("x{1", "", "x{1"),
    ("a{2,3}?b", "", "aab"),
    ("]", "", "]"),
    ("[\\d-x]", "", "-"),
    ("[a\\-z]", "", "-"),
    ("[\\b]", "", "\b"),
    ("\\p{Lu}", "u", "É"),
    ("\\p{Script=Greek}", "u", "\u03b1"),
    ("\\p{L}", "", "p{L}"),
    ("\\a", "", "a"),
    ("^.$", "u", "😀"),
    ("😀", "", "x😀"),
    ("\u017f", "iu", "S"),
    ("ß", "iu", "SS"),
    ("\\Z", "", "Z"),
    ("(?:)", "", ""),
    # Refused by both.
    ("(", "", ""),
    (")", "", ""),
    ("a**", "", ""),
    ("[b-a]", "", ""),
    ("(?<a>x)(?<a>y)", "", ""),
    ("(?<a", "", ""),
    ("\\a", "u", ""),
    ("{1}", "", ""),
    ("(?<=a)*", "u", ""),
    ("\\k<a>", "u", ""),
    ("a{2,1}", "", ""),
    ("(?P<n>x)", "", ""),
    ("\\p{Nope}", "u", ""),
    ("\\u{110000}", "u", ""),
]
_SCRIPT = """
const table = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(table.map(([source, flags, text]) => {
  try { return new RegExp(source, flags).test(text) } catch (error) { return "refused" }
})));
"""
_NODE = shutil.which("node")


def _ours(source: str, flags: str, text: str) -> bool | str:
    try:
        pattern, _ = read_pattern(f"/{source}/{flags}")
    except ClaimError:
        return "refused"
    return compiled(pattern).find(text) is not None


@pytest.mark.skipif(_NODE is None, reason="Node.js is not installed: nothing to compare patterns with")
def test_every_pattern_finds_what_it_finds_in_javascript() -> None:
    assert _NODE is not None

    ended = subprocess.run(
        [_NODE, "-e", _SCRIPT], input=json.dumps(TABLE), capture_output=True, text=True, check=True, timeout=300
    )

    theirs = json.loads(ended.stdout)
    ours = [_ours(*row) for row in TABLE]
    differ = [
        (row, {"ours": one, "theirs": other})
        for row, one, other in zip(TABLE, ours, theirs, strict=True)
        if one != other
    ]
    assert differ == []


def test_flags_without_effect_are_left_out_of_the_pattern() -> None:
    pattern, warnings = read_pattern("/a/ygi")

    assert pattern == Pattern("a", "i")
    assert len(warnings) == 2


def test_a_pattern_that_is_far_too_long_is_refused() -> None:
    with pytest.raises(ClaimError, match="more than 10,000 characters"):
        read_pattern(f"/{'a' * 10_001}/")


def test_a_pattern_nested_without_measure_is_refused() -> None:
    with pytest.raises(ClaimError, match="too deeply nested"):
        read_pattern(f"/{'(' * 4000}a{')' * 4000}/")


def test_a_code_point_without_the_flag_u_is_the_character_and_told() -> None:
    pattern, warnings = read_pattern("/\\u{61}/")

    assert compiled(pattern).find("a") is not None
    assert "/\\u{61}/u" in warnings[0]
