"""Task packages through the service: fetched over HTTP, verified with the skill and without it."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from running import CONFIG, ask_for_run, create_suite, skill_archive, start_run, wait_for_run
from serving import SUITES, Server, suite_document

VERIFIER = '#!/bin/bash\ntest -f "$SKILL_DIR/SKILL.md"\n'


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[str]:
    """The path of a package on this machine."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "smoke.tar.gz").write_bytes(skill_archive({"tests/test.sh": VERIFIER, "README.md": "hello"}))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}/smoke.tar.gz"
        served.shutdown()
        thread.join()


def _suite(address: str) -> dict[str, object]:
    case = {"case_kind": "task_package", "instruction": "Mount the skill.", "environment_ref": address}
    return suite_document(cases_json=[case], supports_no_skill=True)


@pytest.fixture(
    params=[
        pytest.param(("--sandbox", "local", "--allow-private-addresses"), id="allowed"),
        pytest.param(("--allow-private-addresses",), id="contained", marks=pytest.mark.bubblewrap),
        pytest.param(("--sandbox", "local"), id="refused"),
    ]
)
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server whose operator allows private addresses, or does not."""
    served = Server(f"sqlite:///{tmp_path}/whet.db", tmp_path / "data", request.param)
    served.start()
    yield served
    served.stop()


def test_a_package_is_verified_with_the_skill_and_without_it(served: Server, packages: str, organisation: str) -> None:
    with served.client(served.key(organisation)) as client:
        suite_id = client.post(SUITES, json=_suite(packages)).json()["suite"]["id"]

        run = wait_for_run(client, ask_for_run(client, suite_id, runner=None).json()["run"]["id"])

        results = client.get(f"/api/v1/runs/{run['id']}/results").json()
    scores = {each["arm"]: each["score"] for case in results["cases"] for each in case["executions"]}
    if "--allow-private-addresses" in served.options:
        assert run["status"] == "completed"
        assert scores == {"skill": 1.0, "no_skill": 0.0}
        assert run["summary"]["lift"][0]["value"] == 1.0
    else:
        assert run["outcome"] == "errored"
        assert scores == {"skill": None, "no_skill": None}
        assert "is not a public address" in str(results)


@pytest.mark.bubblewrap
@pytest.mark.parametrize("data", ["settings/data", "settings"], ids=["below the settings", "beside the settings"])
def test_an_agent_does_not_see_what_the_service_keeps_for_others(tmp_path: Path, organisation: str, data: str) -> None:
    settings, data_dir = tmp_path / "settings", tmp_path / data
    data_dir.mkdir(parents=True)
    (settings / "whet.toml").write_text(CONFIG)
    served = Server(f"sqlite:///{data_dir}/whet.db", data_dir, ("--config", str(settings / "whet.toml"))).start()
    try:
        with served.client(served.key("others")) as others:
            theirs = start_run(others, create_suite(others, ["echo done"]))
            wait_for_run(others, theirs)
        look = f"cat {data_dir}/whet.db* {data_dir}/runs/{theirs}/suite.json | wc -c; ls {data_dir}/bundles; echo done"
        with served.client(served.key(organisation)) as client:
            run = start_run(client, create_suite(client, [f"({look}) 2>/dev/null | tr '\\n' ' '"]))
            wait_for_run(client, run)

            answer = client.get(f"/api/v1/runs/{run}/trials").json()["trials"][0]["failure"]["message"]
    finally:
        served.stop()

    assert 'got "0 done' in answer
