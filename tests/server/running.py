"""Runs over HTTP: suites whose cases are shell scripts, and skills to run them with."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
from serving import SUITES, Server, suite_document, wait_until

CONFIG = """
[run]
max_parallel = 2
[runners.sh.agent]
type = "command"
command = "sh"
"""
ENDED = ("completed", "failed", "cancelled")


def shell_server(folder: Path, *options: str) -> Server:
    """A server with a database in *folder*, whose agent is a shell; it is not started yet."""
    (folder / "whet.toml").write_text(CONFIG)
    config = ("--config", str(folder / "whet.toml"), "--sandbox", "local", *options)
    return Server(f"sqlite:///{folder}/whet.db", folder / "data", config)


def skill_archive(files: dict[str, str] | None = None) -> bytes:
    """A skill in a tar file; a name that begins with `->` is a link."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in (files or {"greet/SKILL.md": "---\nname: greet\ndescription: Greets.\n---\n"}).items():
            entry = tarfile.TarInfo(name)
            if text.startswith("->"):
                entry.type, entry.linkname = tarfile.SYMTYPE, text[2:]
                archive.addfile(entry)
                continue
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def script_case(script: str, expected: str = "done", **more: Any) -> dict[str, Any]:
    """A case whose agent is a shell script."""
    return {"case_kind": "exact_match", "instruction": script, "expected": expected, **more}


def create_suite(client: httpx2.Client, scripts: Sequence[str], **more: Any) -> str:
    """The id of a suite of scripts that should print "done"."""
    made = client.post(SUITES, json=suite_document(cases_json=[script_case(each) for each in scripts], **more))
    assert made.status_code == 201, made.text
    return str(made.json()["suite"]["id"])


def ask_for_run(client: httpx2.Client, suite_id: str, **asked: Any) -> httpx2.Response:
    """Start a run with an uploaded skill."""
    return client.post(
        f"{SUITES}/{suite_id}/runs",
        data={"request": json.dumps({"runner": "sh", **asked})},
        files={"skill": ("skill.tar.gz", skill_archive())},
    )


def start_run(client: httpx2.Client, suite_id: str, **asked: Any) -> str:
    """The id of a new run."""
    made = ask_for_run(client, suite_id, **asked)
    assert made.status_code == 202, made.text
    return str(made.json()["run"]["id"])


def get_run(client: httpx2.Client, run_id: str) -> dict[str, Any]:
    """A run as it is now."""
    run: dict[str, Any] = client.get(f"/api/v1/runs/{run_id}").json()["run"]
    return run


def is_running(pid: str) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path("/proc", pid, "stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def wait_for_run(client: httpx2.Client, run_id: str, *statuses: str) -> dict[str, Any]:
    """The run, once it has one of these statuses, or has ended."""
    wanted = statuses or ENDED
    found: dict[str, Any] = wait_until(lambda: (run := get_run(client, run_id))["status"] in wanted and run)
    return found


def read_events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The events of a stream, as a browser would read them."""
    event: dict[str, Any] = {}
    for line in lines:
        if not line:
            if event:
                yield event
            event = {}
            continue
        name, _, value = line.partition(": ")
        if name in ("id", "event", "data"):
            event[name] = json.loads(value) if name == "data" else value


def all_events(client: httpx2.Client, run_id: str, **headers: str) -> list[dict[str, Any]]:
    """Everything that happens to a run until it ends."""
    with client.stream("GET", f"/api/v1/runs/{run_id}/events", headers=headers) as stream:
        assert stream.status_code == 200
        return list(read_events(stream.iter_lines()))
