"""Claims about commands: one word at the very end says how the command should end, the rest is the command."""

from __future__ import annotations

import re

from whet.claims import literals
from whet.claims.base import ClaimError, Reading, check_text
from whet.claims.forms import Fails, Passes, Prints, Quits

_PASSES = re.compile(r"(?:^|\s+)passes$")
_FAILS = re.compile(r"(?:^|\s+)fails$")
_EXITS = re.compile(r"(?:^|\s+)exits\s+(?P<code>\S+)$")
_PRINTS = re.compile(r"(?:^|\s+)prints\s+(?=['\"])")
_LARGEST_CODE = 255
# Words that would be handed to the command, and are hardly meant to be.
_MEANT = {
    "pass": "passes",
    "passed": "passes",
    "succeeds": "passes",
    "success": "passes",
    "fail": "fails",
    "failed": "fails",
}


def read_test(rest: str) -> Reading:
    """The claim that *rest*, which stands after `test:`, makes."""
    if found := _PASSES.search(rest):
        return Reading(Passes(_command(rest[: found.start()])))
    if found := _FAILS.search(rest):
        return Reading(Fails(_command(rest[: found.start()])))
    if (found := _EXITS.search(rest)) and found["code"].lstrip("-").isdecimal():
        return Reading(Quits(_command(rest[: found.start()]), exit_code(int(found["code"]))))
    return _prints(rest) or Reading(Passes(_command(rest)), _plain_warnings(rest))


def exit_code(number: int) -> int:
    """*number*, if a program can end with it."""
    if not 0 <= number <= _LARGEST_CODE:
        raise ClaimError(f"no command exits with {number}", hint=f"exit codes go from 0 to {_LARGEST_CODE}")
    return number


def _prints(rest: str) -> Reading | None:
    candidates = list(_PRINTS.finditer(rest))
    for read, careless in ((literals.strict, False), (literals.lenient, True)):
        for found in candidates:
            text = read(rest[found.end() :])
            if text is None:
                continue
            if not text:
                raise ClaimError("the text is empty, and anything prints it")
            warning = f"a quote inside of the text is not escaped; it is read as {literals.quoted(text)}"
            return Reading(Prints(_command(rest[: found.start()]), text), (warning,) if careless else ())
    return None


def _command(text: str) -> str:
    command = text.strip()
    if not command:
        raise ClaimError("the command is missing", hint="write test:npm test")
    return check_text(command, "command")


def _plain_warnings(rest: str) -> tuple[str, ...]:
    words = rest.split()
    if len(words) > 1 and words[-1] in _MEANT:
        meant = _MEANT[words[-1]]
        return (f'"{words[-1]}" is handed to the command; to say how it should end, write "{meant}"',)
    if len(words) > 2 and words[-2] in {"exits", "prints"}:  # noqa: PLR2004 - a command, the word, and what follows
        wanted = "a number" if words[-2] == "exits" else "a text in quotes"
        return (f'"{words[-2]} {words[-1]}" is handed to the command; "{words[-2]}" needs {wanted} after it',)
    return ()
