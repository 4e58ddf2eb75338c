"""Quotes: what `$'...'` means, and how a command is written so that it reads the same again."""

from __future__ import annotations

import re

from whet.shell.simple import SimpleCommand

RESERVED = frozenset(
    (
        "!",
        "[[",
        "]]",
        "{",
        "}",
        "case",
        "coproc",
        "do",
        "done",
        "elif",
        "else",
        "esac",
        "fi",
        "for",
        "function",
        "if",
        "in",
        "select",
        "then",
        "time",
        "until",
        "while",
    )
)

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
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[A-Za-z0-9_@*.-]*\])?\+?")


def decode_ansi(text: str) -> str:
    """What `$'text'` stands for."""
    return _ESCAPE.sub(_decoded, text) if "\\" in text else text


def quote_word(word: str) -> str:
    """*word* so that a shell reads it as exactly this one word."""
    if _SAFE.fullmatch(word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def quote_command(command: SimpleCommand) -> str:
    """One line that reads as the same executable, words and environment; wrappers and redirections are left out."""
    words = " ".join((_quote_executable(command.executable), *map(quote_word, command.words)))
    if all(_NAME.fullmatch(name) for name, _ in command.env):
        return "".join(f"{name}={quote_word(value)} " for name, value in command.env) + words
    # Only `env` can set a variable whose name is none; `command` keeps an executable with "=" from being one of them.
    settings = " ".join(quote_word(f"{name}={value}") for name, value in command.env)
    return f"env {settings} command {words}"


def _quote_executable(word: str) -> str:
    plain = word not in RESERVED and "=" not in word
    return quote_word(word) if plain or not _SAFE.fullmatch(word) else f"'{word}'"


def _decoded(found: re.Match[str]) -> str:
    if found["bytes"]:
        codes = (int(pair[1], 16) if pair[1] else int(pair[2], 8) & 0xFF for pair in _BYTE.finditer(found["bytes"]))
        return bytes(codes).decode("utf-8", "surrogateescape")
    if digits := found["short"] or found["long"]:
        code = int(digits, 16)
        return chr(code) if code <= _LAST_CODE_POINT else found[0]
    if found["control"]:
        return chr(ord(found["control"]) & 0x1F)
    return _SIMPLE_ESCAPES.get(found["simple"], found[0])
