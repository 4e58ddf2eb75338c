"""Read an OpenAPI document: each operation becomes what a callable skill needs; nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from whet.agents.callable_reading import HEADER
from whet.agents.openapi_schemas import References, bundle, sample
from whet.dataclass import dataclass
from whet.errors import SuiteError, UsageError
from whet.model.benchmark import METHODS, Auth, HttpRequest, Method
from whet.reading.document_files import read_object
from whet.reading.fields import Fields, Findings
from whet.reading.schemas import SchemaTrouble, check_schema
from whet.reading.text import did_you_mean, shown

_PLACES = ("path", "query", "header", "cookie")
_BODY = "body"
_MOST_OPERATIONS = 100
_OKAY = re.compile(r"2\d\d")
_IN_BRACES = re.compile(r"{([^{}]*)}")
_JSON = re.compile(r"application/(.+\+)?json\b.*|\*/\*|application/\*")
# Headers that say how to send or read a message: the client sets them.
_SET_BY_US = frozenset({"accept", "content-type", "authorization"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of an API: where it is, what it takes and returns, and what of it cannot be carried over."""

    id: str
    method: Method
    path: str
    base: str
    about: str
    version: str
    tags: tuple[str, ...]
    request: HttpRequest
    input: Mapping[str, Any]
    output: Mapping[str, Any]
    example: Mapping[str, Any]
    auth: Auth = "none"
    losses: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Such as "GET /pets/{id}"."""
        return f"{self.method} {self.path}"


@dataclass(slots=True)
class _Api:
    """The document, and what it takes to read its operations."""

    fields: Fields
    references: References
    server: str | None
    losses: list[str] = field(default_factory=list)

    def followed(self, fields: Fields) -> Fields:
        """Return what *fields* refers to, if it is a reference; otherwise itself."""
        return self.references.followed(fields)


def read_operations(file: Path, wanted: Sequence[str] = (), server: str | None = None) -> list[Operation]:
    """Return the *wanted* operations, or all; raises `SuiteError` with all problems at once."""
    findings = Findings(str(file))
    # A status code is a number for those who leave out its quotes.
    fields = Fields(read_object(file, number_keys=True), findings)
    version = fields.given("openapi")
    if not isinstance(version, str) or not version.startswith("3."):
        older = fields.given("swagger") is not None
        hint = "convert it to OpenAPI 3 first" if older else "its field openapi must be such as 3.1.0"
        fields.problem("swagger" if older else "openapi", "is not OpenAPI 3", hint)
        raise SuiteError(findings.problems)
    api = _Api(fields=fields, references=References(fields), server=server)
    chosen = list(_chosen(api, file, wanted))
    if len(chosen) > _MOST_OPERATIONS:
        raise UsageError(
            f"{file}: {len(chosen):,} operations, and at most {_MOST_OPERATIONS} become skills at once",
            hint="choose some with --operation",
        )
    found = [_operation(api, *each) for each in chosen]
    if findings.problems:
        raise SuiteError(list(dict.fromkeys(findings.problems)))
    if not found:
        raise UsageError(f"{file}: there is no operation", hint=f"its paths must have one of {', '.join(METHODS)}")
    return found


def _chosen(api: _Api, file: Path, wanted: Sequence[str]) -> Iterator[tuple[str, Method, Fields, Fields]]:
    """Yield the path, the method, the item and the fields of each operation that is wanted."""
    known: dict[str, tuple[str, Method, Fields, Fields]] = {}
    for path, item in api.fields.table("paths").values.items():
        if not path.startswith("/"):
            continue
        whole = api.followed(api.fields.table("paths").object(path, item))
        for method in METHODS:
            if whole.has(method.lower()):
                known[f"{method} {path}"] = (path, method, whole, whole.table(method.lower()))
    if not wanted:
        yield from known.values()
        return
    ids = {str(each[3].given("operationId")): each for each in known.values() if each[3].has("operationId")}
    for name in wanted:
        words = name.split(maxsplit=1)
        found = ids.get(name) or known.get(" ".join((words[0].upper(), *words[1:])) if words else "")
        if found is None:
            hint = did_you_mean(name, [*ids, *known]) or f"known: {', '.join([*ids, *known][:10])}"
            raise UsageError(f'{file}: there is no operation "{name}"', hint=hint)
        yield found


def _operation(api: _Api, path: str, method: Method, item: Fields, fields: Fields) -> Operation:
    api.losses = []
    if not path.isprintable() or re.search(r"[?#\s\\]", path):
        fields.problem("", f"the path {shown(path)} cannot be part of an address")
    parameters = list(_parameters(api, path, item, fields))
    body, body_needed = _body(api, fields)
    takes = {name: schema for name, _, schema, _ in parameters}
    needed = [name for name, _, _, required in parameters if required]
    if body is not None:
        if _BODY in takes:
            fields.problem("parameters", f'has one called "{_BODY}", which is the name of the request body here')
        takes[_BODY] = body
        needed += [_BODY] if body_needed else []
    allowed = {"type": "object", "properties": takes, "required": needed, "additionalProperties": False}
    info, taken = api.fields.table("info"), _bundled(api, fields, "input", allowed)
    about = fields.text("summary", empty=True) or fields.text("description", empty=True) or f"{method} {path}"
    return Operation(
        id=fields.text("operationId") or f"{method.lower()}{path}",
        method=method,
        path=path,
        base=_base(api, item, fields),
        about=about.strip().splitlines()[0] if about.strip() else f"{method} {path}",
        version=info.text("version") or "",
        tags=fields.texts("tags"),
        request=HttpRequest(
            method=method,
            body=None if body is None else _BODY,
            **{
                place: tuple(name for name, where, _, _ in parameters if where == place)
                for place in ("path", "query", "header")
            },
        ),
        input=taken,
        output=_bundled(api, fields, "responses", _answer(api, fields)),
        example=sample(taken),
        auth=_auth(api, fields),
        losses=tuple(api.losses),
    )


def _bundled(api: _Api, fields: Fields, name: str, schema: Any) -> dict[str, Any]:
    """Return *schema* with all that it refers to; one that cannot be used is a problem."""
    whole = bundle(api.references, replace(fields, path=fields.place(name)), schema)
    try:
        check_schema(whole)
    except SchemaTrouble as error:
        fields.problem(name, f"has a schema that cannot be used: {error}")
        return {}
    return whole


def _parameters(api: _Api, path: str, item: Fields, fields: Fields) -> Iterator[tuple[str, str, Any, bool]]:
    """Yield name, place, schema and whether it is required, of each parameter; an operation's replace its path's."""
    found: dict[tuple[str, str], tuple[str, str, Any, bool]] = {}
    for level in (item, fields):
        for place, value in level.items("parameters"):
            one = api.followed(level.object(place, value))
            name, where = one.text("name", required=True), one.choice("in", _PLACES, required=True)
            if name is None or where is None or (where == "header" and name.lower() in _SET_BY_US):
                continue
            if where == "header" and not HEADER.fullmatch(name):
                one.problem("name", f"cannot be the name of a header: {shown(name)}")
            required = where == "path" or one.flag("required")
            if where == "cookie":
                _lose(api, one, f'the cookie "{name}" is not sent', required)
                continue
            if one.given("style") not in (None, "form", "simple") or (
                where == "query" and one.given("explode") is False
            ):
                api.losses.append(f'"{name}" is sent in the usual style: a list repeats the field')
            found[name, where] = (name, where, _schema_of(one), required)
    names = [name for name, _ in found]
    for name in sorted({name for name in names if names.count(name) > 1}):
        fields.problem("parameters", f'has "{name}" in two places, and an input has it once')
    there = {name for name, where in found if where == "path"}
    for name in sorted(set(_IN_BRACES.findall(path)) ^ there):
        fields.problem(
            "parameters",
            f'has no "{name}" in the path' if name not in there else f'has "{name}", which is not in the path',
        )
    yield from found.values()


def _lose(api: _Api, fields: Fields, what: str, required: bool) -> None:
    """Note what cannot be carried over; the operation cannot be called without what is *required*."""
    if required:
        fields.problem(
            "", f"{what}, and the operation needs it", "leave the operation out, with --operation for the others"
        )
    else:
        api.losses.append(what)


def _schema_of(fields: Fields) -> Any:
    """Return the schema of a parameter, with its own example."""
    schema = fields.given("schema")
    if schema is None:
        schema = _content(fields)[0]
    example = fields.given("example")
    return {**schema, "example": example} if example is not None and isinstance(schema, Mapping) else schema


def _content(fields: Fields) -> tuple[Any, list[str]]:
    """Return the schema of the JSON in `content`, None if there is no JSON, and the names of all types."""
    content = fields.table("content")
    kinds = [str(kind) for kind in content.values]
    kind = next((kind for kind in kinds if _JSON.fullmatch(kind.lower())), None)
    if kind is None:
        return None, kinds
    medium = content.object(kind, content.values[kind])
    schema = medium.given("schema")
    example = medium.given("example")
    if isinstance(schema, Mapping) and example is not None:
        return {**schema, "example": example}, kinds
    return {} if schema is None else schema, kinds


def _body(api: _Api, fields: Fields) -> tuple[Any, bool]:
    """Return the schema of the body, None if there is none to send, and whether it is required."""
    if not fields.has("requestBody"):
        return None, False
    body = api.followed(fields.table("requestBody"))
    schema, kinds = _content(body)
    if schema is None and kinds:
        _lose(api, fields, f"only JSON can be sent, not {', '.join(kinds[:3])}", body.flag("required"))
    return schema, body.flag("required")


def _answer(api: _Api, fields: Fields) -> Any:
    """Return the schema of the answer if all goes well; an empty one allows anything."""
    responses = fields.table("responses")
    codes = sorted(code for code in responses.values if _OKAY.fullmatch(str(code)))
    for code in (*codes, *(other for other in ("2XX", "default") if other in responses.values)):
        schema, kinds = _content(api.followed(responses.object(code, responses.values[code])))
        if schema is None and kinds:
            api.losses.append(f"it answers with {', '.join(kinds[:3])}, and only JSON can be read")
        return schema or {}
    return {}


def _base(api: _Api, item: Fields, fields: Fields) -> str:
    """Return the address that paths are relative to: that of `--server`, or the first that the document names."""
    if api.server is not None:
        return api.server.rstrip("/")
    for level in (fields, item, api.fields):
        for place, value in level.items("servers"):
            one = level.object(place, value)
            url = one.text("url", required=True) or ""
            for name, about in one.table("variables").values.items():
                default = about.get("default") if isinstance(about, Mapping) else None
                url = url.replace(f"{{{name}}}", str(default))
            if problem := server_problem(url):
                one.problem("url", problem, "name the server with --server")
            return url.rstrip("/")
    api.fields.problem("servers", "is missing", "name the server with --server")
    return ""


def server_problem(url: str) -> str | None:
    """Return why *url* cannot be the address of a server; None if it can."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        return f"is not an address: {shown(url)}"
    if not sound or not url.isprintable() or re.search(r"[\s{}]", url):
        return f"must be an http or https address, not {shown(url)}"
    if parts.username or parts.password:
        return "holds a login; keep secrets in variables"
    return "has a query or a fragment, and paths come after it" if parts.query or parts.fragment else None


def _auth(api: _Api, fields: Fields) -> Auth:
    """Return how the operation wants to be asked: as the first of its security requirements says."""
    level = fields if fields.has("security") else api.fields
    for place, value in level.items("security"):
        requirement = level.object(place, value)
        schemes = api.fields.table("components").table("securitySchemes")
        for name in requirement.values:
            one = api.followed(schemes.object(name, schemes.values.get(name)))
            kind, scheme = one.given("type"), str(one.given("scheme") or "").lower()
            if kind in {"oauth2", "openIdConnect"} or (kind == "http" and scheme == "bearer"):
                return "bearer"
            if kind == "apiKey" and one.given("in") == "header" and str(one.given("name")).lower() == "x-api-key":
                return "api-key"
            api.losses.append(f'it needs "{name}", which whet cannot send: bearer and X-API-Key only')
        return "none"
    return "none"
