"""Keys and organisations: who is let in, for what, and how often."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest
from serving import PATIENCE_S, SUITES, Server, suite_document

from whet_process import start_whet

pytestmark = pytest.mark.both_databases


def _codes(client: httpx2.Client) -> dict[str, int]:
    """The status of one request of each scope."""
    suite = "00000000-0000-4000-8000-000000000000"
    return {
        "read": client.get(SUITES).status_code,
        "write": client.post(SUITES, json=suite_document()).status_code,
        "run": client.post(f"{SUITES}/{suite}/runs", json={}).status_code,
    }


@pytest.mark.parametrize(
    ("scopes", "codes"),
    [
        (("read",), {"read": 200, "write": 403, "run": 403}),
        (("write",), {"read": 403, "write": 201, "run": 403}),
        (("run",), {"read": 403, "write": 403, "run": 404}),
        (("read", "write", "run"), {"read": 200, "write": 201, "run": 404}),
    ],
)
def test_a_key_may_do_what_its_scopes_say(
    server: Server, organisation: str, scopes: tuple[str, ...], codes: dict[str, int]
) -> None:
    with server.client(server.key(organisation, *scopes)) as client:
        assert _codes(client) == codes


def test_a_key_is_told_what_it_may_do(server: Server, organisation: str) -> None:
    key = server.key(organisation, "read", "run")

    with server.client(key) as client:
        known = client.get("/api/v1/key").json()

    assert known == {"organisation": organisation, "prefix": key[:13], "label": None, "scopes": ["read", "run"]}


@pytest.mark.parametrize("key", [None, "whet_00000000", "whet_00000000_" + "A" * 43, "\x7f", "a" * 5000])
def test_a_caller_without_a_valid_key_learns_nothing(server: Server, key: str | None) -> None:
    with server.client(key) as client:
        refused = client.get(SUITES)

    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json() == {"error": "a valid key is needed", "details": []}


def test_a_key_is_made_listed_and_revoked_from_the_command_line(server: Server, organisation: str) -> None:
    made = json.loads(server.whet("keys", "create", "--org", organisation, "--scope", "read", "--json"))
    with server.client(made["key"]) as client:
        before = client.get(SUITES).status_code
        listed = json.loads(server.whet("keys", "list", "--org", organisation, "--json"))["keys"]

        server.whet("keys", "revoke", made["prefix"])

        after = client.get(SUITES).status_code
    assert (before, after) == (200, 401)
    assert [(key["prefix"], key["scopes"], key["revoked"]) for key in listed] == [(made["prefix"], ["read"], False)]
    assert made["key"].startswith(made["prefix"])
    assert f"{made['prefix']}  {organisation}  revoked" in server.whet("keys", "list", "--org", organisation)


def test_neither_log_nor_database_nor_list_holds_a_key(server: Server, organisation: str) -> None:
    key = server.key(organisation)
    secret = key.split("_", 2)[2]
    with server.client(key) as client:
        client.post(SUITES, json=suite_document(name="a"), params={"token": key})
        client.get(f"{SUITES}/{key}")
        client.post(SUITES, content=key.encode(), headers={"content-type": "application/json"})

    assert secret not in server.log.read_text()
    assert secret not in server.whet("keys", "list")
    if server.database.startswith("sqlite"):
        path = server.database.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path)) as database:
            assert secret not in "".join(database.iterdump())


def test_the_password_of_a_database_is_not_shown(server: Server) -> None:
    said = server.fails("keys", "list", "--database", "postgresql://me:hunter2@127.0.0.1:1/nowhere")

    assert "cannot be opened" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("url", ["mysql://host/name", "nonsense", "sqlite://", "sqlite:///:memory:"])
def test_a_database_that_is_none_of_ours_is_refused(server: Server, url: str) -> None:
    said = server.fails("keys", "list", "--database", url)

    assert said.startswith("error[usage]: ")
    assert "write sqlite:///whet.db or postgresql://" in said


def test_a_key_for_an_organisation_without_a_name_is_refused(server: Server) -> None:
    assert "is not a valid name for an organisation" in server.fails(
        "keys", "create", "--org", " ", "--database", server.database
    )


@pytest.fixture
def strict(fresh_database: Callable[[], str], tmp_path: Path) -> Iterator[Server]:
    """A server that allows three requests a minute."""
    served = Server(fresh_database(), tmp_path / "data", ("--requests-per-minute", "3"))
    served.start()
    yield served
    served.stop()


def test_a_caller_who_asks_too_often_learns_when_to_try_again(strict: Server, organisation: str) -> None:
    with strict.client(strict.key(organisation)) as client, strict.client(strict.key(organisation)) as other:
        codes = [client.get(SUITES).status_code for _ in range(5)]
        refused = client.get(SUITES)

        assert codes == [200, 200, 200, 429, 429]
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert other.get(SUITES).status_code == 200


def test_a_caller_who_guesses_keys_is_stopped(strict: Server, organisation: str) -> None:
    key = strict.key(organisation)
    with strict.client("whet_00000000_" + "A" * 43) as guesser:
        codes = [guesser.get(SUITES).status_code for _ in range(65)]

    assert set(codes[:60]) == {401}
    assert 429 in codes[60:]
    # Behind a proxy everybody has one address: who has a key must not suffer from who has none.
    with strict.client(key) as client:
        assert client.get(SUITES).status_code == 200


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o600, False)])
def test_a_key_that_goes_to_a_file_which_others_can_read_comes_with_a_warning(
    tmp_path: Path, mode: int, warned: bool
) -> None:
    file = tmp_path / "key.txt"
    file.touch(mode=mode)

    with file.open("wb") as stdout:
        arguments = ("keys", "create", "--org", "o", "--data-dir", str(tmp_path / "data"))
        environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8"}
        with start_whet(*arguments, cwd=tmp_path, env=environ, stdout=stdout) as made:
            _, warning = made.communicate(PATIENCE_S)

    assert made.returncode == 0
    assert file.read_text().startswith("whet_")
    assert (b"others can read the file" in warning) is warned
