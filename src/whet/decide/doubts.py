"""Find what trials do not show by themselves: a judge that is wrong in the same way, and rounds that went alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum, sqrt
from typing import Any

from whet.decide.difference import Doubt, RoundVariance
from whet.decide.variation import Shares, Weights, mean, shares_of
from whet.model.comparison import Sampled

# The share of answers that a judge is taken to be wrong about until somebody says how many it is.
ASSUMED_ERROR = 0.05
# A judge that is wrong about half of the answers guesses.
_GUESSING = 0.5
# Fewer rounds do not tell whether they went alike.
_FEWEST_ROUNDS = 3
# The first arm counts against the second.
_SIGNS = (-1, 1)
_TrialsByCase = Mapping[str, Sequence[Sampled]]


def error_of_judge(judge: Mapping[str, Any]) -> float | None:
    """Return the share of verdicts that are wrong, by the table `[judge]` of the settings, which has it in percent."""
    percent = judge.get("error")
    return None if percent is None else percent / 100


def doubt_about(
    baseline: Iterable[Sampled], candidate: Iterable[Sampled], weights: Weights | None, *, judge_error: float | None
) -> Doubt:
    """Return what the limits of a difference must allow for beside the trials that count."""
    return _doubt((_group_by_case(baseline), _group_by_case(candidate)), weights, judge_error)


def doubt_about_rate(trials: Iterable[Sampled], weights: Weights | None, *, judge_error: float | None) -> Doubt:
    """Return what the limits of the rate of one arm must allow for beside the trials that count."""
    return _doubt((_group_by_case(trials),), weights, judge_error)


def _doubt(arms: Sequence[_TrialsByCase], weights: Weights | None, judge_error: float | None) -> Doubt:
    common_cases = sorted(case for case in arms[0] if all(case in arm for arm in arms))
    shares = shares_of(common_cases, weights)
    if shares is None:
        return Doubt()
    error = ASSUMED_ERROR if judge_error is None else judge_error
    return Doubt(variance=_wrong_verdicts(arms, shares, error), rounds=_rounds(arms, shares))


def _group_by_case(trials: Iterable[Sampled]) -> _TrialsByCase:
    trials_by_case: dict[str, list[Sampled]] = {}
    for trial in trials:
        if trial.value is not None:
            trials_by_case.setdefault(trial.case, []).append(trial)
    return trials_by_case


def _wrong_verdicts(arms: Sequence[_TrialsByCase], shares: Shares, error: float) -> float:
    """Return the variance that wrong verdicts add and trials do not show: the same answer is wrong each time.

    Verdicts that are wrong anew for each trial are part of how trials vary. Arms that give the same answer share its
    verdict, so that it cannot make them different. One answer more than expected counts as wrong: few answers are wrong
    in whole numbers, which a variance alone would not cover.
    """
    parts = [share * share * _repeated_verdicts([arm[case] for arm in arms]) for case, share in shares.items()]
    total = fsum(parts)
    if error <= 0 or total <= 0:
        return 0.0
    answers = fsum(sqrt(part) for part in parts) ** 2 / total * len(arms)
    cautious = max(error, min(_GUESSING, (error * answers + 1) / (answers + 1)))
    return cautious * (1 - cautious) * total


def _repeated_verdicts(arms: Sequence[Sequence[Sampled]]) -> float:
    """Return how many verdicts' variance a case has that its trials do not show."""
    weights: dict[str, float] = {}
    visible: list[float] = []
    for sign, trials in zip(_SIGNS, arms, strict=False):
        answers = Counter(trial.judged for trial in trials if trial.judged is not None)
        for answer, count in answers.items():
            weights[answer] = weights.get(answer, 0.0) + sign * count / len(trials)
        judged_count = answers.total()
        if judged_count:
            pairs = sum(count * (count - 1) for count in answers.values()) / max(1, judged_count * (judged_count - 1))
            visible.append((1 - pairs) * judged_count / len(trials) ** 2)
    return max(0.0, fsum(weight * weight for weight in weights.values()) - fsum(visible))


def _rounds(arms: Sequence[_TrialsByCase], shares: Shares) -> RoundVariance | None:
    """Return how far rounds are apart, after what each case has on average; None if they are too few to tell."""
    rounds = [{trial.round for case in shares for trial in arm[case]} for arm in arms]
    if any(None in numbers for numbers in rounds):
        return None
    if len(rounds) > 1 and rounds[0].isdisjoint(rounds[1]):
        return _rounds_apart(arms, shares)
    return _rounds_shared(arms, shares)


def _rounds_shared(arms: Sequence[_TrialsByCase], shares: Shares) -> RoundVariance | None:
    """Return how far rounds are apart that both arms have, or the only arm."""
    shifts: dict[int, list[float]] = {}
    for sign, arm in zip(_SIGNS, arms, strict=False):
        for case, share in shares.items():
            middle = mean([trial.value for trial in arm[case] if trial.value is not None])
            for trial in arm[case]:
                if trial.round is None or trial.value is None:
                    return None
                shifts.setdefault(trial.round, []).append(sign * share * (trial.value - middle))
    count = len(shifts)
    if count < _FEWEST_ROUNDS:
        return None
    spread = fsum(fsum(parts) ** 2 for parts in shifts.values()) / (count - 1)
    return RoundVariance(count=count, variance=spread / count)


def _rounds_apart(arms: Sequence[_TrialsByCase], shares: Shares) -> RoundVariance | None:
    """Return how far rounds are apart of which each is of one arm only, as runs of a history are.

    Their variance is taken to be the same in both arms: an arm with one round does not show it.
    """
    squares, parts, weight_squares, rounds = 0.0, 0.0, 0.0, 0
    for arm in arms:
        shifts, weights = _shifts_and_weights(arm, shares)
        squared_weights = [weight * weight for weight in weights.values()]
        total = fsum(squared_weights)
        squares += fsum(shift * shift for shift in shifts.values())
        # What a square of a shift is on average, if rounds have a variance of 1: the mean of the arm moves with them.
        parts += fsum(square * (1 - 2 * sqrt(square) + total) for square in squared_weights)
        weight_squares += total
        rounds += len(weights)
    # Each arm has a mean of its own.
    count = rounds - len(arms) + 1
    if count < _FEWEST_ROUNDS or parts <= 0:
        return None
    return RoundVariance(count=count, variance=squares / parts * weight_squares)


def _shifts_and_weights(arm: _TrialsByCase, shares: Shares) -> tuple[dict[int, float], dict[int, float]]:
    """Return by how much each round moves the rate of an arm, and how much of the rate is of that round."""
    shifts: dict[int, float] = {}
    weights: dict[int, float] = {}
    for case, share in shares.items():
        values = [(trial.round, trial.value) for trial in arm[case] if trial.value is not None]
        middle = mean([value for _, value in values])
        for number, value in values:
            if number is not None:
                shifts[number] = shifts.get(number, 0.0) + share * (value - middle) / len(values)
                weights[number] = weights.get(number, 0.0) + share / len(values)
    return shifts, weights
