"""Recognise secrets by name and replace their values before anything is written to disk."""

from __future__ import annotations

import base64
import json
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from whet.errors import OutputTooLarge

HIDDEN = "***"
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|PASS$|[A-Z]_?PWD$|CREDENTIAL|PRIVATE|COOKIE|(^|_)(PAT|AUTH)$", re.IGNORECASE
)
_NO_SECRET = frozenset({"PWD", "OLDPWD"})
# The password in an address with a user name.
_PASSWORD_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_HEX = re.compile("%[0-9A-F]{2}")
# Names in login files of secrets that are not called token or key.
_SECRET_IN_LOGIN = re.compile(r"^(access|refresh|code|pin|session|bearer)$", re.IGNORECASE)
_ASSIGNED = re.compile(r"""^\s*(?:export\s+)?["']?([\w.-]+)["']?\s*[=:]\s*["']?(.*?)["']?\s*,?\s*$""")
# As in `.netrc`.
_FOLLOWED = re.compile(r"\b(?:password|passwd|token|secret|key)\s+(\S+)", re.IGNORECASE)
# Masking a shorter value would hit ordinary words.
_SHORTEST = 8
# The same for a value without a secret name: a login file also has names, dates and addresses.
_SHORTEST_UNNAMED = 20
# Text with two bytes a character has zeros, as bytes or as escapes.
_ZEROS = (b"\0", b"\\u0000", b"\\x00")
_ZEROS_BEGUN = (b"\\", b"\\u", b"\\u0", b"\\u00", b"\\u000", b"\\x", b"\\x0")

# The most that is remembered of the end of an output.
_TAIL = 2000


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name is likely to contain a secret."""
    return name.upper() not in _NO_SECRET and _SECRET_NAME.search(name) is not None


def can_be_hidden(value: str) -> bool:
    """Return whether a value is long enough not to be an ordinary word."""
    return len(value) >= _SHORTEST


def secret_values(*tables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of all variables that look secret."""
    values = {value for table in tables for name, value in table.items() if looks_secret(name)}
    values |= {password for table in tables for value in table.values() for password in _PASSWORD_IN_URL.findall(value)}
    return tuple(sorted(filter(can_be_hidden, values)))


def secrets_in(login: bytes) -> Iterator[str]:
    """Yield what could be secret in a login file: values with a secret name, and every long value without blanks."""
    try:
        values = _texts(json.loads(login), named=False)
    except (ValueError, RecursionError):
        values = _lines(login.decode("utf-8", "replace"))
    for value, named in values:
        shortest = _SHORTEST if named else _SHORTEST_UNNAMED
        if len(value) >= shortest and (named or " " not in value or "PRIVATE KEY" in value):
            yield value


def _texts(value: Any, *, named: bool) -> Iterator[tuple[str, bool]]:
    """Yield every text in *value*, and whether a key above it looks secret."""
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
    """Yield every line, and the value of a line that assigns one."""
    for line in text.splitlines():
        yield line, False
        match = _ASSIGNED.match(line)
        if match:
            yield match[2], _names_secret(match[1])
        yield from ((value, True) for value in _FOLLOWED.findall(line))


def _names_secret(name: str) -> bool:
    return looks_secret(name) or _SECRET_IN_LOGIN.search(name) is not None


def written_forms(value: str) -> set[str]:
    """Return *value* as it is and as JSON, Python, a shell, a URL and base64 write it; most of them are equal."""
    url_forms = {urllib.parse.quote(value, safe=safe, errors="surrogateescape") for safe in ("", "/")}
    url_forms.add(urllib.parse.quote_plus(value, errors="surrogateescape"))
    escapes = {
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        ascii(value)[1:-1],
    }
    shell = {value.replace("'", word) for word in ("'\\''", "'\"'\"'")}
    base64_forms = {encode(_bytes(value)).decode() for encode in (base64.b64encode, base64.urlsafe_b64encode)}
    small = {_HEX.sub(lambda match: match[0].lower(), form) for form in url_forms}
    return {value} | escapes | shell | url_forms | small | base64_forms | {form.rstrip("=") for form in base64_forms}


def wide_forms(value: str) -> set[bytes]:
    """Return *value* with two bytes a character, as bytes and as JSON and Python write the zeros.

    Many readers drop the zeros and would show the secret. No form starts or ends with a zero.
    """
    wide = "\0".join(value)
    raw = {value.encode(f"utf-16-{order}", "surrogatepass").strip(b"\0") for order in ("le", "be")}
    return raw | {_bytes(form) for form in (wide, json.dumps(wide)[1:-1], repr(wide)[1:-1])}


