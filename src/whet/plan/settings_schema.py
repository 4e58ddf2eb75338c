"""The settings that exist: one rule for each key, in words for the person and as a test for the machine.

A table of rules and not pydantic models: every rule can then say in one phrase what it wants, all problems are found
at once, and `whet run` starts without the 90 ms that importing pydantic takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from whet.dataclass import dataclass
from whet.model.request import SANDBOXES
from whet.model.run import METRICS, SCHEDULES
from whet.reading.fields import LARGEST_WHOLE, is_number, is_whole

# What a person may have written: anything that TOML can hold.
Value: TypeAlias = Any

# How a text that may name a place is made absolute: always, never, or only where it looks like a path.
Place = Literal["path", "program", "word"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one value must be; with `many`, what each of a list must be.

    `whole` stands for a whole number, `flag` for true or false.
    """

    expected: str
    accepts: Callable[[Any], bool]
    place: Place | None = None
    many: bool = False
    whole: bool = False
    flag: bool = False


# "*" stands for any name that a person chooses, such as a runner's id or a variable.
Table: TypeAlias = Mapping[str, "Rule | Table"]


def _integer(least: int, most: int = LARGEST_WHOLE) -> Rule:
    beyond = f" and at most {most:,}" if most < LARGEST_WHOLE else ""
    return Rule(
        expected=f"an integer of at least {least}{beyond}",
        accepts=lambda value: is_whole(value, least, most),
        whole=True,
    )


def _one_of(*names: str) -> Rule:
    words = ", ".join(f'"{name}"' for name in names[:-1]) + f' or "{names[-1]}"'
    return Rule(expected=words, accepts=lambda value: isinstance(value, str) and value in names)


def _text(place: Place | None = None, *, many: bool = False) -> Rule:
    return Rule(
        expected="a non-empty string",
        accepts=lambda value: isinstance(value, str) and bool(value.strip()),
        place=place,
        many=many,
    )


def _is_amount(value: object) -> bool:
    return is_number(value) and value >= 0


def is_variable_name(value: object) -> bool:
    """Whether *value* can be the name of an environment variable."""
    return isinstance(value, str) and bool(value) and "=" not in value and "\0" not in value


_STRING = Rule(expected="a string", accepts=lambda value: isinstance(value, str))
_WORDS = Rule(expected="a string", accepts=lambda value: isinstance(value, str), place="word", many=True)
_AMOUNT = Rule(expected="a finite number of at least 0", accepts=_is_amount)
_YES_OR_NO = Rule(expected="true or false", accepts=lambda value: isinstance(value, bool), flag=True)
_ENV: Table = {"*": _STRING}

_WORKSPACE: Table = {
    "mode": _one_of("shared", "isolated"),
    "cwd": _text("path"),
    "template_dir": _text("path"),
    "bootstrap": {"command": _text("program"), "args": _WORDS, "timeout_ms": _integer(1), "env": _ENV},
}

_RUN: Table = {
    "cwd": _text("path"),
    "output_dir": _text("path"),
    "schedule": _one_of(*SCHEDULES),
    "max_parallel": _integer(1, 10_000),
    "trials": _integer(1, 1_000_000),
    "retries": _integer(0, 1_000),
    "max_steps": _integer(1),
    "max_cost_usd": _AMOUNT,
    "tags": _text(many=True),
    "workspace": _WORKSPACE,
    "reporters": _text(many=True),
    "sandbox": _one_of(*SANDBOXES),
    "mounts": _text("path", many=True),
}

# A smaller share of a CPU, and a program cannot even start in reasonable time.
LEAST_CPUS = 0.05
_DEFAULTS: Table = {
    "timeout_ms": _integer(1),
    "check_timeout_ms": _integer(1),
    "command_timeout_ms": _integer(1),
    "model_silence_ms": _integer(1),
    "max_output_bytes": _integer(1),
    "budget_usd": _AMOUNT,
    # Less than this, and no shell could start to take it on.
    "max_memory_mb": _integer(16, 2**24),
    "max_processes": _integer(8, 2**22),
    "max_cpus": Rule(
        expected=f"a number of at least {LEAST_CPUS}",
        accepts=lambda value: _is_amount(value) and value >= LEAST_CPUS,
    ),
}

_AGENT: Table = {
    "type": _text(),
    "model": _text(),
    "command": _text("program"),
    "args": _WORDS,
    "env": _ENV,
    "pass_env": Rule(expected="the name of an environment variable", accepts=is_variable_name, many=True),
    "output": _one_of("text", "events"),
    "script": _text("path"),
    "mounts": _text("path", many=True),
    "inherit_home": _YES_OR_NO,
    "network": _YES_OR_NO,
    "network_required": _YES_OR_NO,
    # Whatever a third-party agent wants: only its adapter can tell.
    "options": Rule(expected="a table", accepts=lambda value: isinstance(value, dict)),
}

_SNAPSHOTS: Table = {
    "path": _text("path"),
    "metric": _one_of(*METRICS),
    "tolerance": {"absolute": _AMOUNT, "percent": _AMOUNT},
}

_JUDGE: Table = {
    "provider": _one_of("openai", "anthropic"),
    "url": _text(),
    "model": _text(),
    "key_variable": Rule(expected="the name of an environment variable", accepts=is_variable_name),
    "votes": _integer(1, 99),
    "temperature": Rule(
        expected='a number of at least 0, or "default"', accepts=lambda value: value == "default" or _is_amount(value)
    ),
    "timeout_ms": _integer(1),
    "retries": _integer(0, 100),
    "max_parallel": _integer(1, 1_000),
    "cache_dir": _text("path"),
}

_BUCKETS: Table = {
    "endpoint": _text(),
    "region": _text(),
    "key_variable": Rule(expected="the name of an environment variable", accepts=is_variable_name),
    "secret_variable": Rule(expected="the name of an environment variable", accepts=is_variable_name),
    "allowed": _text(many=True),
}
_PACKAGES: Table = {
    "allow_private_addresses": _YES_OR_NO,
    "allow_local_files": _YES_OR_NO,
    "max_download_mb": _integer(1, 2**20),
    "max_unpacked_mb": _integer(1, 2**20),
    "max_entries": _integer(1, 10_000_000),
    "timeout_ms": _integer(1),
    "r2": _BUCKETS,
    "s3": _BUCKETS,
}

_COMPOSITE: Table = dict.fromkeys(("completion", "speed", "reliability", "consistency"), _AMOUNT)

SCHEMA: Table = {
    "run": _RUN,
    "defaults": _DEFAULTS,
    "runners": {"*": {"agent": _AGENT, "skills": _text("path", many=True)}},
    "snapshots": _SNAPSHOTS,
    "judge": _JUDGE,
    "packages": _PACKAGES,
    "composite": _COMPOSITE,
}


def rule_at(section: str, name: str) -> Rule:
    """The rule of the plain setting *name* in *section*."""
    table = SCHEMA[section]
    assert not isinstance(table, Rule)
    rule = table[name]
    assert isinstance(rule, Rule)
    return rule
