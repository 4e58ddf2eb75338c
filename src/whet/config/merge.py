"""One set of values out of several sources: the first that says something wins, except for ceilings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from whet.config.check import Key, dotted
from whet.config.sources import Found, Source

MAX_PARALLEL: Key = ("run", "max_parallel")


@dataclass(slots=True)
class Merged:
    """What holds after all sources were heard."""

    values: dict[Key, Found] = field(default_factory=dict)
    # Tables in the order first opened, with the label of the file that opened them.
    tables: dict[Key, str] = field(default_factory=dict)
    wrong: set[Key] = field(default_factory=set)

    def has(self, key: Key) -> bool:
        """Whether *key* was given, rightly or wrongly."""
        return key in self.values or key in self.wrong

    def names(self, table: str) -> list[str]:
        """The names that people chose inside the top-level *table*, in declared order."""
        return list(dict.fromkeys(key[1] for key in self.tables if key[0:1] == (table,) and len(key) > 1))


def merge(flags: Source, others: Sequence[Source]) -> Merged:
    """What the *flags* say, and then what the *others* do, the first before the next."""
    merged = Merged()
    for source in (flags, *others):
        skipped = _other_runners(source, merged)
        for key, found in source.values.items():
            if key[:2] not in skipped:
                merged.values.setdefault(key, found)
        for table in source.tables:
            merged.tables.setdefault(table, source.label)
        merged.wrong |= source.wrong
    # A ceiling is the smallest that anybody sets. A flag stands above that: who types --max-parallel 8 wants 8.
    ceilings = [source.values[MAX_PARALLEL] for source in others if MAX_PARALLEL in source.values]
    if ceilings and MAX_PARALLEL not in flags.values:
        merged.values[MAX_PARALLEL] = min(ceilings, key=lambda found: found.value)
    return merged


def conflicts(merged: Merged) -> Iterator[str]:
    """What is right key by key and still does not go together, each a line."""
    yield from _workspace_conflicts(merged)
    yield from _runner_conflicts(merged)


def _other_runners(source: Source, merged: Merged) -> set[Key]:
    """Runners of *source* that share no more than an id with one already known: nothing of them may be mixed in."""
    skipped = set()
    for key, found in source.values.items():
        known = merged.values.get(key)
        if key[0] == "runners" and key[2:] == ("agent", "type") and known and known.value != found.value:
            skipped.add(key[:2])
    return skipped


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
