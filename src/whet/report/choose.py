"""Choose and create reporters, and find everything that is wrong with them before anything runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

from msgspec import Struct

from whet import plugins
from whet.errors import PluginError, UsageError
from whet.report._thread import Hangs, Patience, ReporterThread, ThreadedReporter, exits_refused
from whet.report.contract import Reporter, ReporterContext, ReporterFactory, Reporters
from whet.report.files.json import is_written_into

T = TypeVar("T")
PATIENCE = Patience()
# Names of stdout. Opening one would give a second stream, and each would overwrite the other.
_STDOUT = frozenset({"", "-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"})


class ReporterChoice(Struct, frozen=True):
    """A reporter as you wrote it: `name`, or `name=target`."""

    name: str
    target: str | None


def parse_reporter(text: str) -> ReporterChoice:
    """Parse `junit=out.xml`, `module:object=out` or a name alone; the target `-` or `/dev/stdout` means stdout."""
    name, equals, target = (part.strip() for part in text.partition("="))
    if not name:
        raise UsageError(f'"{text}" does not name a reporter', hint="write NAME or NAME=FILE, such as junit=out.xml")
    if equals and not target:
        raise UsageError(f'reporter "{name}": no file after the "="', hint=f"write {name}=FILE, or {name} alone")
    return ReporterChoice(name, None if target in _STDOUT else target)


def prints_json(specs: Iterable[str]) -> bool:
    """Return whether the json reporter is among *specs* and writes to stdout."""
    return ReporterChoice("json", None) in map(parse_reporter, specs)


def make_reporters(
    specs: Sequence[str],
    *,
    base: Path,
    stdout: TextIO,
    stderr: TextIO,
    environ: Mapping[str, str],
    protected: Iterable[Path] = (),
    patience: Patience | None = None,
) -> Reporters:
    """Create every reporter in *specs*; raises UsageError if one cannot be created."""
    choices = [parse_reporter(spec) for spec in specs]
    protected_paths = frozenset(path.resolve() for path in protected)
    with ExitStack() as undo:
        makers = [_Maker(choice.name, patience or PATIENCE) for choice in choices]
        for maker in makers:
            undo.callback(maker.let_go)
        factories = [maker.load(base) for maker in makers]
        targets = [
            _target(reporter_choice, base, protected_paths, factory)
            for reporter_choice, factory in zip(choices, factories, strict=True)
        ]
        document = _owner_of_stdout(choices, factories, targets)
        files = {
            reporter_choice.name: target
            for reporter_choice, target in zip(choices, targets, strict=True)
            if target is not None
        }
        reporters: list[tuple[str, Reporter]] = []
        for position, (maker, factory, target) in enumerate(zip(makers, factories, targets, strict=True)):
            # A program reads the document on stdout, so the other reporters write to stderr.
            screen = stdout if document in (None, position) else stderr
            context = ReporterContext(
                target=target, stdout=screen, stderr=stderr, environ=environ, cwd=Path.cwd(), files=files
            )
            reporters.append((maker.name, maker.make(factory, context)))
        undo.pop_all()
    return Reporters(reporters, stderr=stderr, stdout=stdout, screen=stdout if document is None else stderr)


class _Maker:
    """Loads and creates one reporter. One that is not ours has its own thread, from its import to its end."""

    def __init__(self, name: str, patience: Patience) -> None:
        self.name = name
        self._patience = patience
        self._thread = None if _is_ours(name) else ReporterThread(name)

    def load(self, base: Path) -> ReporterFactory:
        """Return the factory of the reporter."""
        return self._guarded(partial(_factory, self.name, base), "be loaded")

    def make(self, factory: ReporterFactory, context: ReporterContext) -> Reporter:
        """Return the reporter that *factory* creates."""
        reporter = self._guarded(partial(_make, self.name, factory, context), "be created")
        return reporter if self._thread is None else ThreadedReporter(reporter, self._thread, self._patience)

    def let_go(self) -> None:
        """End the thread, if the run does not start after all."""
        if self._thread is not None:
            self._thread.end()

    def _guarded(self, do: Callable[[], T], what: str) -> T:
        if self._thread is None:
            return do()

        def staying() -> T:
            with exits_refused():
                return do()

        try:
            return self._thread.call(staying, limit_s=self._patience.whole_s)
        except Hangs as error:
            message = f'reporter "{self.name}" cannot {what}: its code {error}'
            raise PluginError(message, hint="find out what it waits for, or remove the reporter") from None


def _is_ours(name: str) -> bool:
    """Return whether *name* is a reporter of this package or unknown; any other could hang."""
    module = name.partition(":")[0] if ":" in name else plugins.module_of("reporters", name)
    return module is None or module.startswith(("whet.report.", "whet.view."))


def _factory(name: str, base: Path) -> ReporterFactory:
    if ":" in name:
        # At the end, so that a file of the project never replaces a module of whet.
        if str(base) not in sys.path:
            sys.path.append(str(base))
        reporter_class: Any = plugins.find_object(name)
    else:
        reporter_class = plugins.find("reporters", name)
    if not callable(reporter_class):
        raise PluginError(
            f'reporter "{name}" is a {type(reporter_class).__name__}, not a callable that takes a ReporterContext'
        )
    factory: ReporterFactory = reporter_class
    return factory


def _make(name: str, factory: ReporterFactory, context: ReporterContext) -> Reporter:
    try:
        reporter: Any = factory(context)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f'reporter "{name}" cannot be created: {type(error).__name__}: {error}') from error
    if not callable(reporter):
        hint = "the factory takes a ReporterContext and must return a callable that takes run events"
        raise PluginError(
            f'reporter "{name}" made a {type(reporter).__name__}, which cannot be called with events', hint=hint
        )
    instance: Reporter = reporter
    return instance


def _target(choice: ReporterChoice, base: Path, protected: frozenset[Path], factory: ReporterFactory) -> Path | None:
    if choice.target is None:
        return None
    try:
        path = base / Path(choice.target).expanduser()
    except RuntimeError as error:
        raise UsageError(f'reporter "{choice.name}": {choice.target}: {error}', hint="write the whole path") from error
    folder = path.parent
    if not folder.is_dir():
        raise UsageError(
            f'reporter "{choice.name}": no such folder: {folder}', hint=f"create it first: mkdir -p {folder}"
        )
    if path.is_dir() and not getattr(factory, "folder", False):
        raise UsageError(f'reporter "{choice.name}": {path} is a folder, not a file')
    if path.resolve() in protected or (folder.resolve() / "run.json").exists():
        raise UsageError(f'reporter "{choice.name}": whet needs {path} itself; choose another file')
    if path.is_dir() or is_written_into(path):
        if not os.access(path, os.W_OK):
            raise UsageError(f'reporter "{choice.name}": cannot write to {path}')
    elif not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f'reporter "{choice.name}": cannot write to the folder {folder}')
    return path


def _owner_of_stdout(
    choices: Sequence[ReporterChoice], factories: Sequence[ReporterFactory], targets: Sequence[Path | None]
) -> int | None:
    """Return the position of the reporter whose document goes to stdout; no two may write to one place."""
    owners: dict[Path | str, str] = {}
    owner: int | None = None
    for position, (choice, factory, target) in enumerate(zip(choices, factories, targets, strict=True)):
        document = target is None and getattr(factory, "document", False)
        place: Path | str
        if target:
            place = target.resolve()
        elif document:
            place = "stdout"
        else:
            place = choice.name
        if place in owners:
            hint = f"give each its own file: {choice.name}=FILE"
            where = place if target or document else "the screen"
            raise UsageError(f'reporters "{owners[place]}" and "{choice.name}" would both write to {where}', hint=hint)
        owners[place] = choice.name
        owner = position if document else owner
    return owner
