"""Keeping secrets out of the record: their values are replaced on the way to disk."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|PASS$|[A-Z]_?PWD$|CREDENTIAL|PRIVATE|COOKIE|(^|_)(PAT|AUTH)$", re.IGNORECASE
)
_NO_SECRET = frozenset({"PWD", "OLDPWD"})
# What stands between a user's name and the host of an address.
_PASSWORD_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_HEX = re.compile("%[0-9A-F]{2}")
# As login files name what is not called a token or a key.
_SECRET_IN_LOGIN = re.compile(r"^(access|refresh|code|pin|session|bearer)$", re.IGNORECASE)
_ASSIGNED = re.compile(r"""^\s*(?:export\s+)?["']?([\w.-]+)["']?\s*[=:]\s*["']?(.*?)["']?\s*,?\s*$""")
# As `.netrc` does.
_FOLLOWED = re.compile(r"\b(?:password|passwd|token|secret|key)\s+(\S+)", re.IGNORECASE)
# A shorter value would take ordinary words with it.
_SHORTEST = 8
# The same where its name does not say that it is secret: a login file holds names, dates and addresses as well.
_SHORTEST_UNNAMED = 20
# How what is written with two bytes a character shows: by zeros, as they are or escaped.
_ZEROS = (b"\0", b"\\u0000", b"\\x00")


def looks_secret(name: str) -> bool:
    """Whether a variable of this name holds something that nobody should read."""
    return name.upper() not in _NO_SECRET and _SECRET_NAME.search(name) is not None


def can_be_hidden(value: str) -> bool:
    """Whether a value is long enough to be told from ordinary words."""
    return len(value) >= _SHORTEST


def secret_values(*tables: Mapping[str, str]) -> tuple[str, ...]:
    """The values of all variables that look secret."""
    values = {value for table in tables for name, value in table.items() if looks_secret(name)}
    values |= {found for table in tables for value in table.values() for found in _PASSWORD_IN_URL.findall(value)}
    return tuple(sorted(filter(can_be_hidden, values)))


def secrets_in(login: bytes) -> Iterator[str]:
    """What could be secret in a file that logs somebody in: what is called so, and every long word of its values."""
    try:
        values = _texts(json.loads(login), named=False)
    except (ValueError, RecursionError):
        values = _lines(login.decode("utf-8", "replace"))
    for value, named in values:
        shortest = _SHORTEST if named else _SHORTEST_UNNAMED
        if len(value) >= shortest and (named or " " not in value or "PRIVATE KEY" in value):
            yield value


