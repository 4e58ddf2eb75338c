"""The normal form of a request: what is the same whenever an agent asks the same, on any machine.

Left out are ids, times, the places of an attempt, the word in the copy of a skill, the order of keys, and the fields
that settings name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from whet.secrets import Masker

Tree: TypeAlias = Any

_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? "
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[AP]M)?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
_TIMES = re.compile(
    rf"\b\d{{4}}-\d\d-\d\d(?:[T_ ]{_CLOCK}{_ZONE})?"
    rf"|\b(?:{_DAY})?{_MONTH} +\d{{1,2}}(?:,? \d{{4}})?(?: +{_CLOCK}{_ZONE}(?: \d{{4}})?)?"
    rf"|\b(?:{_DAY})?\d{{1,2}}/\d{{1,2}}/\d{{4}}"
    rf"|\b{_CLOCK}{_ZONE}"
    r"|\b1[5-9]\d{8}(?:\d{3}|\.\d+)?\b"
    r"|\b\d+(?:\.\d+)? ?(?:ms|s|sec|seconds)\b"
)
_IDS = re.compile(
    r"(?:\b[a-z]{2,12}[_-])?(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f])"
    r"|\b(?:toolu|call|msg|resp|rs|fc|fco|ctc|item|req|chatcmpl|thread|session|ses|prt|answer|cch)[_=-][\w-]{5,}"
    r"|\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b"
    r"|(?<=\bID: )[0-9a-f]{4,}\b"
)
_MARK = "{{whet:%s}}"
_MARKED = re.compile(r"\{\{whet:([a-z-]+)\}\}")
# A place that is shorter could be a part of any word.
_SHORTEST = 4
_MOST_SHOWN, _WIDEST = 5, 160
# Deeper than any request of an agent; what compares two forms calls itself for each level.
_DEEPEST = 100
# What no model reads: agents name their sessions here.
_ASIDE = ("metadata", "client_metadata", "prompt_cache_key", "safety_identifier", "user", "input.*.id")


class Forms:
    """Brings requests into their normal form, and keeps answers apart from where they were recorded.

    *places* are texts that differ from attempt to attempt, by their names.
    """

    def __init__(self, places: Mapping[str, str], ignored: Iterable[str] = ()) -> None:
        long_places = {name: text for name, text in places.items() if len(text) >= _SHORTEST}
        self._places = long_places
        forms = [(text, name) for name, text in long_places.items()]
        # As some agents write the path of a folder in the name of another one.
        forms += [
            (re.sub(r"[^A-Za-z0-9]", "-", text), name) for name, text in long_places.items() if text.startswith("/")
        ]
        self._by_text = dict(sorted(forms, key=lambda form: len(form[0]), reverse=True))
        self._any = re.compile("|".join(map(re.escape, self._by_text)) or r"(?!)")
        # Some agents call a folder of their own by the name of the workspace.
        names = [text.rpartition("/")[2] for text in long_places.values() if text.startswith("/")]
        self._named = re.compile(rf"(?<=/)(?:{'|'.join(map(re.escape, names)) or '(?!)'})(?![\w.-])")
        self._kernel = re.compile(re.escape(os.uname().release))
        self._ignored = [tuple(path.split(".")) for path in ignored]

    def normal(self, method: str, path: str, query: str, body: bytes) -> Tree:
        """Return the normal form of a request."""
        visible_query = "&".join(part for part in query.split("&") if part and not part.startswith("key="))
        try:
            tree = json.loads(body) if body else None
            require_depth(tree)
        except (ValueError, RecursionError):
            tree = {"sha256": hashlib.sha256(body).hexdigest()}
        for path_to_ignore in self._ignored:
            _remove(tree, path_to_ignore)
        return {"method": method, "path": path, "query": visible_query, "body": _map_texts(tree, self._text)}

    def exact(self, body: bytes) -> bytes:
        """Return what a model is asked, word by word: only the places of the attempt do not matter."""
        try:
            tree = json.loads(body)
            require_depth(tree)
        except (ValueError, RecursionError):
            return body
        for path in _ASIDE:
            _remove(tree, tuple(path.split(".")))
        return json.dumps(_map_texts(tree, self.stored)).encode()

    def _text(self, text: str) -> str:
        text = self._named.sub("<place>", self._kernel.sub("<kernel>", self.stored(text)))
        return _IDS.sub("<id>", _TIMES.sub("<time>", text))

    def stored(self, text: str) -> str:
        """Return *text* with marks instead of places."""
        return self._any.sub(lambda match: _MARK % self._by_text[match[0]], text)

    def restored(self, text: str) -> str:
        """Return *text* with the places of this attempt instead of marks."""
        return _MARKED.sub(lambda match: self._places.get(match[1], match[0]), text)

    def stored_frames(self, frames: list[str], masker: Masker) -> list[str]:
        """Return the frames of a stream without secrets and with marks instead of places.

        Both may be spread over several frames, as a model says them word by word.
        """
        records = [_parse_frame(frame) for frame in frames]
        channels: dict[object, list[tuple[int, Any, Any]]] = {}
        for number, record in enumerate(records):
            for channel, holder, key in _deltas(record):
                channels.setdefault(channel, []).append((number, holder, key))
        changed_numbers = {number for deltas in channels.values() for number in self._joined(deltas, masker)}
        new_frames = [
            _replace_data(frame, records[n]) if n in changed_numbers else frame for n, frame in enumerate(frames)
        ]
        return [self.stored(masker.text(frame)) for frame in new_frames]

    def _joined(self, deltas: list[tuple[int, Any, Any]], masker: Masker) -> Iterator[int]:
        """Move what several deltas share into the first of them; yield the numbers of changed frames."""
        texts = [holder[key] for _, holder, key in deltas]
        starts = [0]
        for text in texts:
            starts.append(starts[-1] + len(text))
        joined_text = "".join(texts)
        for begin, end in sorted(self._spans(joined_text, masker), reverse=True):
            first, last = bisect_right(starts, begin, hi=len(texts)) - 1, bisect_left(starts, end) - 1
            if first == last:
                continue
            texts[first] = texts[first][: begin - starts[first]] + joined_text[begin:end]
            for index in range(first + 1, last + 1):
                texts[index] = texts[index][max(0, end - starts[index]) :]
            for index in range(first, last + 1):
                number, holder, key = deltas[index]
                holder[key] = texts[index]
                yield number

    def _spans(self, text: str, masker: Masker) -> Iterator[tuple[int, int]]:
        """Yield where places and secrets are."""
        yield from (match.span() for match in self._any.finditer(text))
        data = text.encode("utf-8", "surrogatepass")
        for begin, end in masker.found(data):
            yield tuple(len(data[:at].decode("utf-8", "surrogatepass")) for at in (begin, end))  # type: ignore[misc] # two


def _map_texts(value: Tree, change: Callable[[str], str]) -> Tree:
    match value:
        case str():
            return change(value)
        case dict():
            return {str(key): _map_texts(value[key], change) for key in sorted(value)}
        case list():
            return [_map_texts(item, change) for item in value]
        case _:
            return value


def require_depth(value: Tree, most: int = _DEEPEST) -> None:
    """Raise `RecursionError` if *value* is too deep to be compared."""
    if not most:
        raise RecursionError
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict | list):
                require_depth(inner, most - 1)


def _remove(value: Tree, path: tuple[str, ...]) -> None:
    """Leave a field out; `*` means every field or item."""
    if not path:
        return
    name, *remaining_path = path
    if isinstance(value, list):
        for item in value:
            _remove(item, tuple(remaining_path) if name == "*" else path)
    elif isinstance(value, dict):
        keys = list(value) if name == "*" else [key for key in (name,) if key in value]
        for key in keys:
            if remaining_path:
                _remove(value[key], tuple(remaining_path))
            else:
                del value[key]


def _parse_frame(frame: str) -> dict[str, Any]:
    lines = [line[5:] for line in frame.splitlines() if line.startswith("data:")]
    try:
        record = json.loads("\n".join(lines)) if lines else None
    except (ValueError, RecursionError):
        record = None
    return record if isinstance(record, dict) else {}


def _replace_data(frame: str, record: dict[str, Any]) -> str:
    """Return *frame* with other data."""
    other_lines = [line for line in frame.split("\n") if line and not line.startswith("data:")]
    return "\n".join([*other_lines, f"data: {json.dumps(record, ensure_ascii=False)}", "", ""])


def _deltas(record: dict[str, Any]) -> Iterator[tuple[object, Any, Any]]:
    """Yield the texts of which a frame has a piece: what they are a piece of, and where they are."""
    delta = record.get("delta")
    place = (record.get("type"), record.get("index"), record.get("item_id"), record.get("output_index"))
    if isinstance(delta, str):
        yield place, record, "delta"
    elif isinstance(delta, dict):
        yield from (((*place, key), delta, key) for key in ("text", "partial_json", "thinking") if _is_text(delta, key))
    for index, choice in enumerate(record.get("choices") or ()):
        delta_of_choice = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta_of_choice, dict):
            continue
        yield from (
            ((index, key), delta_of_choice, key)
            for key in ("content", "reasoning_content")
            if _is_text(delta_of_choice, key)
        )
        for call in delta_of_choice.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and _is_text(function, "arguments"):
                yield (index, "call", call.get("index")), function, "arguments"


def _is_text(holder: dict[str, Any], key: str) -> bool:
    return isinstance(holder.get(key), str)


def differences(request: Tree, recording: Tree) -> list[str]:
    """Return where two normal forms differ, the first few places, in words."""
    lines = [*_differences(request, recording, "")]
    omitted_count = len(lines) - _MOST_SHOWN
    return [*lines[:_MOST_SHOWN], *([f"and {omitted_count} more"] if omitted_count > 0 else [])]


def closeness(request: Tree, recording: Tree) -> tuple[int, int]:
    """Return how alike two normal forms are, for a comparison with others: the fewer differences, the more."""
    is_same_endpoint = request["method"] == recording["method"] and request["path"] == recording["path"]
    return int(is_same_endpoint), -sum(1 for _ in _differences(request, recording, ""))


def _differences(request: Tree, recording: Tree, place: str) -> Iterator[str]:
    if isinstance(request, dict) and isinstance(recording, dict):
        for key in sorted({*request, *recording}):
            inner = f"{place}.{key}" if place else key
            if key not in recording:
                yield f"{inner}: {_shorten(request[key])} was not there"
            elif key not in request:
                yield f"{inner}: {_shorten(recording[key])} is no longer there"
            else:
                yield from _differences(request[key], recording[key], inner)
    elif isinstance(request, list) and isinstance(recording, list):
        for number, (request_item, recorded_item) in enumerate(zip(request, recording, strict=False)):
            yield from _differences(request_item, recorded_item, f"{place}[{number}]")
        if len(request) != len(recording):
            yield f"{place}: {len(request)} items instead of {len(recording)}"
    elif request != recording:
        yield f"{place}: {_describe_difference(request, recording)}"


def _describe_difference(request: Tree, recording: Tree) -> str:
    """Show two values from where they differ."""
    if not (isinstance(request, str) and isinstance(recording, str)):
        return f"{_shorten(request)} instead of {_shorten(recording)}"
    pairs = enumerate(zip(request, recording, strict=False))
    begin = next(
        (at for at, (request_character, recorded_character) in pairs if request_character != recorded_character),
        min(len(request), len(recording)),
    )
    before = max(0, begin - _WIDEST // 8)
    dots = "..." if before else ""
    return f"{_shorten(dots + request[before:])} instead of {_shorten(dots + recording[before:])}"


def _shorten(value: Tree) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."
