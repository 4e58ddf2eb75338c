"""The folders of cassettes: whether a run can use them is said before it begins, and only one records into each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from whet.errors import CassetteMissed, UsageError
from whet.gateway.routes import Route, network_of, route_of
from whet.model.request import Settings
from whet.model.run import Execution, Plan, Runner, folder_name, turn_folder

_ALONE = ("cassette_mode", "cassette_speed")
_NO_KEY = "--cassette-mode new asks the provider for what is not recorded: set the key, or leave it out"


def require_cassettes(
    settings: Settings, executions: Iterable[Execution], environ: Mapping[str, str], *, judged: bool
) -> None:
    """Raise if the run cannot play or record as it is asked to; makes the folder that it records into."""
    _require_consistent(settings, executions, environ, judged=judged)
    if (folder := settings.recording_folder) is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unrecordable(folder, error.strerror) from error


def foresee_cassettes(settings: Settings, plan: Plan, environ: Mapping[str, str], *, judged: bool) -> Iterator[str]:
    """Raise as above, make nothing, and yield a sentence for each execution whose cassettes would end its trials."""
    _require_consistent(settings, plan.executions, environ, judged=judged)
    if settings.plays_all and settings.cassette is not None:
        for execution in plan.executions:
            if _is_routed(execution.runner, environ, execution.case.env):
                yield from _misses(settings.cassette, plan, execution)


def _misses(folder: Path, plan: Plan, execution: Execution) -> Iterator[str]:
    """Yield what is missing for the first attempts of an execution, or cannot be played, each once."""
    # Only here: it takes the HTTP library with it.
    from whet.gateway.sources.cassettes import find_cassette, read_cassette

    checked_paths: set[Path | None] = set()
    for number in range(1, execution.trials + 1):
        key = plan.key(execution, number)
        first = Path(key.folder, "1", turn_folder(1 if execution.case.converses else None))
        path, _ = find_cassette(folder, folder_name(key.suite), first)
        if path in checked_paths:
            continue
        checked_paths.add(path)
        if path is None:
            yield f"there is no cassette for {key} in {folder}; record one with --record-to"
            continue
        try:
            read_cassette(path)
        except CassetteMissed as error:
            yield f"{error.message}; {error.hint}"


def _require_consistent(
    settings: Settings, executions: Iterable[Execution], environ: Mapping[str, str], *, judged: bool
) -> None:
    if settings.cassette is not None and settings.record_to is not None:
        raise UsageError(
            f"a run plays cassettes or records them: {_name_option(settings, 'cassette')}"
            f" and {_name_option(settings, 'record_to')}",
            hint="leave one of them out; --cassette-mode new plays, and records what is missing",
        )
    for name in _ALONE if settings.cassette is None else ():
        if settings.origins.get(f"run.{name}", "").startswith("flag "):
            raise UsageError(f"--{name.replace('_', '-')} is for --cassette, which is not given")
    if settings.plays_all:
        _require_recordings(settings.cassette)
    elif settings.cassette is not None:
        sessions: list[tuple[Runner, Mapping[str, str]]] = [
            (execution.runner, execution.case.env) for execution in executions
        ]
        if judged and settings.judge_runner is not None:
            sessions.append((settings.judge_runner, {}))
        _require_keys(sessions, environ)
    if (folder := settings.recording_folder) is not None:
        _require_writable(folder)


def _name_option(settings: Settings, name: str) -> str:
    """Return a setting as it was given."""
    origin = settings.origins.get(f"run.{name}", "")
    return origin.removeprefix("flag ") if origin.startswith("flag ") else f"run.{name}"


def _require_recordings(folder: Path | None) -> None:
    if folder is None or next(folder.rglob("*.jsonl"), None) is not None:
        return
    if folder.is_dir():
        why = f"there is no cassette in {folder}"
    else:
        why = f"{folder} is not a folder" if folder.exists() else f"there is no folder {folder}"
    raise UsageError(why, hint="record cassettes with --record-to, or use --cassette-mode new")


def _require_keys(sessions: Iterable[tuple[Runner, Mapping[str, str]]], environ: Mapping[str, str]) -> None:
    """Raise if an agent could play without a key, and could not ask."""
    problems: dict[str, str] = {}
    for runner, env in sessions:
        why = route_of(runner, environ, env)
        if _is_routed(runner, environ, env) and isinstance(why, str):
            problems[runner.id] = why
    if problems:
        raise UsageError("\n".join(f"runners.{name}: {why}" for name, why in problems.items()), hint=_NO_KEY)


def _is_routed(runner: Runner, environ: Mapping[str, str], env: Mapping[str, str]) -> bool:
    """Return whether an agent that is played goes through the gateway."""
    return network_of(runner) != "none" and isinstance(route_of(runner, environ, env, played=True), Route)


def _require_writable(folder: Path) -> None:
    """Raise if a folder can neither be written to nor made."""
    existing_path = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing_path.is_dir():
        raise _unrecordable(folder, "it is not a folder" if existing_path == folder else "Not a directory")
    if not os.access(existing_path, os.W_OK | os.X_OK):
        raise _unrecordable(
            folder, "it cannot be written to" if existing_path == folder else f"{existing_path} cannot be written to"
        )


def _unrecordable(folder: Path, why: str | None) -> UsageError:
    return UsageError(f"cassettes cannot be recorded to {folder}: {why}", hint="name another folder")
