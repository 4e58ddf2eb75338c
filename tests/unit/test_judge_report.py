"""`whet judge report`, and what labels do to `compare` and `gate`: with records whose judge is wrong in a known way."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

from whet.cli.grammar.application import application
from whet.decide.judging.draw import draw
from whet.errors import StoreError, UsageError
from whet.grade.judge.client import JudgeSettings
from whet.record.judging.judged import judged_units
from whet.record.judging.labelling import new_label
from whet.record.judging.labels_file import add_labels, labels_path
from whet.record.read.run import read_run
from whet.view.run import RunView

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from judged_run import USUAL, JudgedTrial, make_judged_run

STATEMENT = "It names Jupiter."


class Judged:
    """A project with one run whose judge passes 95 % of what is true, and another part of what is false in each arm."""

    def __init__(self, root: Path, *, cases: int = 20, old: float = 0.5, new: float = 0.7, favour: float = 0.0) -> None:
        self.root, self.suite = root, root / "evals" / "evals.json"
        self.suite.parent.mkdir(parents=True)
        random = Random(1)
        self.trials: list[JudgedTrial] = []
        self.truth: dict[tuple[str, str, int], bool] = {}
        for case in (f"c{number:02}" for number in range(cases)):
            for arm, rate in (("old", old), ("new", new)):
                for number in range(1, 6):
                    holds = random.random() < rate
                    passes = random.random() < (0.95 if holds else 0.1 + (favour if arm == "new" else 0.0))
                    self.truth[case, arm, number] = holds
                    ratings = {STATEMENT: [9.5 if passes else 3.0]}
                    answer = f"{case} {arm} {number}"
                    self.trials.append(JudgedTrial(case=case, arm=arm, number=number, answer=answer, ratings=ratings))

    def make(self, name: str = "one", judge: JudgeSettings = USUAL) -> Path:
        return make_judged_run(self.root / ".whet" / "runs" / name, self.suite, self.trials, judge=judge)

    def label(self, run: Path, n: int, by: str = "ann", *, unsure: Callable[[str], bool] = lambda arm: False) -> None:
        units = judged_units(read_run(run))
        labels = []
        for entry in draw(units, n, run.name):
            key = entry.unit.key
            word = "true" if self.truth[key.case, key.arm, key.trial] else "false"
            labels.append(
                new_label(
                    entry.unit,
                    "unsure" if unsure(key.arm) else word,
                    by,
                    drawn=entry,
                    seed=run.name,  # type: ignore[arg-type]
                )
            )
        add_labels(labels_path(self.suite), labels)

    def whet(self, *words: str) -> Result:
        return CliRunner().invoke(application(), [*words])

    def document(self, *words: str) -> dict[str, Any]:
        done = self.whet(*words, "--json")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    monkeypatch.chdir(tmp_path)
    return Judged(tmp_path)


@pytest.fixture
def favouring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    """Both arms are alike, and the judge passes 40 points more of the candidate's failures."""
    monkeypatch.chdir(tmp_path)
    return Judged(tmp_path, old=0.5, new=0.5, favour=0.4)


def test_a_report_says_how_well_the_judge_agrees_and_where_not(judged: Judged) -> None:
    judged.label(judged.make(), 60)

    found, text = judged.document("judge", "report", "one"), judged.whet("judge", "report", "one").stdout

    agreement = found["agreement"]
    assert (found["units"], found["labels"], found["people"]) == (200, 60, ["ann"])
    assert agreement["true"] + agreement["false"] == 60
    assert agreement["tpr_limits"][0] < agreement["tpr"] <= agreement["tpr_limits"][1]
    assert agreement["tpr"] > 0.8
    assert [arm["arm"] for arm in found["arms"]] == ["old", "new"]
    wrong = found["statements"][0]["labels"] - found["statements"][0]["right"]
    assert len(found["disagreements"]) == wrong > 0
    assert Path(found["disagreements"][0]["folder"]).is_dir()
    assert "judge: a-judge (openai), 1 vote, temperature 0, passes from 7 of 10 on" in text
    assert "labels: 60 of 200 statements of one by ann" in text
    assert "kappa" in text


def test_without_labels_a_report_says_how_to_make_some_and_saves_nothing(judged: Judged) -> None:
    judged.make()

    done = judged.whet("judge", "report", "one")

    assert "no label counts yet: whet judge label one" in done.stdout
    with pytest.raises(UsageError, match="no label counts yet"):
        raise judged.whet("judge", "report", "one", "--save").exception or AssertionError


