"""Make strata of labels: those of the runs at hand, and current ones of other runs with what their draw said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from whet.decide.judging.agreement import Stratum
from whet.decide.judging.draw import labelled_strata
from whet.decide.judging.units import JudgedUnit, LabelLine, Matching, Place

T = TypeVar("T")


class RatedLabel(Struct, frozen=True, kw_only=True):
    """A label that is sure, with the rating of the judge and how many units it stands for."""

    arm: str
    rating: float
    truth: bool
    weight: float


class LabelStrata(Struct, frozen=True, kw_only=True):
    """All strata that have a label, and their labels."""

    strata: tuple[Stratum, ...]
    labels: tuple[RatedLabel, ...]
    # Units that no label speaks for, by arm and verdict.
    silent: tuple[tuple[str, str, int], ...] = ()

    def of_arm(self, arm: str) -> tuple[Stratum, ...]:
        """Return the strata of one arm."""
        return tuple(stratum for stratum in self.strata if stratum.arm == arm)


def truths_of(matching: Matching) -> dict[Place, bool]:
    """Return what people say of units, where they are sure."""
    return {entry.unit.place: entry.truth for entry in matching.labelled if entry.truth is not None}


def strata_of_labels(matching: Matching) -> LabelStrata:
    """Return the strata of all labels that count."""
    truths = truths_of(matching)
    strata: list[Stratum] = []
    labels: list[RatedLabel] = []
    silent: list[tuple[str, str, int]] = []
    for units in _drawn_together(matching).values():
        for arm, members in _group(units, lambda unit: unit.key.arm).items():
            for alike in labelled_strata(members, truths):
                stratum_labels = _labels_of(arm, alike, truths)
                labels += stratum_labels
                if stratum_labels:
                    strata.append(_stratum(arm, passed=alike[0].passed, units=len(alike), labels=stratum_labels))
                else:
                    silent.append((arm, alike[0].verdict, len(alike)))
    for stratum, stratum_labels in _strata_elsewhere(matching.elsewhere):
        strata.append(stratum)
        labels += stratum_labels
    return LabelStrata(strata=tuple(strata), labels=tuple(labels), silent=tuple(silent))


def _labels_of(arm: str, stratum: Sequence[JudgedUnit], truths: Mapping[Place, bool]) -> list[RatedLabel]:
    sure = [unit for unit in stratum if unit.place in truths]
    weight = len(stratum) / max(1, len(sure))
    return [RatedLabel(arm=arm, rating=unit.rating, truth=truths[unit.place], weight=weight) for unit in sure]


def _stratum(arm: str, *, passed: bool, units: float, labels: Sequence[RatedLabel]) -> Stratum:
    return Stratum(
        arm=arm,
        passed=passed,
        units=units,
        labels=len(labels),
        true=sum(label.truth for label in labels),
    )


def _drawn_together(matching: Matching) -> dict[frozenset[str], list[JudgedUnit]]:
    """Return the units of runs that have labels; runs whose labels were drawn by one seed are one population."""
    seeds: dict[str, set[str]] = {}
    for entry in matching.labelled:
        seeds.setdefault(entry.unit.run, set()).update(line.label.seed or "" for line in entry.lines)
    units = [unit for unit in matching.units if unit.run in seeds]
    return _group(units, lambda unit: frozenset(seeds[unit.run]))


def _strata_elsewhere(lines: Iterable[LabelLine]) -> Iterable[tuple[Stratum, list[RatedLabel]]]:
    """Yield the strata of labels of other runs: by what their draw said of them, and by the verdict of the judge.

    A judge that was asked again may have another verdict than the one that a stratum was drawn by.
    """
    sure = (line.label for line in lines if line.label.label != "unsure" and line.label.judge_verdict is not None)
    drawn = _group(sure, lambda label: (label.seed or label.run, label.stratum, label.arm))
    for (_, _, arm), members in drawn.items():
        size = max(label.size or 0 for label in members)
        weight = max(1.0, size / len(members))
        for verdict, of_verdict in _group(members, lambda label: label.judge_verdict).items():
            rated = [
                RatedLabel(arm=arm, rating=label.judge_rating or 0.0, truth=label.label == "true", weight=weight)
                for label in of_verdict
            ]
            yield _stratum(arm, passed=verdict == "pass", units=weight * len(of_verdict), labels=rated), rated


K = TypeVar("K")


def _group(values: Iterable[T], key_of: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for value in values:
        groups.setdefault(key_of(value), []).append(value)
    return groups
