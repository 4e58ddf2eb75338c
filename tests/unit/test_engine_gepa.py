"""The engine gepa: GEPA's own library searches versions of a skill, over trials and changes that are scripted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from whet.errors import UsageError
from whet.improve.contract import EndedEarly
from whet.improve.propose.task import PracticeRun
from whet.improve.search.engine_gepa import search
from whet.improve.search.port import PracticeTrials

CASES = [f"c{number}" for number in range(8)]
# An agent does a case if its skill has the word for it.
WORDS = {case: f"do-{number % 4}" for number, case in enumerate(CASES)}

Change = Callable[[str, int], str | None]


class Scripted:
    """Runs and changes versions as the script says, and keeps what it was asked."""

    def __init__(self, folder: Path, change: Change, ends_after: int = 1000, errored: Sequence[str] = ()) -> None:
        self.folder = folder
        self.change = change
        self.ends_after = ends_after
        self.errored = errored
        self.most_varied = 1000
        self.measured: list[tuple[int, Path, tuple[str, ...]]] = []
        self.varied: list[tuple[int, Path, PracticeRun]] = []

    def measure(self, place: int, version: Path, cases: Sequence[str]) -> PracticeTrials:
        if len(self.measured) == self.ends_after:
            raise EndedEarly("undecided", "the money is spent")
        self.measured.append((place, version, tuple(cases)))
        text = (version / "SKILL.md").read_text()
        scores = {case: float(WORDS[case] in text) for case in cases if case not in self.errored}
        return PracticeTrials(scores=scores, evidence=PracticeRun(folder=self.folder / f"run-{place}"))

    def is_spent(self) -> bool:
        return len(self.varied) >= self.most_varied

    def vary(self, place: int, parent: Path, evidence: PracticeRun) -> Path | None:
        self.varied.append((place, parent, evidence))
        text = self.change((parent / "SKILL.md").read_text(), place)
        return None if text is None else skill(self.folder / f"version-{place}", text)


def skill(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(text)
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Path:
    return skill(tmp_path / "start", "---\nname: s\ndescription: Does it.\n---\nDo it.\n")


def test_what_helps_is_kept_and_built_on(tmp_path: Path, start: Path) -> None:
    port = Scripted(tmp_path, lambda text, place: f"{text}do-{place % 4}\n")

    best = search(port, start, CASES, 96, seed=1)

    assert best is not None
    text = (best / "SKILL.md").read_text()
    assert sum(f"do-{number}" in text for number in range(4)) > 2
    # Each change starts from a version that is there, and from the run that shows what it did.
    runs = {tmp_path / f"run-{place}": version for place, version, _ in port.measured}
    assert all(runs[evidence.folder] == parent for _, parent, evidence in port.varied)
    assert {parent for _, parent, _ in port.varied} > {start}


def test_the_search_ends_with_its_budget_and_knows_no_other_cases(tmp_path: Path, start: Path) -> None:
    port = Scripted(tmp_path, lambda text, place: f"{text}{place}\n")

    best = search(port, start, CASES, 48, seed=1)

    # The last step may begin just before the end.
    calls = sum(len(cases) for _, _, cases in port.measured)
    assert 48 <= calls <= 48 + 2 * 3 + 8
    assert {case for _, _, cases in port.measured for case in cases} == set(CASES)
    assert best is None


def test_a_version_that_cannot_be_raced_costs_no_trial(tmp_path: Path, start: Path) -> None:
    port = Scripted(tmp_path, lambda *_: None)

    assert search(port, start, CASES, 32, seed=1) is None
    assert len(port.varied) > 3
    assert {version for _, version, _ in port.measured} == {start}
    assert len(port.measured) == 1 + len(port.varied)


def test_a_skill_that_does_everything_is_left_alone(tmp_path: Path) -> None:
    perfect = skill(tmp_path / "start", f"---\nname: s\n---\n{' '.join(WORDS.values())}\n")
    port = Scripted(tmp_path, lambda *_: pytest.fail("nothing is to be changed"))

    assert search(port, perfect, CASES, 96, seed=1) is None
    assert len(port.measured) == 1


@pytest.mark.parametrize("ends_after", [0, 1, 2, 4])
def test_the_end_of_the_money_ends_the_search_wherever_it_comes(tmp_path: Path, start: Path, ends_after: int) -> None:
    port = Scripted(tmp_path, lambda text, place: f"{text}do-{place}\n", ends_after)

    with pytest.raises(EndedEarly, match="the money is spent"):
        search(port, start, CASES, 96, seed=1)

    assert len(port.measured) == ends_after


def test_a_search_that_has_taken_its_share_returns_what_it_has_found(tmp_path: Path, start: Path) -> None:
    port = Scripted(tmp_path, lambda text, place: f"{text}do-{place % 4}\n")
    port.most_varied = 1

    best = search(port, start, CASES, 96, seed=1)

    assert len(port.varied) == 1
    assert best == tmp_path / "version-1"


@pytest.mark.parametrize("error", [EndedEarly("failed", "no proposer"), UsageError("no proposer")])
def test_a_proposer_that_cannot_work_ends_the_search_and_is_not_asked_again(
    tmp_path: Path, start: Path, error: Exception
) -> None:
    asked: list[int] = []

    def change(_: str, place: int) -> str:
        asked.append(place)
        raise error

    with pytest.raises(type(error), match="no proposer"):
        search(Scripted(tmp_path, change), start, CASES, 96, seed=1)

    assert asked == [1]


def test_the_same_search_asks_the_same_again_so_that_a_kill_loses_nothing(tmp_path: Path, start: Path) -> None:
    def change(text: str, place: int) -> str:
        return f"{text}do-{random.Random(place).randrange(6)}\n"

    ports = [Scripted(tmp_path, change) for _ in range(2)]
    bests = [search(port, start, CASES, 64, seed=7) for port in ports]

    assert bests[0] == bests[1]
    assert ports[0].measured == ports[1].measured
    assert ports[0].varied == ports[1].varied


def test_a_trial_that_errored_is_no_failure_of_the_version(tmp_path: Path, start: Path) -> None:
    every = Scripted(tmp_path, lambda text, _: f"{text}{' '.join(WORDS.values())}\n", errored=["c0"])

    best = search(every, start, CASES, 48, seed=1)

    assert best is not None
    assert len(every.varied) == 1
