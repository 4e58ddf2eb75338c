"""Doors that were open: forged addresses, too many streams at once, keys twice, and files that others read."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from running import CONFIG, create_suite, skill_archive, start_run, wait_for_run
from serving import SUITES, Server, suite_document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a server, open to all users."""
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (data / "whet.db").touch(mode=0o644)
    (tmp_path / "whet.toml").write_text(CONFIG)
    return data


def _started(data: Path, *options: str) -> Server:
    more = ("--config", str(data.parent / "whet.toml"), "--sandbox", "local", *options)
    return Server(f"sqlite:///{data}/whet.db", data, more).start()


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    """A server on this machine alone."""
    served = _started(folder)
    yield served
    served.stop()


def _wrong_keys(server: Server, count: int) -> list[int]:
    """The statuses of requests with wrong keys, each with another forged address."""
    with server.client("whet_00000000_" + "A" * 43) as client:
        return [
            client.get(SUITES, headers={"x-forwarded-for": f"203.0.113.{number}"}).status_code
            for number in range(count)
        ]


def test_an_address_that_a_caller_claims_does_not_count(server: Server) -> None:
    codes = _wrong_keys(server, 70)

    assert codes[0] == 401
    assert codes[-1] == 429


def test_an_address_counts_that_a_trusted_proxy_tells(folder: Path) -> None:
    server = _started(folder, "--trusted-proxy", "127.0.0.1")
    try:
        codes = _wrong_keys(server, 70)
    finally:
        server.stop()

    assert set(codes) == {401}


def test_of_many_streams_at_once_only_as_many_are_opened_as_may_be_and_places_come_back(server: Server) -> None:
    with server.client(server.key("org")) as client:
        run_id = start_run(client, create_suite(client, ["sleep 60"]))
        wait_for_run(client, run_id, "running")
        place = f"/api/v1/runs/{run_id}/events"

        def open_one(streams: ExitStack) -> int:
            limits = httpx2.Limits(max_connections=1)
            one = streams.enter_context(
                httpx2.Client(base_url=server.url, headers=client.headers, limits=limits, timeout=300)
            )
            return streams.enter_context(one.stream("GET", place)).status_code

        with ExitStack() as streams, ThreadPoolExecutor(40) as pool:
            codes = list(pool.map(lambda _: open_one(streams), range(80)))
        client.post(f"/api/v1/runs/{run_id}/cancel")
        wait_for_run(client, run_id)
        with client.stream("GET", place) as again:
            later = again.status_code

    assert codes.count(200) == 50
    assert codes.count(429) == 30
    assert later == 200


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "a", "name": "b", "source_kind": "manual", "verifier_kind": "deterministic", "cases_json": []}',
        '{"name": "a", "resource_limits_json": {"timeout_ms": 1, "timeout_ms": 2}}',
    ],
)
def test_a_key_that_is_there_twice_is_refused_by_its_name(server: Server, body: str) -> None:
    with server.client(server.key("org")) as client:
        refused = client.post(SUITES, content=body, headers={"content-type": "application/json"})

    assert refused.status_code == 400
    assert "twice in one object" in refused.json()["error"]


def test_a_skill_of_more_files_than_anybody_reads_is_refused(server: Server) -> None:
    files = {"greet/SKILL.md": "---\nname: greet\ndescription: Greets.\n---\n"}
    archive = skill_archive({**files, **{f"greet/{number}": "" for number in range(10_001)}})
    with server.client(server.key("org")) as client:
        suite_id = create_suite(client, ["echo done"])

        refused = client.post(f"{SUITES}/{suite_id}/runs", files={"skill": ("skill.tar.gz", archive)})

    assert refused.status_code == 422
    assert "more than 10,000 entries" in refused.json()["details"][0]["message"]


def test_an_archive_of_two_skills_is_refused_when_it_is_sent(server: Server) -> None:
    manifest = "---\nname: greet\ndescription: Greets.\n---\n"
    archive = skill_archive({"a/SKILL.md": manifest, "b/SKILL.md": manifest})
    with server.client(server.key("org")) as client:
        suite_id = create_suite(client, ["echo done"])

        refused = client.post(f"{SUITES}/{suite_id}/runs", files={"skill": ("skill.tar.gz", archive)})

    assert refused.status_code == 422
    assert "holds no skill" in refused.json()["details"][0]["message"]


def test_what_the_service_keeps_is_for_its_owner_alone(server: Server) -> None:
    with server.client(server.key("org")) as client:
        client.post(SUITES, json=suite_document())

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (server.data_dir, *server.data_dir.iterdir())}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
