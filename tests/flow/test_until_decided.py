"""Runs until decided, by the real command: they stop early, and neither kills nor money lose a look."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import pytest
from project import Project

# Succeeds in CHANCE of 100 trials, by its arm, its case and how often it was asked: each run of a test draws the same.
# It counts in a folder outside of its workspace, so it runs in the local sandbox. Each trial costs a cent.
AGENT = """
prompt=$(cat)
name=$(printf '%s' "$WHET_ARM-$prompt" | tr ' ' -)
printf x >> "{outside}/$name"
number=$(wc -c < "{outside}/$name")
if [ -e "{outside}/hang.$name.$number" ]; then sleep 600; fi
drawn=$(printf '%s' "${SEED:-1} $name $number" | cksum | cut -d' ' -f1)
if [ $((drawn % 100)) -lt "$CHANCE" ]; then answer=right; else answer=wrong; fi
echo '{"type": "usage", "cost_usd": 0.01}'
echo '{"type": "message", "role": "assistant", "text": "'$answer'"}'
"""
SETTINGS = """
[runners.coin.agent]
type = "command"
command = "sh"
args = ["./agent.sh"]
output = "events"
"""
SUITE = """
def right(report, ctx): assert report.final_output.strip() == "right"
suite = [Case(id=f"case-{number}", prompt=f"Question {number}", check=right) for number in range(10)]
"""
ROUND = 20


@pytest.fixture
def coin(project: Project) -> Project:
    """A project whose agent succeeds by chance."""
    project.write("agent.sh", AGENT)
    project.settings(SETTINGS)
    project.suite(SUITE)
    return project


def _arms(old: int, new: int, *more: str) -> tuple[str, ...]:
    return ("--arm", f"old=env:CHANCE={old}", "--arm", f"new=env:CHANCE={new}", "--until-decided", *more)


def _json(project: Project, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.whet(*args, "--json").stdout)
    return found


def _looks(project: Project) -> list[dict[str, Any]]:
    return [line["look"] for line in project.journal() if line.get("look")]


def _keys(project: Project) -> list[tuple[Any, ...]]:
    return [tuple(line["key"][name] for name in ("case", "arm", "number")) for line in project.journal()]


def test_a_large_effect_stops_a_run_early_and_what_follows_agrees(coin: Project):
    ran = coin.run(*_arms(20, 80))

    compared, gate = _json(coin, "compare"), coin.whet("gate")
    rounds = len(coin.journal()) // ROUND
    assert ran.results["stopped"] == "decided"
    assert ran.results["until"] == {"effect": 0.1, "rounds": 10, "margin": None, "goal": None, "error": 0.05}
    assert 2 <= rounds < 6
    assert len(coin.journal()) == rounds * ROUND
    assert (compared["verdict"], compared["looks"], gate.code) == ("better", rounds - 1, 0)
    assert [look["round"] for look in ran.results["looks"]] == list(range(2, rounds + 1))
    assert (compared["low"], compared["high"]) == tuple(_looks(coin)[-1]["seen"][0][end] for end in ("low", "high"))
    assert f"stopped after round {rounds} of 10: it is decided" in ran.stdout
    assert ran.stdout.count(" points (") == rounds
    assert coin.whet("verify", ran.folder.name).code == 0


def test_arms_that_are_alike_end_without_a_decision_and_the_gate_has_the_next_command(coin: Project):
    ran = coin.run(*_arms(50, 50))

    gate = coin.whet("gate")
    assert ran.results["stopped"] == "hopeless"
    assert ran.results["counts"]["not_run"] == 0
    assert len(coin.journal()) < 10 * ROUND
    assert "a difference of 10 points would probably not show by the end" in ran.stdout
    assert gate.code == 5
    told = "to decide it in 8 of 10 such runs, start a new one:"
    again = f"{told} whet run suite.py --arm old=env:CHANCE=50 --arm new=env:CHANCE=50"
    # More rounds than there may be looks.
    assert f"{again} --trials " in coin.whet("gate", "--margin", "1").stdout
    assert f"{again} --until-decided --effect 10 --max-rounds " in coin.whet("gate", "--margin", "20").stdout
    assert "whet run suite.py --arm old=env:CHANCE=50 --arm new=env:CHANCE=50 --last-failed" in ran.stdout


def test_the_last_round_ends_a_run(coin: Project):
    ran = coin.run(*_arms(40, 60, "--max-rounds", "2"))

    assert ran.results["stopped"] == "rounds"
    assert len(coin.journal()) == 2 * ROUND
    assert "that was the last round" in ran.stdout


def test_a_margin_makes_not_worse_a_decision(coin: Project):
    ran = coin.run(*_arms(100, 100, "--margin", "30"))

    assert ran.results["stopped"] == "decided"
    assert ran.results["looks"][-1]["seen"][0]["verdict"] == "not-worse"
    assert coin.whet("gate", "--margin", "30").code == 0


def _stop_in_round(coin: Project, number: int, by: signal.Signals, *arguments: str) -> None:
    """End a run by a signal, in a round of which one trial hangs and all others have ended."""
    hanging = coin.outside / f"hang.new-Question-5.{number}"
    hanging.touch()
    running = coin.start("suite.py", *arguments)
    while len(coin.journal()) < number * ROUND - 1:
        assert running.poll() is None
        time.sleep(0.02)
    os.kill(running.pid, by)
    running.communicate()
    hanging.unlink()


def test_a_kill_in_the_middle_of_a_round_loses_and_doubles_nothing(coin: Project):
    _stop_in_round(coin, 3, signal.SIGKILL, *_arms(45, 55, "--max-rounds", "5", "--effect", "40"))
    before, looked = _keys(coin), _looks(coin)

    killed = _json(coin, "compare")
    rest = coin.whet("run", "--resume", "latest")

    after, looks = _keys(coin), _looks(coin)
    assert len(before) == 3 * ROUND - 1
    assert [look["round"] for look in looked] == [2]
    assert killed["looks"] == 1
    assert (killed["low"], killed["high"]) == tuple(looked[0]["seen"][0][end] for end in ("low", "high"))
    assert any("not finished" in note for note in killed["notes"])
    assert after[: len(before)] == before
    assert len(set(after)) == len(after) == ROUND * looks[-1]["round"]
    assert looks[0] == looked[0]
    assert [look["round"] for look in looks] == list(range(2, looks[-1]["round"] + 1))
    assert _json(coin, "compare")["looks"] == len(looks)
    assert rest.results["stopped"] == looks[-1]["stop"] is not None
    assert coin.whet("verify", "latest").code == 0


def test_an_interrupted_run_goes_on_in_its_round(coin: Project):
    _stop_in_round(coin, 2, signal.SIGINT, *_arms(20, 90))
    interrupted = json.loads((coin.output_dir / "latest" / "results.json").read_bytes())

    rest = coin.whet("run", "--resume", "latest")

    assert (interrupted["stopped"], interrupted["interrupted"], interrupted["looks"]) == (None, True, [])
    assert rest.results["stopped"] == "decided"
    assert len(set(_keys(coin))) == len(coin.journal())
    assert coin.whet("verify", "latest").code == 0


def test_a_run_that_has_stopped_does_nothing_more(coin: Project):
    ran = coin.run(*_arms(10, 90))
    lines = len(coin.journal())

    again = coin.whet("run", "--resume", "latest")
    longer = coin.whet("run", "--resume", "latest", "--add-trials", "2")
    other = coin.whet("run", "--resume", "latest", "--until-decided", "--max-rounds", "20")

    assert (again.code, again.results["stopped"], len(coin.journal())) == (ran.code, "decided", lines)
    assert longer.code == other.code == 2
    assert "looked after each of its rounds" in longer.stderr
    assert "it cannot change --until-decided" in other.stderr


def test_money_ends_a_run_before_a_round_that_it_would_not_pay_for_and_more_of_it_goes_on(coin: Project):
    # A round costs 20 cents.
    ran = coin.run(*_arms(45, 55, "--max-cost", "0.5", "--effect", "40"))
    first, gate, rate = ran.results, coin.whet("gate"), coin.whet("gate", "--min-rate", "1")

    rest = coin.whet("run", "--resume", "latest", "--max-cost", "100")

    assert (first["stopped"], len(first["looks"])) == ("money", 1)
    assert (first["counts"]["total"], first["counts"]["not_run"]) == (10 * ROUND, 8 * ROUND)
    assert "the rest does not pay for another round" in ran.stdout + ran.stderr
    assert "stopped after round 2 of 10: the money is spent" in ran.stdout
    for each in (gate, rate):
        assert f"finish the run first: whet run --resume {first['run_id']} --max-cost USD" in each.stdout
    assert rest.results["stopped"] in ("decided", "hopeless", "rounds")
    assert len(set(_keys(coin))) == len(coin.journal()) > 2 * ROUND
    assert coin.whet("verify", "latest").code == 0


def test_a_decision_of_a_run_that_the_money_ended_is_nowhere_told_without_that(coin: Project):
    """It is no planned look, so the gate lets it not pass; who reads a report must know."""
    rest = "the run is not finished: 118 trials are missing"
    fixed = (argument for argument in _arms(1, 99) if argument != "--until-decided")
    reporters = ("--reporter", "terminal", "--reporter", "markdown=o.md", "--reporter", "github")
    ran = coin.run(*fixed, "--trials", "8", "--max-cost", "0.415", "--max-parallel", "1", *reporters)

    document, compared = (coin.root / "o.md").read_text(), _json(coin, "compare")

    assert (compared["verdict"], coin.whet("gate").code) == ("better", 5)
    assert ran.results["comparisons"][0]["notes"] == compared["notes"] == [rest]
    assert rest in ran.stdout.split("Decision")[1].split("whet compare")[0]
    assert rest in next(line for line in ran.stdout.splitlines() if line.startswith("::notice"))
    assert document.index("is better") < document.index(rest.capitalize()) < document.index("Results in")


def test_a_look_that_was_changed_in_the_journal_is_noticed(coin: Project):
    ran = coin.run(*_arms(10, 90))
    journal = ran.folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"stop":"decided"', b'"stop":"rounds" '))

    assert coin.whet("verify", "latest").code == 1
    assert coin.whet("compare").code == 2


def test_rounds_are_complete_before_the_next_one_begins(coin: Project):
    ran = coin.run(*_arms(40, 60, "--max-rounds", "3", "--effect", "60", "--max-parallel", "4"))

    numbers = [number for _, _, number in _keys(coin)]
    assert numbers == sorted(numbers)
    assert isinstance(ran.results["seed"], int)


def test_several_candidates_and_runners_all_have_to_be_decided(coin: Project):
    coin.settings(SETTINGS + SETTINGS.replace("coin", "dime"))
    ran = coin.run(*_arms(10, 90), "--arm", "other=env:CHANCE=95")

    (last,) = ran.results["looks"][-1:]
    assert ran.results["stopped"] == "decided"
    assert [(each["candidate"], each["runner"]) for each in last["seen"]] == [
        ("new", "coin"),
        ("other", "coin"),
        ("new", "dime"),
        ("other", "dime"),
    ]
    assert {each["looks"] for each in _json(coin, "compare")["comparisons"]} == {last["round"] - 1}


def test_a_regraded_run_still_counts_the_looks(coin: Project):
    ran = coin.run(*_arms(10, 90))
    before = _json(coin, "compare")

    regraded = coin.whet("regrade", ran.folder.name)
    after = _json(coin, "compare")

    assert regraded.code == ran.code
    assert (after["looks"], after["level"]) == (before["looks"], before["level"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--until-decided",), "--until-decided compares arms, and this run has one"),
        (_arms(1, 2, "--trials", "3"), "--until-decided says how many trials there are, and so does flag --trials"),
        (_arms(1, 2, "--shard", "1/2"), "--until-decided looks at all cases together"),
        (_arms(1, 2, "--last-failed"), "--until-decided cannot decide on the cases that failed last time"),
        (("--effect", "5"), "--effect is for a run until decided"),
        (("--max-rounds", "5"), "--max-rounds is for a run until decided"),
        (("--margin", "5"), "--margin is for a run until decided"),
        (_arms(1, 2, "--max-rounds", "1"), "1 is not in the range"),
        (_arms(1, 2, "--effect", "nan"), "nan is not a number"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(coin: Project, arguments: tuple[str, ...], told: str):
    done = coin.run(*arguments)

    assert done.code == 2
    assert told in done.stderr
    assert not coin.output_dir.exists()


def test_several_suites_are_not_decided_together(coin: Project):
    coin.suite(SUITE, "other.py")

    done = coin.whet("run", "suite.py", "other.py", *_arms(10, 90))

    assert done.code == 2
    assert "--until-decided decides about one suite, and these are 2" in done.stderr


def test_a_run_that_cannot_reach_its_effect_says_so(coin: Project):
    ran = coin.run(*_arms(0, 100))

    assert "10 rounds of 10 cases find 16 points or more in 80 % of runs, and you look for 10" in ran.stdout
    assert "find" not in coin.run(*_arms(0, 100, "--effect", "30")).stdout.partition("Decision")[0]
