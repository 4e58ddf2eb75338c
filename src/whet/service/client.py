"""The client of a service, with which the command line exchanges suites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self
from urllib.parse import quote

import httpx2

from whet.errors import UsageError
from whet.version import __version__

_TIMEOUT_S = 60.0
_PATH = "/api/v1/eval-suites"
_REFUSED = 400
_CHANGED = 412


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
        cursor: dict[str, str] = {}
        while True:
            page = self._ask("GET", _PATH, params={"limit": 100, **cursor})
            yield from page["suites"]
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

    def _suite(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._ask(method, path, **more)["suite"]
        return found

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


def _refusal(status: int, body: Any) -> UsageError:
    error = body.get("error") if isinstance(body, dict) else None
    details = body.get("details", []) if isinstance(body, dict) else []
    lines = [f"{each.get('path')}: {each.get('message')}".removeprefix(": ") for each in details]
    hint = "\n".join(lines) or ("pull it again, or name its version" if status == _CHANGED else None)
    return UsageError(f"the service refused: {error or status}", hint=hint)
