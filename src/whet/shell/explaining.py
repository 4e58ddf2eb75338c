"""Why a line does not match: what was expected, how the line was read, and what the nearest command lacks."""

from __future__ import annotations

from dataclasses import replace

from whet.shell.quoting import quote_word
from whet.shell.requirements import Matcher, Requirements, holds, written
from whet.shell.search import STEP_LIMIT, is_executable, meets
from whet.shell.simple import SimpleCommand

_LONGEST_TEXT = 400
_LONGEST_PART = 160
_MOST_COMMANDS = 8
_MOST_CONSIDERED = 200


def shorten(text: str, limit: int = _LONGEST_PART) -> str:
    """*text* with its middle left out when it is longer than *limit*."""
    if len(text) <= limit:
        return text
    half = (limit - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def explain(wanted: Requirements, expected: str, line: str, commands: tuple[SimpleCommand, ...]) -> str:
    """The whole text."""
    head = [f"expected: {expected}", f"command:  {_printable(shorten(line, _LONGEST_TEXT))}"]
    return "\n".join([*head, *reading(wanted, commands)])


def reading(wanted: Requirements, commands: tuple[SimpleCommand, ...]) -> list[str]:
    """How a line with these commands was read, and which of them is wanted, or nearly."""
    if not commands:
        return ["read as:  no command at all"]
    nearest = _nearest(wanted, commands)
    shown = sorted({nearest, *range(min(_MOST_COMMANDS, len(commands)))})
    body = [part for index in shown for part in _described(index + 1, commands[index])]
    left_out = len(commands) - len(shown)
    more = [f"  ... and {left_out} more"] if left_out else []
    return ["read as:", *body, *more, _conclusion(wanted, commands, nearest)]


def _nearest(wanted: Requirements, commands: tuple[SimpleCommand, ...]) -> int:
    """The number of the command that lacks least, among those with the right executable if there are any."""
    right = [index for index, command in enumerate(commands) if is_executable(wanted, command)]
    others = replace(wanted, executable=None)
    considered = (right or range(len(commands)))[:_MOST_CONSIDERED]
    return min(considered, key=lambda index: (not meets(wanted, commands[index]), len(lacks(others, commands[index]))))


def _conclusion(wanted: Requirements, commands: tuple[SimpleCommand, ...], nearest: int) -> str:
    for index, command in enumerate(commands):
        if meets(wanted, command):
            return f"matches:  {index + 1}. {shorten(quote_word(command.executable))}"
    reasons = "; ".join(lacks(wanted, commands[nearest]))
    return f"nearest:  {nearest + 1}. {shorten(quote_word(commands[nearest].executable))}: {reasons}"


def _described(number: int, command: SimpleCommand) -> list[str]:
    arguments = command.arguments
    options = (f"{name} {quote_word(value)}" for name, values in arguments.options.items() for value in values)
    parts = {
        "wrappers": ", ".join(command.wrappers),
        "env": " ".join(f"{name}={quote_word(value)}" for name, value in command.env),
        "positionals": ", ".join(map(quote_word, arguments.positionals)),
        "options": ", ".join(options),
        "flags": ", ".join(arguments.flags),
        "end of options": "--" if arguments.end_of_options else "",
        "redirections": " ".join(command.redirections),
    }
    lines = [f"       {name}: {_printable(shorten(text))}" for name, text in parts.items() if text]
    return [f"  {number}. {_printable(shorten(quote_word(command.executable)))}", *lines]


def lacks(wanted: Requirements, command: SimpleCommand) -> list[str]:
    """What keeps *command* from matching, each part looked at by itself."""
    if wanted.executable is not None and not is_executable(wanted, command):
        return [f"its executable is not {written(wanted.executable)}"]
    alone = Requirements()
    missing: list[str] = []
    if wanted.positionals and not meets(replace(alone, positionals=wanted.positionals), command):
        missing.append(_lacking_positionals(wanted, command))
    missing += [
        _lacking_option(name, matcher, command)
        for name, matcher in dict.fromkeys(wanted.options)
        if not meets(replace(alone, options=((name, matcher),)), command)
    ]
    missing += [
        f"no flag {named(flag)}"
        for flag in dict.fromkeys(wanted.flags)
        if not meets(replace(alone, flags=(flag,)), command)
    ]
    if wanted.end_of_options is not None and wanted.end_of_options != ("--" in command.words):
        missing.append("no `--`" if wanted.end_of_options else "`--` was there")
    return missing or [_lacking_together(wanted, command)]


def _lacking_together(wanted: Requirements, command: SimpleCommand) -> str:
    if meets(wanted, command) is None:
        return f"undecided: its words have too many readings (stopped after {STEP_LIMIT:,} steps)"
    if meets(replace(wanted, is_strict=False), command):
        return "strict: something else is there as well"
    return "every part is there, but no single reading has them all: one word would have to be two things"


def _lacking_positionals(wanted: Requirements, command: SimpleCommand) -> str:
    if len(wanted.positionals) == 1:
        return f"no positional {written(wanted.positionals[0])}"
    found = 0
    while meets(Requirements(positionals=wanted.positionals[: found + 1]), command):
        found += 1
    before = f" after {', '.join(map(written, wanted.positionals[:found]))}" if found else ""
    return f"no positional {written(wanted.positionals[found])}{before}"


def _lacking_option(name: Matcher, matcher: Matcher, command: SimpleCommand) -> str:
    found = {option: values for option, values in command.arguments.options.items() if holds(name, option)}
    if not found:
        return f"no option {named(name)} with {written(matcher)}"
    values = ", ".join(quote_word(value) for each in found.values() for value in each)
    return f"option {', '.join(found)} is {shorten(values)}, not {written(matcher)}"


def named(name: Matcher) -> str:
    """The name of an option as a message has it."""
    return name if isinstance(name, str) else written(name)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
