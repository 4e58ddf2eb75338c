"""What one organisation cannot do to others, or to the server: hold it up, fill it, or see its folders."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from running import CONFIG, create_suite, get_run, shell_server, skill_archive, start_run, wait_for_run
from serving import PATIENCE_S, SUITES, Server, suite_document, wait_until
from starlette.requests import Request

from whet.service.api._listings import Listings
from whet.service.database import CONNECTIONS
from whet.service.errors import Refused
from whet.service.http import read_body
from whet.service.service import at_the_door, in_thread, work_for
from whet.service.store.run_folder import RunFolder

pytestmark = pytest.mark.both_databases

AS_JSON = {"content-type": "application/json"}
BOMB = "\n".join(
    [
        "---\nname: b\na0: &a0 [x, x, x, x, x, x, x, x, x, x]",
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 11)),
        "description: *a10\n---\n",
    ]
)


def test_a_body_of_many_keys_is_refused_without_comparing_each_with_all(client: httpx2.Client) -> None:
    keys = [f'"{number:06x}":0' for number in range(250_000)]

    # Comparing each key with all others would take longer than the client waits.
    refused = client.post(SUITES, content=f"{{{','.join([*keys, keys[-1]])}}}", headers=AS_JSON)

    assert refused.status_code == 400
    assert refused.json()["error"] == 'the body has the key "03d08f" twice in one object'


def test_work_of_one_organisation_holds_up_neither_another_nor_keys_and_health() -> None:
    release = threading.Event()

    async def slow(organisation: str) -> None:
        work_for(organisation)
        await in_thread(release.wait, PATIENCE_S)

    async def answers() -> list[str]:
        async with anyio.create_task_group() as tasks:
            for _ in range(2 * CONNECTIONS):
                tasks.start_soon(slow, "greedy")
            await anyio.wait_all_tasks_blocked()
            try:
                with anyio.fail_after(PATIENCE_S):
                    own = await in_thread(lambda: "the server's own work")
                    door = await at_the_door(lambda: "keys and health")
                    work_for("modest")
                    return [own, door, await in_thread(lambda: "another organisation")]
            finally:
                release.set()

    assert anyio.run(answers) == ["the server's own work", "keys and health", "another organisation"]


def test_the_files_of_a_run_that_has_ended_are_listed_once(tmp_path: Path) -> None:
    record = tmp_path / "record" / "20260101T000000-000000"
    (record / "a").mkdir(parents=True)
    for name in ("run.json", "a/1", "a/2", "b"):
        (record / name).write_text(name)
    listings, folder = Listings(), RunFolder(tmp_path)

    def names(**asked: Any) -> list[str]:
        found = listings.page(folder, **{"ended": True, "below": "", "after": None, "most": 10, **asked})
        return [path for path, _ in found]

    first = names()
    under_way = names(below="a", most=1), names(below="/a/", after="a/1"), names(after="a/2")
    (record / "c").write_text("c")

    assert first == ["a/1", "a/2", "b"]
    assert under_way == (["a/1"], ["a/2"], ["b"])
    assert names() == first
    assert [path for path, _ in Listings().page(folder, ended=False, below="", after="b", most=10)] == ["c"]


async def _dribble() -> dict[str, Any]:
    await anyio.sleep(0.01)
    return {"type": "http.request", "body": b"x", "more_body": True}


def test_a_body_that_comes_a_byte_at_a_time_ends() -> None:
    async def read() -> None:
        request = Request({"type": "http", "method": "POST", "headers": []}, _dribble)
        with anyio.fail_after(PATIENCE_S):
            await read_body(request, most=10**9, timeout_s=0.2)

    with pytest.raises(Refused) as refused:
        anyio.run(read)

    assert refused.value.status == 408


def test_a_skill_whose_front_matter_swells_is_refused_when_it_is_uploaded(client: httpx2.Client) -> None:
    archive = skill_archive({"b/SKILL.md": BOMB})

    refused = client.post("/api/v1/skills", files={"skill": ("skill.tar.gz", archive)})

    assert refused.status_code == 422
    assert refused.json()["details"][0]["message"] == "SKILL.md has aliases that expand too far in line 5"


@pytest.fixture
def small(fresh_database: Callable[[], str], tmp_path: Path) -> Iterator[Server]:
    """A server that lets each organisation keep one MB."""
    served = Server(fresh_database(), tmp_path / "data", ("--sandbox", "local", "--quota-mb", "1")).start()
    yield served
    served.stop()


def test_quotas_count_every_version_of_a_suite_and_deleting_them_makes_room(small: Server) -> None:
    def large(number: int) -> dict[str, Any]:
        return suite_document(name=f"n{number}", cases_json=[{**CASE, "instruction": f"{number}" * 50_000}] * 8)

    with small.client(small.key("org")) as client:
        made = client.post(SUITES, json=large(1))
        place = made.headers["location"]
        changed = client.patch(place, json={"cases_json": large(2)["cases_json"]})
        refused = [client.patch(place, json={"cases_json": large(3)["cases_json"]}), client.post(SUITES, json=large(4))]
        newest = client.delete(f"{place}/versions/2")
        gone = client.delete(f"{place}/versions/1"), client.delete(f"{place}/versions/1")
        again = client.patch(place, json={"cases_json": large(3)["cases_json"]})
        client.delete(place)
        after = client.post(SUITES, json=large(5)), client.post(SUITES, json=large(6))

    assert (made.status_code, changed.status_code) == (201, 200)
    assert [(each.status_code, "of runs, skills and suites" in each.text) for each in refused] == [(409, True)] * 2
    assert (newest.status_code, *(each.status_code for each in gone)) == (409, 204, 404)
    assert again.status_code == 200, again.text
    assert [each.status_code for each in after] == [201, 201]
    assert re.search(r"org +0 runs +0\.8 MB", small.whet("orgs", "list")), small.whet("orgs", "list")


CASE = {"case_kind": "exact_match", "expected": "done"}


def test_the_process_of_a_run_has_a_ceiling_of_memory_and_its_agents_do_not_inherit_it(tmp_path: Path) -> None:
    served = shell_server(tmp_path, "--run-memory-mb", "1024").start()
    try:
        with served.client(served.key("org")) as client:
            suite_id = create_suite(client, [f'ulimit -S -d; while [ ! -e "{tmp_path}/go" ]; do sleep 0.05; done'])
            run_id = start_run(client, suite_id)
            wait_until(lambda: get_run(client, run_id)["status"] == "running")
            limit = wait_until(lambda: _data_limit_of_child(served))
            (tmp_path / "go").touch()
            wait_for_run(client, run_id)
            trial = client.get(f"/api/v1/runs/{run_id}/trials").json()["trials"][0]
    finally:
        served.stop()

    assert limit == str(1024 * 1024 * 1024)
    assert trial["final_output"] == "unlimited"


def _data_limit_of_child(served: Server) -> str | None:
    assert served.process is not None
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            command = status.with_name("cmdline").read_bytes().split(b"\0")
            if b"whet.run.child" in command and f"PPid:\t{served.process.pid}\n" in status.read_text():
                found = re.search(r"Max data size +(\S+)", status.with_name("limits").read_text())
                return found[1] if found and found[1] != "unlimited" else None
        except OSError:
            continue
    return None


def test_what_callers_see_of_a_run_that_could_not_start_names_no_folder_of_the_server(tmp_path: Path) -> None:
    served = shell_server(tmp_path).start()
    try:
        with served.client(served.key("org")) as client:
            suite_id = create_suite(client, ["echo done"])
            (tmp_path / "whet.toml").write_text(CONFIG + "[nonsense]\nx = 1\n")
            run = wait_for_run(client, start_run(client, suite_id))
            log = client.get(f"/api/v1/runs/{run['id']}/artifacts/whet.log")
    finally:
        served.stop()

    assert run["status"] == "failed"
    assert "nonsense" in run["error"]
    assert "nonsense" in log.text
    assert str(tmp_path) not in run["error"] + log.text


@pytest.mark.root
def test_a_run_on_a_full_disk_waits_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    data, room = tmp_path / "data", tmp_path / "room"
    data.mkdir()
    script = f"""
        mount -t tmpfs -o size=32m tmpfs {data} || exit 99
        (while [ ! -e {room} ]; do sleep 0.1; done; mount -o remount,size=400m {data}) >&- 2>&- &
        exec "$@"
    """
    apart = ("unshare", "--mount")
    served = shell_server(tmp_path, "--min-free-mb", "0")
    served.before = (*apart, "sh", "-c", script, "sh")
    served.start()
    try:
        with served.client(served.key("org")) as client:
            # Each trial fails, so that its workspace is kept.
            suite_id = create_suite(client, [f"echo {n}; head -c 6000000 /dev/urandom > large" for n in range(10)])
            run_id = start_run(client, suite_id)
            wait_until(lambda: f"run {run_id} waits: the disk is full" in served.log.read_text())
            waiting = get_run(client, run_id)["status"]
            room.touch()
            run = wait_for_run(client, run_id)
            trials = client.get(f"/api/v1/runs/{run_id}/trials?limit=100").json()["trials"]
    finally:
        room.touch()
        served.stop()

    assert waiting == "running"
    assert (run["status"], run["outcome"]) == ("completed", "failed"), run["error"]
    done = [trial["key"]["case"] for trial in trials if (trial["failure"] or {}).get("code") != "disk"]
    assert sorted(done) == sorted(f"exact_match-{n}" for n in range(1, 11))
