"""Suites and their versions: read with the reader of eval suites, stored as JSON, and shown to callers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    literal,
    select,
    update,
)

from whet.errors import Problem, SuiteError
from whet.model.eval_cases import EvalSuite, TriggerQuery, competitor_of
from whet.service.database import now_us, runs, suite_versions, suites
from whet.service.errors import Refused, not_found
from whet.service.http import Page, split_page
from whet.service.service import reasons_against
from whet.service.store.runs import shown_time
from whet.suites.evals.documents import (
    Need,
    needs_of,
    not_runnable_reasons,
    read_patch,
    read_suite,
    suite_kind,
    to_json,
)

_MOST_DETAILS = 200
_DEFAULTS: dict[str, Any] = {"name": "", "source_id": None, "supports_no_skill": False, "resource_limits_json": {}}


class StoredSuite(msgspec.Struct, frozen=True):
    """One version of a suite: `head` is JSON of everything but the cases, and `cases` is empty in lists."""

    id: str
    version: int
    head: bytes
    cases: bytes
    created_us: int
    updated_us: int

    def document(self) -> dict[str, Any]:
        """Return the document, as `whet run` reads it."""
        return {**msgspec.json.decode(self.head)["document"], "cases_json": msgspec.json.decode(self.cases)}

    def suite(self) -> EvalSuite:
        """Return the suite that the document describes."""
        return read_suite(self.document())

    def changed(self, value: Any) -> EvalSuite:
        """Return the suite with the changes that a caller sent."""
        try:
            suite = read_patch(value, remote_only=True).apply(self.suite())
        except SuiteError as error:
            raise _invalid_suite(error.problems) from None
        return _without_paths(suite)

    def shown(self, lacking: Mapping[Need, str]) -> dict[str, Any]:
        """Return the suite as callers see it on a server that lacks something."""
        head = msgspec.json.decode(self.head)
        facts = head["derived"]
        # Reasons of the server are not stored, because they depend on the settings of the server.
        reasons = [*facts["not_runnable_reasons"], *reasons_against(facts.pop("needs", ()), lacking)]
        document = {
            "id": self.id,
            "version": self.version,
            **_DEFAULTS,
            **head["document"],
            **facts,
            "runnable": not reasons,
            "not_runnable_reasons": reasons,
            "created_at": shown_time(self.created_us),
            "updated_at": shown_time(self.updated_us),
        }
        if not self.cases:
            return document
        del document["case_count"]
        # As they are stored: decoding them takes the most time.
        return {**document, "cases_json": msgspec.Raw(self.cases)}


def read_document(value: Any) -> EvalSuite:
    """Read the suite that a caller sent. It may not contain paths, which would be paths of the server."""
    try:
        suite = read_suite(value, remote_only=True)
    except SuiteError as error:
        raise _invalid_suite(error.problems) from None
    return _without_paths(suite)


def _without_paths(suite: EvalSuite) -> EvalSuite:
    problems: list[Problem] = []
    for index, case in enumerate(suite.cases):
        texts = case.competing_skills if isinstance(case, TriggerQuery) else ()
        for place, text in enumerate(texts):
            if competitor_of(text) is None:
                field = f"cases_json[{index}].competing_skills[{place}]"
                message = 'must be a name with a description: "deploy: Ships it."'
                problems.append(Problem(file="", field=field, message=message))
    if problems:
        raise _invalid_suite(problems)
    return suite


def _invalid_suite(problems: Sequence[Problem]) -> Refused:
    all_details = [
        (problem.field or "", f"{problem.message}; {problem.hint}" if problem.hint else problem.message)
        for problem in problems
    ]
    more = len(all_details) - _MOST_DETAILS
    details = all_details[:_MOST_DETAILS] + ([("", f"and {more} more problems")] if more > 0 else [])
    return Refused(422, "the suite is not valid", details=details)


def encode_suite(suite: EvalSuite) -> tuple[bytes, bytes]:
    """Return the head of a suite, with what follows from its cases, and the cases."""
    document = to_json(suite)
    cases = document.pop("cases_json")
    reasons = not_runnable_reasons(suite)
    facts: dict[str, Any] = {
        "suite_kind": suite_kind(suite.cases),
        "case_count": len(suite.cases),
        "runnable": not reasons,
        "not_runnable_reasons": reasons,
        "needs": needs_of(suite),
    }
    return msgspec.json.encode({"document": document, "derived": facts}), msgspec.json.encode(cases)


def create_suite(connection: Connection, organisation_id: str, head: bytes, cases: bytes) -> StoredSuite:
    """Store a new suite in its first version."""
    id_, now = str(uuid.uuid4()), now_us()
    connection.execute(
        insert(suites).values(id=id_, organisation_id=organisation_id, version=1, created_us=now, updated_us=now)
    )
    return _add(connection, StoredSuite(id_, 1, head, cases, now, now))


def add_version(connection: Connection, stored: StoredSuite, head: bytes, cases: bytes) -> StoredSuite:
    """Store the next version of a suite that the caller has locked."""
    version, now = stored.version + 1, now_us()
    connection.execute(update(suites).where(suites.c.id == stored.id).values(version=version, updated_us=now))
    return _add(connection, StoredSuite(stored.id, version, head, cases, stored.created_us, now))


def delete_suite(connection: Connection, stored: StoredSuite) -> None:
    """Delete a suite and its versions; its runs stay, and so does a version that one of them still has to read."""
    connection.execute(update(suites).where(suites.c.id == stored.id).values(deleted_us=now_us(), split=None))
    remove_versions(connection, suite_versions.c.suite_id == stored.id)


def delete_version(connection: Connection, stored: StoredSuite, version: int) -> None:
    """Delete an earlier version of a suite that the caller has locked; runs that have ended have their own copy."""
    if version == stored.version:
        raise Refused(409, "this is the newest version: delete the suite instead")
    condition = (suite_versions.c.suite_id == stored.id) & (suite_versions.c.version == version)
    if connection.execute(select(suite_versions.c.version).where(condition)).first() is None:
        raise not_found("version")
    if not remove_versions(connection, condition):
        raise Refused(409, "a run that has not ended needs this version")


def remove_versions(connection: Connection, chosen: ColumnElement[bool]) -> int:
    """Remove those of the *chosen* versions that no run has still to read, and return how many that are."""
    is_needed = exists().where(
        runs.c.suite_id == suite_versions.c.suite_id,
        runs.c.suite_version == suite_versions.c.version,
        runs.c.status.in_(("queued", "running")),
    )
    return connection.execute(delete(suite_versions).where(chosen, ~is_needed)).rowcount


def of_deleted_suites() -> ColumnElement[bool]:
    """Return the condition for versions of suites that were deleted."""
    return suite_versions.c.suite_id.in_(select(suites.c.id).where(suites.c.deleted_us.is_not(None)))


def require_suite(connection: Connection, organisation_id: str, id_: str) -> None:
    """Raise Refused unless the organisation has such a suite, or had it."""
    query = select(suites.c.id).where(suites.c.organisation_id == organisation_id, suites.c.id == id_)
    if connection.execute(query).first() is None:
        raise not_found("suite")


def _add(connection: Connection, suite: StoredSuite) -> StoredSuite:
    connection.execute(
        insert(suite_versions).values(
            suite_id=suite.id, version=suite.version, head=suite.head, cases=suite.cases, created_us=suite.updated_us
        )
    )
    return suite


def get_suite(
    connection: Connection,
    organisation_id: str,
    id_: str,
    *,
    version: int | None = None,
    lock: bool = False,
    deleted: bool = False,
) -> StoredSuite:
    """Return a suite of the organisation, in its newest or the named version; raises Refused if there is none.

    With *lock*, no other transaction can change it meanwhile. With *deleted*, deleted suites are found too.
    """
    if lock:
        # A statement of its own, or PostgreSQL would join the suite after the wait with versions from before it.
        # FOR NO KEY UPDATE: rows that refer to the suite may be added meanwhile. Otherwise requests end in a deadlock.
        connection.execute(select(suites.c.id).where(suites.c.id == id_).with_for_update(key_share=True))
    parameters = {"id": id_, "organisation_id": organisation_id, "version": version}
    row = connection.execute(_one_suite(newest=version is None, deleted=deleted), parameters).first()
    if row is None:
        raise not_found("suite")
    return StoredSuite(*row)


def list_suites(connection: Connection, organisation_id: str, page: Page) -> tuple[list[StoredSuite], str | None]:
    """Return a page of the organisation's suites, newest first and without cases, and the cursor of the next one."""
    query = _select(suites.c.version, cases=False).where(
        suites.c.organisation_id == organisation_id, suites.c.deleted_us.is_(None)
    )
    return page.split([StoredSuite(*row) for row in connection.execute(page.select(query, suites))])


