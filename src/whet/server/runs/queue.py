"""Which run is next: the organisation with the fewest under way, then the one that was served longest ago."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from whet.server.storage.database import Database
from whet.server.storage.runs import StoredRun, oldest_waiting, runs_under_way, start_run


class Queue:
    """Takes runs out of the database one at a time; remembers only who was served when."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._served: dict[str, int] = {}
        self._turn = 0

    def take(self) -> StoredRun | None:
        """The next run, which is now under way; none where nobody waits."""
        with self._database.writing() as connection:
            waiting = oldest_waiting(connection)
            under_way = Counter(run.organisation_id for run in runs_under_way(connection))
            for organisation_id in self._order(waiting, under_way):
                run = waiting[organisation_id]
                if start_run(connection, run.id):
                    self._turn += 1
                    self._served[organisation_id] = self._turn
                    return run
        return None

    def _order(self, waiting: Mapping[str, StoredRun], under_way: Mapping[str, int]) -> Iterable[str]:
        return sorted(
            waiting,
            key=lambda who: (under_way.get(who, 0), self._served.get(who, 0), waiting[who].created_us, who),
        )
