"""The folders of cassettes: whether a run can use them is said before it begins, and only one records into each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from whet.agents.gateway_routes import Route, network_of, route_of
from whet.errors import UsageError
from whet.model.request import Settings
from whet.model.run import Execution, Runner

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
    _make(recorded_to(settings))


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
        plays = network_of(runner) != "none" and isinstance(route_of(runner, environ, env, played=True), Route)
        if plays and isinstance(why, str):
            found[runner.id] = why
    if found:
        raise UsageError("\n".join(f"runners.{name}: {why}" for name, why in found.items()), hint=_NO_KEY)


def _make(folder: Path | None) -> None:
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = None if os.access(folder, os.W_OK | os.X_OK) else "it cannot be written to"
    except OSError as error:
        why = "it is not a folder" if folder.exists() else error.strerror
    if why is not None:
        raise UsageError(f"cassettes cannot be recorded to {folder}: {why}", hint="name another folder")