def _texts(value: Any, *, named: bool) -> Iterator[tuple[str, bool]]:
    """Every text in *value*, and whether a name on the way to it says that it is secret."""
    match value:
        case str():
            yield value, named
        case dict():
            for key, item in value.items():
                yield from _texts(item, named=named or _names_secret(str(key)))
        case list():
            for item in value:
                yield from _texts(item, named=named)
        case _:
            pass


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Every line, and what a line gives a name to."""
    for line in text.splitlines():
        yield line, False
        found = _ASSIGNED.match(line)
        if found:
            yield found[2], _names_secret(found[1])
        yield from ((value, True) for value in _FOLLOWED.findall(line))


def _names_secret(name: str) -> bool:
    return looks_secret(name) or _SECRET_IN_LOGIN.search(name) is not None


def written_forms(value: str) -> set[str]:
    """*value* as it is, and as JSON, Python, a shell, an address and base64 write it; mostly few, as most are alike."""
    # Only now: whoever merely asks whether a name looks secret needs neither.
    import base64  # noqa: PLC0415
    import urllib.parse  # noqa: PLC0415

    quoted = {urllib.parse.quote(value, safe=safe, errors="surrogateescape") for safe in ("", "/")}
    quoted.add(urllib.parse.quote_plus(value, errors="surrogateescape"))
    escaped = {
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        ascii(value)[1:-1],
    }
    shell = {value.replace("'", word) for word in ("'\\''", "'\"'\"'")}
    encoded = {encode(_bytes(value)).decode() for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    small = {_HEX.sub(lambda found: found[0].lower(), form) for form in quoted}
    return {value} | escaped | shell | quoted | small | encoded | {form.rstrip("=") for form in encoded}


def wide_forms(value: str) -> set[bytes]:
    """*value* with two bytes a character, as it is and as JSON and Python write the zeros.

    A reader that drops the zeros, as many do, would show it plainly. No form begins or ends with one.
    """
    wide = "\0".join(value)
    raw = {value.encode(f"utf-16-{order}", "surrogatepass").strip(b"\0") for order in ("le", "be")}
    return raw | {_bytes(form) for form in (wide, json.dumps(wide)[1:-1], repr(wide)[1:-1])}


class Masker:
    """Replaces known values wherever they appear, as they are or as `written_forms` and `wide_forms` give them."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._forms: list[bytes] = []
        self._wide: list[bytes] = []
        self.learn(values)

    def learn(self, values: Iterable[str]) -> None:
        """Replace these as well, from now on."""
        more = {value for value in values if value} - self._values
        if not more:
            return
        self._values |= more
        forms = {form for value in self._values for form in written_forms(value)}
        # The longest first, so that a value that contains another is replaced whole.
        self._forms = sorted((_bytes(form) for form in forms if form), key=len, reverse=True)
        self._wide = sorted({form for value in self._values for form in wide_forms(value)}, key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def knowing(self, more: Iterable[str]) -> Masker:
        """One that replaces *more* values as well."""
        return Masker((*self._values, *more))

    @property
    def longest(self) -> int:
        """The length of the longest thing that is replaced."""
        return max((len(form) for form in (*self._forms, *self._wide)), default=0)

    def finds(self, data: bytes) -> bool:
        """Whether something in *data* would be replaced."""
        return any(form in data for form in self._likely(data))

    def data(self, data: bytes) -> bytes:
        """*data* without secrets; where two of them overlap, both are gone."""
        pieces: list[bytes] = []
        done = 0
        for begin, end in self.found(data):
            pieces += [data[done:begin], HIDDEN.encode()]
            done = end
        return b"".join((*pieces, data[done:])) if pieces else data

    def text(self, text: str) -> str:
        """*text* without secrets."""
        if not self._forms:
            return text
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def tree(self, value: Any) -> Any:
        """The same for plain data: every text in it, but no key."""
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {key: self.tree(item) for key, item in value.items()}
            case list() | tuple():
                return [self.tree(item) for item in value]
            case _:
                return value

    def split(self, data: bytes) -> int:
        """Where *data* can be cut so that no secret, not even one that has only begun, lies across."""
        cut = len(data) - max((_overlap(data, form) for form in self._likely(data)), default=0)
        return min((begin for begin, end in self.found(data) if begin < cut < end), default=cut)

    def _likely(self, data: bytes) -> list[bytes]:
        """The forms to look for: wide ones only where there is a zero, which is seldom, or where one may have begun."""
        wide = any(zero in data for zero in _ZEROS) or data.endswith((b"\\", b"\\u", b"\\u0", b"\\u00", b"\\u000"))
        return self._forms + self._wide if wide or data.endswith((b"\\x", b"\\x0")) else self._forms

    def found(self, data: bytes) -> list[tuple[int, int]]:
        """Where secrets stand, overlapping ones as one."""
        spans = sorted(span for form in self._likely(data) if form in data for span in _places(data, form))
        merged: list[tuple[int, int]] = []
        for begin, end in spans:
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        return merged


class MaskedStream:
    """The same over a stream that comes in pieces: a secret that lies across two of them is still one."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """What can be written now."""
        if not self._masker:
            return chunk
        data = self._rest + chunk
        cut = self._masker.split(data)
        self._rest = data[cut:]
        return self._masker.data(data[:cut])

    def forget(self) -> None:
        """Drop what was held back."""
        self._rest = b""

    def finish(self) -> bytes:
        """What was held back, now that nothing follows."""
        rest, self._rest = self._masker.data(self._rest), b""
        return rest


def _places(data: bytes, form: bytes) -> Iterator[tuple[int, int]]:
    begin = data.find(form)
    while begin >= 0:
        yield begin, begin + len(form)
        begin = data.find(form, begin + 1)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _overlap(data: bytes, form: bytes) -> int:
    """How much of the beginning of *form* ends *data*; looks only where its first byte stands, which is seldom."""
    end = len(data)
    at = data.find(form[:1], max(0, end - len(form) + 1))
    while at >= 0:
        if form.startswith(data[at:]):
            return end - at
        at = data.find(form[:1], at + 1)
    return 0
