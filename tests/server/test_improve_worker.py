"""What the worker makes of an improve run: its events, its end, its proposal and its split, on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from improve_service import CANDIDATE, add_improve_run, finish, improvement, write_improvement
from msgspec.structs import replace
from serving import suite_document
from sqlalchemy import select

from whet.model import codec
from whet.service.api.auth import create_key
from whet.service.database import Database, open_database, run_events, runs, suites
from whet.service.http import Page
from whet.service.quotas import list_usage
from whet.service.service import Retention, Service
from whet.service.store.improve_folder import ImproveRunFolder
from whet.service.store.improve_runs import create_improve_run, get_improve_run, split_of
from whet.service.store.proposals import list_proposals
from whet.service.store.runs import Ending, Queue, create_run, end_run, start_run
from whet.service.store.suites import create_suite, delete_suite, encode_suite, get_suite, read_document
from whet.service.worker.retention import tidy
from whet.suites.split.lock import SplitLock

pytestmark = pytest.mark.both_databases


@pytest.fixture
def service(fresh_database: Callable[[], str], tmp_path: Path) -> Iterator[Service]:
    with closing(open_database(fresh_database())) as database:
        yield Service(database=database, data_dir=tmp_path.resolve(), config_file=tmp_path / "whet.toml")


@pytest.fixture
def organisation_id(service: Service) -> str:
    return create_key(service.database, "acme", ["read"])[0].organisation_id


@pytest.fixture
def suite_id(service: Service, organisation_id: str) -> str:
    return add_suite(service.database, organisation_id)


def add_suite(database: Database, organisation_id: str) -> str:
    head, cases = encode_suite(read_document(suite_document()))
    with database.writing() as connection:
        return create_suite(connection, organisation_id, head, cases).id


def told(service: Service, run_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Type and data of each event of a run."""
    with service.database.reading() as connection:
        query = select(run_events).where(run_events.c.run_id == run_id).order_by(run_events.c.number)
        return [(row.type, json.loads(row.payload)) for row in connection.execute(query)]


def test_a_version_that_was_accepted_becomes_a_proposal(service: Service, organisation_id: str, suite_id: str) -> None:
    run_id = add_improve_run(service.database, organisation_id, suite_id)
    write_improvement(ImproveRunFolder.of(service.data_dir, run_id), improvement())

    ending = finish(service, run_id)

    with service.database.reading() as connection:
        run = get_improve_run(connection, organisation_id, run_id)
        (proposal,), _ = list_proposals(connection, organisation_id, Page(10, None), status=None)
    assert ending is not None
    assert (run.status, run.phase, run.proposal_id) == ("succeeded", None, proposal.id)
    assert run.summary is not None
    assert (run.summary.accepted, run.summary.cost_usd, run.summary.trials) == (CANDIDATE, 1.25, 70)
    assert (proposal.status, proposal.proposal_type, proposal.skill_name) == ("pending", "body", "greet")
    assert (proposal.current_value, proposal.proposed_value) == ("Say hello.\n", "Say hello, and the name.\n")
    assert (proposal.pass_rate_before, proposal.projected_pass_rate, proposal.confidence) == (0.5, 1.0, None)
    assert (proposal.difference, proposal.low, proposal.high, proposal.candidate_count) == (0.5, 0.25, 0.75, 2)


