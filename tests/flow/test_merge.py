"""Shards that become one record, by the real command: what it is good for, what is refused, and what a kill leaves."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from project import SHELL, Outcome, Project, wait_for

from whet.model import codec
from whet.model.run import TrialResult
from whet.record.journal.chain import read_result
from whet.record.journal.journal import Journal

# One fails and leaves its workspace.
SUITE = """
def yes(report, ctx): assert report.final_output.strip() == "yes"
suite = [
    Case(id=f"case-{number}", prompt=f"touch x; chmod 500 x; echo {word}", check=yes)
    for number, word in enumerate(["yes", "yes", "no", "yes", "yes"])
]
"""
ARMS = ("--arm", "old=env:A=1", "--arm", "new=env:A=2")


@pytest.fixture
def five(project: Project) -> Project:
    """A project of five cases, of which one fails."""
    project.settings(SHELL)
    project.suite(SUITE)
    return project


def _shards(project: Project, of: int, *args: str) -> list[Path]:
    return [project.run("--shard", f"{number}/{of}", *args).folder for number in range(1, of + 1)]


def _merge(project: Project, *runs: Path | str, into: str = "merged") -> Outcome:
    done = project.whet("merge", *map(str, runs), "--output-dir", into)
    return Outcome(done.code, done.stdout, done.stderr, project.root / into)


def _told(results: dict[str, Any]) -> Any:
    """What a run says, but for its name, its place and its times."""
    different = {"run_id", "started_at", "ended_at", "duration_s", "session_s", "record", "seed", "started", "usage"}
    if isinstance(results, dict):
        return {name: _told(value) for name, value in results.items() if name not in different}
    return [_told(each) for each in results] if isinstance(results, list) else results


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_shards_become_the_record_that_one_run_would_have_made(five: Project):
    whole = five.run("--trials", "2").results
    shards = _shards(five, 3, "--trials", "2")

    done = _merge(five, *shards)

    assert done.code == 1, done.stderr
    assert "8 of 10 trials went as expected; 2 failed" in done.stdout
    assert f"merged 3 shards into merged/{done.folder.name}" in done.stderr
    # Nothing runs, so the heading says nothing of how.
    heading = [line.split()[:1] for line in done.stdout.partition("\n\n")[0].splitlines()]
    assert ["merged"] in heading
    assert not [word for word in (["done"], ["schedule"]) if word in heading]
    assert _told(done.results) == _told(whole)
    verified = five.whet("verify", str(done.folder))
    assert (verified.code, "note:" in verified.stdout) == (0, False), verified.stdout
    assert [each["run"] for each in done.asked["merged"]] == [shard.name for shard in shards]
    kept = done.folder / done.trial("case-2")["workspace_dir"]
    assert (kept / "x").stat().st_mode & 0o777 == 0o500


def test_what_is_merged_is_compared_regraded_exported_and_shown_as_any_run(five: Project):
    whole = five.run("--trials", "2").folder
    done = _merge(five, *_shards(five, 2, "--trials", "2"), into=str(five.output_dir))

    compared = five.whet("compare", str(whole), "latest", "--json")
    exported = five.whet("export", "latest", "--format", "jsonl")
    pages = five.whet("report", "latest", "--html", "out.html")
    regraded = five.whet("regrade", done.folder.name)
    again = five.run("--last-failed", "--dry-run")
    history = json.loads(five.whet("history", "suite.py", "--json").stdout)

    assert len(history["points"]) == 3
    assert json.loads(compared.stdout)["difference"] == 0
    assert exported.stdout.count("\n") == 10
    assert pages.code == 0
    assert "none of 10 verdicts changed" in regraded.stdout
    assert "case-2" in again.stdout
    assert "case-1" not in again.stdout


def test_a_folder_of_artifacts_stands_for_the_runs_in_it(five: Project):
    for number in (1, 2, 3):
        five.run("--shard", f"{number}/3")
        # An upload may follow the link `latest`, so that a run is there twice.
        shutil.copytree(five.output_dir, five.root / "down" / f"job-{number}", symlinks=False)
        shutil.rmtree(five.output_dir)

    done = _merge(five, "down", into="down/merged")

    assert done.code == 1, done.stderr
    assert done.results["counts"]["total"] == 5
    again = _merge(five, "down")
    assert (again.code, again.results["counts"]["total"]) == (1, 5), again.stderr
    assert "must not be empty" in _merge(five, "").stderr


def test_in_a_folder_runs_that_are_no_shards_are_passed_over(five: Project):
    five.run()
    ordinary = _merge(five, str(five.output_dir))
    shards = _shards(five, 2)
    five.whet("regrade", shards[0].name)

    done = _merge(five, str(five.output_dir))
    merged = _merge(five, "merged", into="again")
    named = _merge(five, str(five.output_dir), *sorted(five.output_dir.glob("2*"))[:1])

    assert (ordinary.code, "there is no shard in" in ordinary.stderr) == (2, True), ordinary.stderr
    assert (done.code, len(done.asked["merged"])) == (1, 2), done.stderr
    assert "not a shard, so skipped: 2 runs\n" in done.stderr
    assert (merged.code, "is merged already" in merged.stderr) == (2, True), merged.stderr
    assert (named.code, "is not a shard" in named.stderr) == (2, True), named.stderr


def test_shards_may_come_from_machines_with_other_places(five: Project, tmp_path: Path):
    five.write("template/a.txt", "a\n")
    five.settings(SHELL + '[run.workspace]\nmode = "isolated"\ntemplate_dir = "template"\n')
    shutil.copytree(five.root, tmp_path / "elsewhere" / "project")
    first = five.run("--shard", "1/2").folder
    five.whet("run", "suite.py", "--shard", "2/2", cwd=tmp_path / "elsewhere" / "project")
    second = (tmp_path / "elsewhere" / "project/.whet/runs/latest").resolve()

    done = _merge(five, first, second)

    assert done.code == 1, done.stderr
    assert done.results["counts"]["total"] == 5
    (tmp_path / "elsewhere" / "project/template/a.txt").write_text("b\n")
    five.whet("run", "suite.py", "--shard", "2/2", cwd=tmp_path / "elsewhere" / "project")
    other = _merge(five, first, (tmp_path / "elsewhere" / "project/.whet/runs/latest").resolve())
    assert other.code == 2
    assert "agents did not start from the same <>/template/a.txt" in other.stderr


def test_arms_that_took_turns_in_each_shard_are_compared_as_one(five: Project):
    shards = _shards(five, 2, *ARMS, "--trials", "2")

    done = _merge(five, *shards)
    gate = five.whet("gate", str(done.folder), "--margin", "90")

    assert done.results["counts"]["total"] == 20
    assert done.results["comparisons"][0]["difference"] == 0
    seeds = [json.loads((shard / "run.json").read_text())["seed"] for shard in shards]
    assert [each["seed"] for each in done.asked["merged"]] == seeds
    assert done.results["seed"] == seeds[0]
    assert "at different times" not in gate.stdout
    assert gate.code == 0, gate.stdout + gate.stderr
    assert five.whet("verify", str(done.folder)).code == 0


def test_a_missing_shard_is_named_and_can_be_run_in_what_there_is(five: Project):
    first, _, third = _shards(five, 3)

    refused = _merge(five, first, third)
    done = _merge(five, first, third, "--partial", into=str(five.output_dir))
    compared = five.whet("compare", str(first), "latest")
    resumed = five.whet("run", "--resume", "latest")

    assert refused.code == 2
    assert 'not all shards are there: "2/3" is missing' in refused.stderr
    assert "--partial" in refused.stderr
    assert not _names(five.root / "merged")
    assert done.code == 3
    assert "merged 2 shards with 3 trials" in done.stderr
    assert "the run is not finished: 2 trials are missing" in compared.stdout
    assert resumed.results["counts"]["total"] == 5, resumed.stderr
    assert resumed.results["counts"]["passed"] == 4
    assert five.whet("verify", "latest").code == 0
    assert five.whet("run", "--resume", "latest", "--add-trials", "1").results["counts"]["total"] == 10
    assert five.whet("verify", "latest").code == 0


def test_shards_are_not_merged_into_one_of_them(five: Project):
    first, second = _shards(five, 2)
    before = _names(first)

    done = _merge(five, first, second, into=str(first / "trials"))

    assert done.code == 2
    assert f"--output-dir is in {first}, which is a shard" in done.stderr
    assert _names(first) == before


def test_shards_above_the_number_of_pieces_are_not_missed(five: Project):
    shards = _shards(five, 7, "--case", "case-0,case-1")[:2]

    done = _merge(five, *shards)

    assert done.code == 0, done.stderr


def test_a_shard_that_is_there_twice_counts_once_unless_its_results_differ(five: Project, tmp_path: Path):
    first, second = _shards(five, 2)
    shutil.copytree(first, tmp_path / "copy", symlinks=True)
    # As it was when a job was stopped, before another went on with it.
    shutil.copytree(first, tmp_path / "before", symlinks=True)
    lines = (first / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "before/journal.jsonl").write_bytes(lines[0])
    (tmp_path / "before/results.json").unlink()
    again = five.run("--shard", "1/2").folder

    same = _merge(five, tmp_path / "before", tmp_path / "copy", first, second)
    other = _merge(five, first, second, again)

    assert same.code == 1, same.stderr
    assert same.results["counts"]["total"] == 5
    assert other.code == 2
    assert "it is there twice, with different results" in other.stderr


def _with_other_suite(project: Project) -> Path:
    project.suite(SUITE.replace('"yes", "yes"]', '"yes", "no"]'))
    return project.run("--shard", "2/2").folder


def _regraded(project: Project) -> Path:
    project.run("--shard", "2/2")
    return project.whet("regrade", "latest").folder


def _changed(project: Project) -> Path:
    folder = project.run("--shard", "2/2").folder
    next(folder.glob("trials/*/*/*/1/1/transcript*")).write_text("other\n")
    return folder


def _changed_journal(project: Project) -> Path:
    folder = project.run("--shard", "2/2").folder
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"passed"', b'"failed"', 1))
    return folder


def _changed_mode(project: Project) -> Path:
    """As some archives leave it."""
    folder = project.run("--shard", "1/2").folder
    next(folder.glob("workspaces/*/*/*/1/1/x")).chmod(0o644)
    return folder


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda five: five.run("--shard", "2/2", "--trials", "2").folder, "run.trials is 1 in one, and 2"),
        (
            lambda five: five.run("--shard", "2/2", "--retries", "1").folder,
            "run.retries is 0 in one, and 1",
        ),
        (lambda five: five.run("--shard", "2/2", "--case", "case-*").folder, "their selections differ"),
        (lambda five: five.run("--shard", "2/2", "--model", "large").folder, "their options differ"),
        (
            lambda five: five.run("--shard", "2/2", *ARMS).folder,
            "their arms differ",
        ),
        (lambda five: five.run("--shard", "3/3").folder, "the suite was dealt in 2 and in 3 shards"),
        (lambda five: five.run().folder, "is not a shard"),
        (_with_other_suite, "they are runs of"),
        (_regraded, "regrades"),
        (_changed, "has changed since line"),
        (_changed_journal, "line 1 has changed"),
        (_changed_mode, "pack it with tar"),
    ],
)
def test_what_does_not_belong_together_is_refused(five: Project, make: Any, said: str):
    first = five.run("--shard", "1/2").folder

    done = _merge(five, first, make(five))

    assert done.code == 2, done.stdout
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not _names(five.root / "merged")


def test_what_is_merged_already_and_a_run_under_way_are_refused(five: Project):
    first, second = _shards(five, 2)
    merged = _merge(five, first, second).folder
    five.suite(SUITE + 'suite[4] = Case(id="case-4", prompt="touch {outside}/on; sleep 60", check=yes)\n')
    begun = five.start("suite.py", "--shard", "1/2")
    wait_for(five.outside / "on")

    again = _merge(five, first, merged)
    busy = _merge(five, (five.output_dir / "latest").resolve(), second)
    begun.send_signal(signal.SIGINT)
    five.outcome(begun)
    unfinished = _merge(five, (five.output_dir / "latest").resolve())

    assert "is merged already" in again.stderr
    assert "is in use by another whet" in busy.stderr
    assert (again.code, busy.code, unfinished.code) == (2, 2, 2)
    both = five.run("--shard", "2/2").folder, sorted(five.output_dir.glob("2*"))[-2]
    stopped = _merge(five, *both)
    assert "is not finished: 1 trial of it is missing" in stopped.stderr
    assert f"whet run --resume {both[1].name}" in stopped.stderr


def _forged(five: Project, change: Any, files: dict[str, str]) -> Outcome:
    """Merge a shard whose journal says something else, with hashes that fit."""
    first, second = _shards(five, 2)
    results = [read_result(line) for line in (second / "journal.jsonl").read_bytes().splitlines(keepends=True)]
    for name in ("journal.jsonl", "results.json"):
        (second / name).unlink()
    shutil.rmtree(second / "trials")
    journal = Journal(second / "journal.jsonl")
    for result in results:
        journal.append(codec.decode(codec.encode(change(json.loads(codec.encode(result)))), TrialResult), files)
    journal.close()
    return _merge(five, first, second, "--partial")


def test_a_forged_record_leads_nowhere(five: Project, tmp_path: Path):
    (tmp_path / "secret" / "1").mkdir(parents=True)
    (tmp_path / "secret" / "1" / "key").write_text("secret\n")
    away = f"{'../' * 12}{tmp_path}/secret/1"
    fits = {f"{away}/key": hashlib.sha256(b"secret\n").hexdigest()}

    done = _forged(five, lambda result: {**result, "artifact_dir": away}, fits)

    assert done.code == 2
    assert "which is not in the record" in done.stderr
    assert not _names(five.root / "merged")


def test_a_shard_says_nothing_about_the_trials_of_others(five: Project):
    done = _forged(five, lambda result: {**result, "key": {**result["key"], "case": "case-0"}}, {})

    assert done.code == 2
    assert "which this shard was not asked" in done.stderr


def test_notes_money_and_growth_are_carried_over(five: Project):
    shards = _shards(five, 2)
    for shard in shards:
        five.whet("run", "--resume", shard.name, "--add-trials", "1")
        key = {"case": "case-0" if shard == shards[0] else "case-1", "runner": "sh", "arm": "default", "number": 1}
        note = {"id": shard.name, "at": "now", "by": None, "text": "look", "verdict": "failed"}
        (shard / "notes.jsonl").write_text(json.dumps({"key": key, "note": note}) + "\n" + '{"cut off')
        spent = {"key": {"suite": "suite", **key}, "usage": {"total_tokens": 5, "cost_usd": 0.5}}
        (shard / "spent.jsonl").write_text(json.dumps(spent) + "\n")
        five.whet("run", "--resume", shard.name)

    done = _merge(five, *shards)

    assert done.code == 1, done.stderr
    assert done.results["counts"]["total"] == 10
    assert done.results["grown_from"] == [1]
    assert done.results["interrupted_usage"]["cost_usd"] == 1.0
    assert len((done.folder / "notes.jsonl").read_text().splitlines()) == 2
    assert five.whet("verify", str(done.folder)).code == 0
    more = five.run("--shard", "1/2").folder
    uneven = _merge(five, more, shards[1])
    assert "one was made longer by none per case and arm, the other by 1 trial" in uneven.stderr


def test_each_shard_keeps_the_workspace_that_its_trials_shared(five: Project):
    five.settings(SHELL + '[run.workspace]\nmode = "shared"\nbootstrap = { command = "touch", args = ["begun"] }\n')
    five.suite('suite = [Case(id=f"case-{n}", prompt=f"touch case-{n}", check=no) for n in range(4)]')
    shards = _shards(five, 2)

    done = _merge(five, *shards)

    assert done.code == 1, done.stderr
    left = {path.name: _names(path) for path in (done.folder / "workspaces").iterdir() if path.is_dir()}
    assert left == {"shared": {"begun", "case-0", "case-2"}, "shared-2": {"begun", "case-1", "case-3"}}
    assert five.whet("verify", str(done.folder)).code == 0
    (done.folder / "workspaces/shared-2/case-1").write_text("changed")
    assert "shared-2/case-1: has changed" in five.whet("verify", str(done.folder)).stdout


def test_shards_of_what_failed_last_time_are_merged_and_resumed(five: Project):
    five.suite(SUITE.replace('["yes", "yes", "no"', '["yes", "no", "no"'))
    five.run()
    shutil.copytree(five.output_dir, five.root / "runs-2", symlinks=True)
    first = five.run("--last-failed", "--shard", "1/2").folder
    five.whet("run", "suite.py", "--last-failed", "--shard", "2/2", "--output-dir", "runs-2")
    second = (five.root / "runs-2/latest").resolve()

    resumed = five.whet("run", "--resume", first.name)
    done = _merge(five, first, second)

    assert resumed.code == 1, resumed.stderr
    assert [case["id"] for case in done.results["cases"]] == ["case-1", "case-2"]


PART = """
def yes(report, ctx): assert report.final_output.strip() == "yes"
suite = [Case(id=f"case-{number}", prompt="echo yes", check=yes) for number in range(COUNT)]
"""


@pytest.fixture
def many(project: Project) -> Project:
    """A project of three suites, two of which have the same name."""
    project.settings(SHELL)
    for name, cases in (("one/first.py", "3"), ("two/first.py", "2"), ("two/last.py", "1")):
        project.suite(PART.replace("COUNT", cases), name)
    return project


def test_shards_of_several_suites_become_one_batch(many: Project):
    whole = many.whet("run", ".").trials
    shards = [many.whet("run", ".", "--shard", f"{number}/3").folder for number in (1, 2, 3)]

    done = _merge(many, *shards)
    runs = json.loads((done.folder / "batch.json").read_text())["runs"]

    assert done.code == 0, done.stderr
    assert "6 of 6 trials went as expected" in done.stdout
    assert [run["name"] for run in runs] == ["one/first", "two/first", "last"]
    places = {each["artifact_dir"].rpartition("/trials/")[2] for each in done.trials}
    assert places == {each["artifact_dir"].rpartition("/trials/")[2] for each in whole}
    assert all((done.folder / each["artifact_dir"]).is_dir() for each in done.trials)
    assert many.whet("verify", str(done.folder)).code == 0
    missing = _merge(many, *shards[:2], into="other")
    assert 'not all shards are there: "3/3" is missing' in missing.stderr


def test_a_batch_that_is_not_whole_is_gone_on_with(many: Project):
    shards = [many.whet("run", ".", "--shard", f"{number}/3").folder for number in (1, 2, 3)]

    done = _merge(many, *shards[1:], "--partial", into=str(many.output_dir))
    resumed = many.whet("run", "--resume", "latest")

    assert done.code == 3
    assert resumed.code == 0, resumed.stderr
    assert many.whet("verify", "latest").code == 0


def test_runs_of_suites_that_were_not_dealt_together_are_refused(many: Project):
    first = many.whet("run", "one/first.py", "--shard", "1/1").folder
    other = many.whet("run", "two/first.py", "--shard", "1/1").folder
    dealt = many.whet("run", ".", "--shard", "1/1").folder

    assert "they are runs of" in _merge(many, first, other).stderr
    assert "they are runs of" in _merge(many, first, dealt).stderr
    assert _merge(many, dealt).code == 0


LARGE = """
def never(report, ctx): assert False
suite = [Case(id=f"case-{n}", prompt="mkdir d; cd d; seq 4000 | xargs touch", check=never) for n in range(4)]
"""


def test_a_killed_merge_leaves_nothing_that_looks_like_a_run(five: Project):
    five.suite(LARGE)
    shards = _shards(five, 2)
    merged = five.root / "merged"
    begun = five.start(*map(str, shards), "--output-dir", "merged", command="merge")
    wait_for(merged, pattern=".merge-*/*/run.json")

    begun.kill()
    begun.communicate()

    assert len(list(merged.glob(".merge-*"))) == 1
    assert not list(merged.glob("*/run.json"))
    assert "there is no run" in five.whet("verify", "latest", "--output-dir", "merged").stderr
    done = _merge(five, *shards)
    assert done.code == 1, done.stderr
    assert _names(merged) == {done.folder.name, "latest"}


def test_a_disk_that_is_full_is_said_and_nothing_is_left(five: Project):
    shards = _shards(five, 2)
    # The system refuses to write larger files, as a disk that is full would.
    five.starter = ("prlimit", "--fsize=8000")

    done = _merge(five, *shards)

    assert done.code != 0
    assert "File too large" in done.stderr
    assert "free some space" in done.stderr
    assert "Traceback" not in done.stderr
    assert not _names(five.root / "merged")
