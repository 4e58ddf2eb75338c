"""Which line of a reason says most, so that tables can say why in a few words and count equal causes together."""

from __future__ import annotations

import pytest

from whet.report.reason import parted_reason


@pytest.mark.parametrize(
    ("message", "head"),
    [
        ("the entry has no link\nassert '#' in entry", "the entry has no link"),
        ("2 expectations do not hold\n1. suite.py:7: no link\n2. suite.py:8: no date", "no link"),
        (
            "ended with exit code 1:\nTraceback (most recent call last):\n  File 'a.py', line 3\nKeyError: 'name'",
            "ended with exit code 1: KeyError: 'name'",
        ),
        ("Traceback (most recent call last):\n  File 'a.py', line 3\nKeyError: 'name'", "KeyError: 'name'"),
        ("", ""),
    ],
)
def test_the_line_that_says_most_comes_first(message, head):
    assert parted_reason(message)[0] == head


def test_what_was_seen_follows_as_one_line():
    assert parted_reason("no link\n  seen:\n    - one\n") == ("no link", "seen: - one")
