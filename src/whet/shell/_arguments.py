"""What the words of a command may be: positionals, options with values, bare flags, and often more than one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from operator import attrgetter

from msgspec import Struct

_NEGATIVE_NUMBER = re.compile(r"-\.?\d")
_CLUSTER = re.compile(r"-[A-Za-z0-9]{2,32}")
_LETTERS = re.compile(r"-[A-Za-z]+")


class Role(Struct, frozen=True):
    """One way to read one word: the flags in it, and perhaps an option with a value here or in the next word."""

    flags: tuple[str, ...] = ()
    option: str | None = None
    values: tuple[str, ...] = ()
    takes_next: bool = False


class Arguments(Struct, frozen=True, kw_only=True):
    """The words of a command by what they may be; `pnpm --watch test` has a flag, an option and a positional."""

    positionals: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    flags: tuple[str, ...]
    end_of_options: bool


def is_positional(word: str) -> bool:
    """Return whether *word* may be a positional while options are still read."""
    return not word.startswith("-") or word == "-" or _NEGATIVE_NUMBER.match(word) is not None


@lru_cache(maxsize=16_384)
def roles(word: str) -> tuple[Role, ...]:
    """Return every way to read *word* as an option or as flags."""
    if not word.startswith("-") or word in ("-", "--"):
        return ()
    name, equals, value = word.partition("=")
    if word.startswith("--"):
        return (Role(option=name, values=(value,)),) if equals else (Role(flags=(word,)), _before_next(word))
    # `-name` of find and `-run` of go are one option each.
    word_roles = (Role(option=name, values=(value,)),) if equals else (Role(flags=(word,)), _before_next(word))
    return (*word_roles, *_cluster_roles(word)) if len(word) > len("-x") else word_roles


def _before_next(name: str, flags: tuple[str, ...] = ()) -> Role:
    return Role(flags=flags, option=name, takes_next=True)


def _cluster_roles(word: str) -> tuple[Role, ...]:
    """`-p80` and `-it`: letters are flags up to the one that takes the rest, or the next word, as its value."""
    if not _CLUSTER.fullmatch(word):
        value = word[2:]
        return (Role(option=word[:2], values=(value, value[1:]) if value.startswith("=") else (value,)),)
    flags = tuple(f"-{letter}" for letter in word[1:])
    value_roles = tuple(Role(flags[:at], flags[at], (word[at + 2 :],)) for at in range(len(flags) - 1))
    return (Role(flags=flags), _before_next(flags[-1], flags[:-1]), *value_roles)


@lru_cache(maxsize=16_384)
def traces(words: tuple[str, ...]) -> frozenset[str]:
    """Return every text that a reading of *words* has as a positional, a name, a value or a flag."""
    words_and_options = set(words)
    for word in words:
        for role in roles(word):
            words_and_options.update(role.flags, role.values)
            if role.option is not None:
                words_and_options.add(role.option)
    return frozenset(words_and_options)


def read_arguments(words: tuple[str, ...]) -> Arguments:
    """*words* as people read them; a word that may be a value or a positional appears as both."""
    options: dict[str, tuple[str, ...]] = {}
    flags: list[str] = []
    ending = words.index("--") if "--" in words else len(words)
    for index, word in enumerate(words[:ending]):
        role = _usual_role(word)
        if role is None:
            continue
        flags.extend(role.flags)
        if role.option is not None:
            options[role.option] = (*options.get(role.option, ()), *role.values[:1])
        elif index + 1 < ending and is_positional(words[index + 1]):
            options[role.flags[-1]] = (*options.get(role.flags[-1], ()), words[index + 1])
    positionals = tuple(word for word in words[:ending] if is_positional(word) and not _NEGATIVE_NUMBER.match(word))
    return Arguments(
        positionals=positionals + words[ending + 1 :],
        options=options,
        flags=tuple(flags),
        end_of_options=ending < len(words),
    )


def _usual_role(word: str) -> Role | None:
    if not word.startswith("-") or word == "-":
        return None
    if word.startswith("--") or "=" in word or len(word) == len("-x") or _NEGATIVE_NUMBER.match(word):
        return roles(word)[0]
    if _LETTERS.fullmatch(word):
        return Role(flags=tuple(f"-{letter}" for letter in word[1:]))
    return Role(option=word[:2], values=(word[2:],))


def split_options(
    words: tuple[str, ...], valued: str, valued_long: tuple[str, ...], *, mixed: bool
) -> tuple[set[str], tuple[str, ...]]:
    """Return the names of the options of a known program, and its operands.

    The letters *valued* and the names *valued_long* are options with a value. Unless options and operands may be
    *mixed*, the first operand ends the options.
    """
    names: set[str] = set()
    operands: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            return names, (*operands, *words[index:])
        if word.startswith("--"):
            name, equals, _ = word.partition("=")
            names.add(name)
            index += not equals and name in valued_long
        elif word.startswith("-") and not (mixed and word == "-"):
            # The first letter with a value takes the rest of the word or, at its end, the next word.
            letters = next((word[1 : at + 1] for at, letter in enumerate(word) if letter in valued), word[1:])
            names.update(f"-{letter}" for letter in letters)
            index += word[-1] in valued and len(letters) == len(word) - 1
        elif not mixed:
            return names, words[index - 1 :]
        elif not word.startswith("+"):
            operands.append(word)
    return names, tuple(operands)


class SimpleCommand(Struct, frozen=True, kw_only=True):
    """One command of a line. Variables, globs and tildes are kept as written."""

    raw: str
    executable: str
    words: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    redirections: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    depth: int = 0
    # The subshells that it runs in, see `followed`.
    scope: tuple[int, ...] = ()
    # The commands that carried this one (`sudo pnpm test` is also a `sudo`), outermost first.
    carriers: tuple[SimpleCommand, ...] = ()

    # What it says, without where it was read: neither its scope nor its carriers.
    def __eq__(self, other: object) -> bool:
        return _says(self) == _says(other) if isinstance(other, SimpleCommand) else NotImplemented

    def __hash__(self) -> int:
        return hash(_says(self))

    def __repr__(self) -> str:
        fields = zip(_SAID, _says(self), strict=True)
        return f"SimpleCommand({', '.join(f'{name}={value!r}' for name, value in fields)})"

    @property
    def name(self) -> str:
        """Return the executable without its folder."""
        return self.executable.rsplit("/", 1)[-1] or self.executable

    @property
    def arguments(self) -> Arguments:
        """The words of the command as positionals, options and flags; a word with two readings appears in both."""
        return read_arguments(self.words)


_SAID = ("raw", "executable", "words", "env", "redirections", "wrappers", "depth")
_says = attrgetter(*_SAID)
_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_ESCAPE = re.compile(
    r"(?P<bytes>(?:\\x[0-9a-fA-F]{1,2}|\\[0-7]{1,3})+)"
    r"|\\(?:u(?P<short>[0-9a-fA-F]{1,4})|U(?P<long>[0-9a-fA-F]{1,8})|c(?P<control>[\x00-\x7f])|(?P<simple>.))",
    re.DOTALL,
)
_BYTE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3}))")
_LAST_CODE_POINT = 0x10FFFF


def decode_ansi(text: str) -> str:
    """Return the value of `$'text'`."""
    return _ESCAPE.sub(_decode, text) if "\\" in text else text


def _decode(match: re.Match[str]) -> str:
    if match["bytes"]:
        codes = (int(pair[1], 16) if pair[1] else int(pair[2], 8) & 0xFF for pair in _BYTE.finditer(match["bytes"]))
        return bytes(codes).decode("utf-8", "surrogateescape")
    if digits := match["short"] or match["long"]:
        code = int(digits, 16)
        return chr(code) if code <= _LAST_CODE_POINT else match[0]
    if match["control"]:
        return chr(ord(match["control"]) & 0x1F)
    return _SIMPLE_ESCAPES.get(match["simple"], match[0])
