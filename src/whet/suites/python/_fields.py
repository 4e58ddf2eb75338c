"""Turn the cases and the workspace that an author wrote in Python into the model, or into problems."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from whet.model.grade import Location
from whet.model.run import id_problem
from whet.model.suite import BootstrapSpec, Case, Check, Limits, User, WorkspaceMode, WorkspaceSpec
from whet.model.task import ImageSpec
from whet.reading.fields import Fields, Findings, Language
from whet.reading.text import shorten, written
from whet.suites.conversation import WrittenTurn, conversation_prompts, read_user
from whet.suites.format import read_check_files, read_pairwise, read_solution
from whet.suites.python import authoring
from whet.suites.split.fields import read_source, read_split

_CHECK_PARAMETERS = 2
_MARK = 'write @case(prompt="...") above the function'
_MODES: tuple[WorkspaceMode, ...] = ("shared", "isolated")
PYTHON = Language(show=lambda value: shorten(written(value)), an_object="a map", a_flag="True or False")


def lower_case(source: Any, *, name: str | None, index: int, findings: Findings) -> Case | None:
    """Return the case of the model; None if *findings* get a problem with it."""
    place = name or f"suite[{index}]"
    if not isinstance(source, authoring.Case):
        findings.note("", f"must be a Case, not {PYTHON.show(source)}", case=place)
        return None
    before = len(findings.problems)
    identifier = source.fields.get("id", name)
    fields = {**source.fields, "id": identifier}
    reader = _reader(source, fields, authoring.Case.known, findings, case=_place(identifier, place, source.line))
    _check_id(reader, name)
    case = replace(_case(reader, source), location=Location(file=source.file, line=source.line))
    return case if len(findings.problems) == before else None


def _case(reader: _PythonFields, source: authoring.Case) -> Case:
    timeout_ms = reader.whole("timeout_ms", exact=True)
    budget = reader.number("budget_usd", least=0)
    turns = _turns(reader)
    turn_checks = [check for turn in turns for check in turn.checks]
    check = reader.function("check", most=_CHECK_PARAMETERS, required=not turn_checks)
    prompts = conversation_prompts(reader, turns, hint=_MARK if source.by_mark else None)
    return Case(
        id=str(reader.given("id")),
        prompt=prompts[0],
        then=prompts[1:],
        user=_user(reader),
        checks=(*turn_checks, *((Check(grader="python", params={"function": check}),) if check else ())),
        tags=tuple(dict.fromkeys(reader.texts("tags"))),
        limits=Limits(
            timeout_s=None if timeout_ms is None else timeout_ms / 1000,
            max_steps=reader.whole("max_steps", exact=True),
            budget_usd=None if budget is None else float(budget),
        ),
        expected_fail=reader.flag("expected_fail"),
        classify=reader.function("classify_failure", most=1),
        solution=read_solution(reader),
        pairwise=read_pairwise(reader, Path(reader.findings.file).parent),
        image=_image(reader),
        check_files=read_check_files(reader, Path(reader.findings.file)),
        split=read_split(reader),
        source=read_source(reader),
    )


def _image(reader: _PythonFields) -> ImageSpec | None:
    """Read an image by its name, or a folder with a Dockerfile, seen from the suite."""
    image = reader.text("image")
    return None if image is None else ImageSpec.of(_from_suite(image, Path(reader.findings.file)))


def _turns(reader: _PythonFields) -> tuple[WrittenTurn, ...]:
    """Read the turns of a conversation: texts, and objects of `Turn`."""
    turns = []
    for number, (place, item) in enumerate(reader.items("turns"), 1):
        if isinstance(item, str):
            turns.append(WrittenTurn(prompt=reader.text_at(place, item) or ""))
            continue
        if not isinstance(item, authoring.Turn):
            reader.problem(place, f"must be a text or a Turn, not {PYTHON.show(item)}")
            continue
        # The prompt may come without its name.
        words = dict(zip(("prompt",), item.positional, strict=False))
        turn = _reader(
            item, {**words, **item.fields}, item.known, reader.findings, place=place, case=reader.case, most=1
        )
        check, soft = turn.function("check", most=_CHECK_PARAMETERS), turn.flag("soft")
        turn_check = Check(grader="python", params={"function": check}, turn=number, soft=soft)
        prompt = turn.text("prompt", required=True) or ""
        turns.append(WrittenTurn(prompt=prompt, checks=(turn_check,) if check else ()))
    return tuple(turns)


def _user(reader: _PythonFields) -> User | None:
    user = reader.given("user")
    if user is None:
        return None
    if not isinstance(user, authoring.User):
        reader.problem("user", f"must be a User, not {PYTHON.show(user)}")
        return None
    return read_user(_reader(user, user.fields, user.known, reader.findings, place="user", case=reader.case))


def _reader(
    source: Any,
    fields: Mapping[str, Any],
    field_names: tuple[str, ...],
    findings: Findings,
    *,
    place: str = "",
    case: str | None = None,
    most: int = 0,
) -> _PythonFields:
    """Return a reader of *fields*, once those that *source* does not have are noted."""
    # None is the same as nothing.
    plain = {name: value for name, value in fields.items() if value is not None or name not in field_names}
    reader = _PythonFields(_plain(plain), findings, place, case)
    reader.refuse_unknown(field_names)
    if len(getattr(source, "positional", ())) > most:
        reader.problem("", "takes named fields only", f"known: {', '.join(field_names)}")
    return reader


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return *fields* with a list for each set, and texts for the paths in lists."""

    def convert(value: Any) -> Any:
        if not isinstance(value, set | frozenset | list | tuple):
            return value
        return tuple(str(item) if isinstance(item, Path) else item for item in value)

    return {name: convert(value) for name, value in fields.items()}


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


