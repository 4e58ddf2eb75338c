"""The OpenAPI document describes the service: every request that is made from it is answered as it says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from serving import PATIENCE_S, Server

pytestmark = pytest.mark.both_databases

# A document cannot say that a cursor must be one that was given, or a file an archive; keys have tests of their own.
UNSAYABLE = "positive_data_acceptance,ignored_auth"


@pytest.fixture(scope="module")
def fuzzed(fresh_database: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without runners, so that it runs nothing that a fuzzer makes up."""
    served = Server(fresh_database(), tmp_path_factory.mktemp("fuzz") / "data", ("--requests-per-minute", "1000000"))
    served.start()
    yield served
    assert served.stop() == 0


def _fuzz(served: Server, folder: Path, *options: str) -> None:
    ended = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            *("run", f"{served.url}/openapi.json", "--header", f"Authorization: Bearer {served.key('fuzz')}"),
            *("--exclude-checks", UNSAYABLE, "--suppress-health-check", "all", "--seed", "7"),
            *("--request-timeout", str(PATIENCE_S), "--continue-on-failure", *options),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=10 * PATIENCE_S,
    )
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr
    assert "Traceback" not in served.log.read_text()


@pytest.mark.slow
def test_whatever_is_made_up_is_answered_as_described_and_breaks_nothing(fuzzed: Server, tmp_path: Path) -> None:
    _fuzz(fuzzed, tmp_path, "--phases", "fuzzing,stateful", "--max-examples", "12")


@pytest.mark.slow
def test_every_edge_of_every_parameter_is_answered_as_described(fuzzed: Server, tmp_path: Path) -> None:
    # Edges of whole suites are the business of the property tests of their schema: there are too many of them.
    without_suites = ("--exclude-operation-id", "create_suite", "--exclude-operation-id", "change_suite")

    _fuzz(fuzzed, tmp_path, "--phases", "coverage", *without_suites)
