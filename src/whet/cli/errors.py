"""Print errors for people, one line each with a hint below, and return the exit code that scripts rely on."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator

import click

from whet import exit_codes
from whet.errors import ConfigError, Problem, RecordLost, SuiteError, WhetError, harmless

_RED, _DIM, _RESET = "\033[1;31m", "\033[2m", "\033[0m"


def guard(action: Callable[[], int]) -> int:  # noqa: PLR0911 - one ending for each kind of error
    """Return the exit code of *action*, or print what it raised and return the code for that."""
    _print_any_name()
    try:
        return _run_and_flush(action)
    except WhetError as error:
        return _report(error)
    except click.ClickException as error:
        return _report(_translate(error))
    except (KeyboardInterrupt, click.Abort):
        _write([("interrupted", None)])
        return exit_codes.INTERRUPTED
    except MemoryError:
        _write([("error[memory]: whet ran out of memory", "give it more, or run fewer trials at the same time")])
        return exit_codes.INTERNAL
    except SystemExit:
        # whet never exits like this: an extension did, and its exit code says nothing about the run.
        return _report_bug()
    except Exception as error:  # noqa: BLE001 - the outermost place, so the last chance to report it
        if isinstance(error, BrokenPipeError) and _stdout_is_gone():
            return _leave_stdout(exit_codes.READER_GONE)
        # Imported here and not above, as in the functions below: only an error needs it.
        from whet.reading.paths import refusal

        if refusal_error := refusal(error):
            return _report(refusal_error)
        if isinstance(error, OSError) and _stdout_is_full():
            _write([(f"error[stdout]: cannot write to stdout: {error.strerror}", None)])
            return _leave_stdout(exit_codes.NOT_WRITTEN)
        return _report_bug()


def warn(problems: Iterable[Problem]) -> None:
    """Print *problems* as warnings."""
    _write(_warnings(problems))


def warn_of(messages: Iterable[str]) -> None:
    """Print *messages* as warnings."""
    _write((f"warning: {message}", None) for message in messages)


def _run_and_flush(action: Callable[[], int]) -> int:
    """Return the exit code of *action* after its output is written."""
    try:
        code = action()
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    except click.exceptions.NoArgsIsHelpError as alone:
        # The message is the help of a group that was typed without a command.
        click.echo(alone.message, err=True)
        code = exit_codes.USAGE
    try:
        sys.stdout.flush()
    except OSError:
        # A command that failed keeps its exit code, even if its output is lost.
        if code == 0:
            raise
        return _leave_stdout(code)
    return code


def _report(error: WhetError) -> int:
    _write(_lines(error))
    return exit_codes.RECORD_LOST if isinstance(error, RecordLost) else exit_codes.USAGE


def _lines(error: WhetError) -> Iterator[tuple[str, str | None]]:
    """Yield a line and a hint for each problem, so that tools can find every one of them."""
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


def _warnings(problems: Iterable[Problem]) -> Iterator[tuple[str, str | None]]:
    return ((f"warning: {problem}", problem.hint) for problem in problems)


def _write(lines: Iterable[tuple[str, str | None]]) -> None:
    stream = sys.stderr
    if stream is None:
        return
    # Imported here: only an error needs it.
    from whet.reading.text import wants_colour

    colour = wants_colour(stream, os.environ)
    for line, hint in lines:
        safe_line = harmless(line)
        mark, colon, message = safe_line.partition(": ")
        stream.write(f"{_RED}{mark}{_RESET}{colon}{message}\n" if colour else f"{safe_line}\n")
        for part in harmless(hint or "").splitlines():
            stream.write(f"  {_DIM}{part}{_RESET}\n" if colour else f"  {part}\n")


# What click calls a value by its types, in words for people.
_CLICKS_WORDS = {
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
    "is not a valid float range": "is not a number",
    "is not a valid float": "is not a number",
}


def _translate(error: click.ClickException) -> WhetError:
    """Return a click error in our form, with a hint."""
    near = getattr(error, "possibilities", None)
    message = error.message if near else error.format_message()
    for theirs, ours in _CLICKS_WORDS.items():
        message = message.replace(theirs, ours)
    context = getattr(error, "ctx", None)
    # Click lists choices one below the other.
    message = message.replace("\n\t", " ")
    path = context.command_path if context is not None else "whet"
    hint = f'did you mean "{near[0]}"?' if near else f'see "{path} --help"'
    return _ClickError(message[:1].lower() + message[1:].rstrip("."), hint=hint)


class _ClickError(WhetError):
    """A mistake in what you typed."""

    code = "usage"


def _report_bug() -> int:
    import traceback

    traceback.print_exc()
    _write([("error[internal]: this is a bug in whet: please report it with the lines above", None)])
    return exit_codes.INTERNAL


def _print_any_name() -> None:
    """Let stdout print names that are not valid text, such as odd file names, instead of raising."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _stdout_is_gone() -> bool:
    """Return whether the reader of stdout went away; a broken pipe to another program is a bug of ours."""
    from whet.report.contract import reader_is_gone

    return reader_is_gone(sys.stdout)


def _stdout_is_full() -> bool:
    """Return whether stdout, and not some other file, cannot be written to."""
    try:
        number = sys.stdout.fileno()
    except (AttributeError, ValueError):
        return False
    try:
        sys.stdout.flush()
        # The buffer may have dropped what was refused, so only another byte can tell.
        os.write(number, b"\n")
    except OSError:
        return True
    return False


def _leave_stdout(code: int) -> int:
    # Python flushes the buffer once more at exit, and would complain there.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return code
