"""Covers real keys in the answers of a provider, which may repeat what it was sent.

What leaves here, and when, depends on the text alone and never on the key, unless all of the key was there. Otherwise
an agent could have its guesses repeated, and see in the sizes of the pieces which of them begin the key.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator

from whet.gateway.routes import is_covered
from whet.secrets import Masker

# No form of a usual key has these, so what comes before one of them need not wait. Every event of a stream ends in one.
_BREAKS = b"\n\r\t \"'`{}[]()<>,"
_RUN = bytes(byte for byte in range(256) if byte not in _BREAKS)
# The longest form of a usual key: each character as HTML writes it.
_LONGEST = len("&#x000000;")
# Without one of these, no character of a key is escaped.
_ESCAPES = (b"%", b"\\u", b"\\x", b"\\/", b"&#")
_BASE64 = rb"[A-Za-z0-9+/_-]?"


class _Spellings:
    """Finds keys of which any characters are escaped, and keys in hex or in base64, also as a part of a longer text."""

    def __init__(self, keys: Iterable[str]) -> None:
        encodings = [key.encode() for key in keys]
        self._hex = [key.hex().encode() for key in encodings]
        self._base64 = [*dict.fromkeys(core for key in encodings for core in _base64_cores(key))]
        # The characters around the core hold some bits of the key too.
        self._around = re.compile(_BASE64 + b"(?:" + b"|".join(map(re.escape, self._base64)) + b")" + _BASE64)
        self._escaped = re.compile(b"|".join(b"".join(map(_any_escape, key)) for key in keys))

    def found(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each key; most data is searched for a few texts and no more."""
        small = data.lower()
        for form in self._hex:
            if form in small:
                yield from (match.span() for match in re.finditer(form, small))
        if any(core in data for core in self._base64):
            yield from (match.span() for match in self._around.finditer(data))
        if any(mark in small for mark in _ESCAPES):
            yield from (match.span() for match in self._escaped.finditer(data))


def _base64_cores(key: bytes) -> Iterator[bytes]:
    """Yield what base64 makes of *key* behind none, one or two other bytes, without what other bytes have a part in."""
    for before in range(3):
        data = bytes(before) + key
        begin, end = -(-before * 8 // 6), len(data) * 8 // 6
        yield from (encode(data)[begin:end] for encode in (b64encode, urlsafe_b64encode))


def _any_escape(character: str) -> bytes:
    """Return the pattern of a character as it is, or as an address, JSON, Python or HTML may write it.

    What escapes it may be escaped itself, as text of JSON in JSON is.
    """
    code = f"{ord(character):x}".encode()
    in_address = b"".join(b"%%(?:25){0,2}(?i:%02x)" % byte for byte in character.encode())
    patterns = [
        re.escape(character.encode()),
        in_address,
        rb"\\{1,4}u(?i:" + code.rjust(4, b"0") + b")",
        rb"\\{1,4}x(?i:" + code.rjust(2, b"0") + b")",
        rb"&#(?i:x)0{0,4}(?i:" + code + b");",
        rb"&#0{0,4}%d;" % ord(character),
    ]
    if character == "/":
        patterns.append(rb"\\{1,4}/")
    return b"(?:" + b"|".join(patterns) + b")"


class KeyMask:
    """Covers keys in an answer, piece by piece; what covers a key has its length, so that the length stays true.

    The end of a piece waits for the next one if it could belong to any key of that length: the characters after the
    last one that no key has, and at most as many as a key takes.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        secrets = [key.decode() for key in keys if is_covered(key.decode())]
        self._masker = Masker(secrets)
        self._spellings = _Spellings(secrets)
        longest_spelling = max((len(key) for key in secrets), default=0) * _LONGEST
        self._most = max(longest_spelling, self._masker.longest)
        # A key with a space or a quote in it has no end that could be seen.
        self._run = bytes(range(256)) if any(byte in key.encode() for key in secrets for byte in _BREAKS) else _RUN
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what can be passed on now."""
        if not self._most:
            return piece
        data = self._rest + piece if self._rest else piece
        tail = data[-self._most :]
        cut = len(data) - len(tail) + len(tail.rstrip(self._run))
        data = self._cover(data, cut)
        self._rest = data[cut:]
        return data[:cut] if self._rest else data

    def all_of(self, data: bytes) -> bytes:
        """Return *data*, which is all there is, without keys."""
        return self._cover(data, len(data)) if self._most else data

    def finish(self) -> bytes:
        """Return what was held back."""
        tail, self._rest = self._rest, b""
        return self.all_of(tail)

    def _cover(self, data: bytes, limit: int) -> bytes:
        """Return *data* without the keys that begin before this place."""
        spans = [*self._spellings.found(data)]
        if self._masker.finds(data):
            spans += self._masker.found(data)
        if not spans:
            return data
        masking = bytearray(data)
        for begin, end in spans:
            if begin < limit:
                masking[begin:end] = b"*" * (end - begin)
        return bytes(masking)
