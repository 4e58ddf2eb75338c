"""Options that have the same name in every command, and take the names of other tools too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.parser import _OptionParser

# The names that work and are not shown, by the name that every command shows.
OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "--arm": ("--variant",),
    "--case": ("--task",),
    "--last-failed": ("--lf", "--failed"),
    "--max-parallel": ("--concurrent", "--concurrency", "--parallel", "--jobs", "-j"),
    "--max-time-limit": ("--max-time-limit-s",),
    "--runner": ("--agent",),
    "--skill": ("--skills",),
    "--skills-dir": ("--output-dir",),
    "--stop-early": ("--exitfirst", "--bail"),
    "--timeout": ("--timeout-ms",),
    "--trials": ("--runs", "--repeat"),
}


class NamedOption(click.Option):
    """An option that is also found by the other names of `OTHER_NAMES`, or by *other_names*."""

    def __init__(self, *words: Any, other_names: Sequence[str] | None = None, **facts: Any) -> None:
        super().__init__(*words, **facts)
        names = [name for shown in self.opts for name in OTHER_NAMES.get(shown, ())]
        self.other_names = tuple(names if other_names is None else other_names)

    def add_to_parser(self, parser: _OptionParser, ctx: click.Context) -> None:
        """Let the parser find the option by all of its names."""
        shown = self.opts
        # For the parser alone: the help and the errors of click list `opts`.
        self.opts = [*shown, *self.other_names]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


option = partial(click.option, cls=NamedOption)


def names_of(parameter: click.Option) -> tuple[str, ...]:
    """Return every name by which an option can be typed."""
    return (*parameter.opts, *getattr(parameter, "other_names", ()))


def select_words(
    words: Sequence[str], command: click.Command, is_wanted: Callable[[str], bool], *, with_arguments: bool
) -> Iterator[str]:
    """Yield the options whose parameter *is_wanted* takes, with their values; *with_arguments* adds the other words."""
    options = {
        name: parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in names_of(parameter)
    }
    waiting = deque(words)
    while waiting:
        word = waiting.popleft()
        if word == "--":
            yield from (word, *waiting) if with_arguments else ()
            return
        if not word.startswith("-") or word == "-":
            yield from [word] if with_arguments else []
            continue
        name, has_value = _split_name(word)
        parameter = options[name]
        if parameter.is_flag and has_value:
            # Several flags in one word, such as -xv.
            waiting.appendleft(f"-{word[2:]}")
            word = name
        value = [] if has_value or parameter.is_flag or not waiting else [waiting.popleft()]
        yield from (word, *value) if is_wanted(str(parameter.name)) else ()


def _split_name(word: str) -> tuple[str, bool]:
    """Return the name of the option in *word*, and whether more than the name is in it."""
    if word.startswith("--"):
        name, equals, _ = word.partition("=")
        return name, bool(equals)
    return word[:2], len(word) > len("-k")