def list_versions(
    connection: Connection, organisation_id: str, id_: str, limit: int, before: int | None
) -> tuple[list[StoredSuite], str | None]:
    """Return versions of a suite, newest first and without cases, and the cursor for more."""
    suite = get_suite(connection, organisation_id, id_)
    query = _select(suite_versions.c.version, cases=False).where(suites.c.id == suite.id)
    if before is not None:
        query = query.where(suite_versions.c.version < before)
    rows = connection.execute(query.order_by(suite_versions.c.version.desc()).limit(limit + 1))
    return split_page([StoredSuite(*row) for row in rows], limit, lambda version: str(version.version))


@cache
def _one_suite(*, newest: bool, deleted: bool) -> Select[Any]:
    """Return the query for one suite, which takes longer to build than to run."""
    query = _select(suites.c.version if newest else bindparam("version"), cases=True).where(
        suites.c.organisation_id == bindparam("organisation_id"), suites.c.id == bindparam("id")
    )
    return query if deleted else query.where(suites.c.deleted_us.is_(None))


def _select(version: Any, *, cases: bool) -> Select[Any]:
    """Return the query for suites at a version, with the columns of `StoredSuite`."""
    return select(
        suites.c.id,
        suite_versions.c.version,
        suite_versions.c.head,
        suite_versions.c.cases if cases else literal(b""),
        suites.c.created_us,
        suite_versions.c.created_us.label("updated_us"),
    ).join(suite_versions, and_(suite_versions.c.suite_id == suites.c.id, suite_versions.c.version == version))