def test_each_phase_and_each_candidate_is_told_of_once(service: Service, organisation_id: str, suite_id: str) -> None:
    run_id = add_improve_run(service.database, organisation_id, suite_id)
    folder = ImproveRunFolder.of(service.data_dir, run_id)
    whole = improvement()
    # As the record grows, looked at by a server and by the one after it.
    for done in range(len(whole.steps)):
        step = whole.steps[done]
        rounds = whole.rounds if done > 3 else ()
        growing = replace(whole, steps=whole.steps[:done], rounds=rounds, phase=step.phase, outcome=None)
        write_improvement(folder, growing)
        if done % 2:
            assert finish(service, run_id, code=-9) is None
        # Its step is there, and the next phase has not begun.
        write_improvement(folder, replace(growing, steps=whole.steps[: done + 1], rounds=whole.rounds[: done // 3]))
        assert finish(service, run_id, code=-9) is None
    write_improvement(folder, whole)
    finish(service, run_id)

    events = told(service, run_id)

    phases = [data["phase"] for type_, data in events if type_ == "phase_changed"]
    assert phases == [
        *("materialize", "validate", "classify", "eval_current", "generating", "eval_candidates", "confirm")
    ]
    candidates = [data["candidate_id"] for type_, data in events if type_ == "candidate_persisted"]
    assert candidates == ["r1-c1", CANDIDATE]
    assert [type_ for type_, _ in events][:2] == ["run_enqueued", "run_started"]
    assert [type_ for type_, _ in events][-2:] == ["proposal_created", "run_completed"]


@pytest.mark.parametrize(
    ("process", "status"),
    [
        (("no_winner", 0, False), "no_winner"),
        (("no_winner", 0, True), "no_winner"),
        (("undecided", 5, False), "undecided"),
        (("refused", 2, False), "failed_terminal"),
        (("failed", 3, False), "failed_transient"),
        (("interrupted", 130, True), "cancelled"),
        ((None, -9, True), "cancelled"),
    ],
)
def test_how_an_improve_run_ended_is_said_in_the_words_of_the_service(
    service: Service, organisation_id: str, suite_id: str, process: tuple[Any, int, bool], status: str
) -> None:
    outcome, code, cancelled = process
    run_id = add_improve_run(service.database, organisation_id, suite_id)
    secret = f"{service.data_dir}/runs/{run_id}/suite.json is why"
    document = improvement(outcome=outcome, reason=secret)
    write_improvement(ImproveRunFolder.of(service.data_dir, run_id), document)

    finish(service, run_id, code, cancelled=cancelled)

    with service.database.reading() as connection:
        run = get_improve_run(connection, organisation_id, run_id)
    assert (run.status, run.proposal_id) == (status, None)
    assert run.summary is not None
    assert run.summary.reason == "suite.json is why"


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        (
            "whet improve --resume 1 --max-cost USD goes on",
            "start another improve run with a larger options.max_cost_usd",
        ),
        ("add held-out cases", "add held-out cases"),
    ],
)
def test_what_to_do_next_is_no_command_for_the_machine_of_the_service(
    service: Service, organisation_id: str, suite_id: str, hint: str, shown: str
) -> None:
    run_id = add_improve_run(service.database, organisation_id, suite_id)
    write_improvement(ImproveRunFolder.of(service.data_dir, run_id), improvement(outcome="undecided", hint=hint))

    finish(service, run_id, 5)

    with service.database.reading() as connection:
        run = get_improve_run(connection, organisation_id, run_id)
    assert run.summary is not None
    assert run.summary.hint == shown


def test_retention_counts_improve_runs_apart_and_takes_their_proposals(
    service: Service, organisation_id: str, suite_id: str
) -> None:
    with service.database.writing() as connection:
        plain = create_run(connection, organisation_id, (suite_id, 1), {"runner": "sh"}).id
        assert start_run(connection, plain)
        end_run(connection, plain, Ending(status="completed", outcome="passed"))
    improve_runs = [add_improve_run(service.database, organisation_id, suite_id) for _ in range(2)]
    for run_id in improve_runs:
        write_improvement(ImproveRunFolder.of(service.data_dir, run_id), improvement())
        finish(service, run_id)
    service.retention = Retention(runs=1)

    tidy(service)

    with service.database.reading() as connection:
        rows = set(connection.execute(select(runs.c.id)).scalars())
        left, _ = list_proposals(connection, organisation_id, Page(10, None), status=None)
    assert rows == {plain, improve_runs[1]}
    assert [proposal.improve_run_id for proposal in left] == [improve_runs[1]]
    assert not ImproveRunFolder.of(service.data_dir, improve_runs[0]).path.exists()


@pytest.mark.parametrize("outcome", ["interrupted", None])
def test_an_interrupted_improve_run_is_resumed(
    service: Service, organisation_id: str, suite_id: str, outcome: Any
) -> None:
    run_id = add_improve_run(service.database, organisation_id, suite_id)
    write_improvement(ImproveRunFolder.of(service.data_dir, run_id), improvement(outcome=outcome))

    assert finish(service, run_id, 130) is None


def test_the_split_is_kept_for_the_next_improve_run_of_the_suite(
    service: Service, organisation_id: str, suite_id: str, tmp_path: Path
) -> None:
    run_id = add_improve_run(service.database, organisation_id, suite_id)
    folder = ImproveRunFolder.of(service.data_dir, run_id)
    write_improvement(folder, improvement())
    lock = SplitLock(suite="smoke", file="suite.json", seed="smoke", confirms={"case-0": 3})
    folder.lock.write_bytes(codec.encode(lock))
    finish(service, run_id)
    with service.database.reading() as connection:
        stored = split_of(connection, suite_id)
    (usage,) = list_usage(service.database)

    # The suite has got another name in between.
    later = ImproveRunFolder(tmp_path / "later")
    later.prepare({"name": "renamed"})
    later.prepare_split(stored, "renamed")

    assert codec.decode(later.lock.read_bytes(), SplitLock) == replace(lock, suite="renamed")
    assert usage.bytes > len(stored or b"") > 0
    with service.database.writing() as connection:
        delete_suite(connection, get_suite(connection, organisation_id, suite_id))
    with service.database.reading() as connection:
        assert connection.execute(select(suites.c.split).where(suites.c.id == suite_id)).scalar() is None


def test_improve_runs_of_one_suite_take_turns_and_hold_up_nothing_else(
    service: Service, organisation_id: str, suite_id: str
) -> None:
    running = add_improve_run(service.database, organisation_id, suite_id)
    asked = {"runner": "sh", "skill": "sha256:", "options": {"goal": "better"}}
    other_suite = add_suite(service.database, organisation_id)
    with service.database.writing() as connection:
        same = create_improve_run(connection, organisation_id, (suite_id, 1), asked, None).id
        other = create_improve_run(connection, organisation_id, (other_suite, 1), asked, None).id
        plain = create_run(connection, organisation_id, (suite_id, 1), {"runner": "sh"}).id
        queue = Queue()
        taken = [queue.take(connection) for _ in range(3)]
    write_improvement(ImproveRunFolder.of(service.data_dir, running), improvement())
    finish(service, running)
    with service.database.writing() as connection:
        last = queue.take(connection)

    assert [run and run.id for run in taken] == [other, plain, None]
    assert last is not None
    assert last.id == same


def test_the_files_of_an_improve_run_are_those_that_callers_may_have(service: Service, tmp_path: Path) -> None:
    folder = ImproveRunFolder(tmp_path.resolve() / "runs" / "one")
    write_improvement(folder, improvement())
    folder.log.write_text("it worked")
    inside = folder.record
    assert inside is not None
    (inside / "candidates" / CANDIDATE / "skill" / "out").symlink_to("/etc/hostname")

    files = dict(folder.files())

    assert sorted(files) == ["accepted.patch", f"candidates/{CANDIDATE}/skill/SKILL.md", "whet.log"]
    assert folder.file("accepted.patch") == inside / "accepted.patch"
    for name in ("runs/practice/one/run.json", "improve.json", "../one/whet.log", f"candidates/{CANDIDATE}/skill/out"):
        assert folder.file(name) is None
