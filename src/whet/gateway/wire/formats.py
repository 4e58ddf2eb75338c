"""What a request to a model asks for, and what its answer took: the four wire formats, whole and in streams.

Nothing here changes what passes through. A reader looks at the pieces of an answer on their way, and keeps no more of
them than it needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

import msgspec

from whet.agents.observe.records import LineSplitter, input_figures, number, parse, plus, rows, status_kind, table, text
from whet.model.events import TroubleKind
from whet.model.session import token_count

# The last one is of requests that settings allow, and that may be paid for.
Format = Literal["messages", "responses", "chat", "gemini", "other"]
Tokens: TypeAlias = dict[str, int | None]

# A frame of a stream may hold a whole answer; a larger one is not read.
_MOST_BYTES = 32 * 1024 * 1024
_GEMINI = re.compile(r"/(?:tuned)?models/(?P<model>[^/:]+):(?P<streams>stream)?generatecontent$", re.IGNORECASE)
_ENDINGS: dict[str, Format] = {"/messages": "messages", "/responses": "responses", "/completions": "chat"}
# What is asked in one piece and answered hours later.
_BATCHES = re.compile(r"/batches$|:(?:async)?batch\w*content$", re.IGNORECASE)
_STREAM = "text/event-stream"
_JSON = "application/json"
# How providers say that the model of a request is not known, or that the request does not fit into it.
_NO_MODEL = re.compile(r"model: |models/\S+ is not found|The model `[^`]*` does not exist")
_NO_ROOM = re.compile(
    r"prompt is too long|maximum context length|input token count .* exceeds|context window", re.IGNORECASE
)
_NO_ROOM_CODE = "context_length_exceeded"
_NO_KEY = "API_KEY_INVALID"
_NO_MONEY = re.compile(r"credit balance is too low|billing", re.IGNORECASE)
_BAD_REQUEST, _SERVER_ERROR = 400, 500


class RequestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks for; without a format, it is not a question to a model."""

    format: Format | None = None
    model: str | None = None
    temperature: float | None = None
    # Whether the answer is to come piece by piece.
    streams: bool = False


def format_of(path: str) -> Format | None:
    """Return the format of what is posted to *path*; None if no model answers there."""
    normal_path = _normalize_path(path)
    if _GEMINI.search(normal_path):
        return "gemini"
    return next((name for ending, name in _ENDINGS.items() if normal_path.lower().endswith(ending)), None)


def is_batch(path: str) -> bool:
    """Return whether what is posted to *path* is answered after the count has ended."""
    return _BATCHES.search(_normalize_path(path)) is not None


def _normalize_path(path: str) -> str:
    """Return *path* as a server may read it, whatever it was written like: every question to a model counts."""
    return unquote(path).partition(";")[0].rstrip("/")


def read_request(format: Format | None, path: str, body: Mapping[str, Any]) -> RequestSummary:  # noqa: A002 - the word for it
    """Return what a posted body asks for; an unreadable one has no model."""
    gemini_path = _GEMINI.search(_normalize_path(path))
    config = table(body, "generationConfig") if gemini_path else body
    raw_temperature, temperature = config.get("temperature"), None
    if isinstance(raw_temperature, int | float) and not isinstance(raw_temperature, bool):
        with suppress(OverflowError):
            temperature = float(raw_temperature)
    return RequestSummary(
        format=format,
        model=gemini_path["model"] if gemini_path else text(body, "model"),
        temperature=temperature,
        streams=gemini_path["streams"] is not None if gemini_path else bool(body.get("stream")),
    )


# A million tokens are a few megabytes of text. So many parts of JSON are looked at within a second or two.
_MOST_PARTS = 1_000_000
_MARKS = (b",", b"[", b"{")


def read_body(body: bytes) -> tuple[dict[str, Any], bytes] | None:
    """Return the object that a body is, and the body written anew, so that a provider reads what we read.

    Of a key that is there twice, two could read two things. None if it is no object, or one of too many parts.
    """
    if sum(map(body.count, _MARKS)) > _MOST_PARTS:
        return None
    try:
        value = msgspec.json.decode(body)
        anew = msgspec.json.encode(value)
    except (ValueError, OverflowError, RecursionError):
        # Numbers of any size, and half of a surrogate pair, because a program cut its text.
        try:
            value = json.loads(body.decode())
            anew = json.dumps(value).encode()
        except (ValueError, RecursionError):
            return None
    return (value, anew) if isinstance(value, dict) else None


