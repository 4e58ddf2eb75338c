"""What a process that ended means for its run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.service.store.run_folder import RunFolder
from whet.service.worker.worker import conclude, given_up


def _place(folder: Path, results: dict[str, object] | None, log: str = "") -> RunFolder:
    record = folder / "record" / "20260101T000000-000000"
    record.mkdir(parents=True)
    (record / "run.json").write_text("{}")
    if results is not None:
        (record / "results.json").write_text(json.dumps(results))
    (folder / "whet.log").write_text(log)
    return RunFolder(folder)


WHOLE = {
    "interrupted": False,
    "cases": [1, 2],
    "suite_path": "/srv",
    "lift": [{"value": 1.0, "cases": [3]}],
    "comparisons": [{"verdict": "better", "cases": [4]}],
}


@pytest.mark.parametrize(("code", "outcome"), [(0, "passed"), (1, "failed"), (3, "errored")])
@pytest.mark.parametrize("cancelled", [False, True])
def test_complete_results_complete_a_run_even_if_it_was_cancelled(
    tmp_path: Path, code: int, outcome: str, cancelled: bool
) -> None:
    ending = conclude(code, _place(tmp_path, WHOLE), cancelled=cancelled)

    assert ending is not None
    assert (ending.status, ending.outcome) == ("completed", outcome)
    without_cases = {"lift": [{"value": 1.0}], "comparisons": [{"verdict": "better"}]}
    assert json.loads(ending.summary or b"") == {"interrupted": False, **without_cases}


@pytest.mark.parametrize(("code", "outcome"), [(0, "compared"), (3, "errored")])
def test_a_run_that_compares_arms_says_so_and_not_that_it_passed(tmp_path: Path, code: int, outcome: str) -> None:
    ending = conclude(code, _place(tmp_path, {**WHOLE, "compares": True}), cancelled=False)

    assert ending is not None
    assert ending.outcome == outcome


@pytest.mark.parametrize("results", [None, {"interrupted": True}])
@pytest.mark.parametrize("code", [130, -9, 1, 0, 4, 74])
def test_an_interrupted_run_is_resumed_unless_it_was_cancelled(
    tmp_path: Path, code: int, results: dict[str, object] | None
) -> None:
    place = _place(tmp_path, results)

    endings = [conclude(code, place, cancelled=cancelled) for cancelled in (False, True)]

    assert endings[0] is None
    assert endings[1] is not None
    assert endings[1].status == "cancelled"


@pytest.mark.parametrize("code", [2, 70])
def test_a_run_that_cannot_start_has_the_errors_of_whet(tmp_path: Path, code: int) -> None:
    place = _place(tmp_path, None, "progress\nerror[config]: it is wrong\n  mend it\n")

    ending = conclude(code, place, cancelled=False)

    assert ending is not None
    assert (ending.status, ending.error) == ("failed", "error[config]: it is wrong\n  mend it")


def test_a_run_that_is_interrupted_each_time_is_given_up(tmp_path: Path) -> None:
    ending = given_up(-9, _place(tmp_path, None, "a\nb\n"))

    assert ending.status == "failed"
    assert "exit code -9" in str(ending.error)
