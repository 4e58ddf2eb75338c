"""`python bench/mutants.py`: put small faults into the code, one at a time, and list those that no test notices.

Each fault goes into a copy of this checkout. First the tests run once, on a copy that notes which tests reach which
fault; then each fault meets the tests that reach it, the quick ones first, until one of them fails. A survivor is a gap
in the tests, or a fault that changes nothing: a person has to decide which.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mutations import Mutant, choose

HOME = Path(__file__).resolve().parents[1]
# Copies share what no test changes.
_COPIED = ("src", "tests", "docs", "examples", "bench")
_LINKED = (".agents",)
# As long as tests of one fault may take; more than that is left out, and said.
_PATIENCE_S = 300
_REACH = '''\
"""Note that the running test came to a fault: one line, once for each test and process."""

import os

_seen = set()


def hit(number):
    if (os.getpid(), number) not in _seen:
        _seen.add((os.getpid(), number))
        here = os.path.dirname(os.path.abspath(__file__))
        try:
            with open(os.path.join(here, "running")) as file:
                line = f"{number} {file.read()}\\n"
            with open(os.path.join(here, "reached"), "a") as file:
                file.write(line)
        except OSError:
            pass


def pytest_runtest_logstart(nodeid, location):
    # Each test that comes to a fault is noted, not the first alone.
    _seen.clear()
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "running"), "w") as file:
        file.write(nodeid)


def pytest_runtest_logreport(report):
    if report.when == "call" or not report.passed:
        here = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(here, "ended"), "a") as file:
            file.write(f"{report.outcome} {report.duration:.3f} {report.nodeid}\\n")
'''


# Names the first test that fails, for the process that started pytest.
_FIRST = """\
import os