class Masker:
    """Replaces known values wherever they appear, in any of their `written_forms` and `wide_forms`."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._forms: list[bytes] = []
        self._wide: list[bytes] = []
        self.learn(values)

    def learn(self, values: Iterable[str]) -> None:
        """Replace these values too, from now on."""
        more = {value for value in values if value} - self._values
        if not more:
            return
        self._values |= more
        forms = {form for value in self._values for form in written_forms(value)}
        # The longest first, so that a value that contains another is replaced as a whole.
        self._forms = sorted((_bytes(form) for form in forms if form), key=len, reverse=True)
        self._wide = sorted({form for value in self._values for form in wide_forms(value)}, key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def knowing(self, more: Iterable[str]) -> Masker:
        """Return a masker that replaces *more* values as well."""
        return Masker((*self._values, *more))

    @property
    def longest(self) -> int:
        """The length of the longest form that is replaced."""
        return max((len(form) for form in (*self._forms, *self._wide)), default=0)

    def finds(self, data: bytes) -> bool:
        """Return whether something in *data* would be replaced."""
        # A loop, because this is asked for each piece of each answer of a model.
        for form in self._likely(data):  # noqa: SIM110
            if form in data:
                return True
        return False

    def data(self, data: bytes) -> bytes:
        """Return *data* without secrets, also if two of them overlap."""
        pieces: list[bytes] = []
        position = 0
        for begin, end in self.found(data):
            pieces += [data[position:begin], HIDDEN.encode()]
            position = end
        return b"".join((*pieces, data[position:])) if pieces else data

    def text(self, text: str) -> str:
        """Return *text* without secrets."""
        if not self._forms:
            return text
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def write(self, path: Path, text: str) -> None:
        """Write *text* to a file, without secrets."""
        path.write_bytes(self.data(text.encode("utf-8", "backslashreplace")))

    def tree(self, value: Any) -> Any:
        """Return plain data without secrets in any of its texts; keys stay as they are."""
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
        """Return where to cut *data* so that no secret, or beginning of one, is cut in two."""
        cut = len(data) - max((overlap(data, form) for form in self._likely(data)), default=0)
        return min((begin for begin, end in self.found(data) if begin < cut < end), default=cut)

    def _likely(self, data: bytes) -> list[bytes]:
        """Return the forms to look for: wide ones only if there is a zero, or the beginning of an escaped one."""
        raw, json_escape, python_escape = _ZEROS
        wide = raw in data or json_escape in data or python_escape in data or data.endswith(_ZEROS_BEGUN)
        return self._forms + self._wide if wide else self._forms

    def found(self, data: bytes) -> list[tuple[int, int]]:
        """Return the start and end of each secret; overlapping ones count as one."""
        spans = sorted(span for form in self._likely(data) if form in data for span in _places(data, form))
        places: list[tuple[int, int]] = []
        for begin, end in spans:
            if places and begin <= places[-1][1]:
                places[-1] = (places[-1][0], max(end, places[-1][1]))
            else:
                places.append((begin, end))
        return places


class MaskedStream:
    """Masks a stream that arrives in pieces, also secrets that are split between two of them."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return what can be written now."""
        if not self._masker:
            return chunk
        data = self._rest + chunk
        cut = self._masker.split(data)
        self._rest = data[cut:]
        return self._masker.data(data[:cut])

    def forget(self) -> None:
        """Drop what is held back."""
        self._rest = b""

    def finish(self) -> bytes:
        """Return the rest of the stream."""
        data, self._rest = self._masker.data(self._rest), b""
        return data


class Capture:
    """A sink that writes output to a file, masked and limited, and passes on what it wrote."""

    def __init__(
        self, path: Path, *, masker: Masker, most_bytes: int, then: Callable[[bytes], None] | None = None
    ) -> None:
        self.path = path
        self.tail = b""
        self._stream = MaskedStream(masker)
        self._left = most_bytes
        self._most = most_bytes
        self._then = then
        self._file: int | None = None

    def __call__(self, chunk: bytes) -> None:
        """Write one piece of output; raises if there is too much."""
        accepted_bytes = chunk[: self._left]
        self._left -= len(accepted_bytes)
        self._write(self._stream.feed(accepted_bytes))
        if len(accepted_bytes) < len(chunk):
            # The limit may have cut a secret in two; do not write its beginning either.
            self._stream.forget()
            raise OutputTooLarge(
                f"printed more than {self._most} bytes and was stopped",
                hint="raise defaults.max_output_bytes if this is what it should do",
            )

    @property
    def written(self) -> bool:
        """Whether there was any output."""
        return self._file is not None

    def close(self) -> None:
        """Write what was held back and close the file."""
        self._write(self._stream.finish())
        if self._file is not None:
            os.close(self._file)

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if self._file is None:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self.tail = (self.tail + data)[-_TAIL:]
        if self._then:
            self._then(data)


def _places(data: bytes, form: bytes) -> Iterator[tuple[int, int]]:
    begin = data.find(form)
    while begin >= 0:
        yield begin, begin + len(form)
        begin = data.find(form, begin + 1)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def overlap(data: bytes, form: bytes) -> int:
    """Return how many bytes at the end of *data* begin *form*; searches for its first byte, which is quick."""
    end = len(data)
    at = data.find(form[:1], max(0, end - len(form) + 1))
    while at >= 0:
        if form.startswith(data[at:]):
            return end - at
        at = data.find(form[:1], at + 1)
    return 0
