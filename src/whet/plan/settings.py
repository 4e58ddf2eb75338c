"""Load settings: merge flags, variables and files, report every problem at once, and fill in the defaults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whet.errors import ConfigError
from whet.model.request import BUILT_IN, Settings
from whet.model.run import Runner
from whet.model.suite import BootstrapSpec, Ceilings, WorkspaceSpec
from whet.plan.settings_sources import Base, Found, Source, dotted, from_environ, from_file, from_flags
from whet.plan.settings_table import Key, Setting, Value, rows_in, table_at
from whet.reading.settings_files import Search, SettingsFile, find_user_file, read_file, search_settings

MAX_PARALLEL: Key = ("run", "max_parallel")
_CEILINGS = "ceilings."


def load_settings(
    start: Path, *, flags: Mapping[str, Any], environ: Mapping[str, str], config_file: Path | None = None
) -> Settings:
    """Load the settings for the suite or folder *start*; raises `ConfigError` with every problem at once."""
    home = Path(environ["HOME"]) if environ.get("HOME") else None
    here = Base(Path.cwd(), home)
    start = here.path(str(start))
    folder = start if start.is_dir() else start.parent
    search = Search(read_file(here.path(str(config_file)))) if config_file else search_settings(folder)
    user = find_user_file(environ)
    files = [file for file in (search.file, user) if file is not None]
    others = [from_environ(environ, here), *(from_file(file, home) for file in files)]
    typed = from_flags(flags, here)
    merged = merge(typed, others)
    problems = [line for source in (typed, *others) for line in source.problems] + list(conflicts(merged))
    if problems:
        raise ConfigError("\n".join(problems), hint=_where_files_are(files, problems))
    return replace(
        _build(merged, search.file.path if search.file else None, folder),
        user_file=user.path if user else None,
        searched_to=search.last,
        notices=(f"{search.foreign}; name it with --config if you trust it",) if search.foreign else (),
    )


def _where_files_are(files: list[SettingsFile], problems: list[str]) -> str | None:
    """Return the full paths of the files with problems: messages call them by their names."""
    paths = [str(file.path) for file in files if any(line.startswith(f"{file.label}: ") for line in problems)]
    return f"see {' and '.join(paths)}" if paths else None


@dataclass(slots=True)
class Merged:
    """The values in force, after all sources were merged."""

    values: dict[Key, Found] = field(default_factory=dict)
    # Tables in the order first opened, with the label of the file that opened them.
    tables: dict[Key, str] = field(default_factory=dict)
    wrong: set[Key] = field(default_factory=set)

    def has(self, key: Key) -> bool:
        """Return whether *key* was given, with a right or a wrong value."""
        return key in self.values or key in self.wrong

    def names(self, table: str) -> list[str]:
        """Return the names that people chose inside the top-level *table*, in declared order."""
        return list(dict.fromkeys(key[1] for key in self.tables if key[0:1] == (table,) and len(key) > 1))


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
    ceilings = [source.values[MAX_PARALLEL] for source in others if MAX_PARALLEL in source.values]
    if ceilings and MAX_PARALLEL not in flags.values:
        merged.values[MAX_PARALLEL] = min(ceilings, key=lambda found: found.value)
    return merged


def _other_runners(source: Source, merged: Merged) -> set[Key]:
    """Return the runners of *source* whose id is known with another agent type: they are not mixed."""
    skipped = set()
    for key, found in source.values.items():
        known = merged.values.get(key)
        if key[0] == "runners" and key[2:] == ("agent", "type") and known and known.value != found.value:
            skipped.add(key[:2])
    return skipped


def conflicts(merged: Merged) -> Iterator[str]:
    """Yield a line for each pair of settings that cannot be used together, and for each that is missing."""
    yield from _workspace_conflicts(merged)
    yield from _runner_conflicts(merged)


def _workspace_conflicts(merged: Merged) -> Iterator[str]:
    table = ("run", "workspace")
    yield from _missing(merged, table, "mode", '"shared" or "isolated"')
    yield from _missing(merged, (*table, "bootstrap"), "command", "the program that readies a workspace")
    mode = merged.values.get((*table, "mode"))
    if mode is None or mode.value != "isolated":
        return
    for key in ((*table, "cwd"), ("run", "cwd")):
        if key in merged.values:
            yield f'{merged.values[key].where}: cannot be used with run.workspace.mode "isolated" ({mode.origin})'


def _runner_conflicts(merged: Merged) -> Iterator[str]:
    seen: dict[str, str] = {}
    for runner in merged.names("runners"):
        table = ("runners", runner)
        if table in merged.wrong:
            continue
        label = merged.tables[table]
        if (other := seen.setdefault(runner.lower(), runner)) != runner:
            yield f'{label}: {dotted(table)}: differs from runner "{other}" by case only'
        if (*table, "agent") not in merged.tables and not merged.has((*table, "agent")):
            yield f'{label}: {dotted((*table, "agent"))}: is missing (a table with at least a type, such as "command")'
        yield from _missing(merged, (*table, "agent"), "type", 'the name of an agent, such as "command"')


def _missing(merged: Merged, table: Key, name: str, what: str) -> Iterable[str]:
    if table in merged.tables and not merged.has((*table, name)):
        yield f"{merged.tables[table]}: {dotted((*table, name))}: is missing ({what})"


@dataclass(frozen=True, slots=True)
class _Reader:
    """Looks values up by key and notes where each came from."""

    merged: Merged
    project: Path
    origins: dict[str, str]

    def fields(self, section: str) -> dict[str, Any]:
        """Return the value of every row of *section*, by its field, with defaults."""
        found = {}
        for name, row in rows_in(section):
            given = self.merged.values.get((section, name))
            self.origins[f"{section}.{name}"] = given.origin if given else BUILT_IN
            found[row.field or name] = row.load(given.value if given else row.default_in(self.project))
        return found

    def given(self, *table: str) -> dict[str, Any]:
        """Return the values directly in *table*, by name; only those that were given."""
        found = {key: value for key, value in self.merged.values.items() if key[:-1] == table}
        self.origins.update({dotted(key): value.origin for key, value in found.items()})
        return {key[-1]: value.value for key, value in found.items()}

    def nested(self, table: str) -> dict[str, Any]:
        """Return the values in *table* and in the tables inside of it; only those that were given."""
        found = self.given(table)
        inner = {name: self.given(table, name) for name, row in table_at(table).items() if not isinstance(row, Setting)}
        return found | {name: values for name, values in inner.items() if values}


def _build(merged: Merged, file: Path | None, folder: Path) -> Settings:
    reader = _Reader(merged, file.parent if file else folder, {})
    fields = reader.fields("run") | reader.fields("defaults")
    ceilings = {name.removeprefix(_CEILINGS): fields.pop(name) for name in list(fields) if name.startswith(_CEILINGS)}
    return Settings(
        **fields | {"tags": tuple(dict.fromkeys(fields["tags"]))},
        file=file,
        workspace=_workspace(reader),
        ceilings=Ceilings(**ceilings),
        runners=tuple(_runner(runner, reader) for runner in merged.names("runners")),
        snapshots=reader.nested("snapshots") if ("snapshots",) in merged.tables else None,
        judge=reader.nested("judge"),
        packages=reader.nested("packages"),
        composite=reader.nested("composite"),
        origins=reader.origins,
    )


def _workspace(reader: _Reader) -> WorkspaceSpec | None:
    given = reader.given("run", "workspace")
    if not given:
        reader.origins["run.workspace"] = BUILT_IN
        return None
    return WorkspaceSpec(**given, bootstrap=_bootstrap(reader))


def _bootstrap(reader: _Reader) -> BootstrapSpec | None:
    table = ("run", "workspace", "bootstrap")
    given = reader.given(*table)
    if not given:
        return None
    rows = dict(rows_in(*table))
    fields = {rows[name].field or name: rows[name].load(value) for name, value in given.items()}
    return BootstrapSpec(**fields, env=reader.given(*table, "env"))


def _runner(name: str, reader: _Reader) -> Runner:
    given = reader.given("runners", name, "agent")
    options = {key: _plain(value) for key, value in given.items() if key not in {"type", "model"}}
    if env := reader.given("runners", name, "agent", "env"):
        options["env"] = env
    skills = reader.given("runners", name).get("skills", ())
    return Runner(id=name, agent=given["type"], model=given.get("model"), options=options, skills=tuple(skills))


def _plain(value: Value) -> Value:
    """Turn paths into text: options go to adapters, to the record and to other machines."""
    match value:
        case Path():
            return str(value)
        case tuple():
            return tuple(_plain(item) for item in value)
        case _:
            return value
