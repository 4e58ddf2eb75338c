"""Cassettes: what a model said to an agent, kept in a file and played back to the same program without the model.

A tape holds the exchanges of one session, one in each line. A request is answered by the first exchange of the same
normal form that was not played yet. A folder of tapes may be anybody's: nothing in it is trusted, and no link followed.
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

from whet.agents.gateway_asking import Ask, Asking
from whet.agents.gateway_forms import Forms, Tree, closeness, differences, hold_depth
from whet.agents.gateway_http import Answer, Cut, error_answer
from whet.dataclass import dataclass
from whet.errors import AgentError, CassetteMissed
from whet.ground.secrets import Masker

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request in its normal form, and its answer in pieces, each with the time since the one before."""

    form: Tree
    status: int
    headers: tuple[tuple[str, str], ...]
    pieces: tuple[tuple[float, str], ...]
    cut: bool = False

    def line(self) -> str:
        """Return it as it is kept."""
        kept = {"form": self.form, "status": self.status, "headers": dict(self.headers), "pieces": self.pieces}
        return json.dumps({**kept, "cut": True} if self.cut else kept)


def read_tape(path: Path) -> list[Exchange]:
    """Return the exchanges of a tape; raises `CassetteMissed` if it cannot be read."""
    try:
        with _opened(path, os.O_RDONLY) as file:
            first, *lines = file.read().split("\n")
        if json.loads(first)["cassette"] != VERSION:
            raise CassetteMissed(f"{path} is of another version", hint=_AGAIN)
        # Two that began it at the same time have both written the first line.
        return [_exchange(json.loads(line)) for line in lines if line and line != first]
    except OSError as error:
        raise CassetteMissed(f"{path} cannot be played: {_reason(error)}", hint=_AGAIN) from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        why = "it is too deep" if isinstance(error, RecursionError) else str(error)
        raise CassetteMissed(f"{path} cannot be played: {why}", hint=_AGAIN) from error


def _exchange(kept: dict[str, Any]) -> Exchange:
    form, status, pieces = kept["form"], kept["status"], [(float(after_s), text) for after_s, text in kept["pieces"]]
    hold_depth(form)
    headers = tuple((name, value) for name, value in kept["headers"].items() if name.encode() in _KEPT_HEADERS)
    for _, text in pieces:
        _data(text)
    for what, holds in (
        ("form", isinstance(form["method"], str) and isinstance(form["path"], str)),
        ("status", type(status) is int and status in _STATUSES),
        ("headers", all(_HEADER.fullmatch(value) for _, value in headers)),
        ("pieces", all(math.isfinite(after_s) and after_s >= 0 for after_s, _ in pieces)),
    ):
        if not holds:
            raise ValueError(f"its {what} cannot be")
    return Exchange(form=form, status=status, headers=headers, pieces=tuple(pieces), cut=bool(kept.get("cut")))


def _data(text: str) -> bytes:
    """Return the bytes of a piece; raises `ValueError` if there are none like that."""
    return text.encode("utf-8", "surrogateescape")


