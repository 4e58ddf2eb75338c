"""Skills as their folders describe them: what is taken, and what is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whet.callable.clients.contract import auth_headers, environment, input_problems, missing_secrets, output_problems
from whet.callable.manifest import LoadedSkill, find_skills, read_skill
from whet.errors import SuiteError, UsageError

PLAIN: dict[str, Any] = {
    "id": "mine",
    "name": "Mine",
    "version": "1.0.0",
    "description": "does a thing",
    "adapterType": "subprocess",
    "entrypoint": "python3 'my skill.py' --fast",
}


def write(folder: Path, changes: dict[str, Any] | None = None, config: dict[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    document = {key: value for key, value in {**PLAIN, **(changes or {})}.items() if value is not None}
    (folder / "skill.json").write_text(json.dumps(document))
    if config is not None:
        (folder / "adapter.config.json").write_text(json.dumps(config))
    return folder / "skill.json"


def read(folder: Path, changes: dict[str, Any] | None = None, config: dict[str, Any] | None = None) -> LoadedSkill:
    return read_skill(write(folder, changes, config))


def test_a_skill_runs_in_its_own_folder_with_its_command_line(tmp_path: Path) -> None:
    found = read(tmp_path / "s").skill

    assert found.root == tmp_path / "s"
    assert found.argv == ("python3", "my skill.py", "--fast")
    assert (found.id, found.version, found.network, found.keep_alive) == ("mine", "1.0.0", False, False)


def test_the_adapters_file_is_read(tmp_path: Path) -> None:
    config = {
        "type": "subprocess",
        "command": "node",
        "args": ["a.js"],
        "timeoutMs": 15000,
        "retries": 2,
        "keepAlive": True,
        "network": True,
        "passEnv": ["MY_KEY"],
        "env": {"MODE": "test"},
    }

    found = read(tmp_path, config=config).skill

    assert found.argv == ("node", "a.js")
    assert (found.timeout_ms, found.retries, found.keep_alive, found.network) == (15000, 2, True, True)
    assert (found.pass_env, found.env) == (("MY_KEY",), {"MODE": "test"})


@pytest.mark.parametrize(
    ("entrypoint", "config", "url"),
    [
        ("http://localhost:3000/invoke", None, "http://localhost:3000/invoke"),
        ("/invoke", {"baseUrl": "http://localhost:3000/"}, "http://localhost:3000/invoke"),
        ("http://a/x", {"baseUrl": "http://b"}, "http://a/x"),
    ],
)
def test_an_address_is_put_together(tmp_path: Path, entrypoint: str, config: Any, url: str) -> None:
    found = read(tmp_path, {"adapterType": "http", "entrypoint": entrypoint}, config).skill

    assert found.url == url
    assert found.argv == ()


def test_an_mcp_skill_is_an_address_or_a_program(tmp_path: Path) -> None:
    remote = read(tmp_path / "a", {"adapterType": "mcp", "entrypoint": "http://localhost:1/mcp"}).skill
    local = read(tmp_path / "b", {"adapterType": "mcp", "metadata": {"toolName": "search"}}).skill

    assert (remote.url, remote.argv) == ("http://localhost:1/mcp", ())
    assert (local.url, local.tool) == (None, "search")


@pytest.mark.parametrize(
    ("changes", "config", "message"),
    [
        ({"id": "Not Good"}, None, "skill.json: id: must be lower-case letters"),
        ({"version": "1.0"}, None, "skill.json: version: must be a version such as 1.0.0"),
        ({"name": None}, None, "skill.json: name: is missing"),
        (
            {"adapterType": "langchain"},
            None,
            'skill.json: adapterType: must be one of subprocess, http, mcp, not "lang',
        ),
        ({"entrypoint": "python 'x"}, None, "skill.json: entrypoint: is not a command line: No closing quotation"),
        (
            {"entrypoint": "mcp://localhost/x"},
            None,
            "skill.json: entrypoint: must be a command line or an http address",
        ),
        ({"adapterType": "http"}, None, "skill.json: entrypoint: must be an http or https address"),
        ({"adapterType": "http", "entrypoint": "http://[::1"}, None, "must be an http or https address"),
        ({"adapterType": "http", "entrypoint": "http://localhost:99999/"}, None, "must be an http or https address"),
        ({"adapterType": "http", "entrypoint": "http://local host/"}, None, "must be an http or https address"),
        ({"id": "a" * 300}, None, "skill.json: id: must be lower-case letters"),
        ({"inputSchema": {"type": "nope"}}, None, "skill.json: inputSchema: is not a JSON Schema: type:"),
        ({}, {"type": "http"}, 'adapter.config.json: type: is "http", but adapterType in skill.json is "subprocess"'),
        ({}, {"authType": "bearer"}, "adapter.config.json: authTokenEnvKey: is missing: bearer needs the name"),
        ({}, {"env": {"API_KEY": "x"}}, "adapter.config.json: env.API_KEY: looks like a secret"),
        ({}, {"headers": {"Authorization": "x"}}, "adapter.config.json: headers.Authorization: looks like a secret"),
        ({}, {"timeoutMs": 0}, "adapter.config.json: timeoutMs: must be a number above 0, not 0"),
    ],
)
def test_a_wrong_field_is_named_by_its_file_and_place(
    tmp_path: Path, changes: dict[str, Any], config: dict[str, Any] | None, message: str
) -> None:
    with pytest.raises(SuiteError) as caught:
        read(tmp_path, changes, config)

    assert len(caught.value.problems) == 1
    assert message in str(caught.value)


def test_a_password_in_an_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="holds a password"):
        read(tmp_path, {"adapterType": "http", "entrypoint": "http://me:secret@localhost/"})


def test_skills_are_found_below_a_folder_and_not_in_other_peoples(tmp_path: Path) -> None:
    write(tmp_path / "b" / "deep", {"id": "two"})
    write(tmp_path / "a", {"id": "one"})
    write(tmp_path / "node_modules" / "x", {"id": "three"})
    write(tmp_path / ".hidden", {"id": "four"})

    found = find_skills([tmp_path, tmp_path / "a" / "skill.json"])

    assert [each.skill.id for each in found] == ["one", "two"]


def test_links_that_lead_up_again_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "skills" / "a", {"id": "one"})
    for name in ("root", "up"):
        (tmp_path / "skills" / "b" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "skills" / "b" / name).symlink_to("/" if name == "root" else tmp_path)

    found = find_skills([tmp_path / "skills"])

    assert [each.skill.id for each in found] == ["one"]


def test_every_problem_of_every_skill_is_found_at_once(tmp_path: Path) -> None:
    write(tmp_path / "a", {"version": "x"})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "skill.json").write_text("{")

    with pytest.raises(SuiteError) as caught:
        find_skills([tmp_path])

    assert len(caught.value.problems) == 2


def test_two_skills_of_one_id_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b")

    with pytest.raises(SuiteError, match='"mine" is also the id of'):
        find_skills([tmp_path])


def test_a_place_without_skills_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no skill was found"):
        find_skills([tmp_path])
    with pytest.raises(UsageError, match="there is no such file or folder"):
        find_skills([tmp_path / "none"])


def test_secrets_are_known_by_name_and_missed_before_anything_runs(tmp_path: Path) -> None:
    config = {"authType": "bearer", "authTokenEnvKey": "MY_SKILL_API_KEY", "passEnv": ["OTHER"]}
    found = read(tmp_path, {"adapterType": "http", "entrypoint": "http://localhost/"}, config).skill

    assert missing_secrets(found, {}) == ["OTHER", "MY_SKILL_API_KEY"]
    assert missing_secrets(found, {"OTHER": "1", "MY_SKILL_API_KEY": "2"}) == []
    assert auth_headers(found, {"MY_SKILL_API_KEY": "s3cret"}) == {"Authorization": "Bearer s3cret"}
    with pytest.raises(UsageError, match="MY_SKILL_API_KEY is not set"):
        auth_headers(found, {})


def test_a_program_gets_little_of_our_environment_and_what_it_asks_for(tmp_path: Path) -> None:
    found = read(tmp_path, config={"passEnv": ["MINE"]}).skill

    env = environment(found, {"PATH": "/bin", "MINE": "1", "OTHERS": "2"}, "/home/nobody")

    assert (env["PATH"], env["MINE"], env["HOME"]) == ("/bin", "1", "/home/nobody")
    assert "OTHERS" not in env


def test_inputs_and_outputs_are_held_against_the_skills_schemas(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["query"]}
    found = read(tmp_path, {"inputSchema": schema, "outputSchema": {"type": "object", "required": ["result"]}}).skill

    assert input_problems(found, {"query": "x"}) == []
    assert "query" in input_problems(found, {})[0]
    assert "result" in output_problems(found, {})[0]


def test_the_digest_changes_with_what_either_file_says(tmp_path: Path) -> None:
    digests = {
        read(tmp_path).skill.digest,
        read(tmp_path, {"version": "1.0.1"}).skill.digest,
        read(tmp_path, config={"network": True}).skill.digest,
    }

    assert len(digests) == 3
