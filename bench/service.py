"""The eval-suites service: create and get of a suite with 500 cases, requests per second by four callers at a time.

Callers are threads of one process over kept-alive connections, with the standard library's client, so that what is
measured is mostly the server. PostgreSQL is left out where it is not installed.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from projects import folder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "server"))

from postgres import Cluster, find_programs
from serving import SUITES, Server

CALLERS, SECONDS, CASES = 4, 5.0, 500
DOCUMENT = json.dumps(
    {
        "name": "large",
        "source_kind": "manual",
        "verifier_kind": "deterministic",
        "cases_json": [
            {
                "case_kind": "task_package",
                "task_id": f"task-{number}",
                "instruction": f"Do what the environment asks for, number {number}.",
                "environment_ref": f"r2://bucket/folder/environment-{number}.tar.gz",
                "resource_hints": {"working_dir": ".", "timeout_ms": 120_000},
            }
            for number in range(CASES)
        ],
    }
).encode()


def measure() -> dict[str, float]:
    """Requests per second for each database."""
    found: dict[str, float] = {}
    with folder() as base:
        found |= _figures("SQLite", f"sqlite:///{base}/whet.db", base / "sqlite")
        with _postgresql() as url:
            if url is not None:
                found |= _figures("PostgreSQL", url, base / "postgresql")
    return found


@contextmanager
def _postgresql() -> Iterator[str | None]:
    programs = find_programs()
    if programs is None:
        yield None
        return
    cluster = Cluster(programs)
    try:
        yield cluster.fresh_url()
    finally:
        cluster.stop()


def _figures(name: str, database: str, data_dir: Path) -> dict[str, float]:
    server = Server(database, data_dir, ("--requests-per-minute", "100000000")).start()
    headers = {"Authorization": f"Bearer {server.key('bench')}", "Content-Type": "application/json"}
    try:
        ids: list[str] = []
        created = _per_second(server.url, lambda ask: ids.append(_create(ask, headers)))
        got = _per_second(server.url, lambda ask: _expect(ask("GET", f"{SUITES}/{ids[0]}", None, headers), 200))
    finally:
        server.stop()
    return {f"{name}: create, requests per second": created, f"{name}: get, requests per second": got}


Ask = Callable[[str, str, bytes | None, dict[str, str]], tuple[int, bytes]]


def _create(ask: Ask, headers: dict[str, str]) -> str:
    return str(json.loads(_expect(ask("POST", SUITES, DOCUMENT, headers), 201))["suite"]["id"])


def _expect(answer: tuple[int, bytes], status: int) -> bytes:
    assert answer[0] == status, answer
    return answer[1]


def _per_second(url: str, once: Callable[[Ask], object]) -> float:
    """How often all callers together could do it."""
    began = time.perf_counter()

    def call() -> int:
        connection = http.client.HTTPConnection(urlsplit(url).netloc)

        def ask(method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()

        count = 0
        while time.perf_counter() - began < SECONDS:
            once(ask)
            count += 1
        connection.close()
        return count

    with ThreadPoolExecutor(CALLERS) as pool:
        counts = [pool.submit(call) for _ in range(CALLERS)]
        return sum(each.result() for each in counts) / (time.perf_counter() - began)
