"""The fields of a Python suite, one by one: each is taken as it should be, or gives a problem with its place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from whet.dataclass import dataclass
from whet.errors import Problem
from whet.model.grade import Location
from whet.model.run import id_problem
from whet.model.suite import BootstrapSpec, Case, Check, Limits, WorkspaceMode, WorkspaceSpec
from whet.reading.fields import is_number, is_whole
from whet.reading.text import shorten, written
from whet.suites import authoring

_CHECK_PARAMETERS = 2
_MARK = 'write @case(prompt="...") above the function'
_MODES: tuple[WorkspaceMode, ...] = ("shared", "isolated")


@dataclass(slots=True)
class _Reader:
    """Takes fields out of something written, and notes what is wrong with them."""

    path: Path
    problems: list[Problem]
    fields: Mapping[str, Any] = field(default_factory=dict)
    case: str | None = None
    prefix: str = ""

    def note(self, name: str, message: str, hint: str | None = None) -> None:
        place = f"{self.prefix}{name}" if name else self.prefix.rstrip(".") or None
        self.problems.append(Problem(file=str(self.path), case=self.case, field=place, message=message, hint=hint))

    def refuse_unknown(self, written: Any, known: tuple[str, ...]) -> None:
        for name in self.fields:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                self.note(
                    name, "is not a field", f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"
                )
        if getattr(written, "positional", ()):
            self.note("", "takes named fields only", f"known: {', '.join(known)}")

    def text(self, name: str, *, required: bool = False, hint: str | None = None) -> str | None:
        value = self.fields.get(name)
        if value is None:
            if required:
                self.note(name, "is missing", hint)
            return None
        if not isinstance(value, str):
            self.note(name, f"must be a string, not {_shown(value)}")
            return None
        if not value.strip():
            self.note(name, "must not be empty")
            return None
        if "\0" in value or not _is_utf8(value):
            self.note(name, "holds a character that no program can be given (NUL or half a surrogate pair)")
            return None
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.fields.get(name, ())
        if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
            self.note(name, f"must be a list of strings, not {_shown(value)}")
            return ()
        bad = [item for item in value if not isinstance(item, str) or not item.strip()]
        if bad:
            self.note(name, f"must be a list of non-empty strings; {_shown(bad[0])} is not one")
            return ()
        return tuple(dict.fromkeys(value)) if name == "tags" else tuple(value)

    def number(self, name: str) -> int | None:
        value = self.fields.get(name)
        if value is None:
            return None
        if not is_whole(value, 1):
            self.note(name, f"must be an integer of at least 1 and at most 2**53, not {_shown(value)}")
            return None
        return value

    def amount(self, name: str) -> float | None:
        value = self.fields.get(name)
        if value is None:
            return None
        if not is_number(value) or value < 0:
            self.note(name, f"must be a number of at least 0, not {_shown(value)}")
            return None
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.fields.get(name, False)
        if not isinstance(value, bool):
            self.note(name, f"must be True or False, not {_shown(value)}")
        return value is True

    def function(self, name: str, *, most: int, required: bool = False) -> Callable[..., Any] | None:
        value = self.fields.get(name)
        if value is None:
            if required:
                self.note(name, "is missing")
            return None
        if not callable(value):
            self.note(name, f"must be a function, not {_shown(value)}")
            return None
        if _yields(value):
            self.note(name, "must not yield: nothing would run it to its end")
            return None
        if _required_parameters(value) > most:
            self.note(name, f"must be callable with at most {most} argument{'s' if most > 1 else ''}")
            return None
        return value  # type: ignore[no-any-return] # an author's function gives what it gives

    def folder(self, name: str, *, must_exist: bool = False) -> Path | None:
        value = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, str | Path) or not str(value):
            self.note(name, f"must be a path, not {_shown(value)}")
            return None
        try:
            found = (self.path.parent / Path(value).expanduser()).resolve()
        except RuntimeError as error:
            self.note(name, f"{value}: {error}")
            return None
        if must_exist and not found.is_dir():
            self.note(name, f"{found} {'is not a folder' if found.exists() else 'does not exist'}")
            return None
        return found


def lower_case(written: Any, *, name: str | None, index: int, path: Path, problems: list[Problem]) -> Case | None:
    """One case of the model, or its problems."""
    place = name or f"suite[{index}]"
    if not isinstance(written, authoring.Case):
        problems.append(Problem(file=str(path), case=place, message=f"must be a Case, not {_shown(written)}"))
        return None
    before = len(problems)
    identifier = written.fields.get("id", name)
    reader = _Reader(path, problems, {**written.fields, "id": identifier}, case=_place(identifier, place, written.line))
    reader.refuse_unknown(written, authoring.Case.known)
    _check_id(reader, name)
    lowered = replace(_case(reader, written), location=Location(file=written.file, line=written.line))
    return lowered if len(problems) == before else None


def _case(reader: _Reader, written: authoring.Case) -> Case:
    timeout_ms = reader.number("timeout_ms")
    check = reader.function("check", most=_CHECK_PARAMETERS, required=True)
    return Case(
        id=str(reader.fields.get("id")),
        prompt=reader.text("prompt", required=True, hint=_MARK if written.by_mark else None) or "",
        checks=(Check(grader="python", params={"function": check}),),
        tags=reader.texts("tags"),
        limits=Limits(
            timeout_s=None if timeout_ms is None else timeout_ms / 1000,
            max_steps=reader.number("max_steps"),
            budget_usd=reader.amount("budget_usd"),
        ),
        expected_fail=reader.flag("expected_fail"),
        classify=reader.function("classify_failure", most=1),
    )


def _check_id(reader: _Reader, name: str | None) -> None:
    identifier = reader.text("id", required=True)
    if identifier is None:
        return
    problem = id_problem(identifier)
    if problem:
        reader.note("id", problem)
    if name is not None and identifier != name:
        reader.note(
            "id", f'is "{identifier}", but the map calls it "{name}"', "leave the id out, or make them the same"
        )


def lower_workspace(written: Any, path: Path, problems: list[Problem]) -> WorkspaceSpec | None:
    """The workspace of the model, or its problems."""
    if not isinstance(written, authoring.Workspace):
        message = f"must be a Workspace, not {_shown(written)}"
        problems.append(Problem(file=str(path), field="workspace", message=message))
        return None
    reader = _Reader(path, problems, written.fields, prefix="workspace.")
    reader.refuse_unknown(written, authoring.Workspace.known)
    mode = reader.text("mode", required=True)
    if mode is not None and mode not in _MODES:
        near = get_close_matches(mode, _MODES, n=1)
        reader.note(
            "mode", f'must be "shared" or "isolated", not "{mode}"', f'did you mean "{near[0]}"?' if near else None
        )
    if mode == "isolated" and written.fields.get("cwd") is not None:
        reader.note("cwd", "has no meaning in an isolated workspace", 'use mode="shared", or template_dir')
    return WorkspaceSpec(
        mode="shared" if mode == "shared" else "isolated",
        cwd=reader.folder("cwd"),
        template_dir=reader.folder("template_dir", must_exist=True),
        bootstrap=_bootstrap(written.fields.get("bootstrap"), path, problems),
    )


def _bootstrap(written: Any, path: Path, problems: list[Problem]) -> BootstrapSpec | None:
    if written is None:
        return None
    fields = written if isinstance(written, Mapping) else getattr(written, "fields", None)
    reader = _Reader(path, problems, fields or {}, prefix="workspace.bootstrap.")
    if fields is None:
        reader.note("", f"must be a Bootstrap, not {_shown(written)}")
        return None
    reader.refuse_unknown(written, authoring.Bootstrap.known)
    command = reader.text("command", required=True)
    timeout_ms = reader.number("timeout_ms")
    env = reader.fields.get("env") or {}
    if not isinstance(env, Mapping) or not all(isinstance(item, str) for pair in env.items() for item in pair):
        reader.note("env", f"must be a map of strings to strings, not {_shown(env)}")
        env = {}
    return BootstrapSpec(
        command=_from_suite(command or "", path),
        args=tuple(_from_suite(arg, path) for arg in reader.texts("args")),
        timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        env=dict(env),
    )


def _from_suite(word: str, path: Path) -> str:
    """A word that looks like a relative path is one, from the suite's folder; anything else stays as it is."""
    if word in {".", ".."} or word.startswith(("./", "../")):
        return str((path.parent / word).resolve())
    return word


def _place(identifier: Any, place: str, line: int) -> str:
    shown = identifier if isinstance(identifier, str) and identifier.strip() and identifier.isprintable() else place
    return f"{shown[:60]} (line {line})"


def _required_parameters(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [item for item in parameters if item.default is inspect.Parameter.empty]
    # A keyword-only parameter without a default can never be given: more than anybody has.
    if any(item.kind is inspect.Parameter.KEYWORD_ONLY for item in needed):
        return 100
    return sum(item.kind in positional for item in needed)


def _yields(function: Callable[..., Any]) -> bool:
    """Whether to call it gives a generator, also where it is an object that can be called."""
    calls = (function, type(function).__call__)
    return any(inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call) for call in calls)


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    return shorten(written(value))
