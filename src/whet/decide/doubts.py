"""Find what trials do not show by themselves: a judge that is wrong in the same way, and rounds that went alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Any

from whet.grade.difference import Doubt, Rounds
from whet.grade.variation import Shares, Weights, mean, shares_of
from whet.model.comparison import Sampled

# Fewer rounds do not tell whether they went alike.
_FEWEST_ROUNDS = 3
# The first arm counts against the second.
_SIGNS = (-1, 1)
_Counted = Mapping[str, Sequence[Sampled]]


def error_of_judge(judge: Mapping[str, Any]) -> float | None:
    """Return the share of verdicts that are wrong, by the table `[judge]` of the settings, which has it in percent."""
    percent = judge.get("error")
    return None if percent is None else percent / 100


def doubt_about(
    baseline: Iterable[Sampled], candidate: Iterable[Sampled], weights: Weights | None, *, judge_error: float | None
) -> Doubt:
    """Return what the limits of a difference must allow for beside the trials that count."""
    return _doubt((_counted(baseline), _counted(candidate)), weights, judge_error)


def doubt_about_rate(trials: Iterable[Sampled], weights: Weights | None, *, judge_error: float | None) -> Doubt:
    """Return the same for the rate of one arm."""
    return _doubt((_counted(trials),), weights, judge_error)


def _doubt(arms: Sequence[_Counted], weights: Weights | None, judge_error: float | None) -> Doubt:
    shared = sorted(case for case in arms[0] if all(case in arm for arm in arms))
    shares = shares_of(shared, weights)
    if shares is None:
        return Doubt()
    return Doubt(variance=_wrong_verdicts(arms, shares, judge_error or 0.0), rounds=_rounds(arms, shares))


def _counted(trials: Iterable[Sampled]) -> _Counted:
    found: dict[str, list[Sampled]] = {}
    for trial in trials:
        if trial.value is not None:
            found.setdefault(trial.case, []).append(trial)
    return found


def _wrong_verdicts(arms: Sequence[_Counted], shares: Shares, error: float) -> float:
    """Return the variance that wrong verdicts add and trials do not show: the same answer is wrong each time.

    Verdicts that are wrong anew for each trial are part of how trials vary. Arms that give the same answer share its
    verdict, so that it cannot make them different.
    """
    if error <= 0:
        return 0.0
    return (
        error
        * (1 - error)
        * fsum(share * share * _repeated([arm[case] for arm in arms]) for case, share in shares.items())
    )


def _repeated(arms: Sequence[Sequence[Sampled]]) -> float:
    """Return how many verdicts' variance a case has that its trials do not show."""
    weights: dict[str, float] = {}
    shown: list[float] = []
    for sign, trials in zip(_SIGNS, arms, strict=False):
        answers = Counter(trial.judged for trial in trials if trial.judged is not None)
        for answer, count in answers.items():
            weights[answer] = weights.get(answer, 0.0) + sign * count / len(trials)
        judged = answers.total()
        if judged:
            pairs = sum(count * (count - 1) for count in answers.values()) / max(1, judged * (judged - 1))
            shown.append((1 - pairs) * judged / len(trials) ** 2)
    return max(0.0, fsum(weight * weight for weight in weights.values()) - fsum(shown))


def _rounds(arms: Sequence[_Counted], shares: Shares) -> Rounds | None:
    """Return how far rounds are apart, after what each case has on average; None if they are too few to tell."""
    moved: dict[int, list[float]] = {}
    for sign, arm in zip(_SIGNS, arms, strict=False):
        for case, share in shares.items():
            middle = mean([trial.value for trial in arm[case] if trial.value is not None])
            for trial in arm[case]:
                if trial.round is None or trial.value is None:
                    return None
                moved.setdefault(trial.round, []).append(sign * share * (trial.value - middle))
    count = len(moved)
    if count < _FEWEST_ROUNDS:
        return None
    spread = fsum(fsum(parts) ** 2 for parts in moved.values()) / (count - 1)
    return Rounds(count=count, variance=spread / count)
