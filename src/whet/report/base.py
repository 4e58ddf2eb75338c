"""The contract of reporters: how they are chosen, made, and told about a run without being able to harm it."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TextIO, runtime_checkable

from whet import plugins
from whet.errors import PluginError, UsageError
from whet.model.event import Notice, RunEvent
from whet.report.text import one_line


class Reporter(Protocol):
    """Shows run events to somebody; may also have a `close()`, called once when the run is over or broken off."""

    def __call__(self, event: RunEvent) -> None:
        """Take note of *event*."""


@runtime_checkable
class Closable(Protocol):
    """A reporter that holds something which must be let go, such as a redrawn screen."""

    def close(self) -> None:
        """Let go of it; harmless when called again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterContext:
    """What a reporter may use: its target file if it was given one, else the streams."""

    target: Path | None
    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]
    cwd: Path


# A factory with a true `document` attribute writes one whole document; without a target it has stdout for itself.
ReporterFactory = Callable[[ReporterContext], Reporter]


@dataclass(frozen=True, slots=True)
class ReporterChoice:
    """A reporter as asked for: `name`, or `name=target`."""

    name: str
    target: str | None


def parse_reporter(text: str) -> ReporterChoice:
    """Read `junit=out.xml`, `module:object=out` or a bare name; `-` as the target means stdout."""
    name, equals, target = (part.strip() for part in text.partition("="))
    if not name:
        raise UsageError(f'"{text}" names no reporter', hint="write NAME or NAME=FILE, such as junit=out.xml")
    if equals and not target:
        raise UsageError(f'reporter "{name}": no file after the "="', hint=f"write {name}=FILE, or {name} alone")
    return ReporterChoice(name, None if target in ("", "-") else target)


def make_reporters(
    specs: Sequence[str],
    *,
    base: Path,
    stdout: TextIO,
    stderr: TextIO,
    environ: Mapping[str, str],
    protected: Iterable[Path] = (),
) -> Reporters:
    """Make every reporter that was asked for, or say what is wrong before anything runs."""
    choices = [parse_reporter(spec) for spec in specs]
    factories = [_factory(choice.name, base) for choice in choices]
    targets = [_target(choice, base, frozenset(path.resolve() for path in protected)) for choice in choices]
    document = _owner_of_stdout(choices, factories, targets)
    made: list[tuple[str, Reporter]] = []
    for position, (choice, factory, target) in enumerate(zip(choices, factories, targets, strict=True)):
        # A document on stdout is meant for a program: what others have to say would make it unreadable.
        screen = stdout if document in (None, position) else stderr
        context = ReporterContext(target=target, stdout=screen, stderr=stderr, environ=environ, cwd=Path.cwd())
        made.append((choice.name, _make(choice.name, factory, context)))
    return Reporters(made, stderr=stderr)


class Reporters:
    """Tells every reporter each event; one that raises is named and dropped, and the run goes on."""

    def __init__(self, reporters: Iterable[tuple[str, Reporter]], *, stderr: TextIO) -> None:
        self._active = list(reporters)
        self._stderr = stderr
        self._dropped: list[str] = []

    @property
    def dropped(self) -> tuple[str, ...]:
        """The names of the reporters that raised."""
        return tuple(self._dropped)

    def __call__(self, event: RunEvent) -> None:
        """Tell every reporter, and those that are left about each one that broke."""
        waiting: deque[RunEvent] = deque([event])
        while waiting:
            current = waiting.popleft()
            for name, reporter in tuple(self._active):
                try:
                    reporter(current)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - the one catch-all: showing a run must not end it
                    waiting.append(self._drop(name, reporter, error))

    def close(self) -> None:
        """Let every reporter go, whether or not the run came to its end."""
        for _, reporter in self._active:
            _close(reporter)
        self._active.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _drop(self, name: str, reporter: Reporter, error: BaseException) -> Notice:
        self._active = [entry for entry in self._active if entry[1] is not reporter]
        self._dropped.append(name)
        _close(reporter)
        reason = one_line(f"{type(error).__name__}: {error}".removesuffix(": "), 500)
        notice = Notice(level="warning", message=f'reporter "{name}" raised {reason} and was dropped')
        self._tell_stderr(notice.message)
        return notice

    def _tell_stderr(self, message: str) -> None:
        # A live screen shows the notice itself; a second voice on the same terminal would tear it.
        if self._stderr.isatty() and any(getattr(reporter, "live", False) for _, reporter in self._active):
            return
        encoding = self._stderr.encoding or "utf-8"
        # A stream that nobody reads any more is no reason to stop either.
        with suppress(OSError, ValueError):
            self._stderr.write(f"warning: {message}\n".encode(encoding, "backslashreplace").decode(encoding))
            self._stderr.flush()


def _factory(name: str, base: Path) -> ReporterFactory:
    if ":" in name:
        # Last, so that a file of the project can never stand in for a module of ours.
        if str(base) not in sys.path:
            sys.path.append(str(base))
        found: Any = plugins.find_object(name)
    else:
        found = plugins.find("reporters", name)
    if not callable(found):
        raise PluginError(f'reporter "{name}" is a {type(found).__name__}, not something to call with its context')
    factory: ReporterFactory = found
    return factory


def _make(name: str, factory: ReporterFactory, context: ReporterContext) -> Reporter:
    try:
        reporter: Any = factory(context)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f'reporter "{name}" cannot be made: {type(error).__name__}: {error}') from error
    if not callable(reporter):
        hint = "the factory is called with a ReporterContext and gives something to call with each run event"
        raise PluginError(f'reporter "{name}" made a {type(reporter).__name__}, which takes no events', hint=hint)
    made: Reporter = reporter
    return made


def _target(choice: ReporterChoice, base: Path, protected: frozenset[Path]) -> Path | None:
    if choice.target is None:
        return None
    path = base / Path(choice.target).expanduser()
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(f'reporter "{choice.name}": no folder {folder}', hint=f"make it first: mkdir -p {folder}")
    if path.is_dir():
        raise UsageError(f'reporter "{choice.name}": {path} is a folder, not a file')
    if path.resolve() in protected or (folder.resolve() / "run.json").exists():
        raise UsageError(f'reporter "{choice.name}": {path} is a file that whet needs; choose another one')
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f'reporter "{choice.name}": the folder {folder} cannot be written to')
    return path


def _owner_of_stdout(
    choices: Sequence[ReporterChoice], factories: Sequence[ReporterFactory], targets: Sequence[Path | None]
) -> int | None:
    """The position of the one document that goes to stdout; two of anything in one place are refused."""
    seen: dict[Path | str, str] = {}
    owner: int | None = None
    for position, (choice, factory, target) in enumerate(zip(choices, factories, targets, strict=True)):
        document = target is None and getattr(factory, "document", False)
        place = target.resolve() if target else ("stdout" if document else choice.name)
        if place in seen:
            hint = f"give each its own file: {choice.name}=FILE"
            where = place if target or document else "the screen"
            raise UsageError(f'reporters "{seen[place]}" and "{choice.name}" would both write to {where}', hint=hint)
        seen[place] = choice.name
        owner = position if document else owner
    return owner


def _close(reporter: Reporter) -> None:
    if isinstance(reporter, Closable):
        # It is being let go: what it thinks of that changes nothing.
        with suppress(Exception, SystemExit):
            reporter.close()