def _opened(path: Path, flags: int) -> IO[str]:
    """Open a tape: a file that is there itself, and not without end."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_MB * 1024 * 1024:
        return os.fdopen(fd, "r" if flags == os.O_RDONLY else "a", encoding="utf-8")
    os.close(fd)
    raise OSError(f"it is not a file of at most {_MOST_MB} MB")


def _reason(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "it is a link"
    return error.strerror or str(error)


def hold_inside(path: Path, folder: Path) -> None:
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
        # Whether the first exchange begins the tape: what an earlier recording said must not be played.
        self._anew = anew

    async def answer(self, asking: Asking, ask: Ask) -> Answer:
        """Ask, and keep what comes while it passes."""
        form = await form_of(asking, self._forms)
        if form is None:
            return _too_large()
        return self.keeping(form, await ask(asking))

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
        except Cut:
            raise
        except BaseException:
            # The agent hung up: what it did not wait for is on no tape.
            size = _MOST_BYTES + 1 if not _ended(pieces) else size
            cut = False
            raise
        finally:
            if size <= _MOST_BYTES:
                self._write(form, answer, pieces, cut=cut)

    def _write(self, form: Tree, answer: Answer, pieces: list[tuple[float, bytes]], *, cut: bool) -> None:
        known = {name.lower(): value for name, value in answer.headers}
        kept = _in_frames(pieces) if known.get(b"content-type", b"").startswith(_STREAM) else _in_one(pieces)
        texts = self._forms.stored_frames([text for _, text in kept], self._masker)
        exchange = Exchange(
            form=self._masker.tree(form),
            status=answer.status,
            headers=tuple((name.decode(), known[name].decode("latin-1")) for name in _KEPT_HEADERS if name in known),
            pieces=tuple((round(after_s, 4), text) for (after_s, _), text in zip(kept, texts, strict=True)),
            cut=cut,
        )
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            begins = self._anew or not self._path.exists()
            begin = json.dumps({"cassette": VERSION}) + "\n" if begins else ""
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if self._anew else 0)
            with _opened(self._path, flags) as file:
                file.write(begin + exchange.line() + "\n")
            if self._anew:
                self._anew = False
                _forget_later(self._path)
        except OSError as error:
            self._miss(CassetteMissed(f"{self._path} cannot be recorded: {_reason(error)}"))


def _forget_later(path: Path) -> None:
    """Remove the tapes of later turns and attempts: these come one after the other, so those are older."""
    if path.parent.name == _AT_ONCE:
        return
    for own in (path, path.parent.parent) if path.parent.name == "turns" else (path,):
        for other in own.parent.iterdir():
            if other.stem.isdecimal() and int(other.stem) > int(own.stem):
                shutil.rmtree(other) if other.is_dir() and not other.is_symlink() else other.unlink()


def _ended(pieces: list[tuple[float, bytes]]) -> bool:
    """Return whether a stream had said all: some agents hang up at the last word."""
    last = b"".join(piece for _, piece in pieces[-3:])
    return any(word in last for word in (b"message_stop", b"response.completed", b"[DONE]", b'"finishReason"'))


async def _pieces(answer: Answer) -> AsyncIterator[bytes]:
    if answer.pieces is None:
        yield answer.data
        return
    async for piece in answer.pieces:
        yield piece


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _in_one(pieces: list[tuple[float, bytes]]) -> list[tuple[float, str]]:
    return [(sum(after_s for after_s, _ in pieces), _text(b"".join(piece for _, piece in pieces)))]


def _in_frames(pieces: list[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """Return the events of a stream, each with the time that it took: how a network cut them says nothing."""
    found: list[tuple[float, str]] = []
    rest, waited_s = bytearray(), 0.0
    for after_s, piece in pieces:
        waited_s += after_s
        rest += piece.replace(b"\r\n", b"\n")
        # Look only where an event may end: looking at a long one again with each piece of it takes too long.
        if b"\n" not in piece:
            continue
        *frames, last = bytes(rest).split(b"\n\n")
        rest[:] = last
        for frame in frames:
            found.append((waited_s, _text(frame + b"\n\n")))
            waited_s = 0.0
    return [*found, (waited_s, _text(bytes(rest)))] if rest else found


class Player:
    """Answers from a tape."""

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

    async def answer(self, asking: Asking, ask: Ask) -> Answer:
        """Play the exchange that fits; if there is none, ask the provider, or end the agent."""
        form = await form_of(asking, self._forms)
        if form is None:
            return _too_large()
        found = self._take(form)
        if found is not None:
            asking.entry.by = "cassette"
            return played(found, self._forms, real_time=self._real_time)
        if self._asks:
            return await ask(asking)
        asking.entry.by = "cassette"
        missed = self._difference(form)
        if asking.entry.asked.format is not None:
            self._miss(missed)
        return error_answer(_NOT_RECORDED, missed.message)

    def _take(self, form: Tree) -> Exchange | None:
        for number, exchange in enumerate(self._left):
            if exchange.form == form:
                self._played.append(self._left.pop(number))
                return exchange
        repeated = form["method"] in _REPEATED
        return next((each for each in reversed(self._played) if each.form == form), None) if repeated else None

    def _difference(self, form: Tree) -> CassetteMissed:
        asked = f"{form['method']} {form['path']}"
        again = "record it again with --record-to, or add to it with --cassette-mode new"
        if any(each.form == form for each in self._played):
            return CassetteMissed(f"asked {asked} more often than {self._path} has it", hint=again)
        nearest = max(self._left, key=lambda each: closeness(form, each.form), default=None)
        if nearest is None:
            return CassetteMissed(f"asked {asked}, and {self._path} has nothing more", hint=again)
        shown = "\n".join(f"  {line}" for line in differences(form, nearest.form))
        return CassetteMissed(f"asked {asked} otherwise than on {self._path}:\n{shown}", hint=again)


def played(exchange: Exchange, forms: Forms, *, real_time: bool = False) -> Answer:
    """Return the answer of *exchange*, with the places of this attempt."""

    async def pieces() -> AsyncIterator[bytes]:
        for after_s, text in exchange.pieces:
            if real_time:
                await asyncio.sleep(after_s)
            yield _data(forms.restored(text))
        if exchange.cut:
            raise Cut("as it was recorded")

    headers = [(name.encode(), value.encode("latin-1")) for name, value in exchange.headers]
    return Answer(status=exchange.status, headers=headers, pieces=pieces())


async def form_of(asking: Asking, forms: Forms) -> Tree | None:
    """Return the normal form of a request, after reading all of it; None if it is too large."""
    body = await asking.whole()
    if asking.too_large:
        return None
    return forms.normal(asking.incoming.method, asking.path, asking.query, body)


def _too_large() -> Answer:
    return error_answer(_TOO_LARGE, "the request is too large for a cassette")


def tape_path(folder: Path, suite: str, session: Path) -> Path:
    """Return where the tape of a session is, whose record is at *session* below `trials`."""
    place = folder / suite / session
    return place.with_name(f"{place.name}.jsonl")


def tape_to_play(folder: Path, suite: str, session: Path) -> tuple[Path | None, bool]:
    """Return the tape for a session, and whether it is that of another trial: they are taken in turn."""
    own = tape_path(folder, suite, session)
    if own.exists():
        return own, False
    case, runner, arm, number, attempt, *rest = session.parts
    arm_folder = folder / suite / case / runner / arm
    numbers = sorted(int(path.name) for path in arm_folder.glob("*") if path.name.isdecimal())
    if not numbers:
        return None, False
    taken = numbers[(int(number) - 1) % len(numbers)]
    for name in (attempt, "1"):
        path = tape_path(folder, suite, Path(case, runner, arm, str(taken), name, *rest))
        if path.exists():
            return path, taken != int(number)
    return None, False
