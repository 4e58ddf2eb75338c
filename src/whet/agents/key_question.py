"""A question of whet's own to a provider: is somebody there, and is this key good?

What an agent asked may be odd in a way that brings about a refusal. Nothing of an agent is in this question, so only
the key can be the reason for its answer. Import it only if a model is asked: the HTTP library takes long to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import httpx2

_PATIENCE_S, _CONNECT_S = 5.0, 3.0
REFUSING = frozenset({401, 403})
UNAUTHORIZED = 401
_GOOD = range(200, 300)
# The key is refused, or it is good, or the list is open to everybody; None if the answer does not tell.
Said = Literal["refused", "good", "open"]


class Nobody(Exception):
    """Nobody answers: no such host, no way to it, or nobody listens there."""


async def ask_about_key(url: str, headers: Mapping[str, str]) -> Said | None:
    """Ask for the list of models at *url*; raises `Nobody`.

    403 does not tell: there are keys that may ask a model and may not list the models. A list that is answered without
    the key too says nothing about the key.
    """
    try:
        async with httpx2.AsyncClient(
            timeout=httpx2.Timeout(_PATIENCE_S, connect=_CONNECT_S), follow_redirects=False
        ) as client:
            status = (await client.get(url, headers=dict(headers))).status_code
            is_open = status in _GOOD and (await client.get(url)).status_code in _GOOD
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
        raise Nobody(str(error) or type(error).__name__) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError):
        return None
    if status == UNAUTHORIZED:
        return "refused"
    if is_open:
        return "open"
    return "good" if status in _GOOD else None


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def _anthropic(key: str) -> dict[str, str]:
    return {"x-api-key": key, "anthropic-version": "2023-06-01"}


# How each variable's key is sent.
_HEADERS: dict[str, Callable[[str], dict[str, str]]] = {
    "ANTHROPIC_API_KEY": _anthropic,
    "GEMINI_API_KEY": lambda key: {"x-goog-api-key": key},
    "GOOGLE_API_KEY": lambda key: {"x-goog-api-key": key},
}
# Where a provider lists its models, below the address that its own tools take.
_PATHS = {"anthropic": "/v1/models", "gemini": "/v1beta/models"}


def models_url(provider: str, url: str) -> str:
    """Return where *provider* lists its models."""
    return f"{url}{_PATHS.get(provider, '/models')}"


def key_headers(variable: str, key: str) -> dict[str, str]:
    """Return the headers with the key of a variable, as the provider's own tools send it."""
    return _HEADERS.get(variable, _bearer)(key)
