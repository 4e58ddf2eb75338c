"""Telling a person which settings are in force and where each came from; secrets stay hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whet.ground.secrets import looks_secret
from whet.model.request import Settings
from whet.model.run import Runner
from whet.model.suite import WorkspaceSpec
from whet.plan.settings_schema import Value
from whet.plan.settings_sources import dotted

HIDDEN = "***"
# What leaving a setting out means, in words.
_UNSET = {
    "run.schedule": "parallel (serial in a shared workspace)",
    "run.max_steps": "unlimited",
    "run.max_cost_usd": "unlimited",
    "defaults.budget_usd": "unlimited",
    "defaults.max_memory_mb": "unlimited",
    "defaults.max_processes": "unlimited",
    "defaults.max_cpus": "unlimited",
    "run.workspace": "isolated (or as the suite says)",
}


def describe(settings: Settings) -> list[tuple[str, str, str]]:
    """Every effective value as dotted key, text and origin."""
    return [(key, _text(key, value), origin) for key, value, origin in entries(settings)]


def entries(settings: Settings) -> list[tuple[str, Any, str]]:
    """Every effective value as dotted key, plain JSON data and origin."""
    found = (
        *_plain_settings(settings),
        *_snapshots(settings),
        *_judge(settings),
        *_packages(settings),
        *_composite(settings),
        *_all_runners(settings),
    )
    return [(key, _json(value), settings.origins.get(key, "built-in")) for key, value in found]


def _plain_settings(settings: Settings) -> Iterator[tuple[str, Any]]:
    for name in (
        "cwd",
        "output_dir",
        "schedule",
        "max_parallel",
        "trials",
        "retries",
        "max_steps",
        "max_cost_usd",
        "tags",
    ):
        yield f"run.{name}", getattr(settings, name)
    if settings.workspace is None:
        yield "run.workspace", None
    else:
        yield from _workspace(settings.workspace)
    for name in ("reporters", "sandbox", "mounts"):
        yield f"run.{name}", getattr(settings, name)
    yield "defaults.timeout_ms", round(settings.timeout_s * 1000)
    yield "defaults.check_timeout_ms", round(settings.check_timeout_s * 1000)
    yield "defaults.command_timeout_ms", round(settings.command_timeout_s * 1000)
    yield "defaults.model_silence_ms", round(settings.model_silence_s * 1000)
    yield "defaults.max_output_bytes", settings.max_output_bytes
    yield "defaults.budget_usd", settings.budget_usd
    yield "defaults.max_memory_mb", settings.ceilings.memory_mb
    yield "defaults.max_processes", settings.ceilings.processes
    yield "defaults.max_cpus", settings.ceilings.cpus


def _workspace(workspace: WorkspaceSpec) -> Iterator[tuple[str, Any]]:
    values: dict[str, Any] = {
        "mode": workspace.mode,
        "cwd": workspace.cwd,
        "template_dir": workspace.template_dir,
    }
    bootstrap = workspace.bootstrap
    if bootstrap is not None:
        values["bootstrap.command"] = bootstrap.command
        values["bootstrap.args"] = bootstrap.args or None
        values["bootstrap.timeout_ms"] = round(bootstrap.timeout_s * 1000) if bootstrap.timeout_s else None
    yield from ((f"run.workspace.{name}", value) for name, value in values.items() if value is not None)
    if bootstrap is not None:
        yield from _env(("run", "workspace", "bootstrap"), bootstrap.env)


def _snapshots(settings: Settings) -> Iterator[tuple[str, Any]]:
    yield from _nested("snapshots", settings.snapshots or {})


def _packages(settings: Settings) -> Iterator[tuple[str, Any]]:
    yield from _nested("packages", settings.packages)


def _nested(table: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{table}.{name}.{part}", inner) for part, inner in value.items())
        else:
            yield f"{table}.{name}", value


def _judge(settings: Settings) -> Iterator[tuple[str, Any]]:
    yield from ((f"judge.{name}", value) for name, value in settings.judge.items())


def _composite(settings: Settings) -> Iterator[tuple[str, Any]]:
    yield from ((f"composite.{name}", value) for name, value in settings.composite.items())


def _all_runners(settings: Settings) -> Iterator[tuple[str, Any]]:
    for runner in settings.runners:
        yield from _runner(runner)


def _runner(runner: Runner) -> Iterator[tuple[str, Any]]:
    agent = ("runners", runner.id, "agent")
    yield dotted((*agent, "type")), runner.agent
    if runner.model is not None:
        yield dotted((*agent, "model")), runner.model
    for name, value in runner.options.items():
        if name == "env":
            yield from _env(agent, value)
        else:
            yield dotted((*agent, name)), value


def _env(table: tuple[str, ...], env: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for name, value in env.items():
        yield dotted((*table, "env", name)), HIDDEN if looks_secret(name) else value


def _json(value: object) -> Value:
    """*value* as JSON can hold it; whatever is named like a secret is hidden, at any depth."""
    match value:
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
