"""Pairs of answers: what wins count, and the question that a judge is asked."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random

import pytest

from whet.decide.judging.pairs import JudgedPair, PairFigures, Winner, figures_of_pairs, sign_flip_test, win_difference
from whet.errors import NoVerdict
from whet.grade.judge.pairs import FORM, PairQuestion

WON: tuple[Winner, Winner] = ("candidate", "candidate")
LOST: tuple[Winner, Winner] = ("baseline", "baseline")
TIE: tuple[Winner, Winner] = ("tie", "tie")
# Whatever comes first wins.
SPLIT: tuple[Winner, Winner] = ("candidate", "baseline")


def pair(case: str, said: tuple[Winner, Winner] | None, trial: int = 1) -> JudgedPair:
    first, second = said or (None, None)
    return JudgedPair(
        case=case,
        runner="r",
        candidate="new",
        baseline="old",
        trial=trial,
        candidate_first=first,
        baseline_first=second,
        problem=None if said else "busy",
    )


def figures(*said: Sequence[tuple[Winner, Winner] | None], level: float = 0.05) -> PairFigures:
    """Return the figures of so many cases, each with what was said of its pairs."""
    pairs = [
        pair(f"case {number}", entry, trial)
        for number, of_case in enumerate(said)
        for trial, entry in enumerate(of_case)
    ]
    (found,) = figures_of_pairs(pairs, level=level)
    return found


def test_a_winner_in_one_order_only_is_a_tie_and_the_share_of_these_is_known() -> None:
    found = figures([WON, LOST, TIE, SPLIT, ("candidate", "tie")])

    assert (found.wins, found.losses, found.ties, found.depend_on_order) == (1, 1, 3, 2)
    assert (found.pairs, found.cases, found.deciding, found.left_out) == (5, 1, 0, 0)


@pytest.mark.parametrize(
    ("cases", "verdict", "p"),
    [
        ([[WON]] * 6, "better", 2 / 64),
        ([[LOST]] * 6, "worse", 2 / 64),
        ([[WON]] * 5, "inconclusive", 2 / 32),
        ([[WON]] * 4, "inconclusive", 2 / 16),
        ([[WON]] * 5 + [[LOST]], "inconclusive", 14 / 64),
        ([[TIE]] * 30, "inconclusive", 1.0),
        ([[SPLIT]] * 30, "inconclusive", 1.0),
        ([[WON]] * 8 + [[TIE]] * 30, "better", 2 / 256),
        ([[WON]] * 30, "better", 4.3e-8),
    ],
)
def test_cases_decide_and_not_pairs(cases: Sequence[Sequence[tuple[Winner, Winner]]], verdict: str, p: float) -> None:
    once, often = figures(*cases), figures(*(list(case) * 5 for case in cases))

    assert (once.verdict, once.p) == (verdict, pytest.approx(p, rel=0.05))
    assert (often.verdict, often.p) == (once.verdict, once.p)


def test_a_further_look_asks_for_more() -> None:
    assert figures(*[[WON]] * 6, level=0.02).verdict == "inconclusive"
    assert figures(*[[WON]] * 7, level=0.02).verdict == "better"


def test_more_than_a_tenth_without_an_answer_decides_nothing() -> None:
    enough, too_few = figures(*[[WON] * 9 + [None]] * 6), figures(*[[WON] * 8 + [None] * 2] * 6)

    assert (enough.verdict, enough.left_out) == ("better", 6)
    assert (too_few.verdict, too_few.left_out) == ("errored", 12)
    assert figures([None]).verdict == "errored"


def test_the_test_goes_through_all_signs_and_is_about_the_same_beyond() -> None:
    scores = [1.0, -0.2, 0.6, 1 / 3, -0.6, 1.0, 0.2]
    sums = [sum(sign * score for sign, score in zip(signs, scores, strict=True)) for signs in _signs(len(scores))]
    as_far = sum(abs(total) >= abs(sum(scores)) - 1e-9 for total in sums) / len(sums)
    many = [1.0] * 14 + [-1.0] * 6

    assert sign_flip_test(scores) == as_far
    assert sign_flip_test([]) == 1.0
    assert sign_flip_test(many) == pytest.approx(2 * 60460 / 2**20)
    assert sign_flip_test([*many, 0.0]) == sign_flip_test(many)
    # 14 of 21 against 15 of 20, by the normal distribution.
    assert sign_flip_test([1.0] * 15 + [-1.0] * 6) == pytest.approx(0.0495, abs=0.001)


def _signs(n: int) -> Sequence[tuple[int, ...]]:
    return list(itertools.product((1, -1), repeat=n))


def test_arms_that_are_alike_are_called_different_in_at_most_one_of_twenty_runs() -> None:
    random = Random(32)
    calls = 0
    for _ in range(400):
        cases = [[random.choice([WON, LOST, TIE, SPLIT]) for _ in range(3)] for _ in range(12)]
        calls += figures(*cases).verdict != "inconclusive"

    assert calls / 400 <= 0.05


@pytest.mark.parametrize(("wins", "losses"), [(0.5, 0.5), (0.5, 0.2), (0.8, 0.1)])
def test_the_interval_of_the_win_difference_holds_it_also_where_all_pairs_have_a_winner(
    wins: float, losses: float
) -> None:
    random = Random(5)
    held = 0
    for _ in range(300):
        by_case = {
            str(case): random.choices([1, -1, 0], weights=[wins, losses, 1 - wins - losses], k=4) for case in range(15)
        }
        found = win_difference(by_case)
        assert found is not None
        held += found.low <= wins - losses <= found.high

    assert held / 300 >= 0.93


def test_the_question_names_no_arm_and_bounds_both_answers() -> None:
    question = PairQuestion(question="Which is clearer?", first="x" * 70_000, second="y", given={"instruction": "Go."})
    first, second = question.prompt(), question.exchanged().prompt()

    assert len(first.user) < 62_000
    assert "more characters" in first.user
    assert first.user.index("xxx") < first.user.index("\ny\n")
    assert second.user.index("xxx") > second.user.index("\ny\n")
    assert not any(word in first.user + first.system for word in ("candidate", "baseline"))


@pytest.mark.parametrize(
    "text", ['{"better": "B", "rationale": "r"}', '```json\n{"better": "B"}\n```', "B", "Answer: B."]
)
def test_a_judge_that_answers_in_words_is_understood(text: str) -> None:
    assert FORM.read_text(text).better == "B"


@pytest.mark.parametrize("text", ["", "Both.", '{"better": "C"}', "[]", '{"better": 1}'])
def test_another_answer_is_no_choice(text: str) -> None:
    with pytest.raises(NoVerdict, match="did not say A, B or tie"):
        FORM.read_text(text)
    with pytest.raises(NoVerdict):
        FORM.read_call(text)
