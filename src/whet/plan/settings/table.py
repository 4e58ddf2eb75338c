"""The table of settings: one row says what a value must be, its default, its flag, its variable and its words.

Checking, flags, environment variables, loading and description all read these rows. To add a setting, add a row here
and, in the sections `run` and `defaults`, a field of `Settings`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from whet import plugins
from whet.model.request import SANDBOXES
from whet.model.run import METRICS, SCHEDULES
from whet.model.suite import MOST_FILES
from whet.plan.vary import vary_problem
from whet.reading.fields import LARGEST_WHOLE, Fields, variable_problem
from whet.reading.hosts import cluster_problem, host_problem
from whet.reading.requests import request_problem
from whet.reading.text import shown

# Anything that TOML can hold.
Value: TypeAlias = Any
Key: TypeAlias = tuple[str, ...]

# Which texts become absolute paths: all ("path"), or only those that look like one ("program", "word").
Place = Literal["path", "program", "word"]


class Flag(NamedTuple):
    """How the command line sets a value."""

    name: str
    metavar: str | None = None
    help: str | None = None
    # Of a time: the unit of a bare number.
    unit: Literal["ms", "s"] | None = None


class Setting(Struct, frozen=True, kw_only=True):
    """One row of the table: what a value must be, where it comes from, and where it goes.

    `kind`, `least` and `choices` also tell the environment and the command line how to read the value from text.
    """

    kind: Literal["text", "whole", "number", "flag", "table"] = "text"
    least: float = 0
    most: int = LARGEST_WHOLE
    # The only texts that are allowed, or what may be written instead of a number.
    choices: tuple[str, ...] = ()
    # The kind of extension whose names are allowed as well.
    extensions: plugins.Kind | None = None
    place: Place | None = None
    # Whether a text may be empty, and what else can be wrong with it.
    empty: bool = False
    problem: Callable[[str], str | None] = lambda _: None
    # Whether the value is a list of such values.
    many: bool = False
    default: Value = None
    # A default that depends on the project folder.
    computed: Callable[[Path], Value] | None = None
    # How many units of the key are one unit of the field: 1000 for a key in milliseconds and a field in seconds.
    scale: int = 1
    # The attribute of `Settings`, or of what is nested in it, if it is not named like the key.
    field: str | None = None
    # What leaving it out means, if there is no default.
    unset: str = "-"
    # Whether WHET_NAME sets it, and which flag does.
    variable: bool = False
    flag: Flag | None = None
    # Whether a resumed run may have another value, because it changes no result.
    free: bool = False

    def read(self, fields: Fields, name: str) -> Value:
        """Return the value at *name*, or None after noting what is wrong with it."""
        match self.kind:
            case "whole":
                return fields.whole(name, least=int(self.least), most=self.most, exact=True)
            case "number" if fields.given(name) not in self.choices:
                hint = f"or {shown(self.choices[0])}" if self.choices else None
                most = math.inf if self.most == LARGEST_WHOLE else self.most
                return fields.number(name, least=self.least, most=most, hint=hint)
            case "flag" if not self.choices or isinstance(fields.given(name), bool):
                return fields.flag(name)
            case "table":
                return fields.table(name).values
            case _:
                return self._read_text(fields, name)

    def _read_text(self, fields: Fields, name: str) -> Value:
        if self.choices:
            return fields.choice(name, self._known(fields.given(name)))
        if self.many:
            return fields.texts(name, empty=self.empty, reason=self.problem)
        return fields.checked(name, fields.text(name, empty=self.empty), self.problem)

    def _known(self, value: object) -> tuple[str, ...]:
        """Return the texts that are allowed; extensions are looked up only if *value* is not one of ours."""
        extension_names = plugins.names(self.extensions) if self.extensions and value not in self.choices else ()
        return tuple(dict.fromkeys((*self.choices, *extension_names)))

    def default_in(self, project: Path) -> Value:
        """Return the default for a suite in the folder *project*."""
        return self.computed(project) if self.computed else self.default

    def load(self, value: Value) -> Value:
        """Convert *value* from the unit of the key to the unit of the field."""
        return value / self.scale if self.scale != 1 and value is not None else value


# The key "*" means any name that a person chooses, such as a runner's id or a variable.
Table: TypeAlias = Mapping[str, "Setting | Table"]


def _integer(least: int, most: int = LARGEST_WHOLE, **row: Any) -> Setting:
    return Setting(kind="whole", least=least, most=most, **row)


def _time_ms(field: str, **row: Any) -> Setting:
    """Return the row of a time that people write in milliseconds and we hold in seconds."""
    return _integer(1, field=field, scale=1000, **row)


def _one_of(*names: str, **row: Any) -> Setting:
    return Setting(choices=names, **row)


_MOST_PARALLEL = 8


def _parallel_by_default(_project: Path) -> int:
    return min(_MOST_PARALLEL, len(os.sched_getaffinity(0)))


_TEXT = Setting()
_TEXTS = Setting(many=True)
_PATH = Setting(place="path")
_PATHS = Setting(place="path", many=True)
_PROGRAM = Setting(place="program")
_ARGUMENTS = Setting(place="word", many=True, empty=True)
_AMOUNT = Setting(kind="number")
_FLAG = Setting(kind="flag")
_VARIABLE = Setting(problem=variable_problem)
_VARIABLES = Setting(problem=variable_problem, many=True)
_ENV: Table = {"*": Setting(empty=True)}
# What a trial takes of a node of a cluster.
_RESOURCES: Table = {
    "cpus": Setting(kind="number"),
    "memory_mb": _integer(1, 2**24),
    "custom": {"*": Setting(kind="number")},
}
# With a smaller share of a CPU, a program does not start in reasonable time.
LEAST_CPUS = 0.05

_WORKSPACE: Table = {
    "mode": _one_of("shared", "isolated"),
    "cwd": _PATH,
    "template_dir": _PATH,
    "bootstrap": {"command": _PROGRAM, "args": _ARGUMENTS, "timeout_ms": _time_ms("timeout_s"), "env": _ENV},
}

_RUN: Table = {
    "cwd": Setting(place="path", flag=Flag("--cwd", "DIR", "Let all trials work in this folder.")),
    "output_dir": Setting(
        place="path",
        computed=lambda project: project / ".whet" / "runs",
        variable=True,
        flag=Flag("--output-dir", "DIR", "Create the folder of the run in this folder."),
        free=True,
    ),
    "schedule": _one_of(
        *SCHEDULES,
        unset="parallel (serial in a shared workspace)",
        variable=True,
        flag=Flag("--schedule", None, "What may run at the same time."),
        free=True,
    ),
    "max_parallel": _integer(
        1,
        10_000,
        computed=_parallel_by_default,
        variable=True,
        flag=Flag("--max-parallel", "N", "Run at most N trials at the same time."),
        free=True,
    ),
    "trials": _integer(
        1, 1_000_000, default=1, variable=True, flag=Flag("--trials", "N", "Run every case N times on every runner.")
    ),
    "retries": _integer(
        0,
        1_000,
        default=0,
        variable=True,
        flag=Flag("--retries", "N", "Retry a trial that fails or errors up to N times."),
    ),
    "max_steps": _integer(
        1, unset="unlimited", variable=True, flag=Flag("--max-steps", "N", "Limit an attempt to N rounds of the model.")
    ),
    "max_cost_usd": Setting(
        kind="number",
        unset="unlimited",
        flag=Flag("--max-cost", "USD", "Start no trial after spending this much."),
        free=True,
    ),
    # What --tag says goes into the selection, which replaces these.
    "tags": Setting(many=True, default=(), variable=True, flag=Flag("--tag")),
    "workspace": _WORKSPACE,
    "reporters": Setting(
        many=True,
        default=("terminal",),
        variable=True,
        flag=Flag(
            "--reporter",
            "NAME[=FILE]",
            "Report with this reporter (repeatable); replaces the configured list.",
        ),
        free=True,
    ),
    "sandbox": _one_of(
        *SANDBOXES,
        extensions="sandboxes",
        default="auto",
        variable=True,
        flag=Flag("--sandbox", f"[{'|'.join(SANDBOXES)}]", "The sandbox that agents run in."),
    ),
    "container": Setting(place="program", unset="podman, or else docker", variable=True, free=True),
    "image": Setting(
        place="program",
        variable=True,
        flag=Flag("--image", "NAME|DIR", "The image of containers, or a folder with a Dockerfile."),
    ),
    "install": _TEXT,
    "keep_warm": Setting(kind="flag", default=False, variable=True, free=True),
    "keep_services": Setting(
        kind="flag",
        default=False,
        variable=True,
        flag=Flag("--keep-services", None, "Let what agents of tasks start go on while they are graded."),
    ),
    "mounts": Setting(place="path", many=True, default=()),
    "allow_env": Setting(
        problem=variable_problem,
        many=True,
        default=(),
        flag=Flag("--allow-env", "NAME", "Let fetched tasks take this variable of your environment (repeatable)."),
    ),
    "check_network": _one_of("runner", "full", default="runner"),
    "record_to": Setting(
        place="path", flag=Flag("--record-to", "DIR", "Keep each exchange with a model as a cassette in this folder.")
    ),
    "cassette": Setting(
        place="path", flag=Flag("--cassette", "DIR", "Answer agents from the cassettes in this folder.")
    ),
    "cassette_mode": _one_of(
        "strict",
        "new",
        default="strict",
        flag=Flag("--cassette-mode", None, "What happens to a request that is not recorded: an error, or it is asked."),
    ),
    "cassette_speed": _one_of(
        "instant", "real", default="instant", flag=Flag("--cassette-speed", None, "How fast cassettes answer.")
    ),
    "on": Setting(
        problem=cluster_problem,
        unset="this machine",
        variable=True,
        flag=Flag("--on", "ray[://HEAD:PORT]", "Run the trials on the nodes of a Ray cluster."),
        free=True,
    ),
    "run_to_end": Setting(
        kind="flag",
        default=False,
        variable=True,
        flag=Flag("--run-to-end", None, "Do not end trials that only ask whether a skill loads once that is known."),
    ),
    "controls": Setting(
        kind="flag",
        default=False,
        variable=True,
        flag=Flag("--controls", None, "Do not count cases that an agent passes without solving anything."),
    ),
    "vary": Setting(
        problem=vary_problem,
        many=True,
        default=(),
        flag=Flag("--vary", "NAME", "Refuse arms that differ in more: skill, model, runner, env, prompt (repeatable)."),
    ),
}

_DEFAULTS: Table = {
    "timeout_ms": _time_ms(
        "timeout_s",
        default=120_000,
        variable=True,
        flag=Flag("--timeout", "TIME", "Time limit of an attempt: 30s, 500ms or 2m; a bare number is ms.", "ms"),
    ),
    "check_timeout_ms": _time_ms("check_timeout_s", default=30_000, variable=True),
    "command_timeout_ms": _time_ms("command_timeout_s", default=300_000, variable=True),
    "model_silence_ms": _time_ms("model_silence_s", default=30_000),
    "max_output_bytes": _integer(1, default=64 * 1024 * 1024),
    "budget_usd": Setting(
        kind="number", unset="unlimited", flag=Flag("--budget", "USD", "Spend at most this much on a case.")
    ),
    "budget_tokens": _integer(0, unset="unlimited"),
    "budget_requests": _integer(0, unset="unlimited"),
    # No shell starts with less memory or fewer processes.
    "max_memory_mb": _integer(16, 2**24, unset="unlimited", field="ceilings.memory_mb"),
    "max_processes": _integer(8, 2**22, unset="unlimited", field="ceilings.processes"),
    "max_cpus": Setting(kind="number", least=LEAST_CPUS, unset="unlimited", field="ceilings.cpus"),
    "max_disk_mb": _integer(1, 2**30, unset="unlimited", field="ceilings.disk_mb"),
    "max_files": _integer(1, 2**30, default=MOST_FILES, field="ceilings.files"),
}

FAULTS = ("status_429", "status_500", "status_529", "slow", "cut", "hang")
_FAULTS: Table = {
    **dict.fromkeys(FAULTS, Setting(kind="number", most=1)),
    "seed": _integer(0),
}

# What a key may be used for besides asking a model, and what a provider may do besides answering.
_LENT: Table = {
    "allow_requests": Setting(problem=request_problem, many=True),
    "allow_hosted_tools": _TEXTS,
}

_AGENT: Table = {
    "type": _TEXT,
    "model": _TEXT,
    "command": _PROGRAM,
    "args": _ARGUMENTS,
    "resume": _ARGUMENTS,
    "env": _ENV,
    "pass_env": _VARIABLES,
    "output": _one_of("text", "events"),
    # The next five are for agents of type acp.
    "permissions": _one_of("allow", "deny", "reads"),
    "skills_dir": _TEXT,
    "mode": _TEXT,
    "login": _TEXT,
    "trusted": _FLAG,
    "script": _PATH,
    "mounts": _PATHS,
    "inherit_home": _FLAG,
    "network": Setting(kind="flag", choices=("none", "model", "full")),
    "network_required": _FLAG,
    # Hosts besides the model, with `network = "model"`.
    "allow": Setting(problem=host_problem, many=True),
    **_LENT,
    "faults": _FAULTS,
    # For agents of type command and acp: whose variables they take.
    "provider": _one_of("anthropic", "openai", "gemini"),
    "image": _PROGRAM,
    "install": _TEXT,
    "resources": _RESOURCES,
    # Anything that a third-party agent takes: only its adapter can check it.
    "options": Setting(kind="table"),
}

# The code that uses one of these tables has its defaults.
_MODEL: Table = {
    "provider": _one_of("openai", "anthropic"),
    "url": _TEXT,
    "model": _TEXT,
    "key_variable": _VARIABLE,
    "temperature": Setting(kind="number", choices=("default",)),
    "timeout_ms": _integer(1),
    "retries": _integer(0, 100),
}
_JUDGE: Table = {
    "runner": _TEXT,
    **_MODEL,
    "votes": _integer(1, 99),
    "error": Setting(kind="number", most=50, free=True),
    "max_parallel": _integer(1, 1_000),
    "cache_dir": _PATH,
}
_BUCKETS: Table = {
    "endpoint": _TEXT,
    "region": _TEXT,
    "key_variable": _VARIABLE,
    "secret_variable": _VARIABLE,
    "allowed": _TEXTS,
}
_GATEWAY: Table = {
    "max_requests": _integer(1),
    "max_tokens_per_minute": _integer(1),
    "max_trials": _integer(1),
    "cache_dir": _PATH,
    "ignore": _TEXTS,
    **_LENT,
    "faults": _FAULTS,
}
_PACKAGES: Table = {
    "allow_private_addresses": Setting(kind="flag", variable=True),
    "allow_local_files": Setting(kind="flag", variable=True),
    "allow_any_bucket": Setting(kind="flag", variable=True),
    "max_download_mb": _integer(1, 2**20),
    "max_unpacked_mb": _integer(1, 2**20),
    "max_entries": _integer(1, 10_000_000),
    "timeout_ms": _integer(1),
    "r2": _BUCKETS,
    "s3": _BUCKETS,
}

SETTINGS: Table = {
    "run": _RUN,
    "defaults": _DEFAULTS,
    "snapshots": {
        "path": _PATH,
        "metric": _one_of(*METRICS),
        "tolerance": {"absolute": _AMOUNT, "percent": _AMOUNT},
    },
    "judge": _JUDGE,
    "user": _MODEL,
    "packages": _PACKAGES,
    "gateway": _GATEWAY,
    # By case, or by a pattern of cases.
    "resources": {"*": _RESOURCES},
    "composite": dict.fromkeys(("completion", "speed", "reliability", "consistency"), _AMOUNT),
    "runners": {"*": {"agent": _AGENT, "skills": _PATHS}},
    "arms": {"*": {"skill": _TEXT, "model": _TEXT, "runner": _TEXT, "env": _ENV, "prompt": _TEXT}},
}
# The sections whose rows are fields of `Settings`, with defaults.
FIELD_SECTIONS = ("run", "defaults")


def rows_in(section: str) -> Iterator[tuple[str, Setting]]:
    """Yield the names and rows directly in *section*."""
    table = SETTINGS[section]
    assert not isinstance(table, Setting)
    yield from ((name, row) for name, row in table.items() if isinstance(row, Setting))


# The settings that one run can be given by flag or variable, by name. A name occurs in one such section only.
GIVEN: Mapping[str, tuple[Key, Setting]] = {
    name: ((section, name), row)
    for section in SETTINGS
    for name, row in rows_in(section)
    if row.variable or row.flag is not None
}
