"""`whet suites` against a real server."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest
from improve_service import seed_improve_run
from running import CONFIG, script_case, wait_for_run
from serving import SUITES, Server, suite_document, wait_until

from whet.service.client import pack_skill


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


@pytest.fixture(scope="module")
def runner(fresh_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that can run suites."""
    folder = tmp_path_factory.mktemp("runner")
    (folder / "whet.toml").write_text(CONFIG)
    options = ("--config", str(folder / "whet.toml"), "--sandbox", "local", "--requests-per-minute", "100000")
    served = Server(fresh_database(), folder / "data", options).start()
    yield served
    assert served.stop() == 0


@pytest.fixture
def runner_key(runner: Server, organisation: str, tmp_path: Path) -> Path:
    path = tmp_path / "runner-key"
    path.write_text(runner.key(organisation))
    return path


def _push(runner: Server, key: Path, tmp_path: Path, *scripts: str) -> str:
    cases = [script_case(script) for script in scripts]
    file = _write(tmp_path / "runnable.json", cases_json=cases, supports_no_skill=True)
    return _suites(runner, key, "push", str(file)).split()[0]


def _skill(folder: Path, word: str) -> Path:
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: greet\ndescription: Greets.\n---\n")
    (folder / "word").write_text(word)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("private")
    return folder


def _ran(server: Server, key: Path, *arguments: str) -> tuple[int, str, str]:
    ended = server.ended("suites", "run", *arguments, "--server", server.url, "--key-file", str(key))
    return ended.returncode, ended.stdout, ended.stderr


def test_a_run_is_started_followed_and_decided_from_the_command_line(
    runner: Server, runner_key: Path, tmp_path: Path
) -> None:
    suite_id = _push(runner, runner_key, tmp_path, 'cat "$WHET_SKILL/word"', "echo done")
    good, bad = _skill(tmp_path / "good", "done"), _skill(tmp_path / "bad", "wrong")
    common = (suite_id, "--runner", "sh", "--arm", "skill", "--trials", "5")

    first = _ran(runner, runner_key, *common, "--skill", str(good), "--label", "one")
    second = _ran(runner, runner_key, *common, "--skill", str(bad))

    assert first[0] == 0, first
    assert first[1].splitlines()[1] == "  10 passed of 10 trials"
    assert "  passed             exact_match-2 @ sh/skill #5" in first[2].splitlines()
    assert second[0] == 1, second
    assert "  this run is worse than the run before on sh: -50 points" in second[1]
    assert "  newly failing: exact_match-1" in second[1].splitlines()


def test_json_of_suites_and_of_a_run_is_as_its_schema_says(runner: Server, runner_key: Path, tmp_path: Path) -> None:
    suite_id = _push(runner, runner_key, tmp_path, "echo done")

    suites = json.loads(_suites(runner, runner_key, "list", "--json"))
    code, run, _ = _ran(runner, runner_key, suite_id, "--runner", "sh", "--json")

    assert code == 0
    jsonschema.validate(suites, json.loads(runner.plain("schema", "service-suites")))
    jsonschema.validate(json.loads(run), json.loads(runner.plain("schema", "service-run")))


def test_arms_are_compared_from_the_command_line(runner: Server, runner_key: Path, tmp_path: Path) -> None:
    suite_id = _push(runner, runner_key, tmp_path, 'cat "$WHET_SKILL/word"')
    new = _skill(tmp_path / "new", "done")

    arms = ("--arm", "old=skill:none", "--arm", f"new=skill:{new}")
    code, said, _ = _ran(runner, runner_key, suite_id, "--runner", "sh", *arms, "--trials", "6")

    assert code == 0, said
    assert said.splitlines()[0] == "Decision"
    assert said.splitlines()[1].startswith("  new is better than old on sh: +100 points")


