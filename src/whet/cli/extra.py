"""What only `whet[server]` brings, and the error where it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from whet.errors import UsageError

_BROUGHT = ("alembic", "fastapi", "prometheus_client", "psycopg", "pydantic", "sqlalchemy", "starlette", "uvicorn")


@contextmanager
def server_extra() -> Iterator[None]:
    """Import what the service needs; `UsageError` where it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _BROUGHT:
            raise
        raise UsageError(
            f"the service needs {missing}, which is not installed", hint="pip install 'whet[server]'"
        ) from error
