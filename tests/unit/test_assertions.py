"""Plain `assert` in suites: rewritten so that a failing one explains itself, and otherwise what Python makes of it."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import re
import sys
import textwrap
import time
import traceback
import warnings
import weakref
from collections import Counter, deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from whet.checks.asserts.explain import collecting
from whet.checks.asserts.rewrite import HelperFinder, SuiteLoader, compile_rewritten, rewriting_helpers
from whet.checks.asserts.values import value_text

_PATH = "/suites/shop.py"


def run(source: str, **names: Any) -> dict[str, Any]:
    """Run a module with rewritten assertions, and give its names."""
    exec(compile_rewritten(textwrap.dedent(source).encode(), _PATH), names)
    return names


def failure(source: str, **names: Any) -> AssertionError:
    """The failure of a module with rewritten assertions."""
    with pytest.raises(AssertionError) as caught:
        run(source, **names)
    return caught.value


def message(source: str, **names: Any) -> str:
    """What the failure says."""
    return str(failure(source, **names))


class Output:
    def final_output(self) -> str:
        return "xx and more"


# --- what a failure says


def test_says_the_expression_both_sides_and_the_parts_with_the_deepest_last() -> None:
    source = 'assert ctx.final_output().count("x") == expected'

    said = message(source, ctx=Output(), expected=3)

    assert said.splitlines() == [
        'assert ctx.final_output().count("x") == expected',
        '  left:  ctx.final_output().count("x") = 2',
        "  right: expected = 3",
        "  where  ctx.final_output() = 'xx and more'",
    ]


def test_says_what_the_author_said_first() -> None:
    source = "assert count == 2, f'{count} is not enough'"

    said = message(source, count=1)

    assert said.splitlines() == ["1 is not enough", "assert count == 2", "  left:  count = 1"]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("assert a", ["false: a = 0"]),
        ("assert not b", ["true:  b = [1]"]),
        ("assert b and a", ["false: a = 0", "where  b = [1]"]),
        ("assert a and b", ["false: a = 0"]),
        ("assert a or not b", ["false: a = 0", "true:  b = [1]"]),
        ("assert not (a or b)", ["true:  b = [1]", "where  a = 0"]),
        ("assert a if b else b", ["false: a = 0", "where  b = [1]"]),
        ("assert b and b[0] > 1", ["false: b[0] > 1", "left:  b[0] = 1", "where  b = [1]"]),
        ("assert 0 < n < 10", ["where  n = 50"]),
        ("assert a < b[0] < n < b[0]", ["left:  n = 50", "right: b[0] = 1", "where  a = 0", "b = [1]"]),
        ("assert a > n > b[0]", ["left:  a = 0", "right: n = 50"]),
        ("assert n - 1 == -n", ["left:  n - 1 = 49", "right: -n = -50", "where  n = 50"]),
        ("assert (m := n) == 3", ["left:  (m := n) = 50", "where  n = 50"]),
        ("assert b[0:n] == [n, *b]", ["left:  b[0:n] = [1]", "right: [n, *b] = [50, 1]"]),
        ("assert max(*b, key=None, default=n) is len", ["left:  max(*b", "right: len = <built-in"]),
        ("assert len(str(n)) in (3, 4)", ["left:  len(str(n)) = 2", "where  str(n) = '50'", "n = 50"]),
        ("assert f'{n}!' == '51!'", ["left:  f'{n}!' = '50!'"]),
        ("assert [i for i in b] == []", ["left:  [i for i in b] = [1]"]),
        ("assert not any(i for i in b)", ["true:  any(i for i in b) = True"]),
        ("assert False", []),
        ("assert n == 1 == 1", []),
    ],
)
def test_says_the_part_that_decided(source: str, lines: list[str]) -> None:
    names = {"a": 0, "b": [1], "n": 50, "max": lambda *_, **__: 1}

    said = [line.strip() for line in message(source, **names).splitlines()]

    assert said[0] == source
    for number, line in enumerate(lines, start=1):
        assert said[number].startswith(line)


def test_writes_an_expression_of_several_lines_on_one() -> None:
    source = """
        assert (
            first  # the first
            == "a  b"
        )
    """

    said = message(source, first=1)

    assert said.splitlines()[0] == "assert first == 'a  b'"


def test_keeps_letters_beyond_ascii_in_their_place() -> None:
    source = "größe = 'ä'; assert 'ö' + größe == 'öß'"

    said = message(source)

    assert said.splitlines()[:2] == ["assert 'ö' + größe == 'öß'", "  left:  'ö' + größe = 'öä'"]


def test_does_not_repeat_functions_modules_classes_and_objects_without_a_text() -> None:
    source = "import os.path\nassert isinstance(os.path.basename(ctx.final_output()), int)"

    said = message(source, ctx=Output())

    assert [line.split(" = ")[0].strip() for line in said.splitlines()[1:]] == [
        "false: isinstance(os.path.basename(ctx.final_output()), int)",
        "where  os.path.basename(ctx.final_output())",
        "ctx.final_output()",
    ]


# --- what two sides differ in


def test_shows_where_long_strings_first_differ() -> None:
    left, right = "a" * 500 + "left end", "a" * 500 + "right end"

    said = message("assert left == right", left=left, right=right)

    assert "differs at 500: 'aaaaaaaaaaaaaaaleft end' != 'aaaaaaaaaaaaaaaright end'" in said


def test_shows_a_short_diff_of_texts_of_several_lines() -> None:
    left = "\n".join(f"line {number}" for number in range(1000))
    right = left.replace("line 500\n", "").replace("line 503\n", "line 5O3\n")

    said = message("assert left == right", left=left, right=right)

    assert textwrap.dedent(said[said.index("    - left") :]).splitlines() == [
        "- left, + right",
        "@ line 499",
        *("  line 498", "  line 499", "- line 500", "  line 501", "  line 502"),
        *("- line 503", "+ line 5O3", "  line 504", "  line 505"),
    ]


def test_bounds_a_diff_to_twenty_lines() -> None:
    left, right = ("\n".join(f"{word} {number}" for number in range(90)) for word in ("one", "two"))

    said = message("assert left == right", left=left, right=right)

    assert len(said.splitlines()) == 3 + 20 + 1


def test_a_diff_of_exactly_twenty_lines_is_whole() -> None:
    # A heading, a place, and nine lines of each side.
    left, right = ("\n".join(f"{word} {number}" for number in range(9)) for word in ("one", "two"))

    said = message("assert left == right", left=left, right=right)

    assert len(said.splitlines()) == 3 + 20
    assert said.splitlines()[-1].strip() == "+ two 8"


@dataclass
class Point:
    x: int
    y: str


@pytest.mark.parametrize(
    ("left", "right", "lines"),
    [
        ([1, 2, 3], [1, 5, 3], ["differs at [1]: 2 != 5"]),
        ([1, 2], [1, 2, 3], ["lengths differ: 2 != 3", "only right has [2]: 3"]),
        ([1, 2, 3], [2, 3], ["lengths differ: 3 != 2", "differs at [0]: 1 != 2", "- left, + right", "@ [0]", "- 1"]),
        ((1, {"a": 1}), (1, {"a": 2}), ["differs at [1]: {'a': 1} != {'a': 2}", "differs at ['a']: 1 != 2"]),
        (
            {"a": 1, "b": 2},
            {"b": 3, "c": 4},
            ["only left has ['a']", "only right has ['c']", "differs at ['b']: 2 != 3"],
        ),
        ({1, 2, 3}, {2, 3, 4}, ["only left has {1}", "only right has {4}"]),
        (Point(1, "a"), Point(1, "b"), ["differs at .y: 'a' != 'b'"]),
        (b"a" * 90, b"a" * 91, ["differs at 90: b'aaaaaaaaaaaaaaa' != b'aaaaaaaaaaaaaaaa'"]),
        (1, 2, []),
        ("short", "shirt", []),
    ],
)
def test_shows_what_two_values_differ_in(left: Any, right: Any, lines: list[str]) -> None:
    said = message("assert left == right", left=left, right=right)

    shown = [line.strip() for line in said.splitlines()[3:]]
    assert shown[: len(lines)] == lines
    assert shown or not lines


def test_shows_the_nearest_miss_in_a_long_text() -> None:
    text = "\n".join(f"step {number}: nothing to see" for number in range(300)) + "\nran pnpm tset --filter unit\n"

    said = message('assert "Ran pnpm test" in text', text=text)

    assert "nearest: line 301: 'ran pnpm tset'" in said


def test_shows_the_nearest_miss_in_one_long_line() -> None:
    text = "[" + ", ".join(f'{{"step": {number}}}' for number in range(2000)) + ', {"commnad": "ls"}]'

    said = message("""assert '"command": "ls"' in text""", text=text)

    assert """nearest: line 1: '"commnad": "ls"'""" in said


def test_shows_no_nearest_miss_where_nothing_is_alike() -> None:
    said = message('assert "pnpm test" in text', text="z" * 1000)

    assert "nearest" not in said


def test_shows_the_nearest_item() -> None:
    said = message('assert "write-tests" in skills', skills=["review", "write-test", "deploy"])

    assert "nearest: 'write-test'" in said


def test_shows_where_an_unwanted_text_stands() -> None:
    text = "fine\n" * 100 + "then npm install\n" + "fine\n" * 100

    said = message('assert "npm" not in text', text=text)

    assert "found: line 101, character 505: " in said


def test_an_unwanted_text_at_the_very_start_is_shown_from_its_first_character() -> None:
    text = "npm install, and then nothing worth a word for the rest of the line"

    said = message('assert "npm" not in text', text=text)

    assert "found: line 1, character 0: 'npm install, and then n'" in said


# --- bounds


class Broken:
    def __repr__(self) -> str:
        raise SystemExit("no")

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None


class Unsayable:
    def __str__(self) -> str:
        raise ValueError("no")


def nested(depth: int) -> list[Any]:
    inside: list[Any] = []
    for _ in range(depth):
        inside = [inside, inside]
    return inside


Pair = namedtuple("Pair", "one other")  # noqa: PYI024 - the old kind is what is meant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ab" * 500, "'ababababababababababababababababababababababababab' ... '"),
        (b"ab" * 500, "b'abab"),
        ([1, [2, (3,)], set(), {4}, frozenset({5})], "[1, [2, (3,)], set(), {4}, frozenset({5})]"),
        (list(range(100)), "[0, 1, 2, 3, 4, ... 95 more]"),
        ({"a": {"b": 1}}, "{'a': {'b': 1}}"),
        (deque([1]), "deque([1])"),
        (Counter("aab"), "Counter({'a': 2, 'b': 1})"),
        (Point(1, "a" * 1000), "Point(x=1, y='aaaaaaaaaaaaaaaa' ... 'aaaaaaaaaaaaaaaa' (1,000 characters))"),
        (Pair(1, 2), "Pair(one=1, other=2)"),
        (ValueError("no"), "ValueError('no')"),
        (10**10_000, "<int of 33,220 bits>"),
        (Broken(), "<Broken, whose repr raised SystemExit>"),
        ([Broken()], "[<Broken, whose repr raised SystemExit>]"),
        ({}.keys(), "dict_keys([])"),
    ],
    ids=lambda _: "value",
)
def test_tells_a_value_in_short(value: Any, text: str) -> None:
    told = value_text(value, 100)

    assert told.startswith(text)
    assert len(told) <= 180


def test_says_the_length_of_a_string_that_it_shortens_in_the_middle() -> None:
    told = value_text("a" * 5_000_000 + "z", 40)

    assert told == f"'{'a' * 20}' ... '{'a' * 19}z' (5,000,001 characters)"


_LARGE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "string": lambda: ("a" * 100_000_000, "a" * 99_999_999 + "b"),
    "lines": lambda: ("a\n" * 10_000_000, "a\n" * 10_000_000 + "b"),
    "wide": lambda: ("\U0001f600\0" * 100_000, "\U0001f600\0" * 100_000 + "b"),
    "list": lambda: (list(range(1_000_000)), list(range(1, 1_000_001))),
    "map": lambda: ({str(number): "v" * 1000 for number in range(10_000)}, {}),
    "nested": lambda: (nested(40), [nested(40)]),
    "strings": lambda: (["x\x1b[31m" * 1000] * 1000, ["y" * 100_000] * 999),
    "many lines": lambda: ("\n".join("\x1b\ud800" * 90 for _ in range(90)), "\n" * 90),
}


@pytest.mark.parametrize("kind", _LARGE)
def test_bounds_a_message_in_size_and_time_whatever_the_values(kind: str) -> None:
    left, right = _LARGE[kind]()
    names = {"left": left, "right": right, "say": "\U0001f600" * 10_000, **{f"n{at}": left for at in range(20)}}
    many = " + ".join(f"f(n{at})" for at in range(20))
    began = time.process_time()

    said = message(f"assert left == right or {many}, say", f=lambda _: 0, **names)

    assert time.process_time() - began < 3
    assert len(said.encode()) < 8192
    assert "\x1b" not in said


def test_bounds_a_search_in_a_very_long_text() -> None:
    text = "some words of output and more of them\n" * 2_000_000
    began = time.process_time()

    said = message("assert 'words of outputs' in text", text=text)

    assert time.process_time() - began < 3
    assert "nearest: line 1: 'words of output '" in said


def test_survives_parts_that_cannot_be_shown_or_compared() -> None:
    names = {"a": Broken(), "b": [Broken()], "c": [Broken()], "say": Unsayable()}

    said = message("assert a == 1 or b == c, say", **names)

    assert said.splitlines()[:3] == [
        "(its message cannot be shown: ValueError)",
        "assert a == 1 or b == c",
        "  false: a == 1",
    ]


# --- Python as ever


def line_of(error: BaseException) -> int | None:
    return traceback.extract_tb(error.__traceback__)[-1].lineno


@pytest.mark.parametrize(
    "source",
    [
        "\n\nassert x == 2",
        "def f():\n    y = 1\n    assert x == 2\nf()",
        "class A:\n    'doc'\n    assert x == 2",
        "def f():\n    class A:\n        assert x == 2\nf()",
        "def f():\n    yield 1\n    assert x == 2\nlist(f())",
        "import asyncio\nasync def f():\n    assert await g(x) == 2\nasync def g(x): return x\nasyncio.run(f())",
        "\nf = 1\nassert (f ==\n    x == \n   2)",
        "try:\n    pass\nfinally:    assert x == 2",
        "match x:\n    case 1 if x:\n        assert x == 2",
        "if x == 5: pass\nelif x:\n    assert x == 2",
        "for _ in [1]:\n    with open('/dev/null'):\n        assert x == 2",
    ],
)
def test_fails_at_the_line_of_the_assertion_and_in_the_frame_of_its_author(source: str) -> None:
    error = failure(source, x=1)

    frames = traceback.extract_tb(error.__traceback__)
    assert (frames[-1].filename, frames[-1].lineno) == (_PATH, 3)
    assert "= 1" in str(error)


def test_leaves_docstrings_and_future_imports_where_python_wants_them() -> None:
    source = '''
        """The module."""
        from __future__ import annotations
        from __future__ import division

        def f(x: Unknown) -> Unknown:
            """The function."""
            assert x
            return x

        class A:
            """The class."""
            assert f(1)
    '''

    names = run(source)

    assert (names["__doc__"], names["f"].__doc__, names["A"].__doc__) == ("The module.", "The function.", "The class.")
    assert names["f"].__annotations__["x"] == "Unknown"


def test_leaves_no_names_behind() -> None:
    source = """
        import enum
        assert [1]
        def f(x):
            try:
                assert x.missing or x
            except AttributeError:
                pass
            assert x == 1 and x or x
            return locals()
        class Colour(enum.Enum):
            red = 1
            assert red == 1
        seen = f(1)
    """

    names = run(source)

    assert names["seen"] == {"x": 1}
    assert list(names["Colour"].__members__) == ["red"]
    assert [name for name, value in names.items() if name.startswith("@") and value is not None] == ["@whet"]


class Held:
    def __call__(self) -> bool:
        return True


def test_keeps_no_object_alive() -> None:
    source = """
        def f():
            held = make()
            assert held()
            try:
                assert held() is None
            except AssertionError:
                pass
            del held
            return ref()
    """
    references: list[weakref.ref[Held]] = []

    def make() -> Held:
        held = Held()
        references.append(weakref.ref(held))
        return held

    gc.disable()
    try:
        left = run(source, make=make, ref=lambda: [item() for item in references])["f"]()
    finally:
        gc.enable()

    assert left == [None]


def test_evaluates_the_message_only_after_a_failure() -> None:
    source = "assert note('test'), note('message')"
    notes: list[str] = []

    run(source, note=lambda word: notes.append(word) or True)
    with pytest.raises(AssertionError):
        run(source, note=notes.append)

    assert notes == ["test", "test", "message"]


def test_lets_an_exception_of_the_expression_through() -> None:
    source = "\nassert (1 ==\n    x.missing)"

    with pytest.raises(AttributeError) as caught:
        run(source, x=1)

    assert line_of(caught.value) == 3


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("assert x is 1", "literal"),
        ("assert [1, 2](x)", "not callable"),
        ("assert [[1] [x, x]]", "must be integers"),
    ],
)
def test_lets_python_warn_once_of_what_the_author_wrote(source: str, text: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compile_rewritten(source.encode(), _PATH)

    assert [re.search(text, str(item.message)) is not None for item in caught] == [True]
    assert (caught[0].filename, caught[0].lineno) == (_PATH, 1)


@pytest.mark.parametrize("test", ['(x, "message")', "(False,)", "(x for x in y)", "(lambda: x)"])
def test_refuses_an_assertion_that_cannot_fail(test: str) -> None:
    source = f"def check(x, y):\n    if x:\n        assert {test}\n"

    with warnings.catch_warnings(record=True) as warned, pytest.raises(SyntaxError, match="is always true") as caught:
        compile_rewritten(source.encode(), _PATH)

    assert (caught.value.filename, caught.value.lineno, warned) == (_PATH, 3, [])


@pytest.mark.parametrize("source", ["assert (", "assert await x", "assert (yield)", "x = '\0'", "# coding: latin-9000"])
def test_refuses_what_python_refuses(source: str) -> None:
    with pytest.raises((SyntaxError, ValueError)) as plain:
        compile(source.encode(), _PATH, "exec")

    with pytest.raises((SyntaxError, ValueError)) as ours:
        compile_rewritten(source.encode(), _PATH)

    assert (type(ours.value), str(ours.value)) == (type(plain.value), str(plain.value))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_reads_a_file_in_its_own_encoding(encoding: str) -> None:
    cookie = "" if encoding == "utf-8-sig" else f"# coding: {encoding}\n"
    source = f"{cookie}\r\nassert x == 'ä\\d'\r\n".replace("\\d", "")

    with pytest.raises(AssertionError) as caught:
        exec(compile_rewritten(source.encode(encoding), _PATH), {"x": 1})

    assert str(caught.value).splitlines() == ["assert x == 'ä'", "  left:  x = 1"]


def test_does_not_fail_on_an_expression_of_any_depth() -> None:
    deep = "assert x != " + "+".join(["x"] * 2000)
    chain = "if x == 0: pass\n" + "".join(f"elif x == {number}: pass\n" for number in range(2, 1000)) + "else: assert x"

    names = [run(source, x=1) for source in (deep, chain)]

    assert all(item["x"] == 1 for item in names)


# --- the same as Python, by trial

_ATOMS = st.sampled_from(["a", "b", "c", "f()", "1", "'s'", "(lambda: a)", "f'{a.x}'", "[n.y for n in [a, b]]", "[]"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = inner.map(lambda text: f"({text})")
    compare = st.sampled_from(["==", "<", "!=", "in", "not in", "is", ">="])
    return st.one_of(
        st.builds("{}.attr".format, one),
        st.builds("{}.method({}, *[{}], k={})".format, one, one, one, one),
        st.builds("f({}, **{{'k': {}}})".format, one, one),
        st.builds("{}({})".format, one, one),
        st.builds("{}[{}]".format, one, one),
        st.builds("{}[{}:{}, {}]".format, one, one, one, one),
        st.builds("{} {} {}".format, one, compare, one),
        st.builds("{} {} {} {} {}".format, one, compare, one, compare, one),
        st.builds(
            "{} {} {} {} {}".format, one, st.sampled_from(["and", "or"]), one, st.sampled_from(["and", "or"]), one
        ),
        st.builds("not {}".format, one),
        st.builds("-{}".format, one),
        st.builds("{} + {}".format, one, one),
        st.builds("{} if {} else {}".format, one, one, one),
        st.builds("w := {}".format, one).map(lambda text: f"({text})"),
        st.builds("[{}, *[{}]]".format, one, one),
        st.builds("{{{}: {}}}".format, st.just("'k'"), one),
    )


class Ledger:
    """What happened, in order; what happens next is drawn from it, so that the same goes on the same."""

    def __init__(self, seed: int) -> None:
        self.entries: list[str] = []
        self.seed = seed

    def note(self, entry: str) -> int:
        self.entries.append(entry)
        drawn = (self.seed * 2654435761 + len(self.entries) * 40503) >> 7
        if drawn % 23 == 0:
            raise ValueError(f"step {len(self.entries)}")
        return drawn


class Thing:
    """Answers every operation, and has it noted."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self._name = name

    def _next(self, entry: str) -> Thing:
        return Thing(self._ledger, f"{self._name[:8]}{self._ledger.note(f'{self._name} {entry}') % 100}")

    def __getattr__(self, name: str) -> Thing:
        return self._next(f".{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Thing:
        return self._next(f"({len(args)}, {sorted(kwargs)})")

    def __getitem__(self, key: object) -> Thing:
        if len(self._ledger.entries) > 500:
            raise IndexError
        return self._next("[]")

    def __bool__(self) -> bool:
        return self._ledger.note(f"{self._name} bool") % 2 == 0

    def __contains__(self, other: object) -> bool:
        return self._ledger.note(f"{self._name} in") % 2 == 0

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> Thing:  # type: ignore[override]
        return self._next("==")

    def __ne__(self, other: object) -> Thing:  # type: ignore[override]
        return self._next("!=")

    def __lt__(self, other: object) -> Thing:
        return self._next("<")

    def __gt__(self, other: object) -> Thing:
        return self._next(">")

    def __ge__(self, other: object) -> Thing:
        return self._next(">=")

    def __le__(self, other: object) -> Thing:
        return self._next("<=")

    def __neg__(self) -> Thing:
        return self._next("-")

    def __add__(self, other: object) -> Thing:
        return self._next("+")

    __radd__ = __add__

    def __repr__(self) -> str:
        return f"<{self._name}>"

    def __format__(self, spec: str) -> str:
        return self._next("format")._name


_ADDRESS = re.compile("0x[0-9a-f]+")


def happened(code: Any, seed: int) -> tuple[list[str], str]:
    ledger = Ledger(seed)
    names: dict[str, Any] = {name: Thing(ledger, name) for name in "abcf"}
    try:
        exec(code, names)
    except AssertionError:
        return ledger.entries, "AssertionError"
    except Exception as error:
        return ledger.entries, _ADDRESS.sub("", f"{type(error).__name__}: {error}")
    return ledger.entries, _ADDRESS.sub("", f"holds, w = {names.get('w')!r}")


_SCOPES = {
    "module": "assert {}\n",
    "function": "def check():\n    global w\n    assert {}\ncheck()\n",
    "class": "class A:\n    assert {}\n",
    "generator": "def check():\n    assert {}\n    yield\nlist(check())\n",
}


@settings(max_examples=400)
@given(
    expression=st.recursive(_ATOMS, _grown, max_leaves=8),
    scope=st.sampled_from(sorted(_SCOPES)),
    seed=st.integers(0, 1_000_000),
)
def test_evaluates_what_python_evaluates_as_often_in_the_same_order_with_the_same_outcome(
    expression: str, scope: str, seed: int
) -> None:
    source = _SCOPES[scope].format(expression).encode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = compile(source, _PATH, "exec")
        try:
            ours = compile_rewritten(source, _PATH)
        except SyntaxError as error:
            if "the assertion is always true" not in str(error):
                raise
            # What can never fail is refused, which other tests are about.
            reject()

    expected = happened(plain, seed)
    given_instead = happened(ours, seed)

    # Explaining an unequal list or map compares its items once more, after all that Python does.
    assert given_instead[1] == expected[1]
    assert given_instead[0][: len(expected[0])] == expected[0]
    if expected[1] != "AssertionError":
        assert given_instead[0] == expected[0]


# --- collecting


def test_collects_every_failing_assertion_of_a_block_in_order_and_runs_on() -> None:
    source = """
        def check(x):
            reached = []
            with collecting(take):
                assert x == 1
                reached.append(1)
                assert x == 5, "second"
                for word in ("third", "fourth"):
                    assert x == word
                    reached.append(word)
                assert x == 0
            return reached
    """
    errors: list[AssertionError] = []

    def take(error: AssertionError) -> bool:
        errors.append(error)
        return True

    reached = run(source, collecting=collecting, take=take)["check"](0)

    assert reached == [1, "third", "fourth"]
    assert [str(error).splitlines()[0] for error in errors] == ["assert x == 1", "second", *["assert x == word"] * 2]
    assert [line_of(error) for error in errors] == [5, 7, 9, 9]


def test_raises_what_the_hook_does_not_take_and_all_that_fails_after_the_block() -> None:
    with collecting(lambda _: False):
        refused = failure("assert x", x=0)
    after = failure("assert x", x=0)

    assert str(refused) == str(after) == "assert x\n  false: x = 0"
    assert line_of(refused) == 1


def test_collects_for_the_task_that_asked_only() -> None:
    source = """
        import asyncio
        async def soft():
            with collecting(lambda error: True):
                await asyncio.sleep(0.01)
                assert not x
                await asyncio.sleep(0.01)
            return "soft"
        async def hard():
            await asyncio.sleep(0.005)
            assert not x
        async def both():
            return await asyncio.gather(soft(), hard(), return_exceptions=True)
    """

    soft, hard = asyncio.run(run(source, collecting=collecting, x=1)["both"]())

    assert soft == "soft"
    assert isinstance(hard, AssertionError)


# --- loading


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=SuiteLoader(path.stem, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Put a folder on the path for one test."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield lambda folder: sys.path.insert(0, str(folder))
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_loads_a_suite_without_a_trace_in_the_cache_of_python(tmp_path: Path) -> None:
    path = tmp_path / "shop.py"
    path.write_text("def check(x):\n    assert x == 1\n")

    module = load(path)

    with pytest.raises(AssertionError, match="left:  x = 2"):
        module.check(2)
    assert [item.name for item in tmp_path.iterdir()] == ["shop.py"]


def test_rewrites_helpers_beside_the_suite_and_nothing_else(tmp_path: Path, imports: Callable[[Path], None]) -> None:
    suite, elsewhere = tmp_path / "suite", tmp_path / "elsewhere"
    for path in (suite / "near_helper.py", suite / "near_kit" / "deep.py", elsewhere / "far_helper.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def check(x):\n    assert x == 1\n")
    (suite / "near_kit" / "__init__.py").write_text("")
    (suite / "shop.py").write_text("import near_helper, far_helper\nfrom near_kit import deep\n")
    imports(elsewhere)
    imports(suite)

    with rewriting_helpers(suite):
        module = load(suite / "shop.py")

    said = []
    for helper in (module.near_helper, module.deep, module.far_helper):
        with pytest.raises(AssertionError) as caught:
            helper.check(2)
        said.append("left:  x = 2" in str(caught.value))
    assert said[:2] == [True, True]
    assert type(module.far_helper.__loader__) is not SuiteLoader
    assert not any(isinstance(finder, HelperFinder) for finder in sys.meta_path)
