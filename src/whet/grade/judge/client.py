"""Asking a model over HTTP: again where that may help, and never without end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio

from whet.errors import JudgeFailed, NoVerdict
from whet.grade.judge.prompt import Question
from whet.grade.judge.settings import JudgeSettings
from whet.grade.judge.verdict import Vote
from whet.grade.judge.wires import WIRES
from whet.prices import priced

if TYPE_CHECKING:
    import httpx2

# Busy, broken or overloaded: another try may fare better.
_WORTH_ANOTHER = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# What was asked was not to its liking, and an answer that is judged is a part of that.
_REFUSED = frozenset({400, 413, 422})
_LONGEST_WAIT_S = 30.0
_FIRST_WAIT_S = 0.5
_SHOWN = 300


class JudgeClient:
    """Asks one model; to be closed by whoever made it."""

    def __init__(self, settings: JudgeSettings, key: str) -> None:
        self._settings = settings
        self._wire = WIRES[settings.provider]
        self._key = key
        self._client: httpx2.AsyncClient | None = None

    async def ask(self, asked: Question) -> Vote:
        """A verdict; a `JudgeFailed` after as many tries as the settings allow."""
        body = self._wire.body(self._settings, asked)
        for attempt in range(self._settings.retries + 1):
            last = attempt == self._settings.retries
            answer, wait_s = await self._post(body, attempt, last=last)
            if answer is not None:
                return self._vote(answer)
            await anyio.sleep(wait_s)
        raise AssertionError("the last try either answers or raises")

    async def _post(
        self, body: Mapping[str, Any], attempt: int, *, last: bool
    ) -> tuple[Mapping[str, Any] | None, float]:
        """The answer, or how long to wait before the next try."""
        import httpx2  # noqa: PLC0415 - only those who are judged by a model wait for this

        client = self._client = self._client or httpx2.AsyncClient(timeout=self._settings.timeout_s)
        usual_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**attempt)
        try:
            response = await client.post(self._settings.address, json=body, headers=self._wire.headers(self._key))
        except httpx2.TransportError as error:
            if last:
                raise JudgeFailed(f"the judge at {self._settings.address}: {_named(error)}") from error
            return None, usual_s
        if response.is_success:
            return _json(response), 0.0
        if response.status_code not in _WORTH_ANOTHER or last:
            failed = NoVerdict if response.status_code in _REFUSED else JudgeFailed
            raise failed(f"the judge at {self._settings.address}: HTTP {response.status_code}: {_said(response)}")
        return None, _asked_wait(response.headers, usual_s)

    def _vote(self, answer: Mapping[str, Any]) -> Vote:
        try:
            verdict, usage = self._wire.read(answer)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise NoVerdict(f"the judge answered in another shape: {str(dict(answer))[:_SHOWN]}") from error
        return Vote(verdict=verdict, usage=priced(usage, self._settings.model_name))

    async def close(self) -> None:
        """Let go of connections."""
        if self._client is not None:
            await self._client.aclose()


def _json(response: httpx2.Response) -> Mapping[str, Any]:
    try:
        answer = response.json()
    except ValueError as error:
        raise JudgeFailed(f"the judge answered no JSON: {response.text[:_SHOWN]}") from error
    if not isinstance(answer, Mapping):
        raise JudgeFailed(f"the judge answered in another shape: {response.text[:_SHOWN]}")
    return answer


def _said(response: httpx2.Response) -> str:
    """The provider's own word."""
    try:
        return str(response.json()["error"]["message"])[:_SHOWN]
    except (ValueError, KeyError, TypeError):
        return response.text[:_SHOWN]


def _asked_wait(headers: Mapping[str, str], usual_s: float) -> float:
    """How long the provider asks us to wait, within reason."""
    try:
        return min(_LONGEST_WAIT_S, max(0.0, float(headers.get("retry-after", ""))))
    except ValueError:
        return usual_s


def _named(error: Exception) -> str:
    return str(error) or type(error).__name__
