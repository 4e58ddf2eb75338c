"""Records that no program should print: cut off, with a wrong value at every place, or nothing but nonsense."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reading import RECORDINGS

_WRONG: tuple[Any, ...] = (None, True, -1, 2**63 - 1, 10**30, 0.5, "", "\ud800", "-", [], [[1]], {}, {"type": 1})


def records_of(agent: str) -> list[dict[str, Any]]:
    """The records of all recordings of *agent*, one of each shape."""
    shapes: dict[str, dict[str, Any]] = {}
    for path in sorted((RECORDINGS / agent).rglob("stdout.jsonl")):
        for record in _records(path):
            shapes.setdefault(_shape(record), record)
    return list(shapes.values())


def spoiled(agent: str, seed: int) -> Iterator[bytes]:
    """Every record of *agent* spoiled in every way, and then anything at all."""
    for record in records_of(agent):
        line = json.dumps(record).encode()
        yield from (line[:end] for end in range(0, len(line), 1 + len(line) // 16))
        for path in list(_places(record)):
            yield from (json.dumps(_changed(record, path, value)).encode() for value in _WRONG)
    chance = random.Random(seed)
    types = [record["type"] for record in records_of(agent)]
    for _ in range(500):
        anything = _anything(chance, 4)
        yield json.dumps(anything).encode()
        if isinstance(anything, dict):
            yield json.dumps({**anything, "type": chance.choice(types)}).encode()
        yield chance.randbytes(20).replace(b"\n", b"")


def _records(path: Path) -> Iterator[dict[str, Any]]:
    yield from (json.loads(line) for line in path.read_text().splitlines())


def _shape(value: Any) -> str:
    """What a record is, without what it says; the values of short fields tell kinds apart."""
    if isinstance(value, dict):
        kinds = [value[name] for name in ("type", "tool", "toolName", "tool_name", "status") if name in value]
        return f"{kinds}{sorted((name, _shape(item)) for name, item in value.items())}"
    return f"[{_shape(value[0]) if value else ''}]" if isinstance(value, list) else type(value).__name__


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value[:2]):
            yield from _places(item, (*path, key))


def _changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _changed(value[path[0]], path[1:], new)
    return copy


def _anything(chance: random.Random, depth: int) -> Any:
    if depth and chance.random() < 0.6:
        items = [_anything(chance, depth - 1) for _ in range(chance.randrange(4))]
        names = ("type", "data", "part", "state", "error", "message", "tokens", "result", "role", "content")
        return items if chance.random() < 0.4 else {chance.choice(names): item for item in items}
    return chance.choice(_WRONG)