def test_a_judge_that_favours_an_arm_shows_in_the_line_of_the_arms_and_in_what_is_counted(favouring: Judged) -> None:
    favouring.label(favouring.make(), 200)

    found = favouring.document("judge", "report", "one")
    text = favouring.whet("judge", "report", "one").stdout

    (apart,), (difference,) = found["apart"], found["counted"]
    assert (apart["baseline"], apart["candidate"]) == ("old", "new")
    assert apart["failures_passed"]["low"] > 0
    assert difference["raw"]["low"] > 0
    assert difference["rogan_gladen"]["low"] > 0
    assert difference["counted"]["low"] < 0 < difference["counted"]["high"]
    assert "points more of new's failures" in text


def test_labels_of_another_judge_are_stale_and_the_reason_is_named(judged: Judged) -> None:
    judged.label(judged.make("one"), 60)
    judged.make("two", judge=JudgeSettings(model="another", votes=1))

    found = judged.document("judge", "report", "two")
    compared = judged.document("compare", "two", "old", "new")

    assert found["stale"] == [{"reason": "judge changed (model)", "labels": 60}]
    assert (found["labels"], found["agreement"], found["quality"]) == (0, None, "not known")
    assert compared["judging"]["check"] == "stale"


def test_labels_of_an_earlier_run_count_for_the_same_judge_on_other_answers(judged: Judged, tmp_path: Path) -> None:
    judged.label(judged.make("one"), 60)
    other = Judged(tmp_path / "other")
    other.suite = judged.suite
    other.root = judged.root
    other.trials = [
        JudgedTrial(
            case=trial.case, arm=trial.arm, number=trial.number, answer=f"new {trial.answer}", ratings=trial.ratings
        )
        for trial in other.trials
    ]
    other.make("two")

    first, second = (judged.document("judge", "report", name) for name in ("one", "two"))

    assert (second["labels"], second["elsewhere"], second["stale"]) == (0, 60, [])
    assert second["agreement"]["tpr"] == pytest.approx(first["agreement"]["tpr"])
    assert second["agreement"]["tnr_limits"] == pytest.approx(first["agreement"]["tnr_limits"])
    assert second["counted"][0]["counted"]["value"] is None


def test_two_people_are_shown_as_the_ceiling_and_the_first_one_counts(judged: Judged) -> None:
    run = judged.make()
    judged.label(run, 40)
    judged.truth = {key: not truth for key, truth in judged.truth.items()}
    judged.label(run, 20, by="bob")

    found = judged.document("judge", "report", "one")

    assert found["people"] == ["ann", "bob"]
    assert (found["ceiling"]["pairs"], found["ceiling"]["alike"]) == (20, 0)
    assert found["agreement"]["tpr"] > 0.7


def test_people_who_are_unsure_of_one_arm_only_are_a_warning(judged: Judged) -> None:
    judged.label(judged.make(), 60, unsure=lambda arm: arm == "new")

    found = judged.document("judge", "report", "one")

    assert found["unsure"] == 30
    assert any("people are unsure of 0 % in old and of 100 % in new" in warning for warning in found["warnings"])
    assert any("no label on the" in warning for warning in found["warnings"])


def test_a_threshold_is_suggested_by_sixty_labels_and_changes_nothing(judged: Judged) -> None:
    run = judged.make()
    judged.label(run, 30)
    with pytest.raises(UsageError, match="30 labels are too few"):
        raise judged.whet("judge", "report", "one", "--suggest-threshold").exception or AssertionError
    judged.label(run, 100)

    done = judged.whet("judge", "report", "one", "--suggest-threshold")

    assert "does best on these labels" in done.stdout
    assert "that is optimistic" in done.stdout


def test_compare_counts_by_labels_beside_what_the_judge_says(favouring: Judged) -> None:
    run = favouring.make()
    before = favouring.document("compare", "one", "old", "new")["judging"]
    favouring.label(run, 8)
    few = favouring.document("compare", "one", "old", "new")["judging"]
    favouring.label(run, 100)
    after, text = favouring.document("compare", "one", "old", "new")["judging"], favouring.whet("compare", "one").stdout

    assert (before["check"], before["counted"], before["share"]) == ("not-checked", None, 1.0)
    assert before["of_failures"] == pytest.approx(before["favour"] / 0.45, rel=0.2)
    assert (few["check"], few["counted"]["missing"]) == ("too-few", 12)
    assert (after["check"], after["counted"]["labels"]) == ("counted", 100)
    assert after["counted"]["low"] < 0 < after["counted"]["high"]
    assert "all of the difference rests on it; counted" in text


