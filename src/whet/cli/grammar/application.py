"""Groups that find a command by its name and import only that one, also for the completion of a shell."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

import click

from whet.cli.grammar.commands import ALIASES, COMMANDS, FAMILIES, SECTIONS, Entry, Section, find_entry, suggest_command
from whet.errors import UnknownName

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# The key under which a context keeps the words after the name of the command.
TYPED = "whet.typed"
# The module whose commands switch garbage collection on by themselves, when the first trial starts.
_RUNS_ITSELF = "run"


class CommandGroup(click.Group):
    """Commands under headings, each imported when you type its name."""

    def __init__(self, name: str, sections: Mapping[str, Section], **words: object) -> None:
        super().__init__(name, context_settings={"help_option_names": ["-h", "--help"]}, **words)  # type: ignore[arg-type]
        self._sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names that the help shows, in its order."""
        return [name for section in self._sections.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command that *cmd_name* finds, imported now."""
        entry = self._entry(cmd_name)
        return None if entry is None else _load(ALIASES.get(cmd_name, cmd_name), entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command, and the words after it; an unknown one is answered with what to type instead."""
        word = args[0]
        entry = self._entry(word)
        if entry is None and not word.startswith("-") and not ctx.resilient_parsing:
            raise UnknownName(f'no command is called "{word}"', hint=self._suggest(word))
        ctx.meta[TYPED] = args[1:]
        resolution = super().resolve_command(ctx, args)
        if entry is not None and entry.home != _RUNS_ITSELF:
            gc.enable()
        return resolution

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each heading with its commands, all short helps in one column."""
        width = max(map(len, self.list_commands(ctx)))
        for heading, section in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), entry.help) for name, entry in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin like *incomplete*; click would import every one to ask for its help."""
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=entry.help)
            for section in self._sections.values()
            for name, entry in section.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def _entry(self, word: str) -> Entry | None:
        return next((section[word] for section in self._sections.values() if word in section), None)

    def _suggest(self, word: str) -> str:
        from difflib import get_close_matches

        names = [name for section in self._sections.values() for name in section]
        near = get_close_matches(word, names, n=1)
        return f'did you mean "{near[0]}"?' if near else f"known: {', '.join(names)}"


class Application(CommandGroup):
    """All commands of whet; it also finds those of a family without its name, and commands by their other words."""

    def _entry(self, word: str) -> Entry | None:
        return find_entry(ALIASES.get(word, word))

    def _suggest(self, word: str) -> str:
        # Only a mistake needs it, and `whet --help` is to be quick.
        from pathlib import Path

        path = Path(word)
        if not path.exists():
            return suggest_command(word)
        return f"{'whet eval' if (path / 'skill.json').is_file() else 'whet run'} {word}"


def application() -> Application:
    """Return the group of all commands."""
    return Application(
        "whet",
        SECTIONS,
        help="Tell, with evidence, whether an agent skill, an agent or a prompt got better or worse.",
        epilog='Run "whet COMMAND --help" for the options of a command.',
        # `main` answers it; this is for the help.
        params=[click.Option(["--version"], is_flag=True, expose_value=False, help="Print the version and exit.")],
    )


def _load(name: str, entry: Entry) -> click.Command:
    if entry.home is None:
        return CommandGroup(name, {"Commands": FAMILIES[name]}, help=COMMANDS[name].help, short_help=entry.help)
    command = getattr(import_module(f"whet.cli.{entry.home}"), f"{name}_command")
    assert isinstance(command, click.Command)
    return command
