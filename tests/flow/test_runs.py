"""`whet runs`: which runs there are, and how those that are no longer needed are removed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from project import SHELL, Project, wait_for

from whet.record.removal import remove_runs


@pytest.fixture
def three(project: Project) -> Project:
    """Return a project with three runs: of one suite that fails, of another, and of the first again."""
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=no), Case(id="b", prompt="true", check=ok)]')
    project.suite('suite = [Case(id="c", prompt="true", check=ok)]', "more/other.py")
    for suite in ("suite.py", "more/other.py", "suite.py"):
        project.whet("run", suite)
    return project


def listed(project: Project, *words: str) -> list[dict[str, Any]]:
    """Return what is listed, the newest first."""
    runs: list[dict[str, Any]] = json.loads(project.whet("runs", *words, "--json").stdout)["runs"]
    return runs


def folders(project: Project) -> list[str]:
    """Return the names of the run folders, the oldest first."""
    return sorted(path.name for path in project.output_dir.iterdir() if path.is_dir() and not path.is_symlink())


def latest(project: Project) -> str:
    return Path(project.output_dir / "latest").resolve(strict=True).name


def test_runs_are_listed_with_how_they_ended_the_newest_first(three: Project) -> None:
    table = three.whet("runs").stdout.splitlines()
    facts = [(run["suite"], run["outcome"], run["passed"], run["failed"], run["trials"]) for run in listed(three)]

    assert facts == [("suite", "failed", 1, 1, 2), ("other", "passed", 1, 0, 1), ("suite", "failed", 1, 1, 2)]
    assert table[0].split() == ["run", "suite", "arms", "trials", "outcome", "cost"]
    assert [line.split()[:2] for line in table[1:]] == [[run["run"], run["suite"]] for run in listed(three)]


@pytest.mark.parametrize(
    ("words", "suites"),
    [
        (("--suite", "other"), ["other"]),
        (("oth*",), ["other"]),
        (("more",), ["other"]),
        (("suite.py",), ["suite", "suite"]),
        (("--outcome", "passed"), ["other"]),
        (("--outcome", "unfinished"), []),
        (("--since", "1h"), ["suite", "other", "suite"]),
        (("--older-than", "1h"), []),
        (("--limit", "1"), ["suite"]),
    ],
)
def test_runs_are_filtered(three: Project, words: tuple[str, ...], suites: list[str]) -> None:
    assert [run["suite"] for run in listed(three, *words)] == suites


def test_an_empty_list_says_whether_there_are_runs_at_all(three: Project) -> None:
    chosen = three.whet("runs", "--outcome", "errored")
    none = three.whet("runs", "--output-dir", "elsewhere")

    assert (chosen.code, chosen.stdout) == (0, "no run in .whet/runs is like that\n")
    assert (none.code, none.stdout) == (0, "there are no runs in elsewhere\n")


def test_removed_runs_are_gone_and_latest_leads_to_the_newest_that_is_left(three: Project) -> None:
    oldest, middle, newest = folders(three)

    removed = three.whet("runs", "remove", newest, oldest, "--yes")

    assert removed.code == 0
    assert removed.stdout.startswith("removed 2 runs, which frees ")
    assert folders(three) == [middle]
    assert latest(three) == middle


def test_a_run_that_another_whet_removed_meanwhile_is_not_missed(three: Project) -> None:
    chosen = [three.output_dir / name for name in folders(three)]
    first = remove_runs(chosen[:2], three.output_dir)

    second = remove_runs(chosen, three.output_dir)

    assert (len(first.removed), first.spared) == (2, ())
    assert (second.removed, second.spared) == ((chosen[2].name,), ())


def test_the_last_run_leaves_no_link_behind(three: Project) -> None:
    removed = three.whet("runs", "remove", *folders(three), "--yes")

    assert (removed.code, list(three.output_dir.iterdir())) == (0, [])


def test_the_newest_are_kept(three: Project) -> None:
    newest_of_suite = listed(three, "--suite", "suite")[0]["run"]

    removal = json.loads(three.whet("runs", "remove", "--suite", "suite", "--keep", "1", "--yes", "--json").stdout)

    assert removal["schema"] == "whet/removal/1"
    assert len(removal["removed"]) == 1
    assert removal["bytes"] > 0
    assert [run["run"] for run in listed(three, "--suite", "suite")] == [newest_of_suite]
    assert len(listed(three)) == 2


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            (),
            "say which runs to remove\n  name them, or choose some: whet runs remove --older-than 30d, or --keep 10\n",
        ),
        (("latest",), " needs your word\n  add --yes, or look first with --dry-run\n"),
        (("nope", "--yes"), "\n  name a run folder, a run id, or latest\n"),
    ],
)
def test_nothing_is_removed_that_was_not_asked_for(three: Project, words: tuple[str, ...], answer: str) -> None:
    before = folders(three)

    refused = three.whet("runs", "remove", *words)

    assert refused.code == 2
    assert refused.stderr.endswith(answer)
    assert folders(three) == before


def test_a_dry_run_names_what_would_go_and_keeps_it(three: Project) -> None:
    before = folders(three)

    told = three.whet("runs", "remove", "--older-than", "1ms", "--dry-run")

    assert sorted(told.stdout.splitlines()[:-1]) == before
    assert told.stdout.splitlines()[-1].startswith("would remove 3 runs, which frees ")
    assert folders(three) == before


def test_a_run_that_is_under_way_is_listed_as_that_and_never_removed(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="slow", prompt=": > {outside}/begun; sleep 60", check=ok)]')
    running = project.start("suite.py")
    wait_for(project.outside / "begun")

    outcomes = [run["outcome"] for run in listed(project)]
    removed = project.whet("runs", "remove", "latest", "--yes")
    still_there = folders(project)
    running.send_signal(signal.SIGINT)
    project.outcome(running)
    interrupted = [run["outcome"] for run in listed(project)]

    assert outcomes == ["running"]
    assert removed.code == 1
    assert removed.stderr.endswith(" is under way\n")
    assert len(still_there) == 1
    assert interrupted == ["unfinished"]


def test_runs_that_one_command_started_go_together(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')
    project.suite('suite = [Case(id="b", prompt="true", check=ok)]', "other.py")
    project.whet("run", ".")
    member = listed(project)[0]

    refused = project.whet("runs", "remove", member["run"], "--yes")
    left = folders(project)
    removed = project.whet("runs", "remove", member["batch"], "--yes")

    assert refused.code == 1
    assert f"belongs to {member['batch']}, a run of several suites: remove that one" in refused.stderr
    assert len(left) == 3
    assert (removed.code, list(project.output_dir.iterdir())) == (0, [])


def test_a_folder_of_another_tool_is_never_removed(three: Project) -> None:
    three.write("elsewhere/run.json", '{"schema": "theirs"}')

    refused = three.whet("runs", "remove", "elsewhere", "--yes")

    assert refused.code == 1
    assert "elsewhere is not the record of a run" in refused.stderr
    assert (three.root / "elsewhere" / "run.json").exists()
