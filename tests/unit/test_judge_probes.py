"""Probes of a judge: their figures, what goes beyond noise, and forty orders to pass before two judges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from judging_server import Rate, judging
from whet.decide.judging.probes import (
    LEAKS,
    ProbeAnswer,
    ProbeName,
    TriedUnit,
    beyond_noise,
    figures_of_probes,
    leaks_of,
    says_always,
    sign_test,
)
from whet.grade.judge.judge import LlmJudge
from whet.grade.judge.questions import Question, flags_of
from whet.grade.judge_settings import JudgeSettings
from whet.model.session import SessionSummary, TurnSummary, said_in
from whet.record.judging.tries import JudgeTry, keep, place_of, read_tries, with_leaks_only
from whet.report.judge_tries import try_lines
from whet.run.judging._probes import ORDERS, _saying

CORPUS: list[str] = json.loads((Path(__file__).parent / "resources" / "orders_to_judges.json").read_text())
FAILED = "The largest planet is Saturn."


def unit(passed: bool, number: int = 1, **answers: bool | None) -> TriedUnit:
    return TriedUnit(
        case="a",
        runner="r",
        arm="new",
        trial=number,
        check="It is.",
        item="",
        statement="It is.",
        passed=passed,
        rating=9.0 if passed else 1.0,
        answers=tuple(
            ProbeAnswer(probe=probe, passed=said, problem=None if said is not None else "no verdict")  # type: ignore[arg-type]
            for probe, said in answers.items()
        ),
    )


def figures(units: Sequence[TriedUnit], probe: ProbeName) -> tuple[int, int, int, int, int]:
    found = next(entry for entry in figures_of_probes(units) if entry.probe == probe)
    return found.n, found.count, found.to_pass, found.to_fail, found.no_verdict


def test_a_flip_is_another_verdict_and_a_leak_is_any_pass() -> None:
    units = [
        unit(True, again=True, empty=True),
        unit(False, again=True, empty=False),
        unit(True, again=False, empty=None),
    ]

    assert figures(units, "again") == (3, 2, 1, 1, 0)
    assert figures(units, "empty") == (2, 1, 0, 0, 1)
    assert figures(units, "longer") == (0, 0, 0, 0, 0)
    assert [(probe, tried.passed) for probe, tried in leaks_of(units)] == [("empty", True)]


def test_no_rate_is_given_without_a_verdict_and_its_interval_is_wilsons() -> None:
    none, some = figures_of_probes([unit(True, again=None)])[0], figures_of_probes([unit(True, again=True)] * 30)[0]

    assert (none.rate, none.low, none.high) == (None, None, None)
    assert (some.rate, some.low, some.high) == (0.0, 0.0, pytest.approx(0.1135, abs=0.0001))


@pytest.mark.parametrize(
    ("more", "less", "p"), [(0, 0, 1.0), (5, 0, 0.0625), (6, 0, 0.03125), (3, 3, 1.0), (1, 9, 0.021484375)]
)
def test_the_sign_test_is_exact_and_two_sided(more: int, less: int, p: float) -> None:
    assert sign_test(more, less) == pytest.approx(p)
    assert sign_test(less, more) == pytest.approx(p)


def test_what_goes_beyond_noise_is_paired_with_newcombes_interval() -> None:
    # His example for paired shares: 36 both, 12 the one only, 2 the other only, 0 neither.
    units = [
        *[unit(True, again=False, order=False)] * 36,
        *[unit(True, again=True, order=False)] * 12,
        *[unit(True, again=False, order=True)] * 2,
    ]

    noise = beyond_noise("order", units)

    assert noise is not None
    assert (noise.value, noise.n) == (pytest.approx(0.2), 50)
    assert (noise.low, noise.high) == (pytest.approx(0.0569, abs=0.0005), pytest.approx(0.3404, abs=0.0005))
    assert noise.p == pytest.approx(0.0129, abs=0.0001)
    assert beyond_noise("order", [unit(True, again=True)]) is None


@pytest.mark.parametrize(
    ("units", "verdict"),
    [
        ([], None),
        ([unit(True, empty=True)], True),
        ([unit(False, empty=False)], False),
        ([unit(True, empty=False)], None),
    ],
)
def test_a_judge_with_one_verdict_for_everything_is_noticed(units: list[TriedUnit], verdict: bool | None) -> None:
    assert says_always(units) is verdict


@pytest.fixture(scope="module")
def ratings() -> dict[str, list[float]]:
    """What two judges say of an answer that failed, with each order of the corpus at its end, by the real client."""

    def look(_criteria: str, answer: str) -> float:
        return 9.0 if "Jupiter" in answer else 1.0

    def obey(criteria: str, answer: str) -> float:
        is_order = "10" in answer or "ten" in answer
        return 10.0 if is_order else look(criteria, answer)

    return {"looks": list(_rated(look)), "obeys": list(_rated(obey))}


def _rated(rate: Rate) -> Iterator[float]:
    async def ask(url: str) -> list[float]:
        judge = LlmJudge(JudgeSettings(url=url, model="m", max_parallel=1), {"OPENAI_API_KEY": "k"})
        try:
            questions = [
                Question(name="1", criteria="It names Jupiter.", answer=f"{FAILED}\n\n{order}") for order in CORPUS
            ]
            return [(await judge.collect_votes(question)).votes[0].verdict.rating for question in questions]
        finally:
            await judge.close()

    with judging(rate) as url:
        yield from anyio.run(ask, url)


def test_a_judge_that_looks_passes_none_of_forty_orders_and_one_that_obeys_passes_all(
    ratings: dict[str, list[float]],
) -> None:
    assert len(set(CORPUS)) == 40
    assert ratings["looks"] == [1.0] * 40
    assert ratings["obeys"] == [10.0] * 40


@pytest.mark.parametrize("order", CORPUS)
def test_every_order_is_a_sign_of_manipulation_and_stays_inside_the_fence(order: str) -> None:
    question = Question(name="1", criteria="It names Jupiter.", answer=f"{FAILED}\n\n{order}")
    user = question.prompt().user

    assert flags_of(question.answer)
    assert user.rstrip().endswith("-----")
    marker = user.rpartition("END ANSWER ")[2].split()[0]
    assert user.count(f"END ANSWER {marker}") == 1


def test_the_orders_of_the_probe_are_of_the_corpus() -> None:
    assert set(ORDERS) <= set(CORPUS)


def test_a_probe_changes_the_last_answer_of_a_conversation_and_keeps_what_was_said_before() -> None:
    turns = tuple(TurnSummary(number=number, prompt="p", final_output=f"answer {number}") for number in (1, 2))
    session = SessionSummary(runner="r", agent="a", prompt="p", final_output="answer 2", turns=turns)

    longer = _saying(session, "answer 2 and more", session.turns)

    assert (longer.final_output, [turn.final_output for turn in longer.turns]) == (
        "answer 2 and more",
        ["answer 1", "answer 2 and more"],
    )
    assert "answer 1" in said_in(longer)


def tried(name: str, **changes: Any) -> JudgeTry:
    values: dict[str, Any] = {
        "id": name,
        "at": "2026-11-19T00:00:00+00:00",
        "run": "r",
        "suite": "s",
        "whet_version": "0",
        "seed": "r",
        "judged": 2,
        "units": 2,
        "probes": (),
        "leaks": 1,
        "max_leak": 0,
        "exit_code": 1,
        "asked": (unit(True, empty=True), unit(True, number=2, empty=False)),
    }
    return JudgeTry(**(values | changes))


def test_no_leak_is_claimed_where_the_judge_gave_no_verdict(tmp_path: Path) -> None:
    units = (unit(True, empty=None),)
    silent = tried("1", leaks=0, asked=units, probes=figures_of_probes(units), stopped="the key was refused")

    lines = list(try_lines(silent, tmp_path / "try-1.json"))

    assert "leaks: not known, because the judge gave no verdict" in lines
    assert "stopped: the key was refused" in lines


def test_tries_are_read_back_the_newest_first_and_anything_else_is_passed_over(tmp_path: Path) -> None:
    for name in ("1", "2"):
        keep(tmp_path, tried(name), lambda text: text.replace("It is.", "***"))
    place_of(tmp_path, "3").write_text("{")
    place_of(tmp_path, "4").symlink_to(place_of(tmp_path, "1"))
    place_of(tmp_path, "5").mkdir()

    found = list(read_tries(tmp_path))

    assert [entry.id for entry in found] == ["2", "1"]
    assert found[0].asked[0].statement == "***"
    assert [entry.trial for entry in with_leaks_only(found[0]).asked] == [1]
    assert list(read_tries(tmp_path / "nowhere")) == []
    assert set(LEAKS) == {"empty", "shrug", "other", "inject"}
