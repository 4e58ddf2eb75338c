"""Load settings from flags, variables and files, describe those in force, and do without any."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import ConfigError, Problem
from whet.ground.marks import own_state
from whet.ground.secrets import HIDDEN, looks_secret
from whet.model.request import BUILT_IN, Settings
from whet.model.run import Execution, OfHost, Plan, Runner
from whet.model.suite import BootstrapSpec, Ceilings, Suite, WorkspaceSpec
from whet.plan.settings_sources import Base, Found, Source, from_environ, from_file, from_flags
from whet.plan.settings_table import FAULTS, FIELD_SECTIONS, SETTINGS, Key, Setting, Table, Value, rows_in
from whet.reading.settings_files import Search, SettingsFile, dotted, find_user_file, read_file, search_settings
from whet.reading.text import count, money

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
    here = Base(Path.cwd(), home)
    start = here.path(str(start))
    folder = start if start.is_dir() else start.parent
    if folder.is_relative_to(own_state()):
        # Tasks that were fetched: the settings are those of the folder that you are in.
        folder = Path.cwd()
    search = Search(read_file(here.path(str(config_file)))) if config_file else search_settings(folder)
    user = find_user_file(environ)
    files = [file for file in (search.file, user) if file is not None]
    others = [from_environ(environ, here), *(from_file(file, home) for file in files)]
    typed = from_flags(flags, here)
    merged = merge(typed, others)
    problems = [problem for source in (typed, *others) for problem in source.findings.problems]
    problems += conflicts(merged)
    if problems:
        raise ConfigError("\n".join(map(_line, problems)), hint=_where_files_are(files, problems))
    return replace(
        # Without a file, the folder that you are in: there the next command looks for what this one records.
        _build(merged, search.file.path if search.file else None, Path.cwd()),
        user_file=user.path if user else None,
        searched_to=search.last,
        notices=(f"{search.foreign}; name it with --config if you trust it",) if search.foreign else (),
    )


def _line(problem: Problem) -> str:
    return f"{problem} ({problem.hint})" if problem.hint else str(problem)


def _where_files_are(files: list[SettingsFile], problems: list[Problem]) -> str | None:
    """Return the full paths of the files with problems: messages call them by their names."""
    paths = [str(file.path) for file in files if any(problem.file == file.label for problem in problems)]
    return f"see {' and '.join(paths)}" if paths else None


@dataclass(slots=True)
class Merged:
    """The values in force, after all sources were merged."""

    values: dict[Key, Found] = field(default_factory=dict)
    # Tables in the order first opened, with the label of the file that opened them.
    tables: dict[Key, str] = field(default_factory=dict)
    wrong: set[Key] = field(default_factory=set)

    def names(self, table: Key) -> list[str]:
        """Return the names that people chose inside *table*, in declared order."""
        depth = len(table)
        return list(dict.fromkeys(key[depth] for key in (*self.tables, *self.values) if key[:depth] == table != key))


def merge(flags: Source, others: Sequence[Source]) -> Merged:
    """Merge what the *flags* say with the *others*; an earlier source outranks a later one."""
    merged = Merged()
    for source in (flags, *others):
        skipped = _other_runners(source, merged)
        for key, found in source.values.items():
            if key[:2] not in skipped:
                merged.values.setdefault(key, found)
        for table in source.tables:
            merged.tables.setdefault(table, source.label)
        merged.wrong |= source.wrong
    # The smallest ceiling counts. A flag outranks it: if you type --max-parallel 8, you want 8.
    ceilings = [source.values[_MAX_PARALLEL] for source in others if _MAX_PARALLEL in source.values]
    if ceilings and _MAX_PARALLEL not in flags.values:
        merged.values[_MAX_PARALLEL] = min(ceilings, key=lambda found: found.value)
    return merged


def _other_runners(source: Source, merged: Merged) -> set[Key]:
    """Return the runners of *source* whose id is known with another agent type: they are not mixed."""
    skipped = set()
    for key, found in source.values.items():
        known = merged.values.get(key)
        if key[0] == "runners" and key[2:] == ("agent", "type") and known and known.value != found.value:
            skipped.add(key[:2])
    return skipped


def conflicts(merged: Merged) -> Iterator[Problem]:
    """Yield a problem for each pair of settings that cannot be used together, and for each that is missing."""
    yield from _workspace_conflicts(merged)
    yield from _runner_conflicts(merged)
    yield from _fault_conflicts(merged)
    yield from _snapshot_conflicts(merged)


def _workspace_conflicts(merged: Merged) -> Iterator[Problem]:
    table = ("run", "workspace")
    yield from _missing(merged, table, "mode", '"shared" or "isolated"')
    yield from _missing(merged, (*table, "bootstrap"), "command", "the program that prepares a workspace")
    mode = merged.values.get((*table, "mode"))
    if mode is None or mode.value != "isolated":
        return
    for key in ((*table, "cwd"), ("run", "cwd")):
        if found := merged.values.get(key):
            message = f'cannot be used with run.workspace.mode "isolated" ({mode.origin})'
            yield Problem(file=found.file, field=found.place, message=message)


def _runner_conflicts(merged: Merged) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for runner in merged.names(("runners",)):
        table = ("runners", runner)
        if table in merged.wrong:
            continue
        if (other := seen.setdefault(runner.lower(), runner)) != runner:
            message = f'differs from runner "{other}" by case only'
            yield Problem(file=merged.tables[table], field=dotted(table), message=message)
        yield from _missing(merged, table, "agent", 'a table with at least a type, such as "command"')
        yield from _missing(merged, (*table, "agent"), "type", 'the name of an agent, such as "command"')


def _fault_conflicts(merged: Merged) -> Iterator[Problem]:
    """Of each table of faults, the shares of one request are parts of a whole."""
    tables = [("gateway", "faults"), *(("runners", name, "agent", "faults") for name in merged.names(("runners",)))]
    for table in tables:
        found = [given for name in FAULTS if (given := merged.values.get((*table, name))) is not None]
        total = math.fsum(float(given.value) for given in found)
        if total > 1 + _ROUNDING:
            message = f"the shares must be at most 1 together, not {total:g}"
            yield Problem(file=found[0].file, field=dotted(table), message=message)


def _snapshot_conflicts(merged: Merged) -> Iterator[Problem]:
    table = ("snapshots", "tolerance")
    given = next((each for each in (table, table[:1]) if each in merged.tables), None)
    known = any((*table, name) in merged.values for name in ("absolute", "percent"))
    # What is wrong in there may have been meant as a tolerance.
    if given is not None and not known and not any(key[0] == table[0] for key in merged.wrong):
        hint = "give absolute, percent or both"
        yield Problem(file=merged.tables[given], field=dotted(table), message="is missing", hint=hint)


def _missing(merged: Merged, table: Key, name: str, what: str) -> Iterator[Problem]:
    key = (*table, name)
    if table in merged.tables and not (key in merged.values or key in merged.tables or key in merged.wrong):
        yield Problem(file=merged.tables[table], field=dotted(key), message="is missing", hint=what)


@dataclass(slots=True)
class _Loader:
    """Looks values up by key, and notes each by its dotted key with the place that it came from."""

    merged: Merged
    project: Path
    values: dict[str, Value] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def table(self, rows: Table, key: Key) -> dict[str, Any]:
        """Return the values in the table at *key*, by field; without defaults, only those that were given."""
        found: dict[str, Any] = {}
        free, has_defaults = "*" in rows, key in {(section,) for section in FIELD_SECTIONS}
        for name in self.merged.names(key) if free else rows:
            row, inner = rows["*" if free else name], (*key, name)
            if not isinstance(row, Setting):
                if values := self.table(row, inner):
                    found[name] = values
                elif has_defaults:
                    self._note(inner, None)
                continue
            given = self.merged.values.get(inner)
            if given or has_defaults:
                value = given.value if given else row.default_in(self.project)
                self._note(inner, HIDDEN if free and looks_secret(name) else value)
                found[row.field or name] = row.load(value)
        return found

    def _note(self, key: Key, value: Value) -> None:
        given = self.merged.values.get(key)
        self.values[dotted(key)] = value
        self.origins[dotted(key)] = given.origin if given else BUILT_IN


def _build(merged: Merged, file: Path | None, folder: Path) -> Settings:
    loader = _Loader(merged, file.parent if file else folder)
    found = {name: loader.table(rows, (name,)) for name, rows in SETTINGS.items() if not isinstance(rows, Setting)}
    fields = found["run"] | found["defaults"]
    ceilings = {name.removeprefix(_CEILINGS): fields.pop(name) for name in list(fields) if name.startswith(_CEILINGS)}
    workspace = fields.pop("workspace", None)
    return Settings(
        **fields | {"tags": tuple(dict.fromkeys(fields["tags"]))},
        file=file,
        workspace=_workspace(**workspace) if workspace else None,
        ceilings=Ceilings(**ceilings),
        runners=tuple(_runner(name, **runner) for name, runner in found["runners"].items()),
        snapshots=found["snapshots"] if ("snapshots",) in merged.tables else None,
        judge=found["judge"],
        user=found["user"],
        packages=found["packages"],
        gateway=found["gateway"],
        resources=found["resources"],
        composite=found["composite"],
        arms=found["arms"],
        origins=loader.origins,
        values=loader.values,
    )


def _workspace(bootstrap: dict[str, Any] | None = None, **workspace: Any) -> WorkspaceSpec:
    return WorkspaceSpec(**workspace, bootstrap=BootstrapSpec(**bootstrap) if bootstrap else None)


def _runner(name: str, agent: dict[str, Any], skills: tuple[Path, ...] = ()) -> Runner:
    options = {key: _plain(value) for key, value in agent.items() if key not in {"type", "model"}}
    if "network" in options:
        # Adapters ask whether there is a network; "model" is one for them.
        options["network"] = {"none": False, "full": True}.get(options["network"], options["network"])
    return Runner(id=name, agent=agent["type"], model=agent.get("model"), options=options, skills=skills)


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
    hidden = "snapshots." if settings.snapshots is None else "-"
    values = settings.values.items()
    return [(key, _json(value), settings.origins[key]) for key, value in values if not key.startswith(hidden)]


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


def with_found_agent(settings: Settings, suite: Suite) -> Settings:
    """Return *settings* with the first agent that is installed, if there are none and the suite needs one."""
    if settings.runners or settings.file is not None or not any(case.needs_agent for case in suite.cases):
        return settings
    # Only here: most projects have settings.
    from whet.suites.starter import TRIALS, installed_agent  # noqa: PLC0415

    agent = installed_agent()
    if agent is None:
        return settings
    return replace(
        settings,
        runners=(Runner(id=agent, agent=agent),),
        trials=TRIALS if settings.is_default("run.trials") else settings.trials,
        # A login is enough to judge, where a key for a model may be missing.
        judge=settings.judge or {"runner": agent},
    )


def what_it_may_cost(plan: Plan, settings: Settings, is_judged: Callable[[Execution], bool]) -> str:
    """Return one line on the agent that was found, what it is going to do, and what that may cost."""
    agent = settings.runners[0].agent
    sessions = plan.trial_count
    judged = sum(each.trials for each in plan.executions if is_judged(each)) if settings.judge.get("runner") else 0
    low, high = (money((sessions + judged) * each) for each in _USUAL_USD)
    judging = f" and judges {count(judged, 'trial')}" if judged else ""
    return (
        f"no settings, so {agent}, which is installed, runs {count(sessions, 'trial')}{judging}; "
        f"that may cost {low} to {high}, and --max-cost limits it"
    )
