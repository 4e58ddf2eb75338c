"""Masking: what is taken for a secret, and that no way of cutting a stream lets one through."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.secrets import HIDDEN, MaskedStream, Masker, looks_secret, secret_values, secrets_in
from whet.workspace import mask_files

SECRET = "sk-0123456789"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("github_token", True),
        ("DB_PASSWORD", True),
        ("AWS_SECRET_ACCESS", True),
        ("GOOGLE_CREDENTIALS", True),
        ("PATH", False),
        ("HOME", False),
    ],
)
def test_a_name_tells_whether_its_value_is_secret(name: str, secret: bool) -> None:
    assert looks_secret(name) is secret


def test_values_are_taken_from_all_tables_and_short_ones_left_alone() -> None:
    found = secret_values({"A_KEY": SECRET, "B_KEY": "short", "C": "not secret"}, {"D_TOKEN": "another-secret"})

    assert found == ("another-secret", SECRET)


def test_a_value_is_masked_as_it_is_and_as_json_writes_it() -> None:
    masker = Masker(['a"b\\c\né-long'])

    text = masker.text('raw a"b\\c\né-long json a\\"b\\\\c\\n\\u00e9-long utf8 a\\"b\\\\c\\né-long')

    assert text == f"raw {HIDDEN} json {HIDDEN} utf8 {HIDDEN}"


def test_a_value_that_contains_another_is_masked_whole() -> None:
    masker = Masker(["secret-one", "secret-one-and-more"])

    assert masker.data(b"x secret-one-and-more y secret-one z") == b"x *** y *** z"


def test_a_masker_without_values_changes_nothing_and_is_false() -> None:
    assert not Masker()
    assert Masker().data(b"abc") == b"abc"
    assert MaskedStream(Masker()).feed(b"abc") == b"abc"


@given(
    parts=st.lists(st.sampled_from(["secret-ab", "secret-", "ab", "x", "secret-ab-more", "-more", "\n"]), max_size=8),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_one_secret_is_masked_alike_however_a_stream_is_cut(parts: list[str], cuts: list[int]) -> None:
    masker = Masker(["secret-ab-more"])
    data = "".join(parts).encode()

    stream = MaskedStream(masker)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [stream.feed(data[start:end]) for start, end in pairwise(places)]

    # Two secrets side by side may be told as one or as two.
    assert _once(b"".join(pieces) + stream.finish()) == _once(masker.data(data))


def _once(data: bytes) -> bytes:
    return re.sub(rb"(\*\*\*)+", b"***", data)


def test_a_secret_that_begins_like_another_is_masked_whole_when_it_comes_in_two_pieces() -> None:
    masker = Masker(["secret-one", "secret-one-and-more"])
    stream = MaskedStream(masker)

    told = stream.feed(b"x secret-one") + stream.feed(b"-and-more y") + stream.finish()

    assert told == b"x *** y"


@pytest.mark.parametrize(
    ("login", "secrets"),
    [
        (b'{"a": {"b": ["0123456789012345678901"]}, "type": "oauth", "expires": 17}', ["0123456789012345678901"]),
        (b'{"private_key": "-----BEGIN PRIVATE KEY-----\\nMII"}', ["-----BEGIN PRIVATE KEY-----\nMII"]),
        (b'{"scope": "one of many words and another"}', []),
        (b"token 1\n0123456789012345678901\n\xff", ["0123456789012345678901"]),
        (b'{"tokens": {"access": "short-one", "kind": "x"}, "user": "somebody"}', ["short-one"]),
        (b'{"password": "two words", "api_key": "1234567"}', ["two words"]),
        (b"oauth_token: gho_12345\nuser: somebody\n", ["gho_12345"]),
        (b"export API_KEY='12345678'\n", ["12345678"]),
        (b"machine example.com login me password hunter2-hunter2\n", ["hunter2-hunter2"]),
        (b"", []),
    ],
)
def test_every_long_word_of_a_login_file_is_secret(login: bytes, secrets: list[str]) -> None:
    assert list(secrets_in(login)) == secrets


@pytest.mark.parametrize(
    "written",
    [
        SECRET.encode("utf-16"),
        SECRET.encode("utf-16-le"),
        SECRET.encode("utf-16-be"),
        json.dumps("\0".join(SECRET)).encode(),
        repr("\0".join(SECRET)).encode(),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_a_value_with_two_bytes_a_character_is_masked_however_a_stream_is_cut(written: bytes, size: int) -> None:
    stream = MaskedStream(Masker([SECRET]))

    pieces = [stream.feed((b"x" + written + b"y")[at : at + size]) for at in range(0, len(written) + 2, size)]
    told = b"".join(pieces) + stream.finish()

    assert HIDDEN.encode() in told
    assert b"0123" not in told.replace(b"\0", b"").replace(b"\\u0000", b"").replace(b"\\x00", b"")


def test_a_masker_can_learn_more() -> None:
    masker = Masker(["secret-one"])

    masker.learn(["secret-two", "", "secret-one"])

    assert masker.text("secret-one secret-two") == f"{HIDDEN} {HIDDEN}"


@pytest.mark.parametrize("before", [0, 1, 5, len(SECRET) - 1, len(SECRET)])
def test_a_secret_on_the_border_of_two_pieces_of_a_large_file_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr(mask_files, "_PIECE", 1000)
    (tmp_path / "large").write_bytes(b"x" * (1000 - before) + SECRET.encode() + b"y" * 1000)

    problems = mask_files.mask_files(Masker((SECRET,)), tmp_path)

    assert problems == []
    assert (tmp_path / "large").read_text() == "x" * (1000 - before) + HIDDEN + "y" * 1000
