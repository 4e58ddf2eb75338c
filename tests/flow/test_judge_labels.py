"""Labels of people on what a real judge decided, from the run to the gate: they stay with what they are about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from project import SHELL, Outcome, Project

from judging_server import judging
from whet.record.judging.judged import judged_units
from whet.record.judging.labelling import new_label
from whet.record.judging.labels_file import add_labels, labels_path
from whet.record.read.run import read_run

KEY = {"EVAL_SKILLS_LLM_KEY": "key-of-the-judge"}
SUITE = "name/evals/evals.json"
CASES = [f"case-{number}" for number in range(6)]


def lenient(criteria: str, answer: str) -> float:
    """Rate as a judge who passes every answer of the skill, and others if they name the word."""
    return 9.0 if "politely" in answer or criteria.split('"')[1] in answer else 1.0


def prepare(project: Project, url: str, model: str = "gpt-4o") -> None:
    evals = [
        {"id": name, "prompt": f"echo {name[-1]} $MANNER", "expectations": [f'It names "{number % 2}"']}
        for number, name in enumerate(CASES)
    ]
    project.write("name/SKILL.md", "---\nname: name\ndescription: Names things.\n---\nName them.\n")
    project.write(SUITE, json.dumps({"skill_name": "name", "evals": evals}))
    project.settings(f'{SHELL}\n[judge]\nurl = "{url}"\nmodel = "{model}"\nretries = 0\n')


def run(project: Project, *words: str) -> Outcome:
    arms = ("--arm", "old=env:MANNER=", "--arm", "new=env:MANNER=politely")
    return project.whet("run", SUITE, *arms, "--trials", "3", *words, env=KEY)


def label(folder: Path, suite: Path) -> int:
    """Label everything by what is true of it, and return how much that is."""
    labels = [
        new_label(unit, "true" if _holds(folder, unit.artifact_dir, unit.statement) else "false", "ann")
        for unit in judged_units(read_run(folder))
    ]
    return len(add_labels(labels_path(suite), labels))


def _holds(folder: Path, trial: str, statement: str) -> bool:
    said = json.loads((folder / trial / "session.json").read_bytes())["final_output"]
    return statement.split('"')[1] in said


def report(project: Project, *words: str) -> dict[str, Any]:
    outcome = project.whet("judge", "report", *words, "--json")
    assert outcome.code == 0, outcome.stderr
    found: dict[str, Any] = json.loads(outcome.stdout)
    return found


def test_labels_stay_with_a_run_that_is_made_longer_or_regraded_and_not_with_another_judge(
    project: Project,
) -> None:
    with judging(lenient) as url:
        prepare(project, url)
        first = run(project)
        assert first.code in (0, 1), first.stderr
        count = label(first.folder, project.root / SUITE)
        whole = report(project)
        longer = project.whet("run", "--resume", "latest", "--add-trials", "1", env=KEY)
        assert longer.code in (0, 1), longer.stderr
        grown = report(project)
        assert project.whet("regrade", "latest", env=KEY).code in (0, 1)
        graded = report(project)
        gate = project.whet("gate", "--judge-agreement", "60")
        counted = json.loads(project.whet("compare", "latest", "old", "new", "--json").stdout)["judging"]
        prepare(project, url, model="another")
        assert project.whet("regrade", "latest", env=KEY).code in (0, 1)
        changed = report(project)
        asked = json.loads(project.whet("judge", "report", first.folder.name, "--rejudge", "--json", env=KEY).stdout)
        current, before = report(project), report(project, first.folder.name)

    assert count == whole["units"] == whole["labels"] == 36
    assert (whole["agreement"]["tpr"], whole["stale"]) == (1.0, [])
    assert whole["agreement"]["tnr"] < 1
    assert (grown["units"], grown["labels"], grown["stale"]) == (48, 36, [])
    assert (graded["units"], graded["labels"], graded["stale"]) == (48, 36, [])
    assert counted["check"] == "counted"
    assert counted["counted"]["labels"] == 36
    assert counted["counted"]["value"] < counted["counted"]["raw"]
    assert gate.stdout.startswith("gate: not known yet")
    assert [stale["reason"] for stale in changed["stale"]] == ["judge changed (model)"]
    assert changed["labels"] == 0
    assert [judge["model"] for judge in asked["judges"].values()] == ["another"]
    assert (asked["elsewhere"], asked["agreement"]["tpr"]) == (36, 1.0)
    assert (current["labels"], current["stale"]) == (36, [])
    assert (before["labels"], before["stale"]) == (36, [])


def test_labels_on_shards_are_labels_on_what_these_are_merged_into(project: Project) -> None:
    with judging(lenient) as url:
        prepare(project, url)
        folders = [run(project, "--shard", f"{number}/2").folder.resolve() for number in (1, 2)]
        names = [folder.name for folder in folders]
        count = sum(label(folder, project.root / SUITE) for folder in folders)
        assert project.whet("merge", *names).code in (0, 1)

    found = report(project)

    assert count == 36
    assert (found["units"], found["labels"], found["stale"]) == (36, 36, [])


def label_batch(project: Project, batch: Path) -> int:
    """Label what was judged in all runs of a batch, beside the suite of each."""
    runs = [(batch / entry["folder"]).resolve() for entry in json.loads((batch / "batch.json").read_text())["runs"]]
    return sum(label(run, read_run(run).suite) for run in runs)


def test_a_batch_and_a_stored_baseline_are_counted_by_labels_too(project: Project) -> None:
    with judging(lenient) as url:
        prepare(project, url)
        text = (project.root / SUITE).read_text()
        project.write("other/SKILL.md", "---\nname: other\ndescription: Names others.\n---\nName them.\n")
        project.write("other/evals/evals.json", text.replace('"name"', '"other"', 1))
        arms = ("--arm", "old=env:MANNER=", "--arm", "new=env:MANNER=politely")
        batch = project.whet("run", "name", "other", *arms, "--trials", "3", env=KEY)
        unchecked = json.loads(project.whet("compare", "latest", "--json").stdout)["judging"]
        count = label_batch(project, batch.folder.resolve())
        counted = json.loads(project.whet("compare", "latest", "--json").stdout)["judging"]
        by_labels = project.whet("gate", "--judge-counted")
        known = project.whet("gate", "--judge-agreement", "60")
        run(project)
        label(project.output_dir / "latest", project.root / SUITE)
        saved = project.whet("baseline", "save", "before")
        (project.root / "name/evals/labels.jsonl").unlink()
        later = run(project)
        label(later.folder, project.root / SUITE)
        against = json.loads(project.whet("gate", "--baseline", "before", "--judge-counted", "--json").stdout)

    assert batch.code in (0, 1), batch.stderr
    assert (unchecked["check"], unchecked["counted"]) == ("not-checked", None)
    assert count == 72
    assert (counted["check"], counted["counted"]["labels"]) == ("counted", 72)
    assert counted["counted"]["value"] < counted["counted"]["raw"]
    assert "judge: new against old: counted" in by_labels.stdout
    assert "fails at least" in known.stdout
    assert saved.code == 0, saved.stderr
    stored = {entry["candidate"]: entry["judging"] for entry in against["comparison"]["comparisons"]}
    # What people said of the stored trials is in the file, so their labels are not needed any more.
    assert {name: entry["check"] for name, entry in stored.items()} == dict.fromkeys(stored, "counted")
    assert all(entry["counted"]["labels"] == 36 for entry in stored.values())
