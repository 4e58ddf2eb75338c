"""`whet split`: what it writes beside a suite, and what it leaves as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from project import SHELL, Project

LOCK = "split.lock.json"


@pytest.fixture
def halves(project: Project) -> Project:
    """A project with a bench suite of 6 cases."""
    project.settings(SHELL)
    write_cases(project, 6)
    return project


def write_cases(project: Project, number: int) -> None:
    cases = [{"id": f"c{index}", "prompt": "true", "expect": ["file:x exists"]} for index in range(number)]
    project.write("bench.json", json.dumps({"name": "b", "cases": cases}))


def lock_of(project: Project) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((project.root / LOCK).read_text())
    return document


def test_it_says_what_it_wrote_and_writes_it_once(halves: Project) -> None:
    first = halves.whet("split", "bench.json")
    written = (halves.root / LOCK).read_bytes()
    second = halves.whet("split", "bench.json")

    assert (first.code, second.code) == (0, 0)
    assert first.stdout.startswith(f"bench.json: 3 practice, 3 held-out; wrote {LOCK}\n  practice  ")
    assert second.stdout.startswith(f"bench.json: 3 practice, 3 held-out; {LOCK} has all of them already\n")
    assert (halves.root / LOCK).read_bytes() == written


def test_a_dry_run_writes_nothing_and_says_the_same(halves: Project) -> None:
    dry = json.loads(halves.whet("split", "bench.json", "--dry-run", "--json").stdout)
    assert not (halves.root / LOCK).exists()
    real = json.loads(halves.whet("split", "bench.json", "--json").stdout)

    assert dry["splits"][0]["cases"] == real["splits"][0]["cases"] == lock_of(halves)["cases"]
    assert (dry["splits"][0]["written"], real["splits"][0]["written"]) == (False, True)


def test_new_cases_are_named_and_move_no_other(halves: Project) -> None:
    halves.whet("split", "bench.json")
    before = lock_of(halves)["cases"]
    write_cases(halves, 9)

    done = halves.whet("split", "bench.json")

    assert "  new: c6, c7, c8\n" in done.stdout
    assert before.items() <= lock_of(halves)["cases"].items()


def test_writers_at_the_same_time_leave_the_lock_that_one_alone_would(halves: Project) -> None:
    alone = json.loads(halves.whet("split", "bench.json", "--dry-run", "--json").stdout)["splits"][0]["cases"]

    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "whet", "split", "bench.json"], cwd=halves.root, stdout=subprocess.DEVNULL
        )
        for _ in range(4)
    ]

    assert [process.wait() for process in processes] == [0] * 4
    assert lock_of(halves)["cases"] == alone
    assert sorted(path.name for path in halves.root.glob(f".{LOCK}*")) == []


def test_every_suite_of_a_folder_gets_its_lock(halves: Project) -> None:
    halves.write("more/other.json", (halves.root / "bench.json").read_text())

    done = halves.whet("split", ".")

    assert done.code == 0
    assert (halves.root / LOCK).is_file()
    assert (halves.root / "more" / LOCK).is_file()


def test_a_damaged_lock_is_one_error_of_every_command_and_stays_as_it_is(halves: Project) -> None:
    halves.write(LOCK, "{}")

    for words in (("split", "bench.json"), ("validate", "bench.json"), ("run", "bench.json")):
        done = halves.whet(*words)
        assert done.code == 2
        assert done.stderr.count("is not the lock of a split") == 1

    assert (halves.root / LOCK).read_text() == "{}"


@pytest.mark.parametrize("words", [("validate", "."), ("run", "--dry-run", ".")])
def test_a_lock_is_no_suite_and_nobody_speaks_of_it(halves: Project, words: tuple[str, ...]) -> None:
    halves.whet("split", ".")

    done = halves.whet(*words, "-v")

    assert done.code == 0
    assert LOCK not in done.stdout + done.stderr
