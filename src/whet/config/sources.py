"""Who says what: flags, environment variables and files, each read into the same form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.config.check import Checked, Key, check_document, dotted
from whet.config.files import SettingsFile
from whet.config.places import Base
from whet.config.schema import Value, rule_at

# The settings that can be given for one run, by the section they stand in.
_SECTIONS = {
    "timeout_ms": "defaults",
    "check_timeout_ms": "defaults",
    "command_timeout_ms": "defaults",
    "budget_usd": "defaults",
    "allow_private_addresses": "packages",
    "allow_local_files": "packages",
}
VARIABLES = (
    "output_dir",
    "schedule",
    "max_parallel",
    "trials",
    "retries",
    "max_steps",
    "tags",
    "reporters",
    "sandbox",
    "timeout_ms",
    "check_timeout_ms",
    "command_timeout_ms",
    "allow_private_addresses",
    "allow_local_files",
)
# Flags that may be repeated are named in the singular, and people think of money in one unit.
_FLAGS = {"reporters": "reporter", "tags": "tag", "max_cost_usd": "max-cost", "budget_usd": "budget"}
_WORDS = {"true": True, "false": False}
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Found:
    """A value, where it came from, and how an error message points at it."""

    value: Any
    origin: str
    where: str


@dataclass(frozen=True, slots=True)
class Source:
    """All that one place says."""

    values: Mapping[Key, Found]
    problems: tuple[str, ...]
    wrong: frozenset[Key]
    # Every table that is opened, also an empty one, and what to call the place in an error message.
    tables: tuple[Key, ...] = ()
    label: str = ""


def from_flags(flags: Mapping[str, Any], base: Base) -> Source:
    """What was typed for this run."""
    named = {name: f"--{_FLAGS.get(name, name).replace('_', '-')}" for name in flags}
    # Folders come as paths from the command line and as text from everywhere else.
    texts = {name: str(value) if isinstance(value, Path) else value for name, value in flags.items()}
    return _from_names(texts, named, base, origin="flag {}")


def from_environ(environ: Mapping[str, str], base: Base) -> Source:
    """What `WHET_*` variables say; an empty one is as good as none."""
    named = {name: f"WHET_{name.upper()}" for name in VARIABLES}
    given = {name: environ[variable] for name, variable in named.items() if environ.get(variable, "").strip()}
    return _from_names({name: _read_text(name, text) for name, text in given.items()}, named, base, origin="{}")


def from_file(file: SettingsFile, home: Path | None) -> Source:
    """What a settings file says."""
    checked = check_document(file.data, Base(file.path.parent, home))
    values = {key: Found(value, file.label, f"{file.label}: {dotted(key)}") for key, value in checked.values.items()}
    problems = tuple(f"{file.label}: {where}: {message}" for where, message in checked.problems)
    return Source(values, problems, frozenset(checked.wrong), tuple(checked.tables), file.label)


def _from_names(given: Mapping[str, Any], named: Mapping[str, str], base: Base, *, origin: str) -> Source:
    checked = Checked(base)
    words: dict[Key, str] = {}
    for name, value in given.items():
        key = (_SECTIONS.get(name, "run"), name)
        words[key] = named[name]
        checked.value(value, rule_at(*key), key, where=named[name])
    values = {key: Found(value, origin.format(words[key]), words[key]) for key, value in checked.values.items()}
    problems = tuple(f"{where}: {message}" for where, message in checked.problems)
    return Source(values, problems, frozenset(checked.wrong))


def _read_text(name: str, text: str) -> Value:
    """A variable's text as the value that a file would hold; what cannot be read stays text and is refused as such."""
    rule = rule_at(_SECTIONS.get(name, "run"), name)
    if rule.many:
        return [piece.strip() for piece in text.split(",")]
    if rule.whole and _WHOLE_NUMBER.fullmatch(text.strip()):
        return int(text)
    if rule.flag:
        return _WORDS.get(text.strip(), text)
    return text.strip() if rule.place is None else text
