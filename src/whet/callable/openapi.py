"""Read an OpenAPI document: each operation becomes what a callable skill needs; nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from whet.callable.manifest import HEADER
from whet.callable.openapi_schemas import References, bundle, sample
from whet.errors import SuiteError, UsageError
from whet.model.callable import METHODS, Auth, HttpRequest, Method
from whet.reading.fields import Fields, Findings
from whet.reading.schemas import SchemaTrouble, check_schema
from whet.reading.text import did_you_mean, shown
from whet.reading.yaml import read_object

_PLACES = ("path", "query", "header", "cookie")
_BODY = "body"
_MOST_OPERATIONS = 100
_OKAY = re.compile(r"2\d\d")
_IN_BRACES = re.compile(r"{([^{}]*)}")
_JSON = re.compile(r"application/(.+\+)?json\b.*|\*/\*|application/\*")
# Headers that say how to send or read a message: the client sets them.
_SET_BY_US = frozenset({"accept", "content-type", "authorization"})


class Operation(Struct, frozen=True, kw_only=True):
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
        """The method and the path, such as "GET /pets/{id}"."""
        return f"{self.method} {self.path}"


class _Api(Struct):
    """The document, and what it takes to read its operations."""

    fields: Fields
    references: References
    server: str | None
    losses: list[str] = field(default_factory=list)

    def followed(self, fields: Fields) -> Fields:
        """Return what *fields* refers to, if it is a reference; otherwise itself."""
        return self.references.followed(fields)


def read_operations(file: Path, names: Sequence[str] = (), server: str | None = None) -> list[Operation]:
    """Return the *names* operations, or all; raises `SuiteError` with all problems at once."""
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
    entries = list(_select_operations(api, file, names))
    if len(entries) > _MOST_OPERATIONS:
        raise UsageError(
            f"{file}: {len(entries):,} operations, and at most {_MOST_OPERATIONS} become skills at once",
            hint="choose some with --operation",
        )
    operations = [_operation(api, *entry) for entry in entries]
    if findings.problems:
        raise SuiteError(list(dict.fromkeys(findings.problems)))
    if not operations:
        raise UsageError(f"{file}: there is no operation", hint=f"its paths must have one of {', '.join(METHODS)}")
    return operations


def _select_operations(api: _Api, file: Path, names: Sequence[str]) -> Iterator[tuple[str, Method, Fields, Fields]]:
    """Yield the path, the method, the item and the fields of each operation that is wanted."""
    operations_by_name: dict[str, tuple[str, Method, Fields, Fields]] = {}
    for path, item in api.fields.table("paths").values.items():
        if not path.startswith("/"):
            continue
        item_fields = api.followed(api.fields.table("paths").object(path, item))
        for method in METHODS:
            if item_fields.has(method.lower()):
                operations_by_name[f"{method} {path}"] = (path, method, item_fields, item_fields.table(method.lower()))
    if not names:
        yield from operations_by_name.values()
        return
    ids = {
        str(operation[3].given("operationId")): operation
        for operation in operations_by_name.values()
        if operation[3].has("operationId")
    }
    for name in names:
        words = name.split(maxsplit=1)
        match = ids.get(name) or operations_by_name.get(" ".join((words[0].upper(), *words[1:])) if words else "")
        if match is None:
            hint = (
                did_you_mean(name, [*ids, *operations_by_name])
                or f"known: {', '.join([*ids, *operations_by_name][:10])}"
            )
            raise UsageError(f'{file}: there is no operation "{name}"', hint=hint)
        yield match


def _operation(api: _Api, path: str, method: Method, item: Fields, fields: Fields) -> Operation:
    api.losses = []
    if not path.isprintable() or re.search(r"[?#\s\\]", path):
        fields.problem("", f"the path {shown(path)} cannot be part of an address")
    parameters = list(_parameters(api, path, item, fields))
    body, body_needed = _body(api, fields)
    takes = {name: schema for name, _, schema, _ in parameters}
    required_names = [name for name, _, _, is_required in parameters if is_required]
    if body is not None:
        if _BODY in takes:
            fields.problem("parameters", f'has one called "{_BODY}", which is the name of the request body here')
        takes[_BODY] = body
        required_names += [_BODY] if body_needed else []
    object_schema = {"type": "object", "properties": takes, "required": required_names, "additionalProperties": False}
    info, input_schema = api.fields.table("info"), _bundle(api, fields, "input", object_schema)
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
        input=input_schema,
        output=_bundle(api, fields, "responses", _answer(api, fields)),
        example=sample(input_schema),
        auth=_auth(api, fields),
        losses=tuple(api.losses),
    )


def _bundle(api: _Api, fields: Fields, name: str, schema: Any) -> dict[str, Any]:
    """Return *schema* with all that it refers to; one that cannot be used is a problem."""
    bundle_schema = bundle(api.references, replace(fields, path=fields.place(name)), schema)
    try:
        check_schema(bundle_schema)
    except SchemaTrouble as error:
        fields.problem(name, f"has a schema that cannot be used: {error}")
        return {}
    return bundle_schema


def _parameters(api: _Api, path: str, item: Fields, fields: Fields) -> Iterator[tuple[str, str, Any, bool]]:
    """Yield name, place, schema and whether it is required, of each parameter; an operation's replace its path's."""
    parameters: dict[tuple[str, str], tuple[str, str, Any, bool]] = {}
    for level in (item, fields):
        for place, value in level.items("parameters"):
            parameter = api.followed(level.object(place, value))
            name, where = parameter.text("name", required=True), parameter.choice("in", _PLACES, required=True)
            if name is None or where is None or (where == "header" and name.lower() in _SET_BY_US):
                continue
            if where == "header" and not HEADER.fullmatch(name):
                parameter.problem("name", f"cannot be the name of a header: {shown(name)}")
            is_required = where == "path" or parameter.flag("required")
            if where == "cookie":
                _lose(api, parameter, f'the cookie "{name}" is not sent', is_required)
                continue
            if parameter.given("style") not in (None, "form", "simple") or (
                where == "query" and parameter.given("explode") is False
            ):
                api.losses.append(f'"{name}" is sent in the usual style: a list repeats the field')
            parameters[name, where] = (name, where, _schema_of(parameter), is_required)
    names = [name for name, _ in parameters]
    for name in sorted({name for name in names if names.count(name) > 1}):
        fields.problem("parameters", f'has "{name}" in two places, and an input has it once')
    path_names = {name for name, where in parameters if where == "path"}
    for name in sorted(set(_IN_BRACES.findall(path)) ^ path_names):
        fields.problem(
            "parameters",
            f'has no "{name}" in the path' if name not in path_names else f'has "{name}", which is not in the path',
        )
    yield from parameters.values()


def _lose(api: _Api, fields: Fields, what: str, is_required: bool) -> None:
    """Note what cannot be carried over; the operation cannot be called without what is *is_required*."""
    if is_required:
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
    for code in (*codes, *(range_code for range_code in ("2XX", "default") if range_code in responses.values)):
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
            server = level.object(place, value)
            url = server.text("url", required=True) or ""
            for name, about in server.table("variables").values.items():
                default = about.get("default") if isinstance(about, Mapping) else None
                url = url.replace(f"{{{name}}}", str(default))
            if problem := server_problem(url):
                server.problem("url", problem, "name the server with --server")
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
            scheme_fields = api.followed(schemes.object(name, schemes.values.get(name)))
            kind, scheme = scheme_fields.given("type"), str(scheme_fields.given("scheme") or "").lower()
            if kind in {"oauth2", "openIdConnect"} or (kind == "http" and scheme == "bearer"):
                return "bearer"
            if (
                kind == "apiKey"
                and scheme_fields.given("in") == "header"
                and str(scheme_fields.given("name")).lower() == "x-api-key"
            ):
                return "api-key"
            api.losses.append(f'it needs "{name}", which whet cannot send: bearer and X-API-Key only')
        return "none"
    return "none"
