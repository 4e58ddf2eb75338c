"""Whether the service can take runs: its database and migrations, its sandbox, and room on its disk."""

from __future__ import annotations

import os
import shutil
import time
from typing import Literal

from sqlalchemy.exc import SQLAlchemyError

from whet.errors import UsageError
from whet.sandbox.contract import require_sandbox
from whet.service.database import is_migrated
from whet.service.http import Strict
from whet.service.service import MB, Service, in_thread

# Anybody may ask, and the sandbox takes a process to try.
_SANDBOX_FOR_S = 30.0
State = Literal["ok", "failed"]


class Ready(Strict):
    """Whether the service can take runs, and what is wrong if it cannot."""

    status: Literal["ready", "not ready"]
    database: State
    migrations: State
    sandbox: State
    disk: State
    reasons: list[str]


class Readiness:
    """Looks at everything that a run needs; it remembers for a while what it found about the sandbox."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._sandbox: tuple[float, str | None] = (float("-inf"), None)

    async def look(self) -> Ready:
        """Look now."""
        return await in_thread(self._look)

    def _look(self) -> Ready:
        database, migrations = self._database()
        problems = {"database": database, "migrations": migrations, "sandbox": self._boundary(), "disk": self._disk()}
        reasons = [reason for reason in problems.values() if reason is not None]
        if self._service.notices.stopping:
            reasons.append("the server is stopping")
        states: dict[str, State] = {name: "ok" if reason is None else "failed" for name, reason in problems.items()}
        return Ready(status="not ready" if reasons else "ready", reasons=reasons, **states)

    def _database(self) -> tuple[str | None, str | None]:
        try:
            with self._service.database.reading() as connection:
                is_current = is_migrated(connection)
        except SQLAlchemyError:
            return "the database does not answer", "the database does not say what its tables are like"
        return None, None if is_current else "the tables are not those of this version: another whet has changed them"

    def _boundary(self) -> str | None:
        checked_at, problem = self._sandbox
        if time.monotonic() - checked_at > _SANDBOX_FOR_S:
            try:
                require_sandbox(self._service.sandbox)
                problem = None
            except UsageError as error:
                problem = error.message
            self._sandbox = (time.monotonic(), problem)
        return problem

    def _disk(self) -> str | None:
        least, data_dir = self._service.min_free_bytes, self._service.data_dir
        try:
            free = shutil.disk_usage(data_dir).free
        except OSError as error:
            return f"the data folder cannot be reached: {error.strerror}"
        if not os.access(data_dir, os.W_OK):
            return "the data folder cannot be written to"
        return f"{free // MB:,} MB are free for runs, and {least // MB:,} MB should be" if free < least else None
