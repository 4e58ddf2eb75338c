"""Load settings from flags, variables and files, describe those in force, and do without any."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, field
from msgspec.structs import replace

from whet.agents.known import agent_called
from whet.errors import ConfigError, Problem
from whet.model.request import BUILT_IN, Settings
from whet.model.run import OfHost, Plan, Runner
from whet.model.suite import Suite
from whet.plan.settings._sources import Base, SettingsSource, SourceValue, from_environ, from_file, from_flags
from whet.plan.settings.table import FAULTS, FIELD_SECTIONS, SETTINGS, Key, Setting, Table, Value, rows_in
from whet.reading.paths import own_state
from whet.reading.text import count, money
from whet.reading.toml import SettingsFile, SettingsSearch, dotted, find_user_file, read_file, search_settings
from whet.secrets import HIDDEN, looks_secret
from whet.suites.starter import TRIALS, installed_agent

# What a session of a coding agent usually costs, in dollars: a small question, and a task of several minutes.
_USUAL_USD = (0.05, 0.5)
_MAX_PARALLEL: Key = ("run", "max_parallel")
_CEILINGS = "ceilings."
# The rounding error of a sum of shares.
_ROUNDING = 1e-9
# What leaving a setting out means, in words.
_UNSET = {f"{section}.{name}": row.unset for section in FIELD_SECTIONS for name, row in rows_in(section)} | {
    "run.workspace": "isolated (or as the suite says)"
}


def load_settings(
    start: Path, *, flags: Mapping[str, Any], environ: Mapping[str, str], config_file: Path | None = None
) -> Settings:
    """Load the settings for the suite or folder *start*; raises `ConfigError` with every problem at once."""
    home = Path(environ["HOME"]) if environ.get("HOME") else None
    base = Base(Path.cwd(), home)
    start = base.path(str(start))
    folder = start if start.is_dir() else start.parent
    if folder.is_relative_to(own_state()):
        # Tasks that were fetched: the settings are those of the folder that you are in.
        folder = Path.cwd()
    search = SettingsSearch(read_file(base.path(str(config_file)))) if config_file else search_settings(folder)
    user = find_user_file(environ)
    files = [file for file in (search.file, user) if file is not None]
    lower_sources = [from_environ(environ, base), *(from_file(file, home) for file in files)]
    flag_source = from_flags(flags, base)
    merged_settings = merge(flag_source, lower_sources)
    problems = [problem for source in (flag_source, *lower_sources) for problem in source.findings.problems]
    problems += conflicts(merged_settings)
    if problems:
        raise ConfigError("\n".join(map(_line, problems)), hint=_where_files_are(files, problems))
    return replace(
        # Without a file, the folder that you are in: there the next command looks for what this one records.
        _build(merged_settings, search.file.path if search.file else None, Path.cwd()),
        user_file=user.path if user else None,
        searched_to=search.last,
        notices=(f"{search.foreign}; name it with --config if you trust it",) if search.foreign else (),
    )


def load_here(flags: Mapping[str, Any], config_file: Path | None) -> Settings:
    """Load the settings for the folder that you are in."""
    return load_settings(Path.cwd(), flags=flags, environ=os.environ, config_file=config_file)


def _line(problem: Problem) -> str:
    return f"{problem} ({problem.hint})" if problem.hint else str(problem)


def _where_files_are(files: list[SettingsFile], problems: list[Problem]) -> str | None:
    """Return the full paths of the files with problems: messages call them by their names."""
    paths = [str(file.path) for file in files if any(problem.file == file.label for problem in problems)]
    return f"see {' and '.join(paths)}" if paths else None


class MergedSettings(Struct):
    """The values in force, after all sources were merged."""

    values: dict[Key, SourceValue] = field(default_factory=dict)
    # Tables in the order first opened, with the label of the file that opened them.
    tables: dict[Key, str] = field(default_factory=dict)
    wrong: set[Key] = field(default_factory=set)

    def names(self, table: Key) -> list[str]:
        """Return the names that people chose inside *table*, in declared order."""
        depth = len(table)
        return list(dict.fromkeys(key[depth] for key in (*self.tables, *self.values) if key[:depth] == table != key))


def merge(flags: SettingsSource, lower_sources: Sequence[SettingsSource]) -> MergedSettings:
    """Merge what the *flags* say with the *lower_sources*; an earlier source outranks a later one."""
    merged_settings = MergedSettings()
    for source in (flags, *lower_sources):
        skip_keys = _other_runners(source, merged_settings)
        for key, entry in source.values.items():
            if key[:2] not in skip_keys:
                merged_settings.values.setdefault(key, entry)
        for table in source.tables:
            merged_settings.tables.setdefault(table, source.label)
        merged_settings.wrong |= source.wrong
    # The smallest ceiling counts. A flag outranks it: if you type --max-parallel 8, you want 8.
    ceilings = [source.values[_MAX_PARALLEL] for source in lower_sources if _MAX_PARALLEL in source.values]
    if ceilings and _MAX_PARALLEL not in flags.values:
        merged_settings.values[_MAX_PARALLEL] = min(ceilings, key=lambda entry: entry.value)
    return merged_settings


def _other_runners(source: SettingsSource, merged_settings: MergedSettings) -> set[Key]:
    """Return the runners of *source* whose id is known with another agent type: they are not mixed."""
    skip_keys = set()
    for key, entry in source.values.items():
        earlier_entry = merged_settings.values.get(key)
        if (
            key[0] == "runners"
            and key[2:] == ("agent", "type")
            and earlier_entry
            and earlier_entry.value != entry.value
        ):
            skip_keys.add(key[:2])
    return skip_keys


def conflicts(merged_settings: MergedSettings) -> Iterator[Problem]:
    """Yield a problem for each pair of settings that cannot be used together, and for each that is missing."""
    yield from _workspace_conflicts(merged_settings)
    yield from _runner_conflicts(merged_settings)
    yield from _fault_conflicts(merged_settings)
    yield from _snapshot_conflicts(merged_settings)


def _workspace_conflicts(merged_settings: MergedSettings) -> Iterator[Problem]:
    table = ("run", "workspace")
    yield from _missing(merged_settings, table, "mode", '"shared" or "isolated"')
    yield from _missing(merged_settings, (*table, "bootstrap"), "command", "the program that prepares a workspace")
    mode = merged_settings.values.get((*table, "mode"))
    if mode is None or mode.value != "isolated":
        return
    for key in ((*table, "cwd"), ("run", "cwd")):
        if entry := merged_settings.values.get(key):
            message = f'cannot be used with run.workspace.mode "isolated" ({mode.origin})'
            yield Problem(file=entry.file, field=entry.place, message=message)


def _runner_conflicts(merged_settings: MergedSettings) -> Iterator[Problem]:
    names_by_lower: dict[str, str] = {}
    for runner in merged_settings.names(("runners",)):
        table = ("runners", runner)
        if table in merged_settings.wrong:
            continue
        if (earlier_name := names_by_lower.setdefault(runner.lower(), runner)) != runner:
            message = f'differs from runner "{earlier_name}" by case only'
            yield Problem(file=merged_settings.tables[table], field=dotted(table), message=message)
        yield from _missing(merged_settings, table, "agent", 'a table with at least a type, such as "command"')
        yield from _missing(merged_settings, (*table, "agent"), "type", 'the name of an agent, such as "command"')


def _fault_conflicts(merged_settings: MergedSettings) -> Iterator[Problem]:
    """Of each table of faults, the shares of one request are parts of a whole."""
    tables = [
        ("gateway", "faults"),
        *(("runners", name, "agent", "faults") for name in merged_settings.names(("runners",))),
    ]
    for table in tables:
        shares = [entry for name in FAULTS if (entry := merged_settings.values.get((*table, name))) is not None]
        total = math.fsum(float(entry.value) for entry in shares)
        if total > 1 + _ROUNDING:
            message = f"the shares must be at most 1 together, not {total:g}"
            yield Problem(file=shares[0].file, field=dotted(table), message=message)


def _snapshot_conflicts(merged_settings: MergedSettings) -> Iterator[Problem]:
    table = ("snapshots", "tolerance")
    table_key = next((candidate for candidate in (table, table[:1]) if candidate in merged_settings.tables), None)
    has_tolerance = any((*table, name) in merged_settings.values for name in ("absolute", "percent"))
    # What is wrong in there may have been meant as a tolerance.
    if table_key is not None and not has_tolerance and not any(key[0] == table[0] for key in merged_settings.wrong):
        hint = "give absolute, percent or both"
        yield Problem(file=merged_settings.tables[table_key], field=dotted(table), message="is missing", hint=hint)


def _missing(merged_settings: MergedSettings, table: Key, name: str, what: str) -> Iterator[Problem]:
    key = (*table, name)
    if table in merged_settings.tables and not (
        key in merged_settings.values or key in merged_settings.tables or key in merged_settings.wrong
    ):
        yield Problem(file=merged_settings.tables[table], field=dotted(key), message="is missing", hint=what)


class _Loader(Struct):
    """Looks values up by key, and notes each by its dotted key with the place that it came from."""

    merged: MergedSettings
    project: Path
    values: dict[str, Value] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def table(self, rows: Table, key: Key) -> dict[str, Any]:
        """Return the values in the table at *key*, by field; without defaults, only those that were given."""
        values_by_field: dict[str, Any] = {}
        free, has_defaults = "*" in rows, key in {(section,) for section in FIELD_SECTIONS}
        for name in self.merged.names(key) if free else rows:
            row, inner = rows["*" if free else name], (*key, name)
            if not isinstance(row, Setting):
                if values := self.table(row, inner):
                    values_by_field[name] = values
                elif has_defaults:
                    self._note(inner, None)
                continue
            entry = self.merged.values.get(inner)
            if entry or has_defaults:
                value = entry.value if entry else row.default_in(self.project)
                self._note(inner, HIDDEN if free and looks_secret(name) else value)
                values_by_field[row.field or name] = row.load(value)
        return values_by_field

    def _note(self, key: Key, value: Value) -> None:
        entry = self.merged.values.get(key)
        self.values[dotted(key)] = value
        self.origins[dotted(key)] = entry.origin if entry else BUILT_IN


def _build(merged_settings: MergedSettings, file: Path | None, folder: Path) -> Settings:
    loader = _Loader(merged_settings, file.parent if file else folder)
    tables = {name: loader.table(rows, (name,)) for name, rows in SETTINGS.items() if not isinstance(rows, Setting)}
    fields = tables["run"] | tables["defaults"]
    ceilings = {name.removeprefix(_CEILINGS): fields.pop(name) for name in list(fields) if name.startswith(_CEILINGS)}
    workspace = fields.pop("workspace", None)
    fields |= {
        "tags": tuple(dict.fromkeys(fields["tags"])),
        "file": file,
        "workspace": workspace or None,
        "ceilings": ceilings,
        "runners": tuple(_runner(name, runner) for name, runner in tables["runners"].items()),
        "snapshots": tables["snapshots"] if ("snapshots",) in merged_settings.tables else None,
        "origins": loader.origins,
        "values": loader.values,
    }
    passed_on = ("judge", "user", "packages", "gateway", "resources", "composite", "arms")
    return convert(fields | {name: tables[name] for name in passed_on}, Settings)


def _runner(name: str, table: dict[str, Any]) -> Runner:
    agent = table["agent"]
    options = {key: _plain(value) for key, value in agent.items() if key not in {"type", "model"}}
    if "network" in options:
        # Adapters ask whether there is a network; "model" is one for them.
        options["network"] = {"none": False, "full": True}.get(options["network"], options["network"])
    return Runner(
        id=name, agent=agent["type"], model=agent.get("model"), options=options, skills=table.get("skills", ())
    )


def _plain(value: Value) -> Value:
    """Turn paths into text: options go to adapters, to the record and to other machines."""
    match value:
        case Path():
            return str(value)
        case tuple():
            return tuple(_plain(item) for item in value)
        case _:
            return value


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """Return every effective value as dotted key, text and origin."""
    return [(key, _text(key, value), origin) for key, value, origin in entries(settings)]


def entries(settings: Settings) -> list[tuple[str, Any, str]]:
    """Return every effective value as dotted key, plain JSON data and origin."""
    # An evaluation has no snapshots, whatever the files say.
    hidden_prefix = "snapshots." if settings.snapshots is None else "-"
    values = settings.values.items()
    return [(key, _json(value), settings.origins[key]) for key, value in values if not key.startswith(hidden_prefix)]


def _json(value: object) -> Value:
    """Return *value* as JSON can hold it; what is named like a secret is hidden, at any depth."""
    match value:
        case OfHost():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case Path():
            return str(value)
        case Mapping():
            return {str(name): HIDDEN if looks_secret(str(name)) else _json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_json(item) for item in value]
        case _:
            return str(value)


def _text(key: str, value: object) -> str:
    match value:
        case None:
            return _UNSET.get(key, "-")
        case bool():
            return "true" if value else "false"
        case list():
            return ", ".join(_text(key, item) for item in value) or "-"
        case dict():
            return "{" + ", ".join(f"{name} = {_text(key, inner)}" for name, inner in value.items()) + "}"
        case _:
            return str(value)


def with_found_agent(settings: Settings, suite: Suite, names: Sequence[str] = ()) -> Settings:
    """Return *settings* with the agents that *names* ask for, or without settings with the first that is installed."""
    runners = tuple(_named_agents(settings, names))
    if settings.runners or settings.file is not None or not any(case.needs_agent for case in suite.cases):
        return replace(settings, runners=(*settings.runners, *runners)) if runners else settings
    if not runners:
        agent = installed_agent()
        if agent is None:
            return settings
        runners = (Runner(id=agent, agent=agent),)
    return replace(
        settings,
        runners=runners,
        trials=TRIALS if settings.is_default("run.trials") else settings.trials,
        # A login is enough to judge, where a key for a model may be missing.
        judge=settings.judge or {"runner": runners[0].id},
    )


def _named_agents(settings: Settings, names: Sequence[str]) -> Iterator[Runner]:
    """Yield a runner for each of *names* that no setting defines, and that is an agent which needs no settings."""
    unknown = [name for name in names if name not in {runner.id for runner in settings.runners}]
    if not unknown:
        return
    yield from (Runner(id=name, agent=agent.type) for name in unknown if (agent := agent_called(name)) is not None)


def what_it_may_cost(plan: Plan, settings: Settings, judged_trials: int) -> str:
    """Return one line on the agent that was found, what it is going to do, and what that may cost."""
    agent = settings.runners[0].agent
    sessions = plan.trial_count
    judge_calls = judged_trials if settings.judge.get("runner") else 0
    low, high = (money((sessions + judge_calls) * price) for price in _USUAL_USD)
    judging = f" and judges {count(judge_calls, 'trial')}" if judge_calls else ""
    return (
        f"no settings, so {agent}, which is installed, runs {count(sessions, 'trial')}{judging}; "
        f"that may cost {low} to {high}, and --max-cost limits it"
    )