def pytest_runtest_logreport(report):
    if report.failed:
        path = os.environ["FIRST_FAILURE"]
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(report.nodeid)
"""


@dataclass
class House:
    """A copy of the checkout with an environment of its own, in which a fault can be put."""

    root: Path
    env: dict[str, str] = field(default_factory=lambda: {k: v for k, v in os.environ.items() if k != "PYTHONPATH"})

    @classmethod
    def build(cls, root: Path) -> House:
        """The tracked files, and the libraries of the environment that runs this."""
        root.mkdir(parents=True)
        for name in _COPIED:
            shutil.copytree(HOME / name, root / name, ignore=shutil.ignore_patterns("__pycache__", ".whet"))
        for file in HOME.glob("*.*"):
            if file.is_file():
                shutil.copy(file, root)
        shutil.copy(HOME / "Makefile", root)
        for name in _LINKED:
            if (HOME / name).is_dir():
                (root / name).symlink_to(HOME / name)
        house = cls(root)
        venv.create(root / ".venv", with_pip=False, symlinks=True)
        libraries = next(path for path in sys.path if path.endswith("site-packages"))
        (house.packages / "_house.pth").write_text(f"{root / 'src'}\n{libraries}\n")
        script = root / ".venv" / "bin" / "whet"
        script.write_text(f"#!{house.python}\nimport sys\nfrom whet.cli.main import main\nsys.exit(main())\n")
        script.chmod(0o755)
        (house.packages / "whet_first_failure.py").write_text(_FIRST)
        house.env["FIRST_FAILURE"] = str(root / "first-failure")
        return house

    @property
    def python(self) -> Path:
        return self.root / ".venv" / "bin" / "python"

    @property
    def packages(self) -> Path:
        return next((self.root / ".venv" / "lib").glob("python*/site-packages"))

    def path_of(self, mutant: Mutant) -> Path:
        return self.root / mutant.path.relative_to(HOME)

    def first_failure(self, *tests: str) -> str | None:
        """Run *tests* until one fails; its name, "" if they hang or end pytest, None if all pass."""
        notes = self.root / "first-failure"
        notes.unlink(missing_ok=True)
        code = self.pytest("-x", "-p", "whet_first_failure", *tests, timeout_s=_PATIENCE_S)
        if code == 0:
            return None
        return notes.read_text() if notes.exists() else ""

    def pytest(self, *args: str, timeout_s: float | None = None) -> int | None:
        """Run tests; None where they take too long."""
        argv = [str(self.python), "-m", "pytest", "-p", "no:randomly", "--no-header", *args]
        with subprocess.Popen(
            argv,
            cwd=self.root,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                return process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                return None


@dataclass
class Reached:
    """Which tests come to which fault, and how long each test takes."""

    tests: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    seconds: dict[str, float] = field(default_factory=dict)


def put_probes(house: House, mutants: Sequence[Mutant]) -> None:
    """Before the statement of each fault, note that it was come to."""
    files: dict[Path, list[tuple[int, int]]] = defaultdict(list)
    for number, mutant in enumerate(mutants):
        files[house.path_of(mutant)].append((mutant.probe, number))
    for path, places in files.items():
        lines = path.read_text().splitlines(keepends=True)
        for line, number in sorted(places, reverse=True):
            indent = lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]
            lines.insert(line - 1, f"{indent}__import__('whet_reach').hit({number})\n")
        path.write_text("".join(lines))


def reach(house: House, mutants: Sequence[Mutant], tests: Sequence[str]) -> Reached:
    """Run *tests* once, without a fault."""
    put_probes(house, mutants)
    # Beside the package: some processes of whet have no other folder on their path.
    notes = house.root / "src"
    (notes / "whet_reach.py").write_text(_REACH)
    house.pytest("-p", "whet_reach", *tests)
    found = Reached()
    ended, reached = notes / "ended", notes / "reached"
    for line in ended.read_text().splitlines() if ended.exists() else []:
        outcome, seconds, test = line.split(" ", 2)
        if outcome == "passed":
            found.seconds[test] = float(seconds)
    for line in reached.read_text().splitlines() if reached.exists() else []:
        number, _, test = line.partition(" ")
        if test in found.seconds:
            found.tests[int(number)].add(test)
    return found


def meet(house: House, mutant: Mutant, tests: Iterable[str], seconds: dict[str, float]) -> str:
    """Put the fault in, run the tests that come to it, take it out; how it ended."""
    ordered = sorted(tests, key=lambda test: seconds[test])
    if not ordered:
        return "not reached"
    chosen, spent = [], 0.0
    for test in ordered:
        spent += seconds[test] + 0.05
        if chosen and spent > _PATIENCE_S / 3:
            break
        chosen.append(test)
    path = house.path_of(mutant)
    whole = path.read_text()
    while chosen:
        path.write_text(mutant.mutated)
        try:
            failed = house.first_failure(*chosen)
        finally:
            path.write_text(whole)
        if failed is None:
            break
        # A test that fails without the fault too, now and then or on a busy machine, has noticed nothing.
        if house.first_failure(*([failed] if failed else chosen)) is None:
            return f"killed by {failed or 'a hang'}"
        if not failed:
            return "unclear: the tests hang without the fault too"
        chosen.remove(failed)
    left_out = f", {len(ordered) - len(chosen)} tests left out" if len(chosen) < len(ordered) else ""
    return f"survived {len(chosen)} tests{left_out}"


def parts(tests: Sequence[str], count: int) -> list[list[str]]:
    """The files of tests in *count* heaps of about the same size."""
    files = sorted(
        {
            file
            for test in tests
            for file in ([HOME / test] if (HOME / test).is_file() else (HOME / test).rglob("test_*.py"))
        },
        key=lambda file: -file.stat().st_size,
    )
    return [[str(file.relative_to(HOME)) for file in files[start::count]] for start in range(count)]


def measure(count: int, seed: int, tests: Sequence[str], jobs: int, where: Path) -> int:
    """Do it, and print what was found; the number of survivors."""
    mutants = choose(HOME / "src" / "whet", count, seed)
    houses = [House.build(where / f"house-{number}") for number in range(jobs)]
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        looks = list(
            pool.map(lambda pair: reach(pair[0], mutants, pair[1]), zip(houses, parts(tests, jobs), strict=True))
        )
    seconds = {test: value for look in looks for test, value in look.seconds.items()}
    print(f"{len(seconds)} tests passed without a fault, in {time.monotonic() - began:.0f} s", flush=True)
    fates: dict[int, str] = {}
    for house in houses:
        shutil.rmtree(house.root / "src")
        shutil.copytree(HOME / "src", house.root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    free = list(houses)

    def one(number: int) -> None:
        house = free.pop()
        try:
            coming = {test for look in looks for test in look.tests[number]}
            fates[number] = meet(house, mutants[number], coming, seconds)
        finally:
            free.append(house)
        print(f"{number:4} {fates[number]:30} {mutants[number].describe(HOME)}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, range(len(mutants))))
    alive = [number for number, fate in fates.items() if not fate.startswith("killed")]
    print(f"\n{len(mutants)} mutants of seed {seed}: {len(mutants) - len(alive)} killed, {len(alive)} not:")
    for number in sorted(alive):
        print(f"  {fates[number]}: {mutants[number].describe(HOME)}")
    print(json.dumps({"seed": seed, "mutants": len(mutants), "killed": len(mutants) - len(alive)}))
    return len(alive)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="how many faults (100)")
    parser.add_argument("--seed", type=int, default=1, help="another one, other faults (1)")
    parser.add_argument("--jobs", type=int, default=2, help="copies that work side by side (2)")
    parser.add_argument("tests", nargs="*", default=["tests"], help="files or folders of tests (tests)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="whet-mutants-") as where:
        measure(chosen.count, chosen.seed, chosen.tests, chosen.jobs, Path(where))


if __name__ == "__main__":
    main()
