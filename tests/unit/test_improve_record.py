"""improve.json: written in one go, and a change of any step shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from whet.errors import StoreError, UsageError
from whet.record.improve.chain import chain_problems, chained
from whet.record.improve.document import (
    CandidateRecord,
    ConfirmRecord,
    ImproveDocument,
    ImproveOptions,
    ImproveStep,
    Phase,
    PracticeScore,
    RoundRecord,
    SplitFacts,
)
from whet.record.improve.folder import ImproveFolder, create_improve_folder, find_improve_folder

OPTIONS = ImproveOptions(part="body", goal="better", candidates=2, rounds=1, max_cost_usd=None, accept="these")
DOCUMENT = ImproveDocument(
    id="a-run",
    began_at="2026-01-01T00:00:00.000+00:00",
    whet="0.1.0",
    skill="/skills/greet",
    skill_name="greet",
    start="0" * 64,
    suite="/skills/greet/evals/evals.json",
    suite_name="greet",
    runner="sh",
    proposer=None,
    seed=1,
    options=OPTIONS,
)
CONFIRM = ConfirmRecord(step=1, error=0.03, verdict="better", difference=0.4, low=0.2, high=0.6)
ROUND = RoundRecord(
    number=1,
    start="0" * 64,
    candidates=(
        CandidateRecord(id="a", digest="1" * 64, fate="accepted", practice=PracticeScore(score=1.0, trials=9)),
    ),
    current=PracticeScore(score=0.5, trials=9),
    chosen="a",
    step=1,
    error=0.03,
    confirm=CONFIRM,
    accepted="a",
)


def step(phase: Phase, round_number: int | None = None) -> ImproveStep:
    moment = "2026-01-01T00:00:01.000+00:00"
    return ImproveStep(phase=phase, round=round_number, began_at=moment, ended_at=moment, cost_usd=None)


def whole() -> ImproveDocument:
    document = replace(DOCUMENT, split=SplitFacts(lock="l", digest="d", practice=("p",), held_out=("h",)))
    document = chained(document, step("split"))
    document = chained(replace(document, baseline=PracticeScore(score=0.5, trials=9)), step("eval_current"))
    document = replace(document, rounds=(ROUND,))
    for phase in ("generating", "linting", "racing", "confirming"):
        document = chained(document, step(phase, 1))
    return chained(replace(document, outcome="succeeded", reason="it is better"), step("done"))


def test_a_record_that_nobody_changed_has_no_problems() -> None:
    assert list(chain_problems(whole())) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"baseline": PracticeScore(score=0.9, trials=9)}, "eval_current"),
        ({"rounds": (replace(ROUND, confirm=replace(CONFIRM, low=0.3)),)}, "confirming of round 1"),
        ({"rounds": (replace(ROUND, chosen="b"),)}, "racing of round 1"),
        ({"outcome": "no_winner"}, "done"),
        ({"runner": "another"}, "step 1"),
        ({"options": replace(OPTIONS, accept="like-these")}, "step 1"),
    ],
)
def test_a_change_is_found_at_the_step_that_it_belongs_to(change: dict[str, Any], named: str) -> None:
    changed = replace(whole(), **change)

    problems = list(chain_problems(changed))

    assert len(problems) == 1
    assert named in problems[0]


def test_a_step_that_is_left_out_breaks_the_chain() -> None:
    document = whole()

    shorter = replace(document, steps=(*document.steps[:2], *document.steps[3:]))

    assert "does not fit the hash of the chain" in next(chain_problems(shorter))


def test_more_money_is_no_change() -> None:
    document = whole()

    richer = replace(document, options=replace(OPTIONS, max_cost_usd=9.0))

    assert list(chain_problems(richer)) == []


def test_a_run_is_found_by_its_id_its_path_and_latest(tmp_path: Path) -> None:
    folder = create_improve_folder(tmp_path)
    folder.write(whole())

    for name in (folder.id, str(folder.path), "latest"):
        assert find_improve_folder(name, tmp_path).read() == whole()
    with pytest.raises(UsageError, match="no improve run"):
        find_improve_folder("another", tmp_path)


def test_a_file_that_is_no_improve_run_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "improve.json").write_text('{"schema": "whet/improve/2"}')

    with pytest.raises(StoreError, match="whet/improve/1"):
        ImproveFolder(tmp_path).read()
