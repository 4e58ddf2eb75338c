"""Draw the part of each case by a hash of its id, so that nobody chooses, and everybody draws the same.

For each case, `u` is the first 8 bytes of SHA-256 of "whet-split-1", the seed and its id, as a share of 1. Within a
stratum the cases with the smallest `u` are practice: half of them, rounded down. From 40 cases on, 40 % are practice
and 20 % sealed, both rounded down. A stratum has the cases that ask for the same (that the skill is loaded, that it is
not, or neither) and, where 8 or more of these do, have the same first tag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from whet.errors import UsageError
from whet.model.eval_cases import BooleanAssertion, TriggerQuery
from whet.model.suite import PARTS, TRIGGERED, Case, Part
from whet.reading.text import count

Wanted = Literal["yes", "no", "none"]
# From so many cases on, there is a sealed part.
SEALED_FROM = 40
_LARGE_STRATUM = 8
_TOP = 2**64
# Of queries that should load the skill, and of those that should not, practice and what is held out need so many.
LEAST_TRIGGERS = 3


def position(seed: str, case: str) -> float:
    """Return where a case comes in the order of its stratum, from 0 to 1."""
    key = hashlib.sha256(f"whet-split-1\n{seed}\n{case}".encode("utf-8", "surrogatepass"))
    return int.from_bytes(key.digest()[:8], "big") / _TOP


def draw(cases: Sequence[Case], seed: str, kept: Mapping[str, Part]) -> dict[str, Part]:
    """Return the part of each of *cases*: as it says itself, as it is *kept*, or as it is drawn.

    What others say of themselves moves nobody: parts are drawn among those that say none. And what is kept does not
    move, so that a new case is drawn as if all were new, and the others stay.
    """
    drawn_cases = [case for case in cases if case.split is None]
    drawn: dict[str, Part] = {}
    for stratum in _strata(drawn_cases):
        in_order = sorted(stratum, key=lambda case: (position(seed, case.id), case.id))
        drawn.update(zip((case.id for case in in_order), _parts(len(in_order), of=len(cases)), strict=True))
    return {case.id: case.split or kept.get(case.id) or drawn[case.id] for case in cases}


def _strata(cases: Iterable[Case]) -> Iterator[list[Case]]:
    """Yield the strata of *cases*."""
    cases = list(cases)
    tagged: dict[tuple[Wanted, str], list[Case]] = {}
    for case in cases:
        tagged.setdefault((wanted_of(case), case.tags[0] if case.tags else ""), []).append(case)
    strata: dict[tuple[Wanted, str], list[Case]] = {}
    for (wanted, tag), same in tagged.items():
        # Small ones together: each by itself would leave practice without a case.
        strata.setdefault((wanted, tag if len(same) >= _LARGE_STRATUM else ""), []).extend(same)
    yield from strata.values()


def _parts(number: int, *, of: int) -> list[Part]:
    """Return the parts of the cases of a stratum, in order; the suite has *of* cases."""
    if of < SEALED_FROM:
        practice, sealed = number // 2, 0
    else:
        practice, sealed = number * 2 // 5, number // 5
    parts: list[Part] = []
    for part, amount in zip(PARTS, (practice, number - practice - sealed, sealed), strict=True):
        parts += [part] * amount
    return parts


def wanted_of(case: Case) -> Wanted:
    """Return whether a case asks that the skill is loaded, that it is not, or neither."""
    for check in case.checks:
        asked = check.params.get("case")
        if isinstance(asked, TriggerQuery):
            return "yes" if asked.expectation == "should_trigger" else "no"
        if check.label == TRIGGERED and isinstance(asked, BooleanAssertion):
            return "no" if all(assertion.negate for assertion in asked.assertions) else "yes"
    return "none"


def refuse_few_triggers(cases: Sequence[Case], parts: Mapping[str, Part]) -> None:
    """Refuse a set of trigger queries that has too few of a kind in practice, or among those held out."""
    wanted = {case.id: wanted_of(case) for case in cases if is_trigger_query(case)}
    if len(wanted) < len(cases):
        return
    missing_words = []
    for part in PARTS[:2]:
        for kind, words in (("yes", "that should load the skill"), ("no", "that should not")):
            there = sum(parts[case] == part and wanted[case] == kind for case in wanted)
            if there < LEAST_TRIGGERS:
                missing_words.append(f"{LEAST_TRIGGERS - there} more in {part} {words}")
    if missing_words:
        raise UsageError(
            f"{count(len(cases), 'query', 'queries')} are too few to split: {'; '.join(missing_words)}",
            hint="write more queries, or say `split` in some of them",
        )


def is_trigger_query(case: Case) -> bool:
    """Return whether a case asks nothing but whether the skill is loaded."""
    return all(isinstance(check.params.get("case"), TriggerQuery) for check in case.checks)
