"""Turn the cases and the workspace that an author wrote in Python into the model, or into problems."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.model.grade import Location
from whet.model.run import id_problem
from whet.model.suite import BootstrapSpec, Case, Check, Limits, User, WorkspaceMode, WorkspaceSpec
from whet.model.task import ImageSpec
from whet.reading.fields import Fields, Findings, Language
from whet.reading.text import shorten, written
from whet.suites import authoring
from whet.suites.conversations import WrittenTurn, conversation_prompts, read_user
from whet.suites.format import read_check_files, read_solution

_CHECK_PARAMETERS = 2
_MARK = 'write @case(prompt="...") above the function'
_MODES: tuple[WorkspaceMode, ...] = ("shared", "isolated")
PYTHON = Language(show=lambda value: shorten(written(value)), an_object="a map", a_flag="True or False")


def lower_case(written: Any, *, name: str | None, index: int, findings: Findings) -> Case | None:
    """Return the case of the model; None if *findings* get a problem with it."""
    place = name or f"suite[{index}]"
    if not isinstance(written, authoring.Case):
        findings.note("", f"must be a Case, not {PYTHON.show(written)}", case=place)
        return None
    before = len(findings.problems)
    identifier = written.fields.get("id", name)
    fields = {**written.fields, "id": identifier}
    reader = _reader(written, fields, authoring.Case.known, findings, case=_place(identifier, place, written.line))
    _check_id(reader, name)
    lowered = replace(_case(reader, written), location=Location(file=written.file, line=written.line))
    return lowered if len(findings.problems) == before else None


def _case(reader: _PythonFields, written: authoring.Case) -> Case:
    timeout_ms = reader.whole("timeout_ms", exact=True)
    budget = reader.number("budget_usd", least=0)
    turns = _turns(reader)
    checked = [check for turn in turns for check in turn.checks]
    check = reader.function("check", most=_CHECK_PARAMETERS, required=not checked)
    prompts = conversation_prompts(reader, turns, hint=_MARK if written.by_mark else None)
    return Case(
        id=str(reader.given("id")),
        prompt=prompts[0],
        then=prompts[1:],
        user=_user(reader),
        checks=(*checked, *((Check(grader="python", params={"function": check}),) if check else ())),
        tags=tuple(dict.fromkeys(reader.texts("tags"))),
        limits=Limits(
            timeout_s=None if timeout_ms is None else timeout_ms / 1000,
            max_steps=reader.whole("max_steps", exact=True),
            budget_usd=None if budget is None else float(budget),
        ),
        expected_fail=reader.flag("expected_fail"),
        classify=reader.function("classify_failure", most=1),
        solution=read_solution(reader),
        image=_image(reader),
        check_files=read_check_files(reader, Path(reader.findings.file)),
    )


def _image(reader: _PythonFields) -> ImageSpec | None:
    """Read an image by its name, or a folder with a Dockerfile, seen from the suite."""
    given = reader.text("image")
    return None if given is None else ImageSpec.of(_from_suite(given, Path(reader.findings.file)))


def _turns(reader: _PythonFields) -> tuple[WrittenTurn, ...]:
    """Read the turns of a conversation: texts, and objects of `Turn`."""
    found = []
    for number, (place, item) in enumerate(reader.items("turns"), 1):
        if isinstance(item, str):
            found.append(WrittenTurn(prompt=reader.text_at(place, item) or ""))
            continue
        if not isinstance(item, authoring.Turn):
            reader.problem(place, f"must be a text or a Turn, not {PYTHON.show(item)}")
            continue
        # The prompt may come without its name.
        words = dict(zip(("prompt",), item.positional, strict=False))
        own = _reader(
            item, {**words, **item.fields}, item.known, reader.findings, place=place, case=reader.case, most=1
        )
        check, soft = own.function("check", most=_CHECK_PARAMETERS), own.flag("soft")
        made = Check(grader="python", params={"function": check}, turn=number, soft=soft)
        prompt = own.text("prompt", required=True) or ""
        found.append(WrittenTurn(prompt=prompt, checks=(made,) if check else ()))
    return tuple(found)


def _user(reader: _PythonFields) -> User | None:
    given = reader.given("user")
    if given is None:
        return None
    if not isinstance(given, authoring.User):
        reader.problem("user", f"must be a User, not {PYTHON.show(given)}")
        return None
    return read_user(_reader(given, given.fields, given.known, reader.findings, place="user", case=reader.case))


def _reader(
    written: Any,
    fields: Mapping[str, Any],
    known: tuple[str, ...],
    findings: Findings,
    *,
    place: str = "",
    case: str | None = None,
    most: int = 0,
) -> _PythonFields:
    """Return a reader of *fields*, once those that *written* does not have are noted."""
    # None is the same as nothing.
    plain = {name: value for name, value in fields.items() if value is not None or name not in known}
    reader = _PythonFields(_plain(plain), findings, place, case)
    reader.refuse_unknown(known)
    if len(getattr(written, "positional", ())) > most:
        reader.problem("", "takes named fields only", f"known: {', '.join(known)}")
    return reader


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return *fields* with a list for each set, and texts for the paths in lists."""

    def listed(value: Any) -> Any:
        if not isinstance(value, set | frozenset | list | tuple):
            return value
        return tuple(str(item) if isinstance(item, Path) else item for item in value)

    return {name: listed(value) for name, value in fields.items()}