# What no model reads as text, by the names of its fields: words of the protocol, unless they are too long to be some.
_WORDS = frozenset(
    (
        *("type", "role", "object", "model", "status", "finish_reason", "stop_reason", "finishReason", "service_tier"),
        *("id", "item_id", "call_id", "tool_use_id", "tool_call_id", "response_id", "responseId", "modelVersion"),
        *("system_fingerprint", "media_type", "mimeType", "detail", "phase", "obfuscation"),
    )
)
_LONGEST_WORD = 100
# Pictures, sound and what only the provider can read: a token holds more of it than of text.
_DATA = frozenset(("data", "signature", "encrypted_content", "thoughtSignature", "b64_json", "file_data"))
_TEXT_IN_DATA = 32


def count_characters(record: Any) -> int:
    """Return how much text there is in a request or in a part of an answer, whatever its fields are called."""
    total, places = 0, [("", record)]
    while places:
        name, value = places.pop()
        if isinstance(value, str):
            if name in _DATA or value.startswith("data:"):
                total += len(value) // _TEXT_IN_DATA
            elif name not in _WORDS or len(value) > _LONGEST_WORD:
                total += len(value)
        elif isinstance(value, dict):
            places += value.items()
        elif isinstance(value, list):
            places += ((name, element) for element in value)
    return total


def _of_messages(usage: Mapping[str, Any]) -> Tokens:
    """What a cache read or wrote is no part of its input."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return {**input_figures(*(number(usage, name) for name in names)), "output_tokens": number(usage, "output_tokens")}


def _of_responses(usage: Mapping[str, Any]) -> Tokens:
    return {
        "input_tokens": number(usage, "input_tokens"),
        "cached_tokens": number(usage, "input_tokens_details", "cached_tokens"),
        "output_tokens": number(usage, "output_tokens"),
        "reasoning_tokens": number(usage, "output_tokens_details", "reasoning_tokens"),
    }


def _of_chat(usage: Mapping[str, Any]) -> Tokens:
    return {
        "input_tokens": number(usage, "prompt_tokens"),
        "cached_tokens": number(usage, "prompt_tokens_details", "cached_tokens"),
        "output_tokens": number(usage, "completion_tokens"),
        "reasoning_tokens": number(usage, "completion_tokens_details", "reasoning_tokens"),
    }


def _of_gemini(usage: Mapping[str, Any]) -> Tokens:
    """Thoughts are no part of its output, and what its own tools read is no part of its input."""
    thoughts = number(usage, "thoughtsTokenCount")
    # An answer of thoughts alone, or of nothing, has no candidates to count.
    answer_tokens = number(usage, "candidatesTokenCount") if "candidatesTokenCount" in usage else 0
    return {
        "input_tokens": plus(number(usage, "promptTokenCount"), number(usage, "toolUsePromptTokenCount")),
        "cached_tokens": number(usage, "cachedContentTokenCount"),
        "output_tokens": plus(answer_tokens, thoughts),
        "reasoning_tokens": thoughts,
    }


def _of_other(usage: Mapping[str, Any]) -> Tokens:
    """Whatever it is called; what has only a total, such as embeddings, writes nothing."""
    tokens = {**_of_chat(usage), **{name: value for name, value in _of_responses(usage).items() if value is not None}}
    input_tokens, total = tokens["input_tokens"], number(usage, "total_tokens")
    if tokens["output_tokens"] is None and input_tokens is not None and total is not None:
        tokens["output_tokens"] = max(0, total - input_tokens)
    return tokens


_FIGURES: dict[Format, Callable[[Mapping[str, Any]], Tokens]] = {
    "messages": _of_messages,
    "responses": _of_responses,
    "chat": _of_chat,
    "gemini": _of_gemini,
    "other": _of_other,
}
# Where a whole answer, the beginning of a stream or its end tell their figures.
_PLACES = (("message", "usage"), ("response", "usage"), ("usage",), ("usageMetadata",))
# Only such frames have figures; the others need not be parsed.
_TELLING = (b'"usage', b'"error"')
_LAST = (b'"message_stop"', b'"response.completed"', b'"response.incomplete"', b'"finishReason"')
_DONE = b"[DONE]"
_MODEL_KEYS = (("message", "model"), ("response", "model"), ("model",), ("modelVersion",))


class AnswerReader:
    """Reads an answer while it passes: its tokens, the model that gave it, and an error in the middle of a stream."""

    def __init__(self, format: Format | None, content_type: str) -> None:  # noqa: A002 - the word for it
        self._format = format
        self._frames = Frames() if content_type.startswith(_STREAM) else None
        self._whole = bytearray() if content_type.startswith(_JSON) else None
        self._usage: dict[str, Any] = {}
        self.model: str | None = None
        # The error that a stream ended with, after it had begun well.
        self.error: Mapping[str, Any] | None = None
        # Whether a stream has said that it ends: some agents do not wait for more.
        self.complete = False
        # How much text has passed.
        self.written = 0

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        if self._frames is not None:
            for frame in self._frames.feed(piece):
                self._take(frame)
        elif self._whole is not None:
            self._whole += piece
            if len(self._whole) > _MOST_BYTES:
                self._pass_unread(len(self._whole))
                self._whole = None
        else:
            self._pass_unread(len(piece))

    def _pass_unread(self, size: int) -> None:
        """Count what nobody here can read: all of it may be text, but what settings name may be a picture or sound."""
        self.written += size // _TEXT_IN_DATA if self._format == "other" else size

    def finish(self) -> None:
        """Take what has no end, and a whole answer."""
        if self._frames is not None:
            for frame in self._frames.finish():
                self._take(frame)
        elif self._whole is not None:
            document, self._whole = bytes(self._whole), None
            # A stream of Gemini that is no stream of events is a list of answers.
            for record in (
                rows(parse(b'{"all":' + document + b"}"), "all") if document[:1] == b"[" else (parse(document),)
            ):
                self.written += _count_new_text(table(record))
                self._note(table(record))

    @property
    def tokens(self) -> dict[str, int]:
        """What it took, by our names, as far as the answer says; empty if it says nothing."""
        if self._format is None or not self._usage:
            return {}
        figures = _FIGURES[self._format](self._usage)
        return {name: value for name, figure in figures.items() if (value := token_count(figure)) is not None}

    def _take(self, frame: bytes) -> None:
        self.complete = self.complete or frame == _DONE or any(word in frame for word in _LAST)
        record = parse(frame)
        self.written += _count_new_text(record)
        if any(word in frame for word in _TELLING):
            self._note(record)

    def _note(self, record: Mapping[str, Any]) -> None:
        """Later figures replace earlier ones: every format tells totals, some of them in two parts."""
        for keys in _PLACES:
            self._usage |= {name: value for name, value in table(record, *keys).items() if value is not None}
        self.model = next((model for keys in _MODEL_KEYS if (model := text(record, *keys))), self.model)
        error = table(record, "error") or table(record, "response", "error")
        if error:
            self.error = error


# The events of streams that repeat at their end what came before in pieces.
_WHOLES = re.compile(r"response\.(created|in_progress|completed|incomplete|failed)$|.*\.(done|added)$|message_start$")


def _count_new_text(record: Mapping[str, Any]) -> int:
    """Return how much text a part of an answer adds to it."""
    kind = record.get("type")
    return 0 if isinstance(kind, str) and _repeats(kind) else count_characters(record)


@lru_cache(maxsize=64)
def _repeats(kind: str) -> bool:
    # A stream has a few kinds of events, and thousands of them.
    return _WHOLES.match(kind) is not None


class Frames:
    """Takes a stream of events apart; gives the data of each event."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the events that are complete with *piece*."""
        for line in self._lines.take(piece):
            yield from self._line(line.rstrip(b"\r"))
        if self._lines.held > _MOST_BYTES:
            self._lines = LineSplitter()

    def finish(self) -> Iterator[bytes]:
        """Yield an event that the end of the stream completes."""
        for line in (*self._lines.take(b"\n"), b""):
            yield from self._line(line.rstrip(b"\r"))

    def _line(self, line: bytes) -> Iterator[bytes]:
        if line.startswith(b"data:"):
            self._size += len(line)
            if self._size <= _MOST_BYTES:
                self._data.append(line[5:].removeprefix(b" "))
        elif not line and self._data:
            data = b"\n".join(self._data)
            self._data.clear()
            self._size = 0
            yield data


