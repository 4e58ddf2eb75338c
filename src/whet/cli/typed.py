"""What was typed, for whoever is told how to go on: the same command again, with another choice of what is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import click

# Where the words after the name of a command are kept while it runs.
TYPED = "whet.typed"
# What chooses from a suite, and what asks for something else than running it.
_SELECTING = frozenset(
    ("--case", "--task", "--tag", "--runner", "--variant", "--shard", "--last-failed", "--dry-run", "--resume")
)


def typed_again() -> tuple[str, ...]:
    """All that was typed but what selects."""
    return _typed(lambda name: name not in _SELECTING, others=True)


def typed_for_resume(*names: str) -> tuple[str, ...]:
    """Of what was typed the options of these *names*: the record has the rest."""
    return _typed(lambda name: name in names, others=False)


def _typed(wanted: Callable[[str], bool], *, others: bool) -> tuple[str, ...]:
    context = click.get_current_context(silent=True)
    if context is None:
        return ()
    return tuple(_chosen(context.meta.get(TYPED, ()), context.command, wanted, others=others))


def _chosen(
    words: Sequence[str], command: click.Command, wanted: Callable[[str], bool], *, others: bool
) -> Iterator[str]:
    """The options that are *wanted*, each with its value as it was typed, and the *others*, which are no options."""
    flags = {
        name for option in command.params if isinstance(option, click.Option) and option.is_flag for name in option.opts
    }
    rest = iter(words)
    for word in rest:
        name, equals, _ = word.partition("=")
        if word == "--":
            yield from (word, *rest) if others else ()
        elif not word.startswith("-"):
            yield from [word] if others else []
        else:
            value = [] if equals or name in flags else [next(rest, "")]
            yield from (word, *value) if wanted(name) else ()
