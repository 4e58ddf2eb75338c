"""The folders of cassettes: whether a run can use them is said before it begins, and only one records into each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from whet.agents.gateway_routes import Route, network_of, route_of
from whet.errors import CassetteMissed, UsageError
from whet.model.request import Settings
from whet.model.run import Execution, Plan, Runner, folder_name, turn_folder
from whet.run.homes import trial_folder

_ALONE = ("cassette_mode", "cassette_speed")
_NO_KEY = "--cassette-mode new asks the provider for what is not recorded: set the key, or leave it out"


def recorded_to(settings: Settings) -> Path | None:
    """Return the folder that the run records into, if it does."""
    return settings.record_to or (settings.cassette if settings.cassette_mode == "new" else None)


def is_played(settings: Settings) -> bool:
    """Return whether no provider is asked, so that no key is needed."""
    return settings.cassette is not None and settings.cassette_mode != "new"


def hold_cassettes(
    settings: Settings, executions: Iterable[Execution], environ: Mapping[str, str], *, judged: bool
) -> None:
    """Raise if the run cannot play or record as it is asked to; makes the folder that it records into."""
    _hold(settings, executions, environ, judged=judged)
    if (folder := recorded_to(settings)) is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unrecordable(folder, error.strerror) from error


def foresee_cassettes(settings: Settings, plan: Plan, environ: Mapping[str, str], *, judged: bool) -> Iterator[str]:
    """Raise as above, make nothing, and yield a sentence for each execution whose cassettes would end its trials."""
    _hold(settings, plan.executions, environ, judged=judged)
    if is_played(settings) and settings.cassette is not None:
        for execution in plan.executions:
            if _is_routed(execution.runner, environ, execution.case.env):
                yield from _misses(settings.cassette, plan, execution)


def _misses(folder: Path, plan: Plan, execution: Execution) -> Iterator[str]:
    """Yield what is missing for the first attempts of an execution, or cannot be played, each once."""
    # Only here: it takes the HTTP library with it.
    from whet.agents.gateway_tapes import read_tape, tape_to_play  # noqa: PLC0415

    found: set[Path | None] = set()
    for number in range(1, execution.trials + 1):
        key = plan.key(execution, number)
        first = Path(trial_folder(key), "1", turn_folder(1 if execution.case.converses else None))
        path, _ = tape_to_play(folder, folder_name(key.suite), first)
        if path in found:
            continue
        found.add(path)
        if path is None:
            yield f"there is no cassette for {key} in {folder}; record one with --record-to"
            continue
        try:
            read_tape(path)
        except CassetteMissed as error:
            yield f"{error.message}; {error.hint}"


def _hold(settings: Settings, executions: Iterable[Execution], environ: Mapping[str, str], *, judged: bool) -> None:
    if settings.cassette is not None and settings.record_to is not None:
        raise UsageError(
            f"a run plays cassettes or records them: {_from(settings, 'cassette')} and {_from(settings, 'record_to')}",
            hint="leave one of them out; --cassette-mode new plays, and records what is missing",
        )
    for name in _ALONE if settings.cassette is None else ():
        if settings.origins.get(f"run.{name}", "").startswith("flag "):
            raise UsageError(f"--{name.replace('_', '-')} is for --cassette, which is not given")
    if is_played(settings):
        _hold_tapes(settings.cassette)
    elif settings.cassette is not None:
        asked: list[tuple[Runner, Mapping[str, str]]] = [(each.runner, each.case.env) for each in executions]
        if judged and settings.judge_runner is not None:
            asked.append((settings.judge_runner, {}))
        _hold_keys(asked, environ)
    if (folder := recorded_to(settings)) is not None:
        _hold_writable(folder)


def _from(settings: Settings, name: str) -> str:
    """Return a setting as it was given."""
    origin = settings.origins.get(f"run.{name}", "")
    return origin.removeprefix("flag ") if origin.startswith("flag ") else f"run.{name}"


def _hold_tapes(folder: Path | None) -> None:
    if folder is None or next(folder.rglob("*.jsonl"), None) is not None:
        return
    if folder.is_dir():
        why = f"there is no cassette in {folder}"
    else:
        why = f"{folder} is not a folder" if folder.exists() else f"there is no folder {folder}"
    raise UsageError(why, hint="record cassettes with --record-to, or use --cassette-mode new")


def _hold_keys(asked: Iterable[tuple[Runner, Mapping[str, str]]], environ: Mapping[str, str]) -> None:
    """Raise if an agent could play without a key, and could not ask."""
    found: dict[str, str] = {}
    for runner, env in asked:
        why = route_of(runner, environ, env)
        if _is_routed(runner, environ, env) and isinstance(why, str):
            found[runner.id] = why
    if found:
        raise UsageError("\n".join(f"runners.{name}: {why}" for name, why in found.items()), hint=_NO_KEY)


def _is_routed(runner: Runner, environ: Mapping[str, str], env: Mapping[str, str]) -> bool:
    """Return whether an agent that is played goes through the gateway."""
    return network_of(runner) != "none" and isinstance(route_of(runner, environ, env, played=True), Route)


def _hold_writable(folder: Path) -> None:
    """Raise if a folder can neither be written to nor made."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise _unrecordable(folder, "it is not a folder" if there == folder else "Not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _unrecordable(folder, "it cannot be written to" if there == folder else f"{there} cannot be written to")


def _unrecordable(folder: Path, why: str | None) -> UsageError:
    return UsageError(f"cassettes cannot be recorded to {folder}: {why}", hint="name another folder")
