"""`python bench/improve.py`: send improve runs through worlds whose truth is known, and count what they say.

The loop and all that decides are those of the product; only trials are drawn instead of run. Where nothing improves, at
most 5 % may accept a version, however many rounds and runs there are. Random numbers have a seed, so you can repeat the
figures. The exit code is 1 if a world does not keep what is asked of it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from improve_worlds import World, better_by, cheaper_to, go_through, helps_and_hurts, on_practice_only

_CHUNK = 50


@dataclass(frozen=True)
class Asked:
    """A world, and which share of its loops may accept a version at most, or has to at least."""

    world: World
    most: float = 1.0
    least: float = 0.0
    # Which share has to call the version that won the race worse.
    least_worse: float = 0.0


@dataclass(frozen=True)
class Figures:
    """What so many loops of a world said; gains on held-out cases are averages over loops that accepted a version."""

    loops: int
    accepted: float
    worse: float
    runs: float
    reported: float | None
    gain: float | None

    @property
    def error(self) -> float:
        """The standard error of the share that accepted."""
        return sqrt(self.accepted * (1 - self.accepted) / self.loops)

    def keeps(self, asked: Asked) -> bool:
        """Return whether the world keeps what is asked of it."""
        return asked.least <= self.accepted <= asked.most and self.worse >= asked.least_worse


def obligations() -> Iterator[Asked]:
    """Yield what has to hold."""
    null = World("nothing improves", accept="these")
    yield Asked(null, most=0.025)
    yield Asked(replace(null, name="nothing improves, like these", accept="like-these"), most=0.025)
    yield Asked(replace(null, name="nothing improves, base .8", base=0.8), most=0.025)
    yield Asked(replace(null, name="nothing improves, cases alike", between=0.0), most=0.025)
    yield Asked(replace(null, name="nothing improves, 10 % of trials errored", errored=0.1), most=0.025)
    yield Asked(replace(null, name="nothing improves, 5 rounds", rounds=5), most=0.05)
    yield Asked(replace(null, name="nothing improves, 10 runs on one split", runs=10), most=0.05)
    plus = World("one of six +25", (better_by(0.25),), accept="these")
    yield Asked(plus, least=0.85)
    yield Asked(replace(plus, name="one of six +25, like these", accept="like-these"), least=0.6)
    yield Asked(replace(plus, name="one of six +25, 20 held out", held_out=20), least=0.9)
    yield Asked(replace(plus, name="one of six +25, 20 held out, like these", held_out=20, accept=None), least=0.9)
    yield Asked(World("overfit: +35 on practice only", (on_practice_only(0.35),), accept="these"), most=0.05)
    harm = World("harm: +35 on practice, -25 elsewhere", (on_practice_only(0.35, -0.25),), accept="these")
    yield Asked(harm, most=0.0, least_worse=0.5)
    for deviation in (1.0, 2.0):
        mixed = World(f"helps and hurts, sd {deviation:g}", (helps_and_hurts(deviation),) * 6, accept="like-these")
        yield Asked(mixed, most=0.05)
    yield Asked(World("cheaper, 10 points worse", (cheaper_to(0.5, -0.1),) * 6, goal="cheaper"), most=0.05)
    yield Asked(World("cheaper, nothing is", (), goal="cheaper"), most=0.05)


def figures() -> Iterator[Asked]:
    """Yield what there is to know besides."""
    for held_out in (6, 8, 12, 20, 40):
        yield Asked(World(f"nothing improves, {held_out} held out", held_out=held_out, accept="these"), most=0.025)
    for held_out in (6, 8, 12, 20):
        for effect in (0.15, 0.25, 0.35):
            for rule in ("these", "like-these"):
                name = f"one of six +{100 * effect:g}, {held_out} held out, {rule}"
                yield Asked(World(name, (better_by(effect),), held_out=held_out, accept=rule))
    yield Asked(World("one of three +25", (better_by(0.25),), candidates=3, accept="these"))
    yield Asked(World("three of six +25", (better_by(0.25),) * 3, accept="these"))
    yield Asked(World("one of twelve +25", (better_by(0.25),), candidates=12, accept="these"))
    for deviation in (1.0, 2.0):
        mixed = (helps_and_hurts(deviation),) * 6
        yield Asked(World(f"helps and hurts, sd {deviation:g}, these", mixed, accept="these"))
    yield Asked(World("one of six +15, 5 rounds", (better_by(0.15),), rounds=5, accept="these"))
    for held_out in (12, 20):
        less = (cheaper_to(0.7),)
        yield Asked(World(f"cheaper by 30 %, {held_out} held out", less, goal="cheaper", held_out=held_out))


def measure(world: World, loops: int, seed: int, first: int = 0) -> Figures:
    """Go through *world* so many times."""
    outcomes = [go_through(world, f"{seed} {number}") for number in range(first, first + loops)]
    accepted = [outcome for outcome in outcomes if outcome.is_accepted]
    return Figures(
        loops=loops,
        accepted=len(accepted) / loops,
        worse=sum(outcome.is_called_worse for outcome in outcomes) / loops,
        runs=sum(outcome.trials for outcome in outcomes) / loops,
        reported=sum(outcome.reported for outcome in accepted) / len(accepted) if accepted else None,
        gain=sum(outcome.gain for outcome in accepted) / len(accepted) if accepted else None,
    )


def _merged(parts: Sequence[Figures]) -> Figures:
    """Return the figures of all loops from those of chunks."""
    loops = sum(part.loops for part in parts)
    accepted = sum(part.accepted * part.loops for part in parts)

    def average(name: str) -> float | None:
        known = [(getattr(part, name), part.accepted * part.loops) for part in parts if getattr(part, name) is not None]
        return sum(value * count for value, count in known) / sum(count for _, count in known) if known else None

    return Figures(
        loops=loops,
        accepted=accepted / loops,
        worse=sum(part.worse * part.loops for part in parts) / loops,
        runs=sum(part.runs * part.loops for part in parts) / loops,
        reported=average("reported"),
        gain=average("gain"),
    )


def _chunk(at: tuple[int, int, int, bool]) -> Figures:
    """Measure a part of a world, which is named by its place: planted functions do not go to other processes."""
    place, first, seed, more = at
    return measure(_asked(more=more)[place].world, _CHUNK, seed, first)


def _asked(*, more: bool) -> list[Asked]:
    return [*obligations(), *(figures() if more else ())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loops", type=int, default=1000, help="loops of each world, in steps of 50")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--obligations", action="store_true", help="only the worlds that something is asked of")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    began, has_failed, more = time.perf_counter(), False, not options.obligations
    print(f"{'world':44} {'accepted':>12} {'worse':>7} {'agent runs':>10} {'said':>6} {'true':>6}  asked")
    with ProcessPoolExecutor(options.processes) as processes:
        for place, asked in enumerate(_asked(more=more)):
            firsts = range(0, options.loops, _CHUNK)
            parts = list(processes.map(_chunk, [(place, first, options.seed, more) for first in firsts]))
            result = _merged(parts)
            has_failed |= not result.keeps(asked)
            print(_row(asked, result), flush=True)
    print(f"{options.loops} loops each, seed {options.seed}, {time.perf_counter() - began:.0f} s")
    return int(has_failed)


def _row(asked: Asked, result: Figures) -> str:
    accepted = f"{100 * result.accepted:.1f} ±{100 * result.error:.1f} %"
    gains = " ".join(f"{'-' if gain is None else f'{100 * gain:+.0f}':>6}" for gain in (result.reported, result.gain))
    bounds = [f"at least {100 * asked.least:g} %"] * (asked.least > 0) + [f"at most {100 * asked.most:g} %"] * (
        asked.most < 1
    )
    bounds += [f"worse in {100 * asked.least_worse:g} %"] * (asked.least_worse > 0)
    verdict = "" if not bounds else ": holds" if result.keeps(asked) else ": DOES NOT HOLD"
    return (
        f"{asked.world.name:44} {accepted:>12} {100 * result.worse:5.1f} % {result.runs:10.0f} {gains}  "
        f"{', '.join(bounds)}{verdict}"
    )


if __name__ == "__main__":
    sys.exit(main())