def test_a_run_is_planned_and_one_until_decided_ends_with_the_decision(
    runner: Server, runner_key: Path, tmp_path: Path
) -> None:
    suite_id = _push(runner, runner_key, tmp_path, *['cat "$WHET_SKILL/word"'] * 4)
    words = (suite_id, "--runner", "sh", "--skill", str(_skill(tmp_path / "new", "done")), "--effect", "30")
    until = ("--until-decided", "--max-rounds", "20")

    plan = _ran(runner, runner_key, *words, *until, "--dry-run")
    document = _ran(runner, runner_key, *words, *until, "--dry-run", "--json")
    run = _ran(runner, runner_key, *words, *until)
    stray = _ran(runner, runner_key, *words)

    assert (plan[0], run[0], stray[0]) == (0, 0, 2)
    assert "at most 160 trials (4 cases x 2 arms x 20 rounds)" in plan[1]
    assert "to find 30 points takes" in plan[1]
    jsonschema.validate(json.loads(document[1]), json.loads(runner.plain("schema", "service-plan")))
    assert "is better than" in run[1]
    assert "--effect is for a run until decided" in stray[2]


def test_a_folder_is_the_same_skill_wherever_and_whenever_it_is_packed(tmp_path: Path) -> None:
    first, second = _skill(tmp_path / "first", "a"), _skill(tmp_path / "second", "a")
    os.utime(second / "word", (1, 1))

    assert pack_skill(first) == pack_skill(second)
    assert b"private" not in gzip.decompress(pack_skill(first))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--skill", "nowhere"), "there is no skill nowhere"),
        (("--arm", "a=env:X=1", "--arm", "b=skill:none"), '--arm a: "env:X=1" cannot be used on a service'),
        (("--runner", "nobody"), "is not a runner of this service; known: sh"),
        (("--skill", "label:nothing", "--runner", "sh"), 'no skill has the label "nothing"'),
    ],
)
def test_a_run_that_cannot_start_is_one_error(
    runner: Server, runner_key: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    suite_id = _push(runner, runner_key, tmp_path, "echo done")

    refused = _refused(runner, runner_key, "run", suite_id, *arguments)

    assert said in refused
    assert "Traceback" not in refused


def test_a_run_goes_on_without_who_started_it_and_is_cancelled(
    runner: Server, runner_key: Path, tmp_path: Path
) -> None:
    suite_id = _push(runner, runner_key, tmp_path, f"touch {tmp_path}/begun; sleep 1000")
    run_id = _suites(runner, runner_key, "run", suite_id, "--runner", "sh", "--no-wait").strip()
    wait_until((tmp_path / "begun").exists)

    said = _suites(runner, runner_key, "cancel", run_id)

    assert said.split()[0] == run_id
    with runner.client(runner_key.read_text()) as client:
        assert wait_for_run(client, run_id)["status"] == "cancelled"
    assert "there is no such run" in _refused(runner, runner_key, "cancel", "nothing")


def test_who_waits_for_a_run_waits_through_a_restart_of_the_service(
    runner: Server, runner_key: Path, tmp_path: Path
) -> None:
    script = f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo done"
    suite_id = _push(runner, runner_key, tmp_path, script)
    runner.options += ("--port", runner.url.rpartition(":")[2])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_ran, runner, runner_key, suite_id, "--runner", "sh")
        wait_until((tmp_path / "begun").exists)

        runner.stop()
        runner.start()
        (tmp_path / "go").touch()

        code, said, told = waiting.result()
    assert code == 0, told
    assert "1 passed" in said
    assert told.count("exact_match-1 @ sh/no_skill #1") == 1


def test_what_an_improve_run_proposes_is_listed_and_made_a_draft(
    server: Server, organisation: str, key_file: Path, tmp_path: Path
) -> None:
    suite_id = _suites(server, key_file, "push", str(_write(tmp_path / "a.json"))).split()[0]
    seed_improve_run(server, organisation, suite_id)
    document = json.loads(_suites(server, key_file, "proposals", "--json"))
    jsonschema.validate(document, json.loads(server.plain("schema", "service-proposals")))
    (proposal,) = document["proposals"]

    listed = _suites(server, key_file, "proposals", "--status", "pending")
    applied = _suites(server, key_file, "apply", proposal["id"])

    assert listed.splitlines() == [
        f"proposal {proposal['id']}: body of greet, pending",
        "  50 % of held-out cases before, 100 % after: +50.0 points (+25.0 to +75.0)",
    ]
    assert applied.startswith("sha256:")
    assert applied.endswith("  draft  greet\n")
    assert _suites(server, key_file, "proposals", "--status", "pending") == ""
    assert "there is no such proposal" in _refused(server, key_file, "apply", "unknown")
    assert "there is no such run" in _refused(server, key_file, "cancel", "unknown")
