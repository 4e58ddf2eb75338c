"""Content for the page: packages on a web server of this machine, and runs of them."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx2
from msgspec import Struct
from running import skill_archive, start_run, wait_for_run
from serving import SUITES, suite_document

NEEDS_SKILL = '#!/bin/bash\ntest -f "$SKILL_DIR/SKILL.md" && echo "the skill is there"\n'
NEEDS_NOTHING = "#!/bin/bash\necho fine\n"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def packages(folder: Path) -> Iterator[str]:
    """A web server with two packages; its address."""
    folder.mkdir()
    for name, verifier in {"helped": NEEDS_SKILL, "same": NEEDS_NOTHING}.items():
        (folder / f"{name}.tar.gz").write_bytes(skill_archive({"tests/test.sh": verifier, "README.md": "hello\n"}))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as served:
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()
        thread.join()


class World(Struct, frozen=True):
    """An organisation with a suite that was run."""

    key: str
    suite_id: str
    run_id: str


def make_world(client: httpx2.Client, key: str, address: str) -> World:
    """A suite of two cases, of which the skill helps one; and a run of its second version."""
    cases = [
        {
            "case_kind": "task_package",
            "task_id": name,
            "instruction": "echo I was here; echo made > made.txt",
            "environment_ref": f"{address}/{name}.tar.gz",
        }
        for name in ("helped", "same")
    ]
    document = suite_document(name="Release", cases_json=cases, supports_no_skill=True)
    suite_id = client.post(SUITES, json=document).json()["suite"]["id"]
    client.patch(f"{SUITES}/{suite_id}", json={"name": "Release notes"})
    run = wait_for_run(client, start_run(client, suite_id))
    assert run["status"] == "completed", run
    return World(key, suite_id, run["id"])
