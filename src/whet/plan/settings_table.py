"""The table of settings: one row says what a value must be, its default, its flag, its variable and its words.

Checking, flags, environment variables, loading and description all read these rows. To add a setting, add a row here
and, in the sections `run` and `defaults`, a field of `Settings`.

The rules are not pydantic models: each rule says in one phrase what it wants, all problems are found at once, and
`whet run` starts without the 90 ms that importing pydantic takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias

from whet.model.request import SANDBOXES
from whet.model.run import METRICS, SCHEDULES
from whet.reading.fields import LARGEST_WHOLE, is_number, is_whole

# What a person may have written: anything that TOML can hold.
Value: TypeAlias = Any
Key: TypeAlias = tuple[str, ...]

# When a text is made an absolute path: always ("path"), or only if it looks like one ("program", "word").
Place = Literal["path", "program", "word"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one value must be; with `many`, what each item of a list must be.

    `kind`, `least` and `choices` tell the environment and the command line how to read the value from text.
    """

    expected: str
    accepts: Callable[[Any], bool]
    kind: Literal["text", "whole", "number", "flag"] = "text"
    least: float = 0
    choices: tuple[str, ...] = ()
    place: Place | None = None
    many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table; `computed` gives a default that depends on the project folder.

    `field` is the attribute of `Settings`, or of what is nested in it, if it is not named like the key.
    """

    rule: Rule
    default: Value = None
    computed: Callable[[Path], Value] | None = None
    # How many units of the key are one unit of the field: 1000 for a key in milliseconds and a field in seconds.
    scale: int = 1
    field: str | None = None
    # What leaving it out means, if there is no default.
    unset: str = "-"
    # Whether WHET_NAME sets it, and how the command line does.
    variable: bool = False
    flag: str | None = None
    metavar: str | None = None
    help: str | None = None
    # Whether a resumed run may have another value, because it changes no result.
    free: bool = False

    def default_in(self, project: Path) -> Value:
        """Return the default for a suite in the folder *project*."""
        return self.computed(project) if self.computed else self.default

    def load(self, value: Value) -> Value:
        """Convert *value* from the unit of the key to the unit of the field."""
        return value / self.scale if self.scale != 1 and value is not None else value

    def read(self, owner: object, name: str) -> Value:
        """Return the value of the setting *name* in *owner*, in the unit of the key."""
        value = attrgetter(self.field or name)(owner)
        return round(value * self.scale) if self.scale != 1 and value is not None else value


# "*" stands for any name that a person chooses, such as a runner's id or a variable.
Table: TypeAlias = Mapping[str, "Setting | Table"]


def _integer(least: int, most: int = LARGEST_WHOLE) -> Rule:
    beyond = f" and at most {most:,}" if most < LARGEST_WHOLE else ""
    return Rule(
        expected=f"an integer of at least {least}{beyond}",
        accepts=lambda value: is_whole(value, least, most),
        kind="whole",
        least=least,
    )


def _one_of(*names: str) -> Rule:
    words = ", ".join(f'"{name}"' for name in names[:-1]) + f' or "{names[-1]}"'
    return Rule(expected=words, accepts=lambda value: isinstance(value, str) and value in names, choices=names)


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
    """Return whether *value* can be the name of an environment variable."""
    return isinstance(value, str) and bool(value) and "=" not in value and "\0" not in value


_STRING = Rule(expected="a string", accepts=lambda value: isinstance(value, str))
_WORDS = Rule(expected="a string", accepts=lambda value: isinstance(value, str), place="word", many=True)
_AMOUNT = Rule(expected="a finite number of at least 0", accepts=_is_amount, kind="number")
_YES_OR_NO = Rule(expected="true or false", accepts=lambda value: isinstance(value, bool), kind="flag")
_VARIABLE = Rule(expected="the name of an environment variable", accepts=is_variable_name)
_VARIABLES = Rule(expected="the name of an environment variable", accepts=is_variable_name, many=True)
_TABLE = Rule(expected="a table", accepts=lambda value: isinstance(value, dict))
_TEMPERATURE = Rule(
    expected='a number of at least 0, or "default"', accepts=lambda value: value == "default" or _is_amount(value)
)
# With a smaller share of a CPU, a program does not start in reasonable time.
LEAST_CPUS = 0.05
_CPUS = Rule(
    expected=f"a number of at least {LEAST_CPUS}",
    accepts=lambda value: _is_amount(value) and value >= LEAST_CPUS,
    kind="number",
    least=LEAST_CPUS,
)


def _only_rules(**rules: Rule) -> dict[str, Setting]:
    """Rows of a section whose values another part takes as they are, and has the defaults of."""
    return {name: Setting(rule=rule) for name, rule in rules.items()}


_MOST_PARALLEL = 8


def _parallel_by_default(_project: Path) -> int:
    return min(_MOST_PARALLEL, len(os.sched_getaffinity(0)))


_ENV: Table = {"*": Setting(rule=_STRING)}
_WORKSPACE: Table = {
    **_only_rules(mode=_one_of("shared", "isolated"), cwd=_text("path"), template_dir=_text("path")),
    "bootstrap": {
        "command": Setting(rule=_text("program")),
        "args": Setting(rule=_WORDS),
        "timeout_ms": Setting(rule=_integer(1), field="timeout_s", scale=1000),
        "env": _ENV,
    },
}

_RUN: Table = {
    "cwd": Setting(rule=_text("path"), flag="--cwd", metavar="DIR", help="Let all trials work in this folder."),
    "output_dir": Setting(
        rule=_text("path"),
        computed=lambda project: project / ".whet" / "runs",
        variable=True,
        flag="--output-dir",
        metavar="DIR",
        help="Create the folder of the run in this folder.",
        free=True,
    ),
    "schedule": Setting(
        rule=_one_of(*SCHEDULES),
        unset="parallel (serial in a shared workspace)",
        variable=True,
        flag="--schedule",
        help="What may run at the same time.",
        free=True,
    ),
    "max_parallel": Setting(
        rule=_integer(1, 10_000),
        computed=_parallel_by_default,
        variable=True,
        flag="--max-parallel",
        metavar="N",
        help="Run at most N trials at the same time.",
        free=True,
    ),
    "trials": Setting(
        rule=_integer(1, 1_000_000),
        default=1,
        variable=True,
        flag="--trials",
        metavar="N",
        help="Run every case N times on every runner.",
    ),
    "retries": Setting(
        rule=_integer(0, 1_000),
        default=0,
        variable=True,
        flag="--retries",
        metavar="N",
        help="Retry a trial that fails or errors up to N times.",
    ),
    "max_steps": Setting(
        rule=_integer(1),
        unset="unlimited",
        variable=True,
        flag="--max-steps",
        metavar="N",
        help="Limit an attempt to N rounds of the model.",
    ),
    "max_cost_usd": Setting(
        rule=_AMOUNT,
        unset="unlimited",
        flag="--max-cost",
        metavar="USD",
        help="Start no trial after spending this much.",
        free=True,
    ),
    # What --tag says goes into the selection, which replaces these.
    "tags": Setting(rule=_text(many=True), default=(), variable=True, flag="--tag"),
    "workspace": _WORKSPACE,
    "reporters": Setting(
        rule=_text(many=True),
        default=("terminal",),
        variable=True,
        flag="--reporter",
        metavar="NAME[=FILE]",
        help="Report with this reporter (repeatable); replaces the configured list.",
        free=True,
    ),
    "sandbox": Setting(
        rule=_one_of(*SANDBOXES),
        default="auto",
        variable=True,
        flag="--sandbox",
        help="The sandbox that agents run in.",
    ),
    "mounts": Setting(rule=_text("path", many=True), default=()),
}

_DEFAULTS: Table = {
    "timeout_ms": Setting(
        rule=_integer(1),
        default=120_000,
        field="timeout_s",
        scale=1000,
        variable=True,
        flag="--timeout-ms",
        metavar="MS",
        help="Time limit of an attempt.",
    ),
    "check_timeout_ms": Setting(rule=_integer(1), default=30_000, field="check_timeout_s", scale=1000, variable=True),
    "command_timeout_ms": Setting(
        rule=_integer(1), default=300_000, field="command_timeout_s", scale=1000, variable=True
    ),
    "model_silence_ms": Setting(rule=_integer(1), default=30_000, field="model_silence_s", scale=1000),
    "max_output_bytes": Setting(rule=_integer(1), default=64 * 1024 * 1024),
    "budget_usd": Setting(
        rule=_AMOUNT, unset="unlimited", flag="--budget", metavar="USD", help="Spend at most this much on a case."
    ),
    # No shell starts with less memory or fewer processes.
    "max_memory_mb": Setting(rule=_integer(16, 2**24), unset="unlimited", field="ceilings.memory_mb"),
    "max_processes": Setting(rule=_integer(8, 2**22), unset="unlimited", field="ceilings.processes"),
    "max_cpus": Setting(rule=_CPUS, unset="unlimited", field="ceilings.cpus"),
}

_AGENT: Table = {
    **_only_rules(type=_text(), model=_text(), command=_text("program"), args=_WORDS),
    "env": _ENV,
    **_only_rules(
        pass_env=_VARIABLES,
        output=_one_of("text", "events"),
        script=_text("path"),
        mounts=_text("path", many=True),
        inherit_home=_YES_OR_NO,
        network=_YES_OR_NO,
        network_required=_YES_OR_NO,
        # Anything that a third-party agent takes: only its adapter can check it.
        options=_TABLE,
    ),
}

_JUDGE: Table = _only_rules(
    provider=_one_of("openai", "anthropic"),
    url=_text(),
    model=_text(),
    key_variable=_VARIABLE,
    votes=_integer(1, 99),
    temperature=_TEMPERATURE,
    timeout_ms=_integer(1),
    retries=_integer(0, 100),
    max_parallel=_integer(1, 1_000),
    cache_dir=_text("path"),
)

_BUCKETS: Table = _only_rules(
    endpoint=_text(), region=_text(), key_variable=_VARIABLE, secret_variable=_VARIABLE, allowed=_text(many=True)
)
_PACKAGES: Table = {
    "allow_private_addresses": Setting(rule=_YES_OR_NO, variable=True),
    "allow_local_files": Setting(rule=_YES_OR_NO, variable=True),
    **_only_rules(
        max_download_mb=_integer(1, 2**20),
        max_unpacked_mb=_integer(1, 2**20),
        max_entries=_integer(1, 10_000_000),
        timeout_ms=_integer(1),
    ),
    "r2": _BUCKETS,
    "s3": _BUCKETS,
}

SETTINGS: Table = {
    "run": _RUN,
    "defaults": _DEFAULTS,
    "runners": {"*": {"agent": _AGENT, "skills": Setting(rule=_text("path", many=True))}},
    "snapshots": {
        **_only_rules(path=_text("path"), metric=_one_of(*METRICS)),
        "tolerance": _only_rules(absolute=_AMOUNT, percent=_AMOUNT),
    },
    "judge": _JUDGE,
    "packages": _PACKAGES,
    "composite": _only_rules(completion=_AMOUNT, speed=_AMOUNT, reliability=_AMOUNT, consistency=_AMOUNT),
}
# The sections whose rows are fields of `Settings`.
FIELD_SECTIONS = ("run", "defaults")


def rows_in(*table: str) -> Iterator[tuple[str, Setting]]:
    """Yield the names and rows directly in the table at that key."""
    for name, row in table_at(*table).items():
        if isinstance(row, Setting):
            yield name, row


def table_at(*key: str) -> Table:
    """Return the table at *key*, such as `run.workspace`."""
    found: Setting | Table = SETTINGS
    for part in key:
        assert not isinstance(found, Setting)
        found = found[part]
    assert not isinstance(found, Setting)
    return found


# The settings that one run can be given by flag or variable, by name. A name occurs in one such section only.
GIVEN: Mapping[str, tuple[Key, Setting]] = {
    name: ((section, name), row)
    for section in SETTINGS
    for name, row in rows_in(section)
    if row.variable or row.flag is not None
}
