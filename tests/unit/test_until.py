"""Runs until decided: when a look stops one, and how often it is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from reporting import MemoryResults, Stage, Tty, all_pass, failed, make_info, make_plan, passed

from whet.decide.comparison import comparisons_of
from whet.decide.gate import rates_of
from whet.decide.sequential import effect_by_end
from whet.decide.until import analyse_round
from whet.model.arm import Arm
from whet.model.comparison import ArmSamples, RoundAnalysis, RunSamples, Sampled, Seen, Until
from whet.model.run import Plan
from whet.model.run_events import Looked, RunEnded, RunStarted
from whet.report.decisions.words import analysis_line
from whet.report.files.github import GithubReporter
from whet.report.files.markdown import MarkdownReporter
from whet.report.screen import Screen
from whet.report.terminal._live import LiveProgress
from whet.report.terminal.reporter import TerminalReporter

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import decisions

_NOT_ALIKE = "this does not mean that the arms are alike"


def _samples(
    rounds_planned: int = 10, runner: str = "r", cases: int = 12, error: float = 0.05, **arms: str
) -> RunSamples:
    """A run whose every case went by these letters: p passed, f failed, e errored; the first arm is the baseline."""
    values = {"p": 1.0, "f": 0.0, "e": None}
    return RunSamples(
        name="run",
        arms=tuple(
            ArmSamples(
                arm=name,
                runner=runner,
                trials=tuple(
                    Sampled(case=str(case), value=values[letter]) for case in range(cases) for letter in letters
                ),
            )
            for name, letters in arms.items()
        ),
        weights={},
        rounds_planned=rounds_planned,
        error=error,
    )


def _look(until: Until | None = None, **arms: str) -> RoundAnalysis:
    until = until or Until()
    found = analyse_round(_samples(until.rounds, **arms), until)
    assert found is not None
    return found


def test_nobody_looks_before_the_second_round():
    assert analyse_round(_samples(old="f", new="p"), Until()) is None


def test_a_clear_difference_stops_at_the_first_look():
    better, worse = _look(old="ff", new="pp"), _look(old="pp", new="ff")

    assert (better.stop, better.round, better.seen[0].verdict) == ("decided", 2, "better")
    assert (worse.stop, worse.seen[0].verdict) == ("decided", "worse")


def test_a_run_without_a_sign_of_an_effect_is_hopeless():
    early, late = _look(old="pf", new="fp"), _look(old="pfpfpfpf", new="fpfpfpfp")

    assert (early.stop, late.stop) == (None, "hopeless")


def test_a_smaller_effect_keeps_a_run_going():
    patient = Until(effect=0.3)

    assert _look(patient, old="pfpf", new="fpfp").stop is None
    assert _look(Until(effect=0.05), old="pfpf", new="fpfp").stop == "hopeless"


def test_the_last_round_ends_a_run_that_is_not_decided():
    assert _look(Until(rounds=4), old="pfpf", new="fpfp").stop == "rounds"
    assert _look(Until(rounds=4), old="ffff", new="pppp").stop == "decided"


def test_not_worse_is_a_decision_only_for_who_asks():
    alike = {"old": "p" * 20, "new": "p" * 20, "cases": 20}
    asked, unasked = Until(rounds=40, margin=0.05), Until(rounds=40, effect=0.001)

    assert _look(asked, **alike).seen[0].verdict == "not-worse"
    assert _look(asked, **alike).stop == "decided"
    assert _look(unasked, **alike).seen[0].verdict == "inconclusive"


def test_a_margin_keeps_a_run_going_that_is_hopeless_without():
    alike = {"old": "pppf" * 3, "new": "ppfp" * 3, "cases": 30}

    assert _look(Until(rounds=30, effect=0.03), **alike).stop == "hopeless"
    assert _look(Until(rounds=30, effect=0.03, margin=0.05), **alike).stop is None


def test_every_candidate_must_be_decided_and_each_has_a_part_of_the_error():
    patient = Until(effect=0.2)
    one = _look(patient, old="ffff", new="fpfp")
    two = _look(patient, old="ffff", new="fpfp", other="ffff")

    assert one.stop == "decided"
    assert two.stop is None
    assert two.seen[0].low < one.seen[0].low


def test_errored_trials_count_both_ways():
    clean, hidden = _look(old="ffff", new="pppp"), _look(old="eeee", new="pppp")

    assert clean.stop == "decided"
    assert hidden.seen[0].verdict == "inconclusive"
    assert hidden.stop is None


def test_a_comparison_afterwards_says_what_the_last_look_said():
    samples = _samples(old="ffpf", new="fpfp", cases=20)
    found = analyse_round(samples, Until())
    (after,) = comparisons_of(samples)

    assert found is not None
    assert (after.low, after.high, after.looks) == (found.seen[0].low, found.seen[0].high, 3)
    assert after.level > 0.98


def test_a_run_that_was_not_looked_at_yet_has_no_easier_limit():
    (first,), (later,) = comparisons_of(_samples(old="f", new="p")), comparisons_of(_samples(old="ff", new="pp"))

    assert first.level == later.level > 0.98


def test_less_error_widens_what_a_look_sees_and_what_a_comparison_says_afterwards():
    strict, samples = Until(error=0.01), _samples(old="ffpf", new="fpfp", cases=20, error=0.01)
    usual_look, look = analyse_round(samples, Until()), analyse_round(samples, strict)
    (usual,), (after,) = comparisons_of(replace(samples, error=0.05)), comparisons_of(samples)

    assert usual_look is not None
    assert look is not None
    assert (after.low, after.high) == (look.seen[0].low, look.seen[0].high)
    assert after.low < usual.low == usual_look.seen[0].low
    assert after.level > 0.997 > usual.level
    assert rates_of(samples)["new", "r"].low < rates_of(replace(samples, error=0.05))["new", "r"].low


def test_runners_that_are_apart_each_have_the_error_that_was_asked_for():
    one = _samples(old="ffpf", new="fpfp", cases=20, error=0.01)
    two = replace(one, arms=(*one.arms, *(replace(arm, runner="s") for arm in one.arms)))

    together, apart = comparisons_of(two), comparisons_of(two, per_runner=True)

    assert together[0].low < apart[0].low == comparisons_of(one)[0].low
    assert "each runner has its own 1 %: with several of them, one is wrong more often than that" in apart[0].notes


def test_less_error_reaches_only_larger_effects():
    usual, strict = (effect_by_end(12, 10, error) for error in (0.05, 0.01))

    assert usual < strict


_ALIKE = [
    decisions.Setting(cases, 1, base, 0.0, weighted, graded, errored)
    for cases, base, weighted, graded, errored in (
        (5, 0.05, False, False, 0.0),
        (5, 0.5, True, False, 0.0),
        (5, 0.7, False, True, 0.2),
        (20, 0.3, False, False, 0.0),
        (20, 0.95, True, True, 0.0),
        (50, 0.7, False, False, 0.1),
    )
]


@pytest.mark.parametrize("setting", _ALIKE, ids=str)
def test_arms_that_are_alike_are_called_different_in_at_most_five_percent(setting):
    """Simulated with a seed, through the function that stops runs; `bench/decisions.py` does the whole grid."""
    found = decisions.until_decided(setting, runs=100, seed=1)

    assert found.better + found.worse <= 0.05


def test_a_large_effect_is_found_early_also_with_few_cases():
    many = decisions.until_decided(decisions.Setting(20, 1, 0.5, 0.2), runs=100, seed=1)
    few = decisions.until_decided(decisions.Setting(6, 1, 0.3, 0.4), runs=100, seed=1)

    assert min(many.better, few.better) > 0.9
    assert many.worse == few.worse == 0
    assert max(many.rounds, few.rounds) < 5


def test_a_candidate_that_is_worse_by_the_margin_is_seldom_called_not_worse():
    until = Until(rounds=20, margin=0.1)

    found = decisions.until_decided(decisions.Setting(20, 1, 0.7, -0.1), runs=100, seed=1, until=until)

    assert found.not_worse + found.better <= 0.05


def test_of_several_candidates_like_the_baseline_few_are_called_different():
    found = decisions.until_decided(decisions.Setting(12, 1, 0.6), runs=100, seed=1, candidates=3)

    assert found.better <= 0.05
    assert found.worse <= 0.05


def _looked(stop: str | None, *seen: tuple[str, str, float]) -> Looked:
    every = tuple(
        Seen(candidate=name, runner="r", difference=0.1, low=-0.05, high=0.25, verdict=verdict, chance=chance)
        for name, verdict, chance in seen
    )
    return Looked(look=RoundAnalysis(round=3, seen=every, stop=stop), until=Until(), cost_usd=1.25)


def test_a_look_is_told_in_one_line():
    going_on = _looked(None, ("new", "inconclusive", 0.35), ("other", "better", 0.9))

    assert analysis_line(going_on) == (
        "round 3 of 10, $1.25 spent: new +10 points (-5 to +25); other +10 points (-5 to +25): "
        "35 % chance to decide by the end if 10 points are real"
    )
    assert analysis_line(_looked("decided", ("new", "better", 1.0))).endswith(": decided")
    assert analysis_line(_looked("hopeless", ("new", "inconclusive", 0.05))).endswith(": gives up")


def test_a_plain_log_has_a_line_for_each_look():
    stage = Stage()
    reporter = TerminalReporter(stage.context)

    reporter(RunStarted(info=make_info(), plan=make_plan()))
    reporter(_looked(None, ("new", "inconclusive", 0.35)))
    reporter.close()

    assert "  round 3 of 10, $1.25 spent: new +10 points (-5 to +25): 35 % chance to decide" in stage.printed


def test_a_live_screen_keeps_the_last_look_below_its_bar():
    progress = LiveProgress(RunStarted(info=make_info(), plan=make_plan()), Screen(Tty(), {"NO_COLOR": "1"}))

    progress.looked("round 2 of 10: wide")
    progress.looked("round 3 of 10: narrower")
    drawn = progress._draw().plain.splitlines()
    progress.stop()

    assert drawn[2:] == ["    round 3 of 10: narrower"]


@pytest.mark.parametrize(
    ("stop", "told"),
    [
        ("decided", "stopped after round 3 of 10: it is decided"),
        (
            "hopeless",
            f"stopped after round 3 of 10: a difference of 10 points would probably not show by the end; {_NOT_ALIKE}",
        ),
        ("rounds", "stopped after round 3 of 10: that was the last round"),
        ("money", "stopped after round 3 of 10: the money is spent; --resume with a larger --max-cost continues"),
        (None, "stopped after round 3 of 10: it did not end"),
    ],
)
def test_reports_say_why_a_run_stopped(stop, told, tmp_path):
    looked = _looked(None, ("new", "better", 1.0))
    results = MemoryResults(replace(_compared_plan(), until=Until()), all_pass, looks=(looked.look,), stopped=stop)
    ended = RunEnded(info=make_info(), results=results, interrupted=False)
    terminal, markdown, github = Stage(), Stage(target=tmp_path / "report.md"), Stage()

    TerminalReporter(terminal.context)(ended)
    MarkdownReporter(markdown.context)(ended)
    GithubReporter(github.context)(ended)

    decision = terminal.printed.index("Decision")
    assert decision < terminal.printed.index("than old on claude") < terminal.printed.index(told)
    assert f"\n\n{told.capitalize()}.\n\n" in (tmp_path / "report.md").read_text().partition("## ")[0]
    assert "::notice title=whet%3A decision::" in github.printed
    assert f"%0A{told}" in github.printed


def test_the_end_of_compared_arms_counts_trials_and_gives_no_second_verdict(tmp_path):
    def outcome(key):
        return failed(key, status="expected-failed") if key.arm == "old" else passed(key)

    ended = RunEnded(info=make_info(), results=MemoryResults(_compared_plan(), outcome), interrupted=False)
    terminal, markdown = Stage(), Stage(target=tmp_path / "report.md")

    TerminalReporter(terminal.context)(ended)
    MarkdownReporter(markdown.context)(ended)

    assert "\n12 trials: 6 passed, 6 failed, in 1 min 23 s. Results in" in terminal.printed
    assert "\n12 trials: 6 passed, 6 failed, in 1 min 23 s." in (tmp_path / "report.md").read_text()
    assert "went as expected" not in terminal.printed.split("Decision")[1]


def _compared_plan() -> Plan:
    """A plan of two arms."""
    plan = make_plan(trials=3)
    executions = tuple(replace(each, arm=arm) for each in plan.executions for arm in ("old", "new"))
    return replace(plan, executions=executions, arms=(Arm(name="old"), Arm(name="new")), baseline="old", seed=1)
