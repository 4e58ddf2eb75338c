"""A suite and a request for a run show what the server lacks, so that no run fails because of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from running import CONFIG, ask_for_run
from serving import SUITES, Server, suite_document

RUBRIC = {
    "case_kind": "llm_rubric",
    "instruction": "echo done",
    "rubric": [{"id": "polite", "description": "It is polite."}],
}
QUERY = {"case_kind": "trigger_query", "query": "how do I deploy?", "expectation": "should_trigger"}
PACKAGE = {"case_kind": "task_package", "environment_ref": "r2://bucket/smoke.tar.gz"}
NETWORKED = {**PACKAGE, "environment_ref": "https://127.0.0.1:9/a.tar.gz", "resource_hints": {"network": True}}
ANSWER = {"case_kind": "exact_match", "instruction": "echo done", "expected": "done"}
BUCKET = '[packages.r2]\nendpoint = "http://127.0.0.1:9/"\nallowed = ["bucket"]\n'


def _served(folder: Path, config: str, *options: str, **env: str) -> Iterator[httpx2.Client]:
    (folder / "whet.toml").write_text(config)
    database = f"sqlite:///{folder}/whet.db"
    server = Server(database, folder / "data", ("--config", str(folder / "whet.toml"), *options), env).start()
    try:
        with server.client(server.key("org")) as client:
            yield client
    finally:
        server.stop()


@pytest.fixture
def poor(tmp_path: Path) -> Iterator[httpx2.Client]:
    """A server with an agent, and neither a judge nor a bucket."""
    yield from _served(tmp_path, CONFIG)


@pytest.fixture
def rich(tmp_path: Path) -> Iterator[httpx2.Client]:
    """A server that has everything."""
    config = f'{CONFIG}{BUCKET}[judge]\nmodel = "gpt-5.5"\n'
    yield from _served(tmp_path, config, "--allow-verifier-network", OPENAI_API_KEY="sk-none-0000000000000000")


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[httpx2.Client]:
    """A server without settings."""
    yield from _served(tmp_path, "")


def _suite(client: httpx2.Client, case: dict[str, Any], verifier: str) -> dict[str, Any]:
    made = client.post(SUITES, json=suite_document(cases_json=[case], verifier_kind=verifier))
    assert made.status_code == 201, made.text
    suite: dict[str, Any] = made.json()["suite"]
    return suite


@pytest.mark.parametrize(
    ("case", "verifier", "reason"),
    [
        (RUBRIC, "llm_judge", "this server has no judge: "),
        (PACKAGE, "deterministic", "this server does not read r2:// packages: packages.r2.endpoint is not set"),
        (NETWORKED, "deterministic", "this server gives verifiers no network: resource_hints.network must be false"),
        (
            {**PACKAGE, "environment_ref": "s3://payroll-private/all.tar.gz"},
            "deterministic",
            "this server does not read s3:// packages: packages.s3.allowed names no bucket",
        ),
    ],
    ids=["judge", "bucket", "network", "bucket that nobody named"],
)
def test_a_suite_that_needs_what_the_server_has_not_is_not_runnable_and_a_run_is_refused(
    poor: httpx2.Client, case: dict[str, Any], verifier: str, reason: str
) -> None:
    suite = _suite(poor, case, verifier)

    refused = ask_for_run(poor, suite["id"])

    listed = poor.get(SUITES).json()["suites"][0]
    assert [suite["runnable"], listed["runnable"]] == [False, False]
    assert suite["not_runnable_reasons"][0].startswith(reason)
    assert listed["not_runnable_reasons"] == suite["not_runnable_reasons"]
    assert refused.status_code == 409
    assert [detail["message"] for detail in refused.json()["details"]] == suite["not_runnable_reasons"]


def test_a_query_needs_a_judge_only_without_an_agent(poor: httpx2.Client) -> None:
    suite = _suite(poor, QUERY, "llm_judge")

    judged, run = ask_for_run(poor, suite["id"], runner="none"), ask_for_run(poor, suite["id"])

    assert suite["runnable"] is True
    assert (judged.status_code, run.status_code) == (409, 202)


def test_a_server_that_has_what_a_suite_needs_says_that_it_is_runnable(rich: httpx2.Client) -> None:
    suites = [
        _suite(rich, RUBRIC, "llm_judge"),
        *(_suite(rich, case, "deterministic") for case in (PACKAGE, NETWORKED)),
    ]

    assert [(suite["runnable"], suite["not_runnable_reasons"]) for suite in suites] == [(True, [])] * 3


@pytest.mark.parametrize("name", ["timeout_ms", "oracle_timeout_ms"])
def test_a_time_limit_beyond_that_of_the_server_is_refused(rich: httpx2.Client, name: str) -> None:
    suite = _suite(rich, {**NETWORKED, "resource_hints": {name: 10**10}}, "deterministic")

    refused = ask_for_run(rich, suite["id"])

    said = f"cases_json[0].resource_hints.{name} is 1e+07 s, and this server allows 14400 s"
    assert (refused.status_code, refused.json()["details"][0]["message"]) == (409, said)


def test_a_server_without_a_runner_does_not_run_what_needs_an_agent(empty: httpx2.Client) -> None:
    suite = _suite(empty, ANSWER, "deterministic")

    assert suite["not_runnable_reasons"] == ["this server has no runner, and the suite needs an agent"]
