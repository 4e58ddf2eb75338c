"""What an agent sees of an answer does not depend on the key, unless all of the key was there."""

from __future__ import annotations

import random
from base64 import b64encode, urlsafe_b64encode
from typing import Any

import pytest
from gateway_bench import KEY

from whet.gateway._mask import KeyMask
from whet.gateway.routes import is_covered

OTHER = "sk-fake-fedcba9876543210"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
assert len(KEY) == len(OTHER)


def pieces_of(key: str, pieces: list[bytes]) -> list[bytes]:
    """What leaves the mask of *key* at each piece, and at the end."""
    mask = KeyMask([key.encode()])
    return [*(mask.feed(piece) for piece in pieces), mask.finish()]


def guesses(chance: random.Random) -> bytes:
    """Text as an attacker would have it repeated: beginnings of keys, in every form, between anything else."""
    key = chance.choice((KEY, OTHER, b64encode(KEY.encode()).decode(), KEY.upper(), "\0".join(KEY)))
    begin = key[: chance.randrange(len(key))]
    noise = "".join(chance.choice("ab \n\"'{}[],;.-_=/+%\\\0") for _ in range(chance.randrange(30)))
    return (noise + begin).encode()


def test_what_leaves_is_the_same_for_two_keys_of_one_length() -> None:
    chance = random.Random(20261118)
    for _ in range(3000):
        text = b"".join(guesses(chance) for _ in range(4))
        cuts = sorted(chance.randrange(len(text) + 1) for _ in range(5))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

        for whole in (KEY, OTHER):
            assert whole.encode() not in text
        assert pieces_of(KEY, pieces) == pieces_of(OTHER, pieces)
        assert b"".join(pieces_of(KEY, pieces)) == text


@pytest.mark.parametrize("form", [KEY, b64encode(KEY.encode()).decode(), "\\u0000".join(KEY), "\0".join(KEY)])
def test_a_key_is_covered_however_it_is_cut(form: str) -> None:
    text = f"data: {form}\n\ndata: {form}{form}x".encode()
    for cut in range(len(text)):
        for size in (1, 7, len(text)):
            pieces = [text[:cut], *(text[at : at + size] for at in range(cut, len(text), size))]

            left = b"".join(pieces_of(KEY, pieces))

            assert left == text.replace(form.encode(), b"*" * len(form))


def some_escaped(escape: str) -> str:
    """The key with every third character escaped."""
    return "".join(escape % ord(c) if at % 3 == 1 else c for at, c in enumerate(KEY))


@pytest.mark.parametrize(
    "form",
    [
        KEY.encode().hex(),
        KEY.encode().hex().upper(),
        KEY.encode().hex().replace("a", "A"),
        some_escaped("%%%02x"),
        some_escaped("%%25%02X"),
        some_escaped("\\u%04x"),
        some_escaped("\\\\u%04X"),
        some_escaped("\\x%02x"),
        some_escaped("&#%d;"),
        some_escaped("&#x%04x;"),
        "".join(f"%{ord(c):02X}" for c in KEY),
        "".join(f"\\u{ord(c):04x}" for c in KEY),
        "".join(f"&#x{ord(c):06x};" for c in KEY),
    ],
)
def test_a_key_is_covered_in_hex_and_with_any_escapes_however_it_is_cut(form: str) -> None:
    text = f"data: ?{form}\n\ndata: {form}|{form}".encode()
    for cut in range(len(text)):
        for size in (1, len(text)):
            pieces = [text[:cut], *(text[at : at + size] for at in range(cut, len(text), size))]

            assert b"".join(pieces_of(KEY, pieces)) == text.replace(form.encode(), b"*" * len(form))


@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize("before", range(6))
@pytest.mark.parametrize("after", range(4))
def test_a_key_is_covered_in_base64_of_a_longer_text(encode: Any, before: int, after: int) -> None:
    text = encode(b"\xff" * before + KEY.encode() + b"\xfe" * after)

    left = b"".join(pieces_of(KEY, [text[at : at + 1] for at in range(len(text))]))

    assert len(left) == len(text)
    # What is left of the text decodes to none of the characters of the key.
    shown = [number for number, byte in enumerate(left) if byte != ord("*") and text[number] != ord("=")]
    assert all(number * 6 + 6 <= before * 8 or number * 6 >= (before + len(KEY)) * 8 for number in shown)


def test_parts_of_a_key_in_any_spelling_pass_as_they_are() -> None:
    text = KEY.encode()[:-1].hex() + " " + some_escaped("\\u%04x")[:-1] + " " + b64encode(KEY.encode()[:-3]).decode()

    assert b"".join(pieces_of(KEY, [text.encode()])) == text.encode()


def test_an_event_does_not_wait_for_the_next_one() -> None:
    mask = KeyMask([KEY.encode()])

    for event in (b'data: {"text": "sk-real-01234"}\n\n', b"data: sk-real-0\r\n\r\n", b'{"a": "sk-re"}'):
        assert mask.feed(event) == event


def test_a_text_without_end_leaves_but_for_as_much_as_a_key_takes() -> None:
    mask = KeyMask([KEY.encode()])

    left = [mask.feed(b"x" * 8192) for _ in range(10)]

    assert 0 < 8192 - len(left[0]) <= 10 * len(KEY)
    assert [len(piece) for piece in left[1:]] == [8192] * 9


def test_a_key_with_a_space_in_it_is_covered_too() -> None:
    key = 'two "words" 0123456789'
    text = f"{key[:6]} {key} {key[:9]}".encode()

    left = pieces_of(key, [text[:4], text[4:15], text[15:]])

    assert b"".join(left) == text.replace(key.encode(), b"*" * len(key))


@pytest.mark.parametrize(
    ("key", "covered"),
    [
        ("sk-0123456789abcdef", True),
        ("abc12345", True),
        ("QwErTyUi", True),
        ("correct-horse-battery-staple", True),
        ("placeholder", False),
        ("lm-studio", False),
        ("EMPTY", False),
        ("a1b2", False),
    ],
)
def test_a_key_is_covered_unless_it_could_be_a_word(key: str, covered: bool) -> None:
    assert is_covered(key) == covered
    assert (pieces_of(key, [b"<" + key.encode() + b">"]) != [b"<" + key.encode() + b">", b""]) == covered


@pytest.mark.parametrize("known", range(3, len(KEY)))
def test_guesses_that_a_provider_repeats_tell_nothing_of_the_key(known: int) -> None:
    blocks = [(KEY[:known] + letter).rjust(8192, ".").encode() for letter in LETTERS]

    left = pieces_of(KEY, [*blocks, b"." * 8192])

    # The last letter of all is the only one that completes the key.
    if known < len(KEY) - 1:
        assert len({len(piece) for piece in left[1:-1]}) == 1
        assert b"".join(left) == b"".join(blocks) + b"." * 8192
    assert not [piece for piece in left if piece.startswith(KEY[:known].encode())]
