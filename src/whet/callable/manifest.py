"""Read the folders of callable skills: each becomes a skill, or a list of the problems in its files."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from whet.errors import PathRefused, Problem, SuiteError, UsageError
from whet.model.callable import ADAPTERS, AUTHS, METHODS, Adapter, Auth, CallableSkill, HttpRequest
from whet.reading.fields import Fields, Findings
from whet.reading.paths import refusals
from whet.reading.schemas import SchemaTrouble, check_schema
from whet.reading.text import shown
from whet.reading.yaml import read_object
from whet.secrets import looks_secret

MANIFEST = "skill.json"
CONFIG = "adapter.config.json"
_MANIFEST_KEYS = (
    *("id", "name", "version", "description", "tags", "inputSchema", "outputSchema", "adapterType"),
    *("entrypoint", "metadata", "$schema"),
)
_CONFIG_KEYS = (
    *("type", "command", "args", "baseUrl", "authType", "authTokenEnvKey", "headers", "passEnv", "env"),
    *("timeoutMs", "retries", "keepAlive", "network", "toolName", "request", "$schema"),
)
# The longest name of a folder that works everywhere, with room for a suffix.
LONGEST_ID = 100
_ID = re.compile(rf"[a-z0-9_-]{{1,{LONGEST_ID}}}")
VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
# Folders that are not searched for skills.
SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})


class LoadedSkill(Struct, frozen=True):
    """A skill, and warnings about its files."""

    skill: CallableSkill
    notes: tuple[Problem, ...]


def find_skills(places: Iterable[Path]) -> list[LoadedSkill]:
    """Return every skill in files or folders, by folder; raises `SuiteError` with all problems at once."""
    skills, problems = load_skills(places)
    if problems:
        raise SuiteError(problems)
    return skills


def load_skills(places: Iterable[Path]) -> tuple[list[LoadedSkill], list[Problem]]:
    """Return the skills that can be used, and what is wrong with the others; two skills of one id are a problem."""
    skills: list[LoadedSkill] = []
    problems: list[Problem] = []
    for file in dict.fromkeys(file.resolve() for place in places for file in manifests(place, problems)):
        try:
            with refusals():
                skills.append(read_skill(file))
        except SuiteError as error:
            problems += error.problems
        except PathRefused as error:
            problems.append(_path_problem(error))
    files_by_id: dict[str, Path] = {}
    for skill in (loaded_skill.skill for loaded_skill in skills):
        file = skill.root / MANIFEST
        first_file = files_by_id.setdefault(skill.id, file)
        if first_file is not file:
            problems.append(Problem(file=str(file), field="id", message=f'"{skill.id}" is also the id of {first_file}'))
    if not skills and not problems:
        raise UsageError(f"no skill was found: there is no {MANIFEST}", hint="name a skill's folder, or one above it")
    return skills, problems


def manifests(place: Path, problems: list[Problem]) -> Iterator[Path]:
    """Yield the manifests at or below *place*, by path; adds folders that cannot be read to *problems*."""
    try:
        with refusals():
            is_file, is_there = place.is_file(), place.exists()
            has_manifest = is_there and not is_file and (place / MANIFEST).is_file()
            folders = sorted(place.iterdir()) if is_there and not (is_file or has_manifest) else []
    except PathRefused as error:
        problems.append(_path_problem(error))
        return
    if is_file or has_manifest:
        yield place / MANIFEST if has_manifest else place
    elif not is_there:
        raise UsageError(f"{place}: there is no such file or folder")
    for folder in folders:
        if folder.is_dir() and folder.name not in SKIPPED and not folder.name.startswith(".") and not _leads_up(folder):
            yield from manifests(folder, problems)


def _leads_up(folder: Path) -> bool:
    """Return whether it is a link to a folder that holds it, which never ends."""
    return folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve())


def _path_problem(error: PathRefused) -> Problem:
    return Problem(file=error.path, message=error.reason, hint=error.hint)


def read_skill(file: Path) -> LoadedSkill:
    """Read a skill from its `skill.json`; the skill runs in the folder of that file."""
    root = file.resolve().parent
    config = root / CONFIG
    about = Fields(read_object(file), Findings(str(file)))
    how = Fields(read_object(config) if config.is_file() else {}, Findings(str(config)))
    about.warn_of_unknown(_MANIFEST_KEYS)
    how.warn_of_unknown(_CONFIG_KEYS)
    skill = _skill(about, how, root)
    problems = about.findings.problems + how.findings.problems
    if problems:
        raise SuiteError(problems)
    return LoadedSkill(skill, (*about.findings.warnings, *how.findings.warnings))


def _skill(about: Fields, how: Fields, root: Path) -> CallableSkill:
    adapter = _adapter(about, how)
    entrypoint = about.text("entrypoint", required=True) or ""
    metadata = about.table("metadata")
    argv, url = _where(about, how, adapter, entrypoint)
    retries = how.number("retries", least=0)
    return CallableSkill(
        id=_matching(about, "id", _ID, f"lower-case letters, digits, dashes and underscores, at most {LONGEST_ID}"),
        name=about.text("name", required=True) or "",
        version=_matching(about, "version", VERSION, "a version such as 1.0.0"),
        description=about.text("description", empty=True) or "",
        adapter=adapter,
        root=root,
        digest=_digest(about.values, how.values),
        argv=argv,
        url=url,
        request=_request(how, adapter, url) if how.has("request") else None,
        tags=about.texts("tags"),
        input_schema=_schema(about, "inputSchema"),
        output_schema=_schema(about, "outputSchema"),
        tool=how.text("toolName") or metadata.text("toolName"),
        auth=_auth(how),
        auth_variable=how.text("authTokenEnvKey"),
        pass_env=how.texts("passEnv"),
        env=_texts(how, "env"),
        headers=_texts(how, "headers"),
        timeout_ms=how.number("timeoutMs", above=0),
        retries=None if retries is None else int(retries),
        keep_alive=how.flag("keepAlive", False),
        network=how.flag("network", False),
        metadata=metadata.values,
    )


def _adapter(about: Fields, how: Fields) -> Adapter:
    adapter = about.choice("adapterType", ADAPTERS, required=True)
    config_type = how.choice("type", ADAPTERS)
    if adapter and config_type and adapter != config_type:
        how.problem("type", f'is "{config_type}", but adapterType in {MANIFEST} is "{adapter}"')
    return adapter or "subprocess"


def _where(about: Fields, how: Fields, adapter: Adapter, entrypoint: str) -> tuple[tuple[str, ...], str | None]:
    """Return the program to start, or the address to call."""
    base = how.text("baseUrl")
    is_address = entrypoint.startswith(("http://", "https://"))
    if adapter == "http" or (adapter == "mcp" and (is_address or base)):
        url = entrypoint if is_address or not base else f"{base.rstrip('/')}/{entrypoint.lstrip('/')}"
        if entrypoint:
            _check_address(about, url)
        return (), url
    command = how.text("command")
    if command:
        return (command, *how.texts("args")), None
    try:
        words = tuple(shlex.split(entrypoint))
    except ValueError as error:
        about.problem("entrypoint", f"is not a command line: {error}")
        words = ()
    if entrypoint and "://" in entrypoint.split(" ", 1)[0]:
        about.problem("entrypoint", f"must be a command line or an http address, not {shown(entrypoint)}")
    return words, None


_REQUEST_KEYS = ("method", "path", "query", "header", "body")
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_IN_BRACES = re.compile(r"{([^{}]*)}")


def _request(how: Fields, adapter: Adapter, url: str | None) -> HttpRequest:
    """Read how an input becomes a request; each field of it has one place, and each hole of the address a field."""
    fields = how.table("request")
    fields.warn_of_unknown(_REQUEST_KEYS)
    if adapter != "http":
        how.problem("request", f"is for http, not for {adapter}")
    path, query, header = (fields.texts(name) for name in _REQUEST_KEYS[1:4])
    body = fields.text("body")
    places = (*path, *query, *header, *((body,) if body else ()))
    for name in sorted({name for name in places if places.count(name) > 1}):
        fields.problem("", f'has two places for "{name}"', "each field of the input has one")
    for name in header:
        if not HEADER.fullmatch(name):
            fields.problem("header", f"has {shown(name)}, which cannot be the name of a header")
    holes = set(_IN_BRACES.findall(url or ""))
    for name in sorted(holes ^ set(path)):
        fields.problem(
            "path",
            f'has no "{name}", but the address does' if name in holes else f'has "{name}", but the address does not',
        )
    return HttpRequest(
        method=fields.choice("method", METHODS, required=True) or "POST",
        path=path,
        query=query,
        header=header,
        body=body,
    )


def _check_address(about: Fields, url: str) -> None:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and url.isprintable()
    except ValueError:
        # Such as a bracket that is not closed, or a port that is not a number.
        parts, sound = urlsplit(""), False
    if not sound or " " in url:
        about.problem("entrypoint", f"must be an http or https address, not {shown(url)}")
    if parts.password:
        about.problem("entrypoint", "holds a password", "name a variable in authTokenEnvKey")


def _auth(how: Fields) -> Auth:
    auth_type = how.choice("authType", AUTHS)
    if auth_type in {"bearer", "api-key"} and not how.values.get("authTokenEnvKey"):
        how.problem("authTokenEnvKey", f"is missing: {auth_type} needs the name of the variable that holds the secret")
    return auth_type or "none"


def _texts(fields: Fields, name: str) -> dict[str, str]:
    """Read a table of strings; a secret in it is a problem, because files are copied and committed."""
    table = fields.table(name)
    for key, value in table.values.items():
        if not isinstance(value, str):
            table.problem(key, f"must be a string, not {shown(value)}")
        elif looks_secret(key) or key.lower() == "authorization":
            table.problem(key, "looks like a secret", "name its variable in passEnv or authTokenEnvKey")
    return {key: value for key, value in table.values.items() if isinstance(value, str)}


def _matching(fields: Fields, name: str, pattern: re.Pattern[str], what: str) -> str:
    value = fields.text(name, required=True) or ""
    if value and not pattern.fullmatch(value):
        fields.problem(name, f"must be {what}, not {shown(value)}")
    return value


def _schema(fields: Fields, name: str) -> dict[str, Any]:
    schema = dict(fields.table(name).values)
    try:
        if schema:
            check_schema(schema)
    except SchemaTrouble as error:
        fields.problem(name, f"is not a JSON Schema: {error}")
    return schema


def _digest(*documents: Any) -> str:
    return hashlib.sha256(json.dumps(documents, sort_keys=True, default=dict).encode()).hexdigest()
