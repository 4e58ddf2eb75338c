"""Lines as they should not be: cut off, broken, and with values of another kind than ever seen."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

_NONSENSE = (
    b"", b"{", b"{}", b"[]", b"null", b"0", b'"text"', b"plain text", b"\x00\xff\xfe", b'{"type":', b'{"type":null}',
    b'{"type":"never.seen"}', b'{"type":["list"]}', b"[" * 5000, b'{"a":' * 5000, b'{"type":"\\ud800"}',
)  # fmt: skip
# No true or false: to Python they are numbers too, and no program mistakes one for the other.
OTHERS: tuple[Any, ...] = (None, -1, 1.5, "", "text", [], ["text"], [[1]], {}, {"type": "text"})
_CUTS = 8
# A record may hold thousands of values, and the kinds of mistakes are found in the first few.
_MOST_PLACES = 120
_MOST_OF_A_KIND = 3
_MADE_UP = 500
_DEEPEST = 4


def garbled(lines: Iterable[bytes], *, others: tuple[Any, ...] = OTHERS, seed: int = 0) -> Iterator[bytes]:
    """Nonsense, then each line cut off in several places and with each of its values one of *others*; then anything."""
    lines = list(lines)
    yield from _NONSENSE
    yield from _spoiled(lines, others)
    yield from _made_up(lines, others, random.Random(seed))  # noqa: S311 - it guards nothing


def _spoiled(lines: list[bytes], others: tuple[Any, ...]) -> Iterator[bytes]:
    seen: dict[str, int] = {}
    for line in lines:
        kind = _kind(line)
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] > _MOST_OF_A_KIND:
            continue
        yield from (line[: len(line) * part // _CUTS] for part in range(1, _CUTS))
        yield line[: len(line) // 2] + b"\xff\x00" + line[len(line) // 2 :]
        yield from _exchanged(line, others)


def _kind(line: bytes) -> str:
    """Which values a record has, so that many records of a kind are tried but a few times."""
    try:
        record = json.loads(line)
    except ValueError:
        return "not JSON"
    return repr(sorted(map(str, _places(record)))) + str(record.get("type") if isinstance(record, dict) else "")


def _exchanged(line: bytes, others: tuple[Any, ...]) -> Iterator[bytes]:
    try:
        record = json.loads(line)
    except ValueError:
        return
    for place in list(_places(record))[:_MOST_PLACES]:
        holder = record
        for key in place[:-1]:
            holder = holder[key]
        kept = holder[place[-1]]
        for other in others:
            holder[place[-1]] = other
            yield json.dumps(record).encode()
        holder[place[-1]] = kept
        if isinstance(holder, dict):
            del holder[place[-1]]
            yield json.dumps(record).encode()
            holder[place[-1]] = kept


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value of a record, outer ones first; of a list, its first value only."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    inner = []
    for key, each in items:
        yield (*above, key)
        inner.append((each, (*above, key)))
    for each, place in inner:
        yield from _places(each, place)


def _made_up(lines: list[bytes], others: tuple[Any, ...], chance: random.Random) -> Iterator[bytes]:
    """Records of known types and names with anything in them, and bytes that are no record."""
    places = [place for line in lines for place in _places(_parsed(line))]
    names = sorted({name for place in places for name in place if isinstance(name, str)}) or ["type"]
    types = sorted({str(record["type"]) for line in lines if "type" in (record := _parsed(line))}) or [""]
    for _ in range(_MADE_UP):
        fields = {name: _anything(names, others, chance, _DEEPEST) for name in chance.choices(names, k=3)}
        yield json.dumps(fields).encode()
        yield json.dumps({**fields, "type": chance.choice(types)}).encode()
        yield chance.randbytes(20).replace(b"\n", b"")


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _anything(names: list[str], others: tuple[Any, ...], chance: random.Random, depth: int) -> Any:
    if depth == 0 or chance.random() < 0.4:  # noqa: PLR2004
        return chance.choice(others)
    items = [_anything(names, others, chance, depth - 1) for _ in range(chance.randrange(4))]
    return items if chance.random() < 0.4 else {chance.choice(names): item for item in items}  # noqa: PLR2004
