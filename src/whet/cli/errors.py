"""How errors reach the person: one line each on stderr, a hint below, and the exit code that scripts rely on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click

from whet.errors import ConfigError, Problem, RecordLost, SuiteError, UnknownName, UsageError, WhetError

USAGE = 2
NOT_RECORDED = 4
INTERNAL = 70
NOT_PRINTED = 74
INTERRUPTED = 130
# What a shell reports of any program that wrote to a closed pipe.
BROKEN_PIPE = 141

# What only an error needs is imported where it is needed: nobody else should pay for it.
_RED, _DIM, _RESET = "\033[1;31m", "\033[2m", "\033[0m"


def guarded(action: Callable[[], int]) -> int:  # noqa: PLR0911 - one ending for each kind of error
    """The exit code of *action*, or of whatever it raised, which is printed."""
    _print_anything()
    try:
        return _flushed(action)
    except WhetError as error:
        return _report(error)
    except click.ClickException as error:
        return _report(_translated(error))
    except (KeyboardInterrupt, click.Abort):
        _write([("interrupted", None)])
        return INTERRUPTED
    except SystemExit:
        # Nobody of ours exits: an extension did, and its exit code says nothing about the run.
        return _report_bug()
    except Exception as error:  # noqa: BLE001 - the outermost place: whatever comes here was not foreseen
        if isinstance(error, BrokenPipeError) and _stdout_is_gone():
            return _leave_stdout(BROKEN_PIPE)
        from whet.reading.paths import refusal

        if refused := refusal(error):
            return _report(refused)
        if isinstance(error, OSError) and _stdout_is_full():
            _write([(f"error[stdout]: what was to be printed could not be: {error.strerror}", None)])
            return _leave_stdout(NOT_PRINTED)
        return _report_bug()


def no_such(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    """The error for a *name* that nothing answers to, with the nearest that does."""
    from difflib import get_close_matches

    known = list(known)
    near = get_close_matches(name, known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"
    return UnknownName(f'no {kind} is called "{name}"', hint=hint)


def _flushed(action: Callable[[], int]) -> int:
    """The exit code of *action*, once all that it printed has left."""
    try:
        code = action()
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    try:
        sys.stdout.flush()
    except OSError:
        # What is wrong already is worth more than that nobody could read of it.
        if code == 0:
            raise
        return _leave_stdout(code)
    return code


def _report(error: WhetError) -> int:
    _write(_lines(error))
    return NOT_RECORDED if isinstance(error, RecordLost) else USAGE


def _lines(error: WhetError) -> Iterator[tuple[str, str | None]]:
    """Each problem with its hint; several problems of one kind are several lines, so that tools can find them."""
    mark = f"error[{error.code}]: "
    match error:
        case SuiteError():
            yield from ((f"{mark}{problem}", problem.hint) for problem in error.problems)
            yield from _warnings(error.warnings)
        case ConfigError():
            *first, last = error.message.split("\n")
            yield from ((f"{mark}{line}", None) for line in first)
            yield f"{mark}{last}", error.hint
        case _:
            yield f"{mark}{error.message}", error.hint


def warn(problems: Iterable[Problem]) -> None:
    """Tell of what looks wrong, in the form of errors."""
    _write(_warnings(problems))


def warn_of(messages: Iterable[str]) -> None:
    """Tell of what has no file and line."""
    _write((f"warning: {message}", None) for message in messages)


def _warnings(problems: Iterable[Problem]) -> Iterator[tuple[str, str | None]]:
    return ((f"warning: {problem}", problem.hint) for problem in problems)


def _write(lines: Iterable[tuple[str, str | None]]) -> None:
    stream = sys.stderr
    if stream is None:
        return
    colour = _wants_colour(stream)
    for line, hint in lines:
        mark, colon, rest = line.partition(": ")
        stream.write(f"{_RED}{mark}{_RESET}{colon}{rest}\n" if colour else f"{line}\n")
        for part in (hint or "").splitlines():
            stream.write(f"  {_DIM}{part}{_RESET}\n" if colour else f"  {part}\n")


def _wants_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _translated(error: click.ClickException) -> WhetError:
    """A click error in our form: what is wrong, and below it what to do."""
    near = getattr(error, "possibilities", None)
    message = error.message if near else error.format_message()
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "whet"
    hint = f'did you mean "{near[0]}"?' if near else f'see "{path} --help"'
    return _ClickError(message[:1].lower() + message[1:].rstrip("."), hint=hint)


class _ClickError(WhetError):
    """Something wrong with what was typed."""

    code = "usage"


def _report_bug() -> int:
    import traceback

    traceback.print_exc()
    _write([("error[internal]: this is a mistake in whet: please report it with the lines above", None)])
    return INTERNAL


def _print_anything() -> None:
    """Let names that are no text, such as odd file names, be printed and not raise."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _stdout_is_gone() -> bool:
    """Whether it is our own reader who went away: a broken pipe to some other program is our mistake."""
    from whet.report.reporter import reader_is_gone

    return reader_is_gone(sys.stdout)


def _stdout_is_full() -> bool:
    """Whether it is our own output that cannot be written; any other file is another matter."""
    try:
        number = sys.stdout.fileno()
    except (AttributeError, ValueError):
        return False
    try:
        sys.stdout.flush()
        # What was refused may be gone from the buffer, so only another byte can tell.
        os.write(number, b"\n")
    except OSError:
        return True
    return False


def _leave_stdout(code: int) -> int:
    # What is still buffered would be flushed at exit, and complain there.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return code


def write_out(data: bytes, output: Path | None) -> None:
    """Write *data* to a file, which is there whole or as it was, or to stdout where none is named."""
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    # Only now: what is printed needs none of it.
    from whet.errors import UsageError
    from whet.report.json import replacing

    try:
        with replacing(output) as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error


def write_new(path: Path, text: str, hint: str | None = None) -> None:
    """Write a file that is not there yet; *hint* says what to do with one that is."""
    from whet.errors import UsageError

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and nothing is overwritten", hint=hint) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


class FilePath(click.Path):
    """A path; an empty one, such as an unset variable leaves, is a mistake and not the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """*value* as a path."""
        if not str(value).strip():
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


FILE = FilePath()


_BROUGHT = ("alembic", "fastapi", "prometheus_client", "psycopg", "pydantic", "sqlalchemy", "starlette", "uvicorn")


@contextmanager
def server_extra() -> Iterator[None]:
    """Import what the service needs; `UsageError` where it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _BROUGHT:
            raise
        raise UsageError(
            f"the service needs {missing}, which is not installed", hint="pip install 'whet[server]'"
        ) from error
