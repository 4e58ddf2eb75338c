"""The client of a service, with which the command line exchanges suites and starts runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx2

from whet.errors import UsageError
from whet.service.pack import pack_skill
from whet.version import __version__

_TIMEOUT_S = 60.0
_PATH = "/api/v1/eval-suites"
_SKILLS = "/api/v1/skills"
_IMPROVE_RUNS = "/api/v1/improve-runs"
_PROPOSALS = "/api/v1/proposals"
# How a service names skills that it has or can fetch, and a run without one.
_NAMED = ("sha256:", "label:", "https://", "http://", "r2://", "s3://")
_WITHOUT = "none"
_LAST_EVENTS = ("run_completed", "run_failed", "run_cancelled")
# How long a service may be away, for example to be upgraded, while somebody waits for a run.
_PATIENCE_S = 120.0
_PAUSE_S = 1.0
_REFUSED = 400
_CHANGED = 412
_MISSING = 404


class MissingThere(UsageError):
    """The service has no such thing, or it belongs to another organisation."""


class SuitesClient:
    """Asks one service with one key; raises UsageError with what the service says if it refuses."""

    def __init__(self, server: str, key: str) -> None:
        if not server.startswith(("http://", "https://")):
            raise UsageError(f"{server} is not an address of a service", hint="such as http://127.0.0.1:8000")
        self._server = server.rstrip("/")
        self._http = httpx2.Client(
            base_url=self._server,
            headers={"authorization": f"Bearer {key}", "user-agent": f"whet/{__version__}"},
            timeout=_TIMEOUT_S,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def all(self) -> Iterator[dict[str, Any]]:
        """Yield every suite without its cases, newest first."""
        return self._pages(_PATH, "suites", {})

    def _pages(self, path: str, name: str, asked: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        cursor: dict[str, str] = {}
        while True:
            page = self._ask("GET", path, params={"limit": 100, **asked, **cursor})
            yield from page[name]
            if page["next_cursor"] is None:
                return
            cursor = {"cursor": page["next_cursor"]}

    def get(self, id_: str, version: int | None = None) -> dict[str, Any]:
        """Return a suite, in its newest or the named version."""
        at = f"/versions/{version}" if version is not None else ""
        return self._suite("GET", f"{_PATH}/{quote(id_, safe='')}{at}")

    def create(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Create a suite and return it."""
        return self._suite("POST", _PATH, json=document)

    def change(self, id_: str, document: Mapping[str, Any], *, version: int) -> dict[str, Any]:
        """Return the next version of a suite that must still be at *version*."""
        headers = {"if-match": f'"{version}"'}
        return self._suite("PATCH", f"{_PATH}/{quote(id_, safe='')}", json=document, headers=headers)

    def skill(self, name: str) -> str:
        """Return *name* as a run can name it: a folder or an archive here is uploaded first."""
        if name == _WITHOUT or name.startswith(_NAMED):
            return name
        place = Path(name).expanduser()
        if place.is_dir():
            archive = pack_skill(place)
        elif place.is_file():
            archive = place.read_bytes()
        else:
            raise UsageError(f"there is no skill {name}", hint="name a folder, an archive, sha256:DIGEST or label:NAME")
        answer = self._ask("POST", _SKILLS, files={"skill": ("skill.tar.gz", archive)})
        return f"sha256:{answer['skill']['sha256']}"

    def start(self, id_: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Start a run of a suite and return it."""
        return self._run("POST", f"{_PATH}/{quote(id_, safe='')}/runs", json=body)

    def plan(self, id_: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a run of a suite would take."""
        plan: dict[str, Any] = self._ask("POST", f"{_PATH}/{quote(id_, safe='')}/plan", json=body)["plan"]
        return plan

    def run(self, run_id: str) -> dict[str, Any]:
        """Return a run."""
        return self._run("GET", _run_path(run_id))

    def cancel(self, run_id: str) -> dict[str, Any]:
        """Cancel a run or an improve run, and return it."""
        try:
            return self._run("POST", f"{_run_path(run_id)}/cancel")
        except MissingThere as missing:
            try:
                return self._improve_run("POST", f"{_improve_path(run_id)}/cancel")
            except MissingThere:
                raise missing from None

    def improve(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Start an improve run and return it."""
        return self._improve_run("POST", _IMPROVE_RUNS, json=body)

    def improve_run(self, run_id: str) -> dict[str, Any]:
        """Return an improve run."""
        return self._improve_run("GET", _improve_path(run_id))

    def proposals(self, status: str | None) -> Iterator[dict[str, Any]]:
        """Yield every proposal with this status, or with any, newest first."""
        return self._pages(_PROPOSALS, "proposals", {} if status is None else {"status": status})

    def proposal(self, id_: str) -> dict[str, Any]:
        """Return a proposal."""
        return self._proposal("GET", f"{_PROPOSALS}/{quote(id_, safe='')}")

    def apply(self, id_: str) -> dict[str, Any]:
        """Apply a proposal as a draft, and return it."""
        return self._proposal("POST", f"{_PROPOSALS}/{quote(id_, safe='')}/apply", json={"target": "draft"})

    def events(self, run_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield name and data of each event of a run until it ends; goes on after a broken connection."""
        return self._follow(_run_path(run_id))

    def improve_events(self, run_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield type and data of each event of an improve run until it ends, in the same way."""
        return self._follow(_improve_path(run_id))

    def _follow(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        last, since = "0", time.monotonic()
        while True:
            try:
                for number, name, data in self._stream(path, last):
                    last, since = number, time.monotonic()
                    yield name, data
                    if name in _LAST_EVENTS:
                        return
            except httpx2.HTTPError as error:
                if time.monotonic() - since > _PATIENCE_S:
                    hint = "the run goes on if the service does"
                    raise UsageError(f"{self._server} cannot be reached: {error}", hint=hint) from None
            time.sleep(_PAUSE_S)

    def _stream(self, path: str, last: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        with self._http.stream("GET", f"{path}/events", headers={"last-event-id": last}) as response:
            if response.status_code >= _REFUSED:
                response.read()
                raise _refusal(response.status_code, response.json())
            event: dict[str, str] = {}
            for line in response.iter_lines():
                name, _, value = line.partition(": ")
                if line:
                    event[name] = value
                    continue
                if "data" in event:
                    yield event["id"], event["event"], json.loads(event["data"])
                event = {}

    def _run(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        run: dict[str, Any] = self._ask(method, path, **more)["run"]
        return run

    def _improve_run(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        run: dict[str, Any] = self._ask(method, path, **more)["improve_run"]
        return run

    def _proposal(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        proposal: dict[str, Any] = self._ask(method, path, **more)["proposal"]
        return proposal

    def _suite(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        suite: dict[str, Any] = self._ask(method, path, **more)["suite"]
        return suite

    def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, **more)
            body = response.json()
        except httpx2.HTTPError as error:
            raise UsageError(f"{self._server} cannot be reached: {error}", hint="is the service running?") from None
        except ValueError:
            raise UsageError(f"{self._server} is not a service of whet", hint="is the address right?") from None
        if response.status_code >= _REFUSED or not isinstance(body, dict):
            raise _refusal(response.status_code, body)
        return body


def _run_path(run_id: str) -> str:
    return f"/api/v1/runs/{quote(run_id, safe='')}"


def _improve_path(run_id: str) -> str:
    return f"{_IMPROVE_RUNS}/{quote(run_id, safe='')}"


def _refusal(status: int, body: Any) -> UsageError:
    error = body.get("error") if isinstance(body, dict) else None
    details = body.get("details", []) if isinstance(body, dict) else []
    lines = [f"{detail.get('path')}: {detail.get('message')}".removeprefix(": ") for detail in details]
    hint = "\n".join(lines) or ("pull it again, or name its version" if status == _CHANGED else None)
    kind = MissingThere if status == _MISSING else UsageError
    return kind(f"the service refused: {error or status}", hint=hint)
