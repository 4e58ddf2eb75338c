"""The `whet` command: find the command that you typed, and import only that one."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from functools import partial
from typing import NoReturn

from whet import exit_codes
from whet.version import __version__

# The ways to ask for the version.
_VERSION = ("--version", "-V", "version")
# A shell sets it to ask what may follow the words that you typed.
_COMPLETE = "_WHET_COMPLETE"


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    _open_missing_streams()
    code = run()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    # Not sys.exit: threads and exit handlers that a suite left behind must not delay the exit or change its code.
    os._exit(code)


def _open_missing_streams() -> None:
    """Open streams that were closed before we started: the first file that we open would take their number."""
    # Writing to a closed stdout must fail, because the output is lost. A closed stderr may swallow what it gets.
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - a descriptor, open as long as we are
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def run() -> int:
    """Run the command in `sys.argv` and return its exit code."""
    arguments = sys.argv[1:] or ["--help"]
    if arguments[0] in _VERSION:
        return _print_version()
    if arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    # Imports leave no garbage, and looking for it takes a tenth of the time of a short command.
    gc.disable()
    try:
        # Not above: importing click takes longer than printing the version.
        from whet.cli.errors import guard

        return guard(partial(_invoke, arguments))
    except KeyboardInterrupt:
        # Pressed during the imports.
        return exit_codes.INTERRUPTED


def _print_version() -> int:
    # They ask git, so nothing else imports them.
    from whet.cli.machine.installation import describe_stale
    from whet.commit import commit_of_package

    try:
        os.write(1, f"whet {__version__} ({commit_of_package() or 'commit unknown'})\n".encode())
    except OSError as error:
        sys.stderr.write(f"error[stdout]: cannot write to stdout: {error.strerror}\n")
        return exit_codes.NOT_WRITTEN
    if stale := describe_stale():
        sys.stderr.write(f"note: {stale}\n")
    return exit_codes.DONE


def _invoke(arguments: list[str]) -> int:
    if instruction := os.environ.get(_COMPLETE):
        from whet.cli.grammar.completion import answer_shell

        return answer_shell(instruction)
    from whet.cli.grammar.application import application

    group = application()
    # Not group.main(): it exits with 1 for any broken pipe, as if each were that of stdout.
    with group.make_context("whet", arguments) as context:
        code = group.invoke(context)
    return code if isinstance(code, int) else exit_codes.DONE
