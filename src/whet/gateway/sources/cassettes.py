"""Cassettes: what a model said to an agent, kept in a file and played back to the same program without the model.

A cassette holds the exchanges of one session, one in each line. A request is answered by the first exchange of the same
normal form that was not played yet. A folder of cassettes may come from anywhere, so whet trusts nothing in it and
follows no link.
"""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import re
import shutil
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from whet.errors import AgentError, CassetteMissed
from whet.gateway.connection import Answer, AnswerCut, error_answer
from whet.gateway.request import NextResponder, ProxiedRequest
from whet.gateway.wire.normal_form import Forms, Tree, closeness, differences, require_depth
from whet.secrets import Masker

VERSION = 1
_STREAM = b"text/event-stream"
# Headers that say how to read an answer, or what to do next.
_KEPT_HEADERS = (b"content-type", b"retry-after", b"retry-after-ms", b"request-id", b"x-request-id")
_REPEATED = ("GET", "HEAD")
_MOST_BYTES = 64 * 1024 * 1024
_MOST_MB = 256
_HEADER = re.compile(r"[\t\x20-\x7e]*")
_STATUSES = range(200, 600)
_AGAIN = "record it again with --record-to"
# The folder of sessions that are under way together.
_AT_ONCE = "judge"
_NOT_RECORDED, _TOO_LARGE = 400, 413


class Exchange(Struct, frozen=True, kw_only=True):
    """A request in its normal form, and its answer in pieces, each with the time since the one before."""

    form: Tree
    status: int
    headers: tuple[tuple[str, str], ...]
    pieces: tuple[tuple[float, str], ...]
    cut: bool = False

    def line(self) -> str:
        """Return the exchange as a line of the cassette."""
        record = {"form": self.form, "status": self.status, "headers": dict(self.headers), "pieces": self.pieces}
        return json.dumps({**record, "cut": True} if self.cut else record)


def read_cassette(path: Path) -> list[Exchange]:
    """Return the exchanges of a cassette; raises `CassetteMissed` if it cannot be read."""
    try:
        with _open_cassette(path, os.O_RDONLY) as file:
            first, *lines = file.read().split("\n")
        if json.loads(first)["cassette"] != VERSION:
            raise CassetteMissed(f"{path} is of another version", hint=_AGAIN)
        # Two that began it at the same time have both written the first line.
        return [_read_exchange(json.loads(line)) for line in lines if line and line != first]
    except OSError as error:
        raise CassetteMissed(f"{path} cannot be played: {_reason(error)}", hint=_AGAIN) from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        why = "it is too deep" if isinstance(error, RecursionError) else str(error)
        raise CassetteMissed(f"{path} cannot be played: {why}", hint=_AGAIN) from error


def _read_exchange(record: dict[str, Any]) -> Exchange:
    form, status, pieces = (
        record["form"],
        record["status"],
        [(float(after_s), text) for after_s, text in record["pieces"]],
    )
    require_depth(form)
    headers = tuple((name, value) for name, value in record["headers"].items() if name.encode() in _KEPT_HEADERS)
    for _, text in pieces:
        _encode_piece(text)
    for field, is_valid in (
        ("form", isinstance(form["method"], str) and isinstance(form["path"], str)),
        ("status", type(status) is int and status in _STATUSES),
        ("headers", all(_HEADER.fullmatch(value) for _, value in headers)),
        ("pieces", all(math.isfinite(after_s) and after_s >= 0 for after_s, _ in pieces)),
    ):
        if not is_valid:
            raise ValueError(f"its {field} cannot be")
    return Exchange(form=form, status=status, headers=headers, pieces=tuple(pieces), cut=bool(record.get("cut")))


def _encode_piece(text: str) -> bytes:
    """Return the bytes of a piece; raises `ValueError` if there are none like that."""
    return text.encode("utf-8", "surrogateescape")


