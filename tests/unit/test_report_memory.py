"""Memory stays flat, however many trials there are."""

from __future__ import annotations

import gc
import tracemalloc
from zlib import crc32

import pytest
from reporting import Stage, end, failed, make_plan, passed, play

from whet.report.github import GithubReporter
from whet.report.junit import JunitReporter
from whet.report.markdown import MarkdownReporter
from whet.report.terminal import TerminalReporter

MANY_CASES = {"cases": [f"case-{number}" for number in range(10_000)]}
# What is kept of them by mistake would be twenty million; garbage that waits to be collected is a part of the peak.
FEW_BYTES = 8_000_000
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
    # Two kilobytes each: kept, they would be twenty megabytes.
    big = f"{key} {'x' * 2_000}"
    return failed(key, "no\n" * 30, final_output=big) if crc32(big.encode()) % 2 else passed(key, final_output=big)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reporter", "shape"),
    [
        (TerminalReporter, MANY_CASES),
        (TerminalReporter, MANY_TRIALS),
        (JunitReporter, MANY_CASES),
        (JunitReporter, MANY_TRIALS),
        (MarkdownReporter, MANY_CASES),
        (GithubReporter, MANY_CASES),
    ],
)
def test_ten_thousand_trials_take_a_few_megabytes_at_the_end(reporter, shape, tmp_path):
    plan = make_plan(**shape)
    stage = Stage(stdout=Nowhere(), environ={"GITHUB_STEP_SUMMARY": str(tmp_path / "summary")})
    made = reporter(stage.context)

    peak = peak_of(lambda: end(made, plan, outcome))

    assert peak < FEW_BYTES


@pytest.mark.slow
def test_ten_thousand_trials_take_a_few_megabytes_on_the_way():
    plan = make_plan(**MANY_CASES)

    peak = peak_of(lambda: play(TerminalReporter(Stage(stdout=Nowhere()).context), plan, outcome))

    assert peak < FEW_BYTES


def peak_of(work) -> int:
    """How many bytes *work* holds at most."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
