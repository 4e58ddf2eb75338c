"""Which units people are asked about: strata in turn, and inside a stratum simple random without replacement.

An order depends on the seed and on each unit alone. So a longer draw goes on where a shorter one ended, and trials that
come later do not change the order of those that there were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from math import ceil

from msgspec import Struct

from whet.decide.judging.units import JudgedUnit, Place, UnitKey

# How far from the threshold a rating is near, in points of ten, and how many units each side needs to be a stratum.
_NEAR, _LEAST = 1.0, 10
# A second person is asked about this part of what one has labelled.
_SECOND = 3
_SCALE = 10
_ROUNDING = 1e-9

Strata = dict[str, list[JudgedUnit]]


class Drawn(Struct, frozen=True, kw_only=True):
    """A unit to label: its stratum, how many units that has, and its place in the order."""

    unit: JudgedUnit
    stratum: str
    size: int
    place: int


def strata_of(units: Sequence[JudgedUnit]) -> Strata:
    """Return the units by arm and verdict of the judge; near the threshold and far from it apart if both are many."""
    plain: Strata = {}
    for unit in units:
        plain.setdefault(f"{unit.key.arm}/{unit.verdict}", []).append(unit)
    strata: Strata = {}
    for name, members in sorted(plain.items()):
        sides: Strata = {"near": [], "far": []}
        for unit in members:
            sides["near" if _is_near(unit) else "far"].append(unit)
        if min(map(len, sides.values())) < _LEAST:
            strata[name] = members
        else:
            strata |= {f"{name}/{side}": units_there for side, units_there in sides.items()}
    return strata


def _is_near(unit: JudgedUnit) -> bool:
    return abs(unit.rating - unit.threshold * _SCALE) <= _NEAR + _ROUNDING


def draw(units: Sequence[JudgedUnit], n: int, seed: str) -> list[Drawn]:
    """Return the first *n* units of the order of *seed*: equal numbers of each stratum, until one is used up."""
    strata = strata_of(units)
    orders = {name: sorted(members, key=lambda unit: _chance(unit, seed)) for name, members in strata.items()}
    entries: list[Drawn] = []
    for turn in range(max(map(len, orders.values()), default=0)):
        for name, order in orders.items():
            if len(entries) == n:
                return entries
            if turn < len(order):
                entries.append(Drawn(unit=order[turn], stratum=name, size=len(order), place=len(entries) + 1))
    return entries


def label_queue(units: Sequence[JudgedUnit], n: int, seed: str, labelled: Collection[UnitKey]) -> list[Drawn]:
    """Return what a person is asked, of a draw of *n*: not what is *labelled*, and in an order that says nothing."""
    open_units = [entry for entry in draw(units, n, seed) if entry.unit.key not in labelled]
    return sorted(open_units, key=lambda entry: _chance(entry.unit, f"shown {seed}"))


def second_queue(
    units: Sequence[JudgedUnit], seed: str, people: Mapping[UnitKey, Collection[str]], by: str
) -> list[Drawn]:
    """Return what a second person, *by*, is asked: a third of the units that one other person has labelled."""
    once = [entry for entry in draw(units, len(units), seed) if people.get(entry.unit.key)]
    order = sorted(once, key=lambda entry: _chance(entry.unit, f"second {seed}"))
    third = order[: ceil(len(order) / _SECOND)]
    return [entry for entry in third if by not in people[entry.unit.key] and len(people[entry.unit.key]) == 1]


def labelled_strata(units: Sequence[JudgedUnit], truths: Collection[Place]) -> list[list[JudgedUnit]]:
    """Return the strata of *units*; near and far are one if one of them has no label."""
    strata = strata_of(units)
    parts: Strata = {}
    silent = {
        _verdict_of(name) for name, members in strata.items() if not any(unit.place in truths for unit in members)
    }
    for name, members in strata.items():
        verdict = _verdict_of(name)
        parts.setdefault(verdict if verdict in silent else name, []).extend(members)
    return list(parts.values())


def _verdict_of(stratum: str) -> str:
    return stratum.removesuffix("/near").removesuffix("/far")


def seed_of(runs: Sequence[str]) -> str:
    """Return the usual seed of a draw from *runs*."""
    return " ".join(sorted(runs))


def _chance(unit: JudgedUnit, seed: str) -> bytes:
    # Not the run: what a run is merged or regraded into keeps its order.
    place = "\0".join((seed, *map(str, unit.key), unit.statement_id))
    return hashlib.sha256(place.encode("utf-8", "surrogatepass")).digest()