def _open_cassette(path: Path, flags: int) -> IO[str]:
    """Open a cassette: a file that is there itself, and not without end."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_MB * 1024 * 1024:
        return os.fdopen(fd, "r" if flags == os.O_RDONLY else "a", encoding="utf-8")
    os.close(fd)
    raise OSError(f"it is not a file of at most {_MOST_MB} MB")


def _reason(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "it is a link"
    return error.strerror or str(error)


def require_inside(path: Path, folder: Path) -> None:
    """Raise if a link leads *path* out of *folder*, so that nothing is written elsewhere."""
    inner = path.parent.relative_to(folder)
    if Path(os.path.realpath(path.parent)) != Path(os.path.realpath(folder)) / inner:
        raise CassetteMissed(f"{path} is behind a link", hint="remove the links in the folder of cassettes")


class Recorder:
    """Keeps each exchange with the provider."""

    def __init__(
        self,
        path: Path,
        forms: Forms,
        masker: Masker,
        miss: Callable[[AgentError], object] = lambda _: None,
        *,
        anew: bool = False,
    ) -> None:
        self._path, self._forms, self._masker, self._miss = path, forms, masker, miss
        # Whether the first exchange begins the cassette: what an earlier recording said must not be played.
        self._anew = anew

    async def answer(self, request: ProxiedRequest, ask: NextResponder) -> Answer:
        """Ask, and keep what comes while it passes."""
        form = await read_form(request, self._forms)
        if form is None:
            return _too_large()
        return self.keeping(form, await ask(request))

    def keeping(self, form: Tree, answer: Answer) -> Answer:
        """Return *answer*, kept while it passes."""
        return Answer(status=answer.status, headers=answer.headers, pieces=self._kept(form, answer))

    async def _kept(self, form: Tree, answer: Answer) -> AsyncIterator[bytes]:
        pieces: list[tuple[float, bytes]] = []
        size, before, cut = 0, time.monotonic(), True
        try:
            async with aclosing(_pieces(answer)) as source:  # type: ignore[type-var] # it is a generator
                async for piece in source:
                    now = time.monotonic()
                    size += len(piece)
                    if size <= _MOST_BYTES:
                        pieces.append((now - before, piece))
                    before = now
                    yield piece
            cut = False
        except AnswerCut:
            raise
        except BaseException:
            # The agent hung up: what it did not wait for is on no cassette.
            size = _MOST_BYTES + 1 if not _is_finished(pieces) else size
            cut = False
            raise
        finally:
            if size <= _MOST_BYTES:
                self._write(form, answer, pieces, cut=cut)

    def _write(self, form: Tree, answer: Answer, pieces: list[tuple[float, bytes]], *, cut: bool) -> None:
        headers = {name.lower(): value for name, value in answer.headers}
        timed_texts = (
            _split_frames(pieces) if headers.get(b"content-type", b"").startswith(_STREAM) else _join_pieces(pieces)
        )
        texts = self._forms.stored_frames([text for _, text in timed_texts], self._masker)
        exchange = Exchange(
            form=self._masker.tree(form),
            status=answer.status,
            headers=tuple(
                (name.decode(), headers[name].decode("latin-1")) for name in _KEPT_HEADERS if name in headers
            ),
            pieces=tuple((round(after_s, 4), text) for (after_s, _), text in zip(timed_texts, texts, strict=True)),
            cut=cut,
        )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            is_new = self._anew or not self._path.exists()
            first_line = json.dumps({"cassette": VERSION}) + "\n" if is_new else ""
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if self._anew else 0)
            with _open_cassette(self._path, flags) as file:
                file.write(first_line + exchange.line() + "\n")
            if self._anew:
                self._anew = False
                _forget_later(self._path)
        except OSError as error:
            self._miss(CassetteMissed(f"{self._path} cannot be recorded: {_reason(error)}"))


def _forget_later(path: Path) -> None:
    """Remove the cassettes of later turns and attempts: these come one after the other, so those are older."""
    if path.parent.name == _AT_ONCE:
        return
    for path_of_turn in (path, path.parent.parent) if path.parent.name == "turns" else (path,):
        for sibling in path_of_turn.parent.iterdir():
            if sibling.stem.isdecimal() and int(sibling.stem) > int(path_of_turn.stem):
                shutil.rmtree(sibling) if sibling.is_dir() and not sibling.is_symlink() else sibling.unlink()


def _is_finished(pieces: list[tuple[float, bytes]]) -> bool:
    """Return whether a stream had said all: some agents hang up at the last word."""
    last = b"".join(piece for _, piece in pieces[-3:])
    return any(word in last for word in (b"message_stop", b"response.completed", b"[DONE]", b'"finishReason"'))


async def _pieces(answer: Answer) -> AsyncIterator[bytes]:
    if answer.pieces is None:
        yield answer.data
        return
    async for piece in answer.pieces:
        yield piece


def _decode_piece(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _join_pieces(pieces: list[tuple[float, bytes]]) -> list[tuple[float, str]]:
    return [(sum(after_s for after_s, _ in pieces), _decode_piece(b"".join(piece for _, piece in pieces)))]


def _split_frames(pieces: list[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """Return the events of a stream, each with the time that it took: how a network cut them says nothing."""
    frames_in_time: list[tuple[float, str]] = []
    unfinished, waited_s = bytearray(), 0.0
    for after_s, piece in pieces:
        waited_s += after_s
        unfinished += piece.replace(b"\r\n", b"\n")
        # Look only where an event may end: looking at a long one again with each piece of it takes too long.
        if b"\n" not in piece:
            continue
        *frames, last = bytes(unfinished).split(b"\n\n")
        unfinished[:] = last
        for frame in frames:
            frames_in_time.append((waited_s, _decode_piece(frame + b"\n\n")))
            waited_s = 0.0
    return [*frames_in_time, (waited_s, _decode_piece(bytes(unfinished)))] if unfinished else frames_in_time


class Player:
    """Answers from a cassette."""

    def __init__(
        self,
        path: Path,
        exchanges: list[Exchange],
        forms: Forms,
        *,
        miss: Callable[[AgentError], object],
        asks: bool = False,
        real_time: bool = False,
    ) -> None:
        self._path, self._left, self._forms = path, list(exchanges), forms
        self._played: list[Exchange] = []
        self._miss, self._asks, self._real_time = miss, asks, real_time

    async def answer(self, request: ProxiedRequest, ask: NextResponder) -> Answer:
        """Play the exchange that fits; if there is none, ask the provider, or end the agent."""
        form = await read_form(request, self._forms)
        if form is None:
            return _too_large()
        exchange = self._take(form)
        if exchange is not None:
            request.entry.by = "cassette"
            return play_exchange(exchange, self._forms, real_time=self._real_time)
        if self._asks:
            return await ask(request)
        request.entry.by = "cassette"
        error = self._difference(form)
        if request.entry.asked.format is not None:
            self._miss(error)
        return error_answer(_NOT_RECORDED, error.message)

    def _take(self, form: Tree) -> Exchange | None:
        for number, exchange in enumerate(self._left):
            if exchange.form == form:
                self._played.append(self._left.pop(number))
                return exchange
        may_repeat = form["method"] in _REPEATED
        return (
            next((exchange_before for exchange_before in reversed(self._played) if exchange_before.form == form), None)
            if may_repeat
            else None
        )

    def _difference(self, form: Tree) -> CassetteMissed:
        request_line = f"{form['method']} {form['path']}"
        again = "record it again with --record-to, or add to it with --cassette-mode new"
        if any(exchange.form == form for exchange in self._played):
            return CassetteMissed(f"asked {request_line} more often than {self._path} has it", hint=again)
        nearest = max(self._left, key=lambda exchange: closeness(form, exchange.form), default=None)
        if nearest is None:
            return CassetteMissed(f"asked {request_line}, and {self._path} has nothing more", hint=again)
        lines = "\n".join(f"  {line}" for line in differences(form, nearest.form))
        return CassetteMissed(f"asked {request_line} otherwise than on {self._path}:\n{lines}", hint=again)


def play_exchange(exchange: Exchange, forms: Forms, *, real_time: bool = False) -> Answer:
    """Return the answer of *exchange*, with the places of this attempt."""

    async def pieces() -> AsyncIterator[bytes]:
        for after_s, text in exchange.pieces:
            if real_time:
                await asyncio.sleep(after_s)
            yield _encode_piece(forms.restored(text))
        if exchange.cut:
            raise AnswerCut("as it was recorded")

    headers = [(name.encode(), value.encode("latin-1")) for name, value in exchange.headers]
    return Answer(status=exchange.status, headers=headers, pieces=pieces())


async def read_form(request: ProxiedRequest, forms: Forms) -> Tree | None:
    """Return the normal form of a request, after reading all of it; None if it is too large."""
    body = await request.whole()
    if request.too_large:
        return None
    return forms.normal(request.incoming.method, request.path, request.query, body)


def _too_large() -> Answer:
    return error_answer(_TOO_LARGE, "the request is too large for a cassette")


def cassette_path(folder: Path, suite: str, session: Path) -> Path:
    """Return where the cassette of a session is, whose record is at *session* below `trials`."""
    place = folder / suite / session
    return place.with_name(f"{place.name}.jsonl")


def find_cassette(folder: Path, suite: str, session: Path) -> tuple[Path | None, bool]:
    """Return the cassette for a session, and whether it is that of another trial: they are taken in turn."""
    own_path = cassette_path(folder, suite, session)
    if own_path.exists():
        return own_path, False
    case, runner, arm, number, attempt, *turn_parts = session.parts
    arm_folder = folder / suite / case / runner / arm
    numbers = sorted(int(path.name) for path in arm_folder.glob("*") if path.name.isdecimal())
    if not numbers:
        return None, False
    source_number = numbers[(int(number) - 1) % len(numbers)]
    for name in (attempt, "1"):
        path = cassette_path(folder, suite, Path(case, runner, arm, str(source_number), name, *turn_parts))
        if path.exists():
            return path, source_number != int(number)
    return None, False
