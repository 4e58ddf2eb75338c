"""What the service keeps, and for how long: deleting runs so that nothing half done is left, and retention.

A run is deleted in three steps: it is marked in the database, and gone for everybody; its folder is removed; its rows
are removed. A server that is killed in between goes on with the next step when it starts.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import anyio
from sqlalchemy import Connection, delete, func, or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from whet.service.database import Kind, bundles, idempotency, metadata, now_us, runs, suites
from whet.service.errors import Refused
from whet.service.service import RETENTION, Retention, Service, in_thread
from whet.service.store.run_folder import RunFolder
from whet.service.store.runs import get_row, named_skills
from whet.service.store.skills import delete_bundle, uploaded_digest
from whet.service.store.suites import of_deleted_suites, remove_versions
from whet.workspace.copy import remove_tree

log = logging.getLogger("whet.service")
_DAY_US = 24 * 3600 * 1_000_000
# How often retention looks at the clock. It also looks whenever a run ends.
_LOOK_S = 3600.0
# Skills are uploaded before the run that names them: none may be lost in between.
_YOUNGEST_SKILL_US = _DAY_US
_ENDED = runs.c.status.in_(("completed", "failed", "cancelled"))


def delete_run(connection: Connection, organisation_id: str, id_: str, kind: Kind = "run") -> None:
    """Let a run be gone for everybody; refuses one that has not ended. The keeper removes its files and rows."""
    run = get_row(connection, organisation_id, id_, kind)
    if not _mark(connection, id_):
        raise Refused(409, f"the run is {run.status}: cancel it, and wait until it has ended")


def _mark(connection: Connection, id_: str) -> bool:
    mark = update(runs).where(runs.c.id == id_, _ENDED, runs.c.deleted_us.is_(None))
    return connection.execute(mark.values(deleted_us=now_us())).rowcount == 1


def _remove(service: Service, run_id: str) -> None:
    """Remove the folder and then the rows of a run that is marked; if the folder resists, the next look tries again."""
    problems = remove_tree(RunFolder.of(service.data_dir, run_id).path)
    if problems:
        log.warning("run %s is deleted, but files are left: %s", run_id, problems[0])
        return
    with service.database.writing() as connection:
        # Whatever belongs to runs, such as their events.
        for table in metadata.sorted_tables:
            for key in table.foreign_keys:
                if key.column.table is runs:
                    connection.execute(delete(table).where(key.parent == run_id))
        connection.execute(delete(idempotency).where(idempotency.c.resource_id == run_id))
        connection.execute(delete(runs).where(runs.c.id == run_id))


def folder_bytes(path: Path) -> int:
    """Return the size of all files below *path*."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - there may be many
            except OSError:
                continue
    return total


# Retention.


def _expired(connection: Connection, wanted: Retention) -> list[tuple[str, str]]:
    """Return organisation and id of runs that are too old, or too many of their suite; improve runs count apart.

    The last completed run of a suite stays, to compare the next one with, unless the suite was deleted.
    """
    last = (
        select(runs.c.suite_id, func.max(runs.c.created_us).label("created_us"))
        .join(suites, suites.c.id == runs.c.suite_id)
        .where(runs.c.status == "completed", runs.c.deleted_us.is_(None), suites.c.deleted_us.is_(None))
        .where(runs.c.kind == "run")
        .group_by(runs.c.suite_id)
        .subquery()
    )
    newest_first = (runs.c.created_us.desc(), runs.c.id.desc())
    place = func.row_number().over(partition_by=(runs.c.suite_id, runs.c.kind), order_by=newest_first)
    ranking = select(runs, place.label("place")).where(_ENDED, runs.c.deleted_us.is_(None)).subquery()
    limits = []
    if wanted.days is not None:
        limits.append(ranking.c.ended_us < now_us() - wanted.days * _DAY_US)
    if wanted.runs is not None:
        limits.append(ranking.c.place > wanted.runs)
    query = (
        select(ranking.c.organisation_id, ranking.c.id)
        .outerjoin(last, (last.c.suite_id == ranking.c.suite_id) & (last.c.created_us == ranking.c.created_us))
        .where(last.c.suite_id.is_(None), or_(*limits))
    )
    return [(row[0], row[1]) for row in connection.execute(query)]


def _unused_skills(connection: Connection, before_us: int) -> list[tuple[str, str]]:
    """Return organisation and digest of archives without a label that are older and that no run names."""
    old = select(bundles.c.organisation_id, bundles.c.sha256).where(
        bundles.c.label.is_(None), bundles.c.created_us < before_us
    )
    candidates = {(row[0], row[1]) for row in connection.execute(old)}
    if not candidates:
        return []
    query = select(runs.c.organisation_id, runs.c.request).where(runs.c.deleted_us.is_(None))
    for organisation_id, request in connection.execute(query):
        candidates -= {(organisation_id, uploaded_digest(skill) or "") for skill in named_skills(request)}
    return sorted(candidates)


def tidy(service: Service) -> None:
    """Delete what is kept for long enough, and finish what was begun."""
    has_limits = service.retention != Retention()
    if has_limits:
        with service.database.reading() as connection:
            old_runs = _expired(connection, service.retention)
        for organisation_id, id_ in old_runs:
            with service.database.writing() as connection:
                _mark(connection, id_)
            log.info("run %s deleted by retention, of organisation %s", id_, organisation_id)
    _finish(service)
    with service.database.writing() as connection:
        # The versions that a run had still to read when their suite was deleted.
        remove_versions(connection, of_deleted_suites())
    if has_limits:
        _tidy_skills(service)


def _finish(service: Service) -> None:
    with service.database.reading() as connection:
        deletions = list(connection.execute(select(runs.c.id).where(runs.c.deleted_us.is_not(None))).scalars())
        without_size = list(
            connection.execute(
                select(runs.c.id).where(_ENDED, runs.c.bytes.is_(None), runs.c.deleted_us.is_(None))
            ).scalars()
        )
    for id_ in deletions:
        # A server that is asked to end must not remove thousands of runs first. The next one goes on.
        if not service.notices.stopping:
            _remove(service, id_)
    for id_ in without_size:
        size = folder_bytes(RunFolder.of(service.data_dir, id_).path)
        with service.database.writing() as connection:
            connection.execute(update(runs).where(runs.c.id == id_).values(bytes=size))


def _tidy_skills(service: Service) -> None:
    days = service.retention.days
    age_us = _YOUNGEST_SKILL_US if days is None else max(days * _DAY_US, _YOUNGEST_SKILL_US)
    with service.database.reading() as connection:
        archives = _unused_skills(connection, now_us() - age_us)
    for organisation_id, sha256 in archives:
        try:
            delete_bundle(service, organisation_id, sha256)
        except Refused:
            # Somebody has just asked for a run with it.
            continue
        log.info("skill %s deleted by retention, of organisation %s", sha256, organisation_id)


async def keep(service: Service) -> None:
    """Tidy now, whenever a run ends or is deleted, and every hour, until we are cancelled."""
    while not service.notices.stopping:
        notice = service.notices.listen(RETENTION)
        try:
            await in_thread(tidy, service)
        except SQLAlchemyError as error:
            log.warning("the database does not answer: %s", type(error).__name__)
        with anyio.move_on_after(_LOOK_S):
            await notice.wait()
