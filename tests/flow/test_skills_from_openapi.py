"""`whet create --from-openapi`: skills of an API that was not made for them, as they are typed and called."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from evaluating import reports, tasks, whet

from whet.callable.manifest import read_skill

PET = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "example": "Rex"},
        "age": {"type": "integer", "nullable": True},
        # A schema that refers to itself.
        "children": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
    },
}
JSON_PET = {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}
PETS: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "2.1.0"},
    "servers": [{"url": "http://localhost:1/v1"}],
    "paths": {
        "/pets/{petId}": {
            "parameters": [{"$ref": "#/components/parameters/PetId"}],
            "get": {
                "operationId": "getPet",
                "summary": "Finds a pet.",
                "tags": ["pets"],
                "parameters": [
                    {"name": "fields", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "session", "in": "cookie", "schema": {"type": "string"}},
                ],
                "responses": {"404": {"description": "no"}, "200": {"$ref": "#/components/responses/Pet"}},
            },
            "delete": {"operationId": "deletePet", "responses": {"204": {"description": "gone"}}},
        },
        "/pets": {
            "post": {
                "security": [{"key": []}],
                "requestBody": {"required": True, "content": JSON_PET},
                "responses": {"201": {"description": "made", "content": JSON_PET}},
            }
        },
    },
    "components": {
        "schemas": {"Pet": PET},
        "parameters": {"PetId": {"name": "petId", "in": "path", "required": True, "schema": {"type": "integer"}}},
        "responses": {"Pet": {"description": "a pet", "content": JSON_PET}},
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
    },
}


def document(folder: Path, **changed: Any) -> str:
    (folder / "api.json").write_text(json.dumps({**PETS, **changed}))
    return "api.json"


def operation(**changed: Any) -> dict[str, Any]:
    """Paths with one operation, GET /a, that is *changed*."""
    return {"/a": {"get": {"operationId": "a", "responses": {}, **changed}}}


@contextmanager
def api() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server of pets, and the requests that it got."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.append(
                {
                    "method": self.command,
                    "path": parts.path,
                    "query": parse_qs(parts.query),
                    "trace": self.headers.get("X-Trace"),
                    "login": self.headers.get("Authorization"),
                    "body": json.loads(body) if body else None,
                }
            )
            answer = b"" if self.command == "DELETE" else b'{"name": "Rex", "age": null}'
            self.send_response(204 if not answer else 200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the names that the server looks for

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_every_operation_becomes_a_skill_that_passes_its_own_benchmark(tmp_path: Path) -> None:
    with api() as (server, seen):
        made = whet(tmp_path, "create", "--name", "Pets", "--from-openapi", document(tmp_path), "--server", server)
        ended = [
            whet(
                tmp_path,
                *("eval", f"skills/{name}", "--benchmark", f"skills/{name}/tests/basic.eval.json", "--check-schemas"),
                *("--min-completion", "1"),
                PETS_TOKEN="very-secret-token",
            )
            for name in ("pets_getpet", "pets_deletepet", "pets_post_pets")
        ]

    assert made.returncode == 0, made.stderr
    assert made.stderr == 'note: GET /pets/{petId}: the cookie "session" is not sent\n'
    assert [each.returncode for each in ended] == [0, 0, 0], "".join(each.stdout + each.stderr for each in ended)
    calls = [(each["method"], each["path"], each["body"]) for each in seen if each["path"] != "/"]
    assert calls == [
        ("GET", "/v1/pets/1", None),
        ("DELETE", "/v1/pets/1", None),
        ("POST", "/v1/pets", {"name": "Rex"}),
    ]
    assert [each["login"] for each in seen if each["method"] == "POST"] == ["Bearer very-secret-token"]


def test_each_field_of_an_input_goes_to_its_place(tmp_path: Path) -> None:
    with api() as (server, seen):
        whet(
            tmp_path,
            *("create", "--name", "Pets", "--from-openapi", document(tmp_path)),
            *("--operation", "get /pets/{petId}", "--server", server),
        )
        given = {"petId": "a/b c", "fields": ["name", "age"], "X-Trace": "t-1"}
        task = {"id": "one", "inputData": given, "expectedOutput": {"type": "contains", "keywords": ["Rex"]}}
        ended = whet(tmp_path, "eval", "--all", "--tasks", tasks(tmp_path, task))

    assert ended.returncode == 0, ended.stderr
    assert reports(tmp_path)[0]["taskResults"][0]["status"] == "pass"
    (asked,) = (each for each in seen if each["path"] != "/")
    assert (asked["path"], asked["trace"]) == ("/v1/pets/a%2Fb%20c", "t-1")
    assert asked["query"] == {"fields": ["name", "age"]}


def test_a_skill_says_what_the_document_says(tmp_path: Path) -> None:
    whet(tmp_path, "create", "--name", "One pet", "--from-openapi", document(tmp_path), "--operation", "getPet")

    loaded = read_skill(tmp_path / "skills" / "one_pet" / "skill.json")
    skill = loaded.skill

    assert loaded.notes == ()
    assert (skill.version, skill.description, skill.tags) == ("2.1.0", "Finds a pet.", ("pets",))
    assert skill.url == "http://localhost:1/v1/pets/{petId}"
    assert skill.input_schema["required"] == ["petId"]
    assert skill.output_schema["$ref"] == "#/$defs/Pet"
    assert skill.output_schema["$defs"]["Pet"]["properties"]["age"] == {
        "anyOf": [{"type": "integer"}, {"type": "null"}]
    }


def test_an_input_that_does_not_fit_the_request_is_refused_before_anything_is_called(tmp_path: Path) -> None:
    with api() as (server, seen):
        whet(
            tmp_path,
            *("create", "--name", "p", "--from-openapi", document(tmp_path), "--operation", "getPet"),
            *("--server", server),
        )
        task = {"id": "one", "inputData": {"pet": 1}, "expectedOutput": {"type": "exact", "value": 1}}
        ended = whet(tmp_path, "eval", "--all", "--tasks", tasks(tmp_path, task))

    assert ended.returncode == 2
    assert 'the request has no place for "pet"; it takes petId, fields, X-Trace' in ended.stderr
    assert 'the address needs "petId"' in ended.stderr
    assert seen == []


LOOP = {"parameters": {"a": {"$ref": "#/components/parameters/b"}, "b": {"$ref": "#/components/parameters/a"}}}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"openapi": None, "swagger": "2.0"}, "convert it to OpenAPI 3 first"),
        ({"openapi": 3}, "is not OpenAPI 3"),
        ({"servers": [{"url": "/v1"}]}, "name the server with --server"),
        ({"servers": [{"url": "http://{host}/"}]}, "name the server with --server"),
        ({"servers": [{"url": "http://me:secret@localhost/"}]}, "holds a login"),
        ({"servers": None}, "servers: is missing"),
        ({"servers": [5]}, "servers[0]: must be an object"),
        ({"paths": []}, "paths: must be an object"),
        ({"paths": {}}, "there is no operation"),
        ({"paths": {"/a": {"get": "yes"}}}, "must be an object"),
        ({"paths": {"/a?b=c": {"get": {}}}}, "cannot be part of an address"),
        ({"paths": {"/a/{id}": {"get": {}}}}, 'has no "id" in the path'),
        ({"paths": operation(parameters=[{"name": "x", "in": "path"}])}, "which is not in the path"),
        ({"paths": operation(parameters=[{"name": 5, "in": "query"}])}, "must be a string"),
        ({"paths": operation(parameters=[{"name": "x", "in": "soul"}])}, "must be one of path, query, header, cookie"),
        (
            {"paths": operation(parameters=[{"name": "x", "in": "query"}, {"name": "x", "in": "header"}])},
            'has "x" in two places',
        ),
        ({"paths": operation(parameters=[{"name": "x", "in": "cookie", "required": True}])}, "the operation needs it"),
        ({"paths": operation(parameters=[{"$ref": "#/components/parameters/no"}])}, "which is not there"),
        ({"paths": operation(parameters=[{"$ref": "other.yaml#/x"}])}, "nothing is fetched"),
        (
            {"paths": operation(parameters=[{"$ref": "#/components/parameters/a"}]), "components": LOOP},
            "refers to itself",
        ),
        (
            {"paths": operation(parameters=[{"name": "x", "in": "query", "schema": {"$ref": "http://localhost/s"}}])},
            "nothing is fetched",
        ),
        (
            {"paths": operation(parameters=[{"name": "x", "in": "query", "schema": {"type": "nothing"}}])},
            "has a schema that cannot be used",
        ),
        (
            {"paths": operation(requestBody={"required": True, "content": {"text/csv": {}}})},
            "only JSON can be sent, not text/csv",
        ),
        ({"paths": operation(parameters=[{"name": "a b", "in": "header"}])}, "cannot be the name of a header"),
        (
            {
                "paths": operation(
                    parameters=[
                        {"name": f"n{number}", "in": "query", "schema": {"$ref": f"#/x-all/{number}"}}
                        for number in range(1001)
                    ]
                ),
                "x-all": [{}] * 1001,
            },
            "needs more than 1,000 schemas",
        ),
        ({"paths": {f"/{number}": {"get": {}} for number in range(101)}}, "choose some with --operation"),
    ],
)
def test_a_document_that_cannot_be_used_makes_no_folder(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    ended = whet(tmp_path, "create", "--name", "x", "--from-openapi", document(tmp_path, **changed))

    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "skills").exists()


def test_a_document_in_yaml_may_leave_out_the_quotes_of_status_codes(tmp_path: Path) -> None:
    (tmp_path / "api.yaml").write_text(
        "openapi: 3.1.0\ninfo: {title: T, version: 1.0.0}\nservers: [{url: 'http://localhost:{port}/', "
        "variables: {port: {default: '81'}}}]\npaths:\n  /a:\n    get:\n      responses:\n        200:\n"
        "          content: {application/json: {schema: {type: array}}}\n"
    )

    ended = whet(tmp_path, "create", "--name", "x", "--from-openapi", "api.yaml")

    assert ended.returncode == 0, ended.stderr
    skill = read_skill(tmp_path / "skills" / "x" / "skill.json").skill
    assert skill.url == "http://localhost:81/a"
    assert skill.output_schema == {"type": "array"}


def test_a_request_with_holes_or_two_places_for_a_field_is_a_problem_of_its_file(tmp_path: Path) -> None:
    whet(tmp_path, "create", "--name", "x", "--from-openapi", document(tmp_path), "--operation", "getPet")
    file = tmp_path / "skills" / "x" / "adapter.config.json"
    config = json.loads(file.read_text())
    wrong = {"method": "FETCH", "path": ["id"], "query": ["a"], "header": ["a", "b c"]}
    file.write_text(json.dumps({**config, "request": wrong}))

    ended = whet(tmp_path, "validate", "skills/x")

    assert ended.returncode == 2
    for said in (
        "request.method: must be one of GET, POST, PUT, PATCH, DELETE",
        'has two places for "a"',
        'has no "petId", but the address does',
        'has "id", but the address does not',
        'has "b c", which cannot be the name of a header',
    ):
        assert said in ended.stdout + ended.stderr


def test_schemas_that_ask_for_endless_examples_are_made_into_short_ones(tmp_path: Path) -> None:
    twice = {
        f"s{number}": {
            "type": "object",
            "required": ["a", "b"],
            "properties": {name: {"$ref": f"#/components/schemas/s{number + 1}"} for name in ("a", "b")},
        }
        for number in range(60)
    }
    schemas = {**twice, "s60": {"$ref": "#/components/schemas/s61"}, "s61": {"$ref": "#/components/schemas/s60"}}
    body = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/s0"}}}}
    file = document(tmp_path, paths=operation(requestBody=body), components={"schemas": schemas})

    ended = whet(tmp_path, "create", "--name", "x", "--from-openapi", file)

    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "skills" / "x" / "tests" / "basic.eval.json").stat().st_size < 1_000_000


def test_if_one_of_the_skills_is_there_already_none_is_made(tmp_path: Path) -> None:
    (tmp_path / "skills" / "pets_post_pets").mkdir(parents=True)

    ended = whet(tmp_path, "create", "--name", "Pets", "--from-openapi", document(tmp_path))

    assert ended.returncode == 2
    assert "skills/pets_post_pets already exists" in ended.stderr
    assert [each.name for each in (tmp_path / "skills").iterdir()] == ["pets_post_pets"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from-openapi", "api.json", "--operation", "getPat"], 'did you mean "getPet"?'),
        (["--from-openapi", "api.json", "--from-template", "mcp_tool"], "leave out --from-template"),
        (["--from-openapi", "api.json", "--server", "localhost"], "--server must be an http or https address"),
        (["--from-openapi", "missing.yaml"], "cannot be read"),
        (["--server", "http://localhost"], "are for --from-openapi"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: list[str], said: str) -> None:
    document(tmp_path)

    ended = whet(tmp_path, "create", "--name", "x", *options)

    assert ended.returncode == 2
    assert said in ended.stderr