def test_the_page_of_a_run_says_what_people_count_by_now(favouring: Judged) -> None:
    run = favouring.make()
    before = RunView(run).document().comparisons[0].judging
    favouring.label(run, 100)

    after = RunView(run).document().comparisons[0].judging

    assert before is not None
    assert after is not None
    assert (before.check, after.check) == ("not-checked", "counted")
    assert after.counted is not None
    assert after.counted.labels == 100


def test_a_gate_goes_by_labels_if_it_is_asked_to(favouring: Judged) -> None:
    run = favouring.make()

    unlabelled = favouring.whet("gate", "one", "--judge-counted")
    favouring.label(run, 150)
    plain, counted = favouring.whet("gate", "one"), favouring.whet("gate", "one", "--judge-counted")

    assert "judge: new against old: not checked by people" in unlabelled.stdout
    assert "more labels may decide it: whet judge label one" in unlabelled.stdout
    assert plain.stdout.startswith("gate: pass")
    assert counted.stdout.startswith("gate: not known yet")
    assert "judge: new against old: counted" in counted.stdout


def test_a_gate_lets_nothing_pass_that_rests_on_a_judge_nobody_knows_to_be_good(judged: Judged) -> None:
    run = judged.make()
    asked = ("gate", "one", "--judge-agreement", "60")

    unlabelled = judged.document(*asked)
    judged.label(run, 150)
    labelled, strict = judged.document(*asked), judged.document("gate", "one", "--judge-agreement", "99")

    assert (unlabelled["answer"], unlabelled["exit_code"]) == ("unknown", 5)
    assert unlabelled["gated"][-1] == {
        "answer": "unknown",
        "reason": "judge: not checked by people",
        "about": "judge",
    }
    assert (labelled["answer"], strict["answer"]) == ("pass", "unknown")


def test_a_saved_calibration_lets_a_gate_pass_without_labels_until_the_judge_changes(judged: Judged) -> None:
    judged.label(judged.make("one"), 150)
    judged.whet("judge", "report", "one", "--save")
    labels_path(judged.suite).unlink()
    judged.make("two", judge=JudgeSettings(model="another"))
    asked = ("--judge-agreement", "60")

    same, changed = judged.document("gate", "one", *asked), judged.document("gate", "two", *asked)

    assert same["answer"] == "pass"
    assert "judge.lock.json" in same["gated"][-1]["reason"]
    assert changed["gated"][-1]["reason"] == "judge: judge.lock.json is stale: judge changed (model)"
    (judged.suite.parent / "judge.lock.json").write_text("{}")
    with pytest.raises(StoreError, match="is no lock of a judge"):
        raise judged.whet("gate", "one", *asked).exception or AssertionError


def test_what_other_checks_decided_does_not_rest_on_the_judge(judged: Judged) -> None:
    judged.trials = [
        JudgedTrial(
            case=trial.case,
            arm=trial.arm,
            number=trial.number,
            answer=trial.answer,
            ratings={STATEMENT: [9]},
            held={"exit": judged.truth[trial.case, trial.arm, trial.number]},
        )
        for trial in judged.trials
    ]
    judged.make()

    found = judged.document("compare", "one", "old", "new")
    gate = judged.document("gate", "one", "--judge-agreement", "90")

    assert found["judging"]["share"] == pytest.approx(0.0)
    assert [part["about"] for part in gate["gated"]] == ["decision"]


def test_labels_with_a_bad_line_stop_a_report_and_a_comparison_with_the_line(judged: Judged) -> None:
    run = judged.make()
    judged.label(run, 8)
    with labels_path(judged.suite).open("a") as file:
        file.write("<<<<<<< HEAD\n")

    for words in (("judge", "report", "one"), ("compare", "one")):
        with pytest.raises(StoreError, match=r"labels\.jsonl:9: is not a label"):
            raise judged.whet(*words).exception or AssertionError
