"""Suites of a service, as the command line exchanges them."""

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
    """Asks one service with one key; every refusal is a `UsageError` that says what the service said."""

    def __init__(self, server: str, key: str) -> None:
        if not server.startswith(("http://", "https://")):
            raise UsageError(f"{server} is no address of a service", hint="such as http://127.0.0.1:8000")
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
        """Every suite without its cases, newest first."""
        cursor: str | None = None
        while True:
            page = self._ask("GET", _PATH, params={"limit": 100, **({"cursor": cursor} if cursor else {})})
            yield from page["suites"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def get(self, id_: str, version: int | None = None) -> dict[str, Any]:
        """One suite, in its newest or the named version."""
        at = f"/versions/{version}" if version is not None else ""
        return self._suite("GET", f"{_PATH}/{quote(id_, safe='')}{at}")

    def create(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A new suite."""
        return self._suite("POST", _PATH, json=document)

    def change(self, id_: str, document: Mapping[str, Any], *, version: int) -> dict[str, Any]:
        """The next version of a suite that must still be at *version*."""
        return self._suite(
            "PATCH", f"{_PATH}/{quote(id_, safe='')}", json=document, headers={"if-match": f'"{version}"'}
        )

    def _suite(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._ask(method, path, **more)["suite"]
        return found

    def _ask(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, **more)
            said = response.json()
        except httpx2.HTTPError as error:
            raise UsageError(f"{self._server} cannot be reached: {error}", hint="is the service up?") from None
        except ValueError:
            raise UsageError(
                f"{self._server} did not answer as the service does", hint="is the address right?"
            ) from None
        if response.status_code >= _REFUSED or not isinstance(said, dict):
            raise _refusal(response.status_code, said)
        return said


def _refusal(status: int, said: Any) -> UsageError:
    error = said.get("error") if isinstance(said, dict) else None
    details = said.get("details", []) if isinstance(said, dict) else []
    lines = [f"{each.get('path')}: {each.get('message')}".removeprefix(": ") for each in details]
    hint = "\n".join(lines) or ("pull it again, or name its version" if status == _CHANGED else None)
    return UsageError(f"the service refused: {error or status}", hint=hint)
