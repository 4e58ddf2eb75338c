"""`whet completion`: print the script that completes commands in a shell, and answer what it asks."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from whet import exit_codes

# `main` answers the shell, which calls whet with this variable to ask what may follow.
VARIABLE = "_WHET_COMPLETE"
_SHELLS: Mapping[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_PROGRAMS = ("whet", "whet-eval")


@click.command("completion", short_help="Print the script that completes commands in your shell.")
@click.argument("shell", metavar="[bash|zsh|fish]", type=click.Choice(list(_SHELLS)), required=False)
def completion_command(shell: str | None) -> None:
    """Print the script that completes the commands and options of whet in SHELL (default: the shell that you use).

    \b
      bash  echo 'eval "$(whet completion bash)"' >> ~/.bashrc
      zsh   echo 'eval "$(whet completion zsh)"' >> ~/.zshrc
      fish  whet completion fish > ~/.config/fish/completions/whet.fish
    """
    from whet.cli.grammar.application import application

    name = shell or _usual_shell()
    for program in _PROGRAMS:
        # Not `source` of the class for bash, which starts a bash to ask for its version.
        click.echo(ShellComplete.source(_SHELLS[name](application(), {}, program, VARIABLE)))


def _usual_shell() -> str:
    name = os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119 - a name, not a path
    return name if name in _SHELLS else "bash"


def answer_shell(instruction: str) -> int:
    """Print what may follow the words that the shell has; an answer that fails must not print into your prompt."""
    from whet.cli.grammar.application import application

    shell, _, request = instruction.partition("_")
    if shell not in _SHELLS or request != "complete":
        return exit_codes.FAILED
    click.echo(_SHELLS[shell](application(), {}, "whet", VARIABLE).complete())
    return exit_codes.DONE