def _check_id(reader: _PythonFields, name: str | None) -> None:
    identifier = reader.text("id", required=True)
    if identifier is None:
        return
    problem = id_problem(identifier)
    if problem:
        reader.problem("id", problem)
    if name is not None and identifier != name:
        reader.problem(
            "id", f'is "{identifier}", but the map calls it "{name}"', "leave the id out, or make them the same"
        )


def lower_check_files(written: Any, findings: Findings) -> tuple[Path, ...]:
    """Return what commands of all checks may read; *findings* get what is wrong with it."""
    return read_check_files(_PythonFields(_plain({"check_files": written}), findings), Path(findings.file))


def lower_workspace(written: Any, findings: Findings) -> WorkspaceSpec | None:
    """Return the workspace of the model; None if *findings* get the problem that it is not a `Workspace`."""
    if not isinstance(written, authoring.Workspace):
        findings.note("workspace", f"must be a Workspace, not {PYTHON.show(written)}")
        return None
    reader = _reader(written, written.fields, authoring.Workspace.known, findings, place="workspace")
    mode = reader.choice("mode", _MODES, required=True)
    if mode == "isolated" and written.fields.get("cwd") is not None:
        reader.problem("cwd", "has no meaning in an isolated workspace", 'use mode="shared", or template_dir')
    return WorkspaceSpec(
        mode=mode or "isolated",
        cwd=reader.folder("cwd"),
        template_dir=reader.folder("template_dir", must_exist=True),
        bootstrap=_bootstrap(written.fields.get("bootstrap"), findings),
    )


def _bootstrap(written: Any, findings: Findings) -> BootstrapSpec | None:
    if written is None:
        return None
    fields = written if isinstance(written, Mapping) else getattr(written, "fields", None)
    if fields is None:
        findings.note("workspace.bootstrap", f"must be a Bootstrap, not {PYTHON.show(written)}")
        return None
    reader = _reader(written, fields, authoring.Bootstrap.known, findings, place="workspace.bootstrap")
    path = Path(findings.file)
    command = reader.text("command", required=True)
    timeout_ms = reader.whole("timeout_ms", exact=True)
    return BootstrapSpec(
        command=_from_suite(command or "", path),
        args=tuple(_from_suite(arg, path) for arg in reader.texts("args")),
        timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        env=reader.variables("env"),
    )


def _from_suite(word: str, path: Path) -> str:
    """Resolve a word that looks like a relative path from the suite's folder; leave any other as it is."""
    if word in {".", ".."} or word.startswith(("./", "../")):
        return str((path.parent / word).resolve())
    return word


class _PythonFields(Fields):
    """The fields of an object that an author made, which also has functions and folders."""

    __slots__ = ()

    def function(self, name: str, *, most: int, required: bool = False) -> Callable[..., Any] | None:
        """Read a function that needs at most *most* arguments."""
        if not self.has(name, required=required):
            return None
        value = self.given(name)
        if not callable(value):
            self.problem(name, f"must be a function, not {self.shown(name, value)}")
            return None
        if _yields(value):
            self.problem(name, "must not yield: nothing would run it to its end")
            return None
        if _required_parameters(value) > most:
            self.problem(name, f"must be callable with at most {most} argument{'s' if most > 1 else ''}")
            return None
        return value  # type: ignore[no-any-return] # an author's function gives what it gives

    def folder(self, name: str, *, must_exist: bool = False) -> Path | None:
        """Read the path of a folder, relative to the suite."""
        if not self.has(name):
            return None
        value = self.given(name)
        if not isinstance(value, str | Path) or not str(value):
            self.problem(name, f"must be a path, not {self.shown(name, value)}")
            return None
        try:
            found = (Path(self.findings.file).parent / Path(value).expanduser()).resolve()
        except RuntimeError as error:
            self.problem(name, f"{value}: {error}")
            return None
        if must_exist and not found.is_dir():
            self.problem(name, f"{found} {'is not a folder' if found.exists() else 'does not exist'}")
            return None
        return found


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
    # A keyword-only parameter without a default can never be given.
    if any(item.kind is inspect.Parameter.KEYWORD_ONLY for item in needed):
        return 100
    return sum(item.kind in positional for item in needed)


def _yields(function: Callable[..., Any]) -> bool:
    """Return whether a call gives a generator, also if *function* is an object with `__call__`."""
    calls = (function, type(function).__call__)
    return any(inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call) for call in calls)
