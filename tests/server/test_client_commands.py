"""`whet suites` against a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from serving import SUITES, Server, suite_document


@pytest.fixture
def key_file(server: Server, organisation: str, tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(server.key(organisation) + "\n")
    return path


def _suites(server: Server, key_file: Path, *arguments: str) -> str:
    return server.plain("suites", *arguments, "--server", server.url, "--key-file", str(key_file))


def _refused(server: Server, key_file: Path, *arguments: str) -> str:
    return server.fails("suites", *arguments, "--server", server.url, "--key-file", str(key_file))


def _write(path: Path, **changes: object) -> Path:
    path.write_text(json.dumps(suite_document(**changes)))
    return path


def test_a_suite_goes_to_the_service_comes_back_and_goes_again(server: Server, key_file: Path, tmp_path: Path) -> None:
    pushed = _suites(server, key_file, "push", str(_write(tmp_path / "a.json", resource_limits_json={"timeout_ms": 9})))
    id_ = pushed.split()[0]
    back = tmp_path / "back.json"
    _suites(server, key_file, "pull", id_, "--output", str(back))
    document = json.loads(back.read_text())
    back.write_text(json.dumps({**document, "name": "renamed", "resource_limits_json": {}}))

    again = _suites(server, key_file, "push", str(back))

    assert again.split()[:3] == [id_, "v2", "renamed"]
    now = json.loads(_suites(server, key_file, "get", id_))
    assert (now["version"], now["name"], now["resource_limits_json"]) == (2, "renamed", {})
    assert json.loads(_suites(server, key_file, "get", id_, "--version", "1")) == document
    assert _suites(server, key_file, "list") == f"{id_}  v2  1 case  renamed  (not runnable)\n"


def test_a_pulled_suite_can_be_changed_and_pushed_again_and_again(
    server: Server, key_file: Path, tmp_path: Path
) -> None:
    id_ = _suites(server, key_file, "push", str(_write(tmp_path / "a.json"))).split()[0]
    back = tmp_path / "back.json"
    _suites(server, key_file, "pull", id_, "--output", str(back))

    told = []
    for name in ("second", "third"):
        back.write_text(json.dumps({**json.loads(back.read_text()), "name": name}))
        told.append(_suites(server, key_file, "push", str(back)).split()[1:3])

    assert told == [["v2", "second"], ["v3", "third"]]
    assert json.loads(back.read_text()) == json.loads(_suites(server, key_file, "get", id_))


def test_a_pulled_suite_can_be_planned_as_it_is(server: Server, key_file: Path, tmp_path: Path) -> None:
    id_ = _suites(server, key_file, "push", str(_write(tmp_path / "a.json"))).split()[0]
    _suites(server, key_file, "pull", id_, "--output", str(tmp_path / "b.json"))

    said = server.plain("validate", str(tmp_path / "b.json"))

    assert "no problems" in said


def test_a_suite_that_somebody_changed_meanwhile_is_not_overwritten(
    server: Server, key_file: Path, tmp_path: Path
) -> None:
    id_ = _suites(server, key_file, "push", str(_write(tmp_path / "a.json"))).split()[0]
    back = tmp_path / "back.json"
    _suites(server, key_file, "pull", id_, "--output", str(back))
    with server.client(key_file.read_text().strip()) as other:
        other.patch(f"{SUITES}/{id_}", json={"name": "theirs"})
    back.write_text(back.read_text().replace("smoke", "mine"))

    said = _refused(server, key_file, "push", str(back))

    assert "the suite is now at version 2" in said
    assert _suites(server, key_file, "push", str(back), "--new").split()[1] == "v1"


def test_a_file_that_is_there_is_not_overwritten(server: Server, key_file: Path, tmp_path: Path) -> None:
    file = _write(tmp_path / "a.json")
    id_ = _suites(server, key_file, "push", str(file)).split()[0]

    said = _refused(server, key_file, "pull", id_, "--output", str(file))

    assert "already exists" in said
    assert _suites(server, key_file, "pull", id_, "--output", str(file), "--force")


def test_a_wrong_suite_is_refused_before_it_is_sent(server: Server, key_file: Path, tmp_path: Path) -> None:
    said = _refused(server, key_file, "push", str(_write(tmp_path / "a.json", verifier_kind="magic")))

    assert "verifier_kind" in said


def test_a_refusal_of_the_service_is_printed_with_its_paths(server: Server, key_file: Path, tmp_path: Path) -> None:
    case = {"case_kind": "task_package", "environment_ref": "./here"}

    said = _refused(server, key_file, "push", str(_write(tmp_path / "a.json", cases_json=[case])))

    assert "the suite is not valid" in said
    assert "cases_json[0].environment_ref" in said


def test_an_unreachable_service_is_one_line(server: Server, key_file: Path) -> None:
    said = server.fails("suites", "list", "--server", "http://127.0.0.1:1", "--key-file", str(key_file))

    assert "http://127.0.0.1:1 cannot be reached" in said
    assert "Traceback" not in said


def test_an_invalid_key_is_reported(server: Server, tmp_path: Path) -> None:
    wrong = tmp_path / "key"
    wrong.write_text("whet_00000000_wrong")

    assert "a valid key is needed" in _refused(server, wrong, "list")


def test_every_page_is_listed(server: Server, key_file: Path) -> None:
    with server.client(key_file.read_text().strip()) as client:
        made = [client.post(SUITES, json=suite_document(name=f"n{number}")).status_code for number in range(103)]

    listed = json.loads(_suites(server, key_file, "list", "--json"))["suites"]

    assert set(made) == {201}
    assert len({suite["id"] for suite in listed}) == 103
