"""Covers real keys in the answers of a provider, which may repeat what it was sent.

What leaves here, and when, depends on the text alone and never on the key, unless all of the key was there. Otherwise
an agent could have its guesses repeated, and see in the sizes of the pieces which of them begin the key.
"""

from __future__ import annotations

from collections.abc import Iterable

from whet.ground.secrets import Masker

# No form of a usual key has these, so what comes before one of them need not wait. Every event of a stream ends in one.
_BREAKS = b"\n\r\t \"'`{}[]()<>,;"
_RUN = bytes(byte for byte in range(256) if byte not in _BREAKS)
# The longest form of a usual key: a zero after each character, as JSON writes it.
_LONGEST = len("k\\u0000")
# Shorter keys, and those that could be words, are what servers of your own take, such as "placeholder" or "lm-studio".
_SHORTEST, _NO_WORD = 8, 24


def is_covered(key: str) -> bool:
    """Return whether *key* is covered in answers: it cannot be an ordinary word, which answers need."""
    if len(key) < _SHORTEST:
        return False
    mixed = key.lower() != key != key.upper()
    return len(key) >= _NO_WORD or mixed or any(character.isdecimal() for character in key)


class KeyMask:
    """Covers keys in an answer, piece by piece; what covers a key has its length, so that the length stays true.

    The end of a piece waits for the next one if it could belong to any key of that length: the characters after the
    last one that no key has, and at most as many as a key takes.
    """

    def __init__(self, keys: Iterable[bytes]) -> None:
        covered = [key.decode() for key in keys if is_covered(key.decode())]
        self._masker = Masker(covered)
        usual = max((len(key) for key in covered), default=0) * _LONGEST
        self._most = max(usual, self._masker.longest)
        # A key with a space or a quote in it has no end that could be seen.
        self._run = bytes(range(256)) if any(byte in key.encode() for key in covered for byte in _BREAKS) else _RUN
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what can be passed on now."""
        if not self._most:
            return piece
        data = self._rest + piece if self._rest else piece
        tail = data[-self._most :]
        cut = len(data) - len(tail) + len(tail.rstrip(self._run))
        if self._masker.finds(data):
            data = self._cover(data, cut)
        self._rest = data[cut:]
        return data[:cut] if self._rest else data

    def all_of(self, data: bytes) -> bytes:
        """Return *data*, which is all there is, without keys."""
        return self._cover(data, len(data)) if self._masker.finds(data) else data

    def finish(self) -> bytes:
        """Return what was held back."""
        rest, self._rest = self._rest, b""
        return self.all_of(rest)

    def _cover(self, data: bytes, before: int) -> bytes:
        """Return *data* without the keys that begin before this place."""
        covered = bytearray(data)
        for begin, end in self._masker.found(data):
            if begin < before:
                covered[begin:end] = b"*" * (end - begin)
        return bytes(covered)
