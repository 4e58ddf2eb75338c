"""Capturing output: up to a ceiling, masked, in a file that exists only if there is something."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.errors import OutputTooLarge
from whet.secrets import Capture, Masker

SECRET = "secret-0123456789"


def test_nothing_printed_is_no_file(tmp_path: Path) -> None:
    capture = Capture(tmp_path / "out", masker=Masker(), most_bytes=10)

    capture.close()

    assert not (tmp_path / "out").exists()
    assert not capture.written


def test_what_is_printed_is_written_passed_on_and_its_end_remembered(tmp_path: Path) -> None:
    seen = bytearray()
    capture = Capture(tmp_path / "out", masker=Masker(), most_bytes=10_000, then=seen.extend)

    for _ in range(3):
        capture(b"x" * 1000)
    capture(b"end")
    capture.close()

    assert (tmp_path / "out").read_bytes() == bytes(seen) == b"x" * 3000 + b"end"
    assert capture.tail == b"x" * 1997 + b"end"


def test_a_ceiling_keeps_what_fits_and_refuses_the_rest(tmp_path: Path) -> None:
    capture = Capture(tmp_path / "out", masker=Masker(), most_bytes=5)
    capture(b"123")

    with pytest.raises(OutputTooLarge, match="more than 5 bytes"):
        capture(b"456")
    capture.close()

    assert (tmp_path / "out").read_bytes() == b"12345"


def test_output_that_just_fits_is_no_trouble(tmp_path: Path) -> None:
    capture = Capture(tmp_path / "out", masker=Masker(), most_bytes=3)

    capture(b"123")
    capture.close()

    assert (tmp_path / "out").read_bytes() == b"123"


def test_a_secret_in_two_pieces_is_masked_also_for_whoever_listens(tmp_path: Path) -> None:
    seen = bytearray()
    capture = Capture(tmp_path / "out", masker=Masker([SECRET]), most_bytes=1000, then=seen.extend)

    capture(b"a " + SECRET[:7].encode())
    capture(SECRET[7:].encode() + b" b")
    capture.close()

    assert (tmp_path / "out").read_bytes() == bytes(seen) == b"a *** b"
    assert capture.tail == b"a *** b"


def test_the_beginning_of_a_secret_that_the_ceiling_cuts_off_is_not_written(tmp_path: Path) -> None:
    capture = Capture(tmp_path / "out", masker=Masker([SECRET]), most_bytes=len(SECRET) + 1)

    with pytest.raises(OutputTooLarge):
        capture(b"ab" + SECRET.encode())
    capture.close()

    assert SECRET[:10].encode() not in (tmp_path / "out").read_bytes()