def lower_check_files(value: Any, findings: Findings) -> tuple[Path, ...]:
    """Return what commands of all checks may read; *findings* get what is wrong with it."""
    return read_check_files(_PythonFields(_plain({"check_files": value}), findings), Path(findings.file))


def lower_workspace(source: Any, findings: Findings) -> WorkspaceSpec | None:
    """Return the workspace of the model; None if *findings* get the problem that it is not a `Workspace`."""
    if not isinstance(source, authoring.Workspace):
        findings.note("workspace", f"must be a Workspace, not {PYTHON.show(source)}")
        return None
    reader = _reader(source, source.fields, authoring.Workspace.known, findings, place="workspace")
    mode = reader.choice("mode", _MODES, required=True)
    if mode == "isolated" and source.fields.get("cwd") is not None:
        reader.problem("cwd", "has no meaning in an isolated workspace", 'use mode="shared", or template_dir')
    return WorkspaceSpec(
        mode=mode or "isolated",
        cwd=reader.folder("cwd"),
        template_dir=reader.folder("template_dir", must_exist=True),
        bootstrap=_bootstrap(source.fields.get("bootstrap"), findings),
    )


def _bootstrap(source: Any, findings: Findings) -> BootstrapSpec | None:
    if source is None:
        return None
    fields = source if isinstance(source, Mapping) else getattr(source, "fields", None)
    if fields is None:
        findings.note("workspace.bootstrap", f"must be a Bootstrap, not {PYTHON.show(source)}")
        return None
    reader = _reader(source, fields, authoring.Bootstrap.known, findings, place="workspace.bootstrap")
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
            path = (Path(self.findings.file).parent / Path(value).expanduser()).resolve()
        except RuntimeError as error:
            self.problem(name, f"{value}: {error}")
            return None
        if must_exist and not path.is_dir():
            self.problem(name, f"{path} {'is not a folder' if path.exists() else 'does not exist'}")
            return None
        return path


def _place(identifier: Any, place: str, line: int) -> str:
    name = identifier if isinstance(identifier, str) and identifier.strip() and identifier.isprintable() else place
    return f"{name[:60]} (line {line})"


def _required_parameters(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    mandatory = [item for item in parameters if item.default is inspect.Parameter.empty]
    # A keyword-only parameter without a default can never be given.
    if any(item.kind is inspect.Parameter.KEYWORD_ONLY for item in mandatory):
        return 100
    return sum(item.kind in positional for item in mandatory)


def _yields(function: Callable[..., Any]) -> bool:
    """Return whether a call gives a generator, also if *function* is an object with `__call__`."""
    calls = (function, type(function).__call__)
    return any(inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call) for call in calls)
