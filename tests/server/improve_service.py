"""Improve runs over HTTP: a suite that is large enough, a skill, and an agent and a proposer that are shell scripts."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import httpx2
from msgspec.structs import replace
from running import script_case, skill_archive
from serving import SUITES, Server, suite_document, wait_until
from sqlalchemy import select

from whet.model import codec
from whet.packages.settings import PackageLimits
from whet.record.folder import write_atomically
from whet.record.improve.document import (
    FILE,
    CandidateRecord,
    ConfirmRecord,
    HeldOutCase,
    ImproveDocument,
    ImproveOptions,
    ImproveStep,
    Phase,
    RoundRecord,
)
from whet.service.database import Database, organisations
from whet.service.service import Service
from whet.service.store.improve_folder import ImproveRunFolder
from whet.service.store.improve_runs import create_improve_run
from whet.service.store.runs import Ending, running_runs, start_run
from whet.service.worker._improve import ImproveJob

IMPROVE = "/api/v1/improve-runs"
PROPOSALS = "/api/v1/proposals"
IMPROVE_ENDED = ("succeeded", "no_winner", "undecided", "failed_transient", "failed_terminal", "cancelled")
CASES = 12


def create_cases(client: httpx2.Client, *, cases: int = CASES, script: str = "echo done", **more: Any) -> str:
    """The id of a suite of so many cases."""
    document = suite_document(
        cases_json=[script_case(script, task_id=f"case-{number}") for number in range(cases)], **more
    )
    made = client.post(SUITES, json=document)
    assert made.status_code == 201, made.text
    return str(made.json()["suite"]["id"])


def upload_skill(client: httpx2.Client, files: dict[str, str] | None = None) -> str:
    """The reference of an uploaded skill."""
    made = client.post("/api/v1/skills", files={"skill": ("skill.tar.gz", skill_archive(files))})
    assert made.status_code == 201, made.text
    return f"sha256:{made.json()['skill']['sha256']}"


def improve_body(suite_id: str, skill: str, *, options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """What starts an improve run."""
    return {
        "eval_suite_id": suite_id,
        "skill": skill,
        "runner": "sh",
        "options": {"max_cost_usd": 5, "candidates": 2, **(options or {})},
        **more,
    }


def start_improve_run(client: httpx2.Client, suite_id: str, skill: str, **more: Any) -> str:
    """The id of a new improve run."""
    made = client.post(IMPROVE, json=improve_body(suite_id, skill, **more))
    assert made.status_code == 202, made.text
    return str(made.json()["improve_run"]["id"])


def get_improve_run(client: httpx2.Client, run_id: str) -> dict[str, Any]:
    """An improve run as it is now."""
    run: dict[str, Any] = client.get(f"{IMPROVE}/{run_id}").json()["improve_run"]
    return run


def wait_for_improve_run(client: httpx2.Client, run_id: str, *statuses: str) -> dict[str, Any]:
    """The improve run, once it has one of these statuses, or has ended."""
    wanted = statuses or IMPROVE_ENDED
    run: dict[str, Any] = wait_until(lambda: (now := get_improve_run(client, run_id))["status"] in wanted and now)
    return run


# An improve run that is over, as `whet improve` would have left it, for what only reads it.

OLD = "---\nname: greet\ndescription: Greets.\n---\nSay hello.\n"
NEW = "---\nname: greet\ndescription: Greets.\n---\nSay hello, and the name.\n"
CANDIDATE = "r1-c2"


def improvement(**changes: Any) -> ImproveDocument:
    """The record of an improve run that accepted a version in its only round."""
    cases = tuple(HeldOutCase(case=f"case-{number}", before=0.5, after=1.0) for number in range(6))
    confirm = ConfirmRecord(
        step=1, error=0.0304, verdict="better", difference=0.5, low=0.25, high=0.75, looks=3, trials=36, cases=cases
    )
    candidates = (
        CandidateRecord(id="r1-c1", digest="d1", fate="raced"),
        CandidateRecord(id=CANDIDATE, digest="d2", fate="accepted", token_growth=4),
    )
    moment = "2026-01-31T12:00:00.000Z"
    done: tuple[tuple[Phase, int | None], ...] = (
        *(("ready", None), ("split", None), ("eval_current", None), ("generating", 1), ("linting", 1)),
        *(("racing", 1), ("confirming", 1)),
    )
    document = ImproveDocument(
        id="20260131T120000-000000",
        began_at=moment,
        ended_at=moment,
        whet="0.1.0",
        skill="/srv/skill",
        skill_name="greet",
        start="d0",
        suite="/srv/suite.json",
        suite_name="smoke",
        runner="sh",
        proposer="sh",
        seed=0,
        options=ImproveOptions(part="body", goal="better", candidates=2, rounds=1, max_cost_usd=5.0, accept="these"),
        phase=None,
        rounds=(
            RoundRecord(
                number=1, start="d0", candidates=candidates, chosen=CANDIDATE, confirm=confirm, accepted=CANDIDATE
            ),
        ),
        outcome="succeeded",
        reason="r1-c2 is better on held-out cases",
        error_spent=0.0304,
        cost_usd=1.25,
        steps=tuple(
            ImproveStep(phase=phase, round=number, began_at=moment, ended_at=moment, cost_usd=0.1, trials=10)
            for phase, number in done
        ),
    )
    return replace(document, **changes)


def write_improvement(folder: ImproveRunFolder, document: ImproveDocument) -> None:
    """Write the record and what belongs to it below the folder of the service, with the skill that was uploaded."""
    record = folder.path / ".whet" / "improve" / document.id
    for place, text in ((f"candidates/{CANDIDATE}/skill", NEW), ("start/1/greet", OLD)):
        (record / place).mkdir(parents=True, exist_ok=True)
        (record / place / "SKILL.md").write_text(text)
    (record / "accepted.patch").write_text("the patch\n")
    (record / "runs" / "practice" / "one").mkdir(parents=True, exist_ok=True)
    (record / "runs" / "practice" / "one" / "run.json").write_text("the settings of the operator")
    write_atomically(record / FILE, codec.encode_pretty(document))
    (folder.path / "skill.tar.gz").write_bytes(skill_archive({"greet/SKILL.md": OLD, "greet/evals/own.md": "mine\n"}))
    folder.unpack_skill(folder.path / "skill.tar.gz", PackageLimits())


def add_improve_run(database: Database, organisation_id: str, suite_id: str, **options: Any) -> str:
    """The id of an improve run that a worker has taken."""
    asked = {
        "runner": "sh",
        "skill": f"sha256:{'0' * 64}",
        "options": {"goal": "better", "candidates": 2, "rounds": 1, "max_cost_usd": 5.0, **options},
    }
    with database.writing() as connection:
        run = create_improve_run(connection, organisation_id, (suite_id, 1), asked, None)
        assert start_run(connection, run.id)
    return run.id


def finish(service: Service, run_id: str, code: int = 0, *, cancelled: bool = False) -> Ending | None:
    """What the worker makes of a process that ended, stored."""
    with service.database.reading() as connection:
        run = next(run for run in running_runs(connection) if run.id == run_id)
    job = ImproveJob(service, run)
    job.tail().look()
    ending = job.conclude(code, cancelled=cancelled)
    if ending is not None:
        ending = job.complete(ending) if ending.status == "completed" else ending
        with service.database.writing() as connection:
            job.store(connection, ending)
    return ending


def seed_improve_run(served: Server, organisation: str, suite_id: str, **changes: Any) -> str:
    """The id of an improve run of a server that has ended with a record."""
    with closing(Database(served.database)) as database:
        service = Service(database=database, data_dir=served.data_dir, config_file=served.data_dir / "whet.toml")
        with database.reading() as connection:
            query = select(organisations.c.id).where(organisations.c.name == organisation)
            organisation_id = str(connection.execute(query).scalar_one())
        run_id = add_improve_run(database, organisation_id, suite_id)
        write_improvement(ImproveRunFolder.of(served.data_dir.resolve(), run_id), improvement(**changes))
        assert finish(service, run_id) is not None
    return run_id
