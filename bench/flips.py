"""Whether a record shows that it was touched: random single bits of a real journal are flipped, one at a time.

Each of 1,000 flips is looked at as `whet verify` looks at a run, once with results and once as a killed run leaves it,
without. Some dozens are also given to the command itself, by its exit code. Exits with 1 where one is missed.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from projects import environment, folder, whet, write_project

from whet.record.verify.verify import verify

FLIPS, BY_COMMAND, CASES = 1_000, 36, 25
SEED = 20261116
_WHOLE, _CHANGED = 0, 1


def recorded(base: Path) -> Path:
    """The run folder of a run that just ended."""
    suite = write_project(base / "project", cases=CASES, command="/bin/echo", args=("done",))
    subprocess.run(
        whet("run", str(suite)), cwd=suite.parent, env=environment(base), check=True, stdout=subprocess.DEVNULL
    )
    return (suite.parent / "runs" / "latest").resolve()


def noticed(run_dir: Path, place: int, bit: int, *, by_command: bool) -> bool:
    """Whether the flip of a bit is noticed; the journal is as before afterwards."""
    journal = run_dir / "journal.jsonl"
    whole = journal.read_bytes()
    flipped = bytearray(whole)
    flipped[place] ^= 1 << bit
    journal.write_bytes(flipped)
    try:
        if by_command:
            ended = subprocess.run(whet("verify", str(run_dir)), capture_output=True, check=False)
            return ended.returncode == _CHANGED and b"journal.jsonl: line " in ended.stdout
        return bool(verify(run_dir).problems)
    finally:
        journal.write_bytes(whole)


def missed(run_dir: Path, chance: random.Random, flips: int, *, by_command: bool = False) -> list[tuple[int, int]]:
    """The flips that nothing noticed, by byte and bit."""
    size = (run_dir / "journal.jsonl").stat().st_size
    places = [(chance.randrange(size), chance.randrange(8)) for _ in range(flips)]
    return [place for place in places if not noticed(run_dir, *place, by_command=by_command)]


def main() -> int:
    chance = random.Random(SEED)
    with folder() as base:
        run_dir = recorded(base)
        size = (run_dir / "journal.jsonl").stat().st_size
        whole = subprocess.run(whet("verify", str(run_dir)), check=False, stdout=subprocess.DEVNULL).returncode
        found = {
            f"{BY_COMMAND} flips, by the command": missed(run_dir, chance, BY_COMMAND, by_command=True),
            f"{FLIPS} flips, with results.json": missed(run_dir, chance, FLIPS),
        }
        (run_dir / "results.json").unlink()
        found[f"{FLIPS} flips, without results.json"] = missed(run_dir, chance, FLIPS)
    print(f"a journal of {CASES} lines and {size:,} bytes; untouched it gives exit code {whole}")
    for name, places in found.items():
        print(f"  {name:40} {len(places)} missed{f': {places}' if places else ''}")
    return 0 if whole == _WHOLE and not any(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
