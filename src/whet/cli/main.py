"""The `whet` command: finds the command that was asked for and imports nothing else."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from whet.version import __version__

if TYPE_CHECKING:
    import click


# Commands in the order of the help, with what it says of them: `whet --help` must not import them to ask.
COMMANDS = {
    "run": "Run a suite and report verdicts.",
    "bench": "Run a suite of expectations and report what holds.",
    "validate": "Say what is wrong with suites, benchmarks and skills.",
    "init": "Write a first suite for the project at hand.",
    "import": "Make an eval suite of a benchmark manifest or of Harbor tasks.",
    "regrade": "Apply a suite's checks as they are now to a recorded run.",
    "verify": "Say whether the record of a run was changed.",
    "explain": "Ask the agent of a trial why it did what it did.",
    "eval": "Score callable skills on a benchmark.",
    "report": "Compare or convert the reports of an evaluation.",
    "create": "Make a new callable skill from a template.",
    "find": "Find callable skills by words, tags and kind.",
    "select": "Choose the callable skills that did well enough.",
    "serve": "Keep eval suites and run them, over HTTP.",
    "keys": "Make, list and revoke keys of the service.",
    "suites": "Exchange eval suites with a service.",
    "doctor": "Say what is installed and what stands in the way.",
    "config": "Show the settings in force and where each came from.",
    "schema": "Print the JSON Schema of a file that whet reads or writes.",
}

# Where they are, by module: one for each thing that people come to do.
_HOMES = {
    "running": ("run", "bench"),
    "authoring": ("init", "import", "validate"),
    "records": ("regrade", "verify", "explain", "report"),
    "callables": ("eval", "create", "find", "select"),
    "service": ("serve", "keys", "suites"),
    "doctor": ("doctor", "config", "schema"),
}


def main() -> NoReturn:
    """Run the command line, and leave with its exit code."""
    _open_missing_streams()
    code = run()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    # Not sys.exit: threads and exit handlers that a suite has left behind must neither hold us nor speak for us.
    os._exit(code)


def _open_missing_streams() -> None:
    """A stream that was closed by whoever started us would be taken by the first file that we open."""
    # What is printed on a closed stdout is lost, and whoever prints it must notice; on stderr there is nobody to tell.
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - a descriptor, open as long as we are
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def run() -> int:
    """Carry out what was asked; gives the exit code."""
    # Without arguments people want to know what there is.
    arguments = sys.argv[1:] or ["--help"]
    if arguments[0] == "--version":
        return _say_version()
    try:
        # Only now: importing click takes longer than all the rest of saying the version.
        from whet.cli.errors import guarded

        return guarded(lambda: _invoke(arguments))
    except KeyboardInterrupt:
        # Somebody was quicker than the imports.
        return 130


def _say_version() -> int:
    try:
        os.write(1, f"whet {__version__}\n".encode())
    except OSError as error:
        sys.stderr.write(f"error[stdout]: what was to be printed could not be: {error.strerror}\n")
        return 74
    return 0


def _invoke(arguments: list[str]) -> int:
    group = application()
    # Not group.main(): it takes any broken pipe for one of stdout, also one to an agent, and exits with 1.
    with group.make_context("whet", arguments) as context:
        code = group.invoke(context)
    return code if isinstance(code, int) else 0


def application() -> click.Group:
    """The group of all commands, each imported when it is called; what click asks for and we ignore is `ctx`."""
    import importlib

    import click

    class Application(click.Group):
        """Finds commands by name; a class in a function, because its base costs an import."""

        def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
            return list(COMMANDS)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
            if cmd_name not in COMMANDS:
                return None
            home = next(home for home, names in _HOMES.items() if cmd_name in names)
            found = getattr(importlib.import_module(f"whet.cli.{home}"), f"{cmd_name}_command")
            assert isinstance(found, click.Command)
            return found

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            if args[0] not in COMMANDS and not args[0].startswith("-"):
                from whet.cli.errors import no_such

                raise no_such("command", args[0], COMMANDS)
            from whet.cli.running import TYPED

            ctx.meta[TYPED] = args[1:]
            return super().resolve_command(ctx, args)

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
            with formatter.section("Commands"):
                formatter.write_dl(list(COMMANDS.items()))

    return Application(
        name="whet",
        help="Tell, with evidence, whether an agent skill, an agent or a prompt got better or worse.",
        epilog='"whet COMMAND --help" says more about a command.',
        context_settings={"help_option_names": ["-h", "--help"]},
        # Answered in main(); named here for the help.
        params=[click.Option(["--version"], is_flag=True, expose_value=False, help="Say the version and exit.")],
    )