def error_kind(status: int | None, body: bytes | Mapping[str, Any]) -> tuple[TroubleKind, str]:
    """Return what an error of a provider is about, and its words; only the words tell some of them apart."""
    record = parse(body) if isinstance(body, bytes) else body
    error = table(record, "error") or dict(record)
    message = text(error, "message") or text(record, "message") or (text(record, "error") or "")
    code = text(error, "code") or text(error, "type") or ""
    if code == _NO_ROOM_CODE or (status in (None, _BAD_REQUEST, 413) and _NO_ROOM.search(message)):
        return "context", message
    if code == "model_not_found" or (status == 404 and _NO_MODEL.match(message)):  # noqa: PLR2004
        return "model-rejected", message
    if status == 404:  # noqa: PLR2004 - of an address, not of a model
        return "other", message
    if any(text(detail, "reason") == _NO_KEY for detail in rows(error, "details")):
        return "auth", message
    if status == _BAD_REQUEST and _NO_MONEY.search(message):
        return "auth", message
    kinds: dict[str, TroubleKind] = {
        "overloaded_error": "overloaded",
        "rate_limit_error": "rate-limit",
        "rate_limit_exceeded": "rate-limit",
        "api_error": "server",
        "server_error": "server",
    }
    kind = kinds.get(code)
    # Whatever word a server has for it: with such a status it speaks of the request, which an agent is free to make.
    is_about_request = status is not None and status < _SERVER_ERROR and kind != "rate-limit"
    return (kind if kind and not is_about_request else status_kind(status)), message
