"""The `whet` command: find the command that you typed, and import only that one."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from whet.version import __version__

if TYPE_CHECKING:
    import click


# Commands in the order of the help, with their short help: `whet --help` does not import them to ask.
COMMANDS = {
    "run": "Run suites, or the suites of a skill, and report the verdicts.",
    "bench": "Run a suite of expectations and report which hold.",
    "validate": "Check suites, benchmarks and skills for problems.",
    "init": "Write a first suite for your project.",
    "audit": "Find cases that cannot tell good from bad, without a model.",
    "import": "Convert a benchmark manifest or Harbor tasks to an eval suite.",
    "compare": "Say which of two arms or runs is better, and how sure that is.",
    "gate": "Exit with 0, 1 or 5: not worse, worse, or not known yet.",
    "plan": "Say how many trials, dollars and hours a decision takes.",
    "baseline": "Store the trials of a run, to compare later runs with.",
    "view": "Look at runs in your browser.",
    "history": "Show how a suite did over time, and where that changed.",
    "merge": "Make one record of the shards of a run.",
    "regrade": "Apply the current checks of a suite to a recorded run.",
    "verify": "Check that nothing changed the record of a run.",
    "export": "Write a run as a table, as trajectories or as traces.",
    "explain": "Ask the agent of a trial why it did what it did.",
    "eval": "Score callable skills on a benchmark.",
    "task": "Call a callable skill once and evaluate its answer.",
    "report": "Write the pages of a run, or compare reports of evaluations.",
    "create": "Create a callable skill from a template or an OpenAPI document.",
    "find": "Search for callable skills by words, tags and kind.",
    "select": "Select the callable skills that did well enough.",
    "serve": "Serve eval suites and their runs over HTTP.",
    "keys": "Create, list and revoke keys of the service.",
    "orgs": "Show what organisations keep, and set their quotas.",
    "suites": "Exchange eval suites with a service, and run them.",
    "doctor": "Check your machine, settings and agents for problems.",
    "clean": "Remove what whet built and cached.",
    "config": "Show the settings in force and where each comes from.",
    "schema": "Print the JSON Schema of a file that whet reads or writes.",
}

# The commands of each module.
_HOMES = {
    "running": ("run", "bench", "audit"),
    "authoring": ("init", "import", "validate"),
    "records": ("merge", "regrade", "verify", "export", "explain", "report"),
    "deciding": ("compare", "gate", "plan", "baseline"),
    "viewing": ("view", "history"),
    "callables": ("eval", "task", "create", "find", "select"),
    "service": ("serve", "keys", "orgs"),
    "suites": ("suites",),
    "doctor": ("doctor", "config", "schema"),
    "cleaning": ("clean",),
}


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
    if arguments[0] == "--version":
        return _print_version()
    # Imports leave no garbage, and looking for it takes a tenth of the time of a short command.
    gc.disable()
    try:
        # Not above: importing click takes longer than printing the version.
        from whet.cli.errors import guarded

        return guarded(lambda: _invoke(arguments))
    except KeyboardInterrupt:
        # Pressed during the imports.
        return 130


def _print_version() -> int:
    try:
        os.write(1, f"whet {__version__}\n".encode())
    except OSError as error:
        sys.stderr.write(f"error[stdout]: cannot write to stdout: {error.strerror}\n")
        return 74
    return 0


def _invoke(arguments: list[str]) -> int:
    group = application()
    # Not group.main(): it exits with 1 for any broken pipe, as if each were that of stdout.
    with group.make_context("whet", arguments) as context:
        code = group.invoke(context)
    return code if isinstance(code, int) else 0


def application() -> click.Group:
    """Return the group of all commands; each is imported when you call it."""
    import importlib

    import click

    class Application(click.Group):
        """Finds commands by name. A class in a function, because its base class costs an import."""

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
            from whet.cli.common import TYPED

            ctx.meta[TYPED] = args[1:]
            found = super().resolve_command(ctx, args)
            if args[0] not in _HOMES["running"]:
                # These import more, and switch it on when the first trial starts.
                gc.enable()
            return found

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
            with formatter.section("Commands"):
                formatter.write_dl(list(COMMANDS.items()))

    return Application(
        name="whet",
        help="Tell, with evidence, whether an agent skill, an agent or a prompt got better or worse.",
        epilog='Run "whet COMMAND --help" for the options of a command.',
        context_settings={"help_option_names": ["-h", "--help"]},
        # run() answers it; this is for the help.
        params=[click.Option(["--version"], is_flag=True, expose_value=False, help="Print the version and exit.")],
    )
