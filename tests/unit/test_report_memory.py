"""Memory stays flat, however many trials there are."""

from __future__ import annotations

import gc
import tracemalloc
from zlib import crc32

import pytest
from reporting import Stage, end, failed, make_plan, passed, play

from whet.report.files.github import GithubReporter
from whet.report.files.junit import JunitReporter
from whet.report.files.markdown import MarkdownReporter
from whet.report.terminal.reporter import TerminalReporter

FEW, MANY = 100, 1_000
# The output of each trial. What is kept of a trial by mistake is this, at the least.
OUTPUT = "x" * 10_000
FEW_BYTES = 7_000


def many_cases(count):
    return make_plan(cases=[f"case-{number}" for number in range(count)])


def many_trials(count):
    return make_plan(cases=["a"], trials=count)


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
    big = f"{key} {OUTPUT}"
    return failed(key, "no\n" * 30, final_output=big) if crc32(big.encode()) % 2 else passed(key, final_output=big)


@pytest.mark.parametrize(
    ("reporter", "shape"),
    [
        (TerminalReporter, many_cases),
        (TerminalReporter, many_trials),
        (JunitReporter, many_cases),
        (JunitReporter, many_trials),
        (MarkdownReporter, many_cases),
        (GithubReporter, many_cases),
    ],
)
def test_each_further_trial_takes_a_few_bytes_at_the_end(reporter, shape, tmp_path):
    def report(plan):
        stage = Stage(stdout=Nowhere(), environ={"GITHUB_STEP_SUMMARY": str(tmp_path / "summary")})
        end(reporter(stage.context), plan, outcome)

    assert bytes_per_trial(report, shape) < FEW_BYTES


def test_each_further_trial_takes_a_few_bytes_on_the_way():
    def report(plan):
        play(TerminalReporter(Stage(stdout=Nowhere()).context), plan, outcome)

    assert bytes_per_trial(report, many_cases) < FEW_BYTES


def bytes_per_trial(report, shape) -> float:
    """How much more *report* holds at most for each trial more."""
    # The first time, modules are imported and caches are filled.
    report(shape(1))
    few, many = shape(FEW), shape(MANY)
    return (peak_of(lambda: report(many)) - peak_of(lambda: report(few))) / (MANY - FEW)


def peak_of(work) -> int:
    """How many bytes *work* holds at most; garbage, which is a part of that, does not wait long."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(500, 2, 2)
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.set_threshold(*thresholds)
        gc.unfreeze()
