"""Memory stays flat, however many trials there are."""

from __future__ import annotations

import tracemalloc

import pytest
from reporting import MemoryResults, Stage, failed, make_info, make_plan, passed

from whet.model.event import RunEnded, RunStarted, TrialEnded, TrialStarted
from whet.report.github import GithubReporter
from whet.report.junit import JunitReporter
from whet.report.markdown import MarkdownReporter
from whet.report.terminal import TerminalReporter

MANY_CASES = {"cases": [f"case-{number}" for number in range(10_000)]}
MANY_TRIALS = {"cases": ["a"], "trials": 10_000}


class Nowhere:
    """A stream that keeps nothing."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def writelines(self, lines) -> None:
        for _ in lines:
            pass

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def outcome(key):
    # Ten kilobytes each: kept, they would be a hundred megabytes.
    big = "x" * 10_000 + str(hash(key))
    return failed(key, big, final_output=big) if hash(key) % 2 else passed(key, final_output=big)


@pytest.mark.slow
@pytest.mark.parametrize("reporter", [TerminalReporter, JunitReporter, MarkdownReporter, GithubReporter])
@pytest.mark.parametrize("shape", [MANY_CASES, MANY_TRIALS], ids=["cases", "trials"])
def test_ten_thousand_trials_take_a_few_megabytes(reporter, shape, tmp_path):
    plan = make_plan(shape["cases"], trials=shape.get("trials", 1))
    info, results = make_info(), MemoryResults(plan, outcome)
    made = reporter(Stage(stdout=Nowhere(), environ={"GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}).context)
    tracemalloc.start()

    made(RunStarted(info=info, plan=plan))
    for trial in plan.trials():
        made(TrialStarted(trial=trial))
        made(TrialEnded(trial=trial, result=outcome(trial.key)))
    made(RunEnded(info=info, results=results, interrupted=False))

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000
