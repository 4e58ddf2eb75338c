"""What a run was asked to do, as it was typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.errors import UsageError

_SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which executions of a suite are wanted; an empty part asks for all.

    `only` holds the (case, runner, variant) that failed last time.
    """

    cases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    shard: tuple[int, int] | None = None
    only: frozenset[tuple[str, str, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What `whet run` was asked to do; `flags` holds setting overrides, only those that were given."""

    suite: Path | None
    flags: Mapping[str, Any]
    config_file: Path | None
    selection: Selection
    last_failed: bool
    dry_run: bool
    resume: str | None
    update_snapshots: bool = False
    # For this run alone: the model of every case, the real folder instead of copies, not more checks than needed, and
    # no patience with what looks unlike what its author meant.
    model: str | None = None
    in_place: bool = False
    fail_fast: bool = False
    strict: bool = False
    verbose: bool = False
    # What was typed after `whet`.
    command: str = "run"
    # The words after it that ask for the same again, but for what selects, and those that a resume must be told again.
    again: tuple[str, ...] = ()
    going_on: tuple[str, ...] = ()
    # Besides those of the settings.
    more_reporters: tuple[str, ...] = ()
    # The skill under test, of a suite for one.
    skill: Path | None = None


def split_list(values: Iterable[str]) -> tuple[str, ...]:
    """The names in *values*, each of which may be a comma list; order kept, duplicates dropped."""
    names: dict[str, None] = {}
    for value in values:
        for piece in value.split(","):
            if not piece.strip():
                raise UsageError(f'"{value}" has an empty name in it', hint='write names like "a,b"')
            names[piece.strip()] = None
    return tuple(names)


def parse_shard(text: str) -> tuple[int, int]:
    """`2/5` as (2, 5)."""
    found = _SHARD.fullmatch(text.strip())
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count:
        raise UsageError(f'a shard reads like 2/5, the second of five, not "{text}"')
    return number, count
