"""Labels of people on what a judge decided: units of a record, the file, the draw, and what makes labels stale."""

from __future__ import annotations

import json
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from msgspec.structs import replace

from whet.decide.judging.draw import draw, label_queue, second_queue, strata_of
from whet.decide.judging.units import JudgedUnit, UnitKey, match_labels
from whet.errors import StoreError, UsageError
from whet.grade.judge_settings import JudgeSettings
from whet.record.judging.judged import judged_units
from whet.record.judging.labelling import import_labels, new_label
from whet.record.judging.labels_file import add_labels, labels_path, policy_of, read_labels, remove_label
from whet.record.read.run import read_run

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from judged_run import USUAL, JudgedTrial, make_judged_run

NAMED, SHORT = "It names Jupiter.", "It is short."


def trials(number: int = 2, *, answer: str = "Jupiter.", rating: float = 8) -> list[JudgedTrial]:
    return [
        JudgedTrial(
            case=case,
            arm=arm,
            number=place,
            answer=f"{case} {arm} {place}: {answer}",
            ratings={NAMED: [rating], SHORT: [2, 4]},
            held={"exit": True},
        )
        for case in ("a", "b")
        for arm in ("old", "new")
        for place in range(1, number + 1)
    ]


def units_of(tmp_path: Path, name: str = "run", **changes: object) -> list[JudgedUnit]:
    made = {key: changes.pop(key) for key in ("answer", "rating") if key in changes}
    run = make_judged_run(tmp_path / name, tmp_path / "s.json", trials(**made), **changes)
    return judged_units(read_run(run))


def many(count: int = 40) -> list[JudgedUnit]:
    """Units of two arms; every fifth fails, and ratings are near the threshold or far from it by turns."""
    return [
        JudgedUnit(
            run="r",
            suite="s",
            key=UnitKey(f"c{number % 7}", "agent", arm, number, "It is.", ""),
            attempt=1,
            statement="It is.",
            passed=number % 5 > 0,
            rating=(7.5 if number % 2 else 9.5) if number % 5 else 2.0,
            threshold=0.7,
            ratings=(7.0,),
            reason="",
            flags=(),
            statement_id="s",
            answer_id=f"{arm}{number}",
            judge_id="j",
            judge={},
            artifact_dir="",
        )
        for arm in ("new", "old")
        for number in range(count)
    ]


def test_each_statement_on_a_trial_is_a_unit_and_other_checks_are_none(tmp_path: Path) -> None:
    units = units_of(tmp_path)

    first = units[0]
    assert len(units) == 2 * 2 * 2 * 2
    assert (first.key, first.statement) == (UnitKey("a", "agent", "new", 1, NAMED, ""), NAMED)
    assert (first.verdict, first.rating, first.threshold) == ("pass", 8, 0.7)
    assert {(unit.verdict, unit.rating, unit.ratings) for unit in units if unit.statement == SHORT} == {
        ("fail", 3, (2.0, 4.0))
    }
    assert len({unit.statement_id for unit in units}) == 2
    assert len({unit.answer_id for unit in units}) == 8


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"judge": JudgeSettings(model="another")}, "judge changed (model)"),
        ({"judge": JudgeSettings(model="a-judge", temperature=1.0)}, "judge changed (temperature)"),
        (
            {"judge": JudgeSettings(runner="me", runner_model="x")},
            "judge changed (provider, model, runner, temperature)",
        ),
        ({"reference": "Jupiter is the fifth."}, "statement changed"),
        ({"answer": "Saturn."}, "answer changed"),
        ({"rating": 2}, None),
    ],
)
def test_a_label_goes_stale_with_its_reason(tmp_path: Path, changes: dict[str, object], why: str | None) -> None:
    before = units_of(tmp_path, "before")
    lines = add_labels(tmp_path / "labels.jsonl", [new_label(before[0], "true", "me")])

    # The same run, graded again.
    after = [replace(unit, run="before") for unit in units_of(tmp_path, "after", **changes)]
    matching = match_labels(after, lines)

    assert [stale.why for stale in matching.stale] == ([why] if why else [])
    assert [labelled.unit.key for labelled in matching.labelled] == ([] if why else [before[0].key])


def test_other_texts_around_the_questions_and_other_votes_make_labels_stale(tmp_path: Path) -> None:
    before = units_of(tmp_path, "before")
    lines = add_labels(tmp_path / "labels.jsonl", [new_label(before[0], "true", "me")])
    texts = [replace(unit, judge_id="x", judge={**unit.judge, "questions": 99}) for unit in before]
    votes = [replace(unit, judge_id="y", judge={**unit.judge, "votes": 3}) for unit in before]

    assert [stale.why for stale in match_labels(texts, lines).stale] == ["question texts changed"]
    assert [stale.why for stale in match_labels(votes, lines).stale] == ["judge changed (votes)"]


def test_labels_of_another_run_with_the_same_judge_and_statement_are_current_and_elsewhere(tmp_path: Path) -> None:
    lines = add_labels(tmp_path / "labels.jsonl", [new_label(units_of(tmp_path, "one")[0], "true", "me")])

    matching = match_labels(units_of(tmp_path, "two", answer="Something else."), lines)

    assert (matching.labelled, matching.stale) == ((), ())
    assert matching.elsewhere == tuple(lines)


def test_the_last_label_of_each_person_counts_and_none_after_the_reveal(tmp_path: Path) -> None:
    unit = units_of(tmp_path)[0]
    path = tmp_path / "labels.jsonl"
    add_labels(path, [new_label(unit, "false", "me"), new_label(unit, "true", "you"), new_label(unit, "unsure", "me")])
    add_labels(path, [new_label(unit, "true", "me", after_reveal=True)])

    (labelled,) = match_labels([unit], read_labels(path)).labelled

    assert [(line.label.by, line.label.label) for line in labelled.lines] == [("me", "unsure"), ("you", "true")]
    assert labelled.truth is True


def _label_many(path: Path, unit: JudgedUnit, by: str) -> None:
    for number in range(25):
        add_labels(path, [new_label(unit, "true", f"{by}{number}", note="x" * 5000)])


def test_two_processes_that_label_at_once_lose_nothing(tmp_path: Path) -> None:
    unit, path = units_of(tmp_path)[0], tmp_path / "labels.jsonl"

    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as people:
        for work in [people.submit(_label_many, path, unit, by) for by in ("me", "you")]:
            work.result()

    assert {line.label.by for line in read_labels(path)} == {f"{by}{n}" for by in ("me", "you") for n in range(25)}


def test_a_removed_label_is_gone_and_half_a_line_is_dropped_by_the_next(tmp_path: Path) -> None:
    unit, path = units_of(tmp_path)[0], tmp_path / "labels.jsonl"
    first, second = add_labels(path, [new_label(unit, "true", "me"), new_label(unit, "false", "you")])

    assert remove_label(path, first.id, "me")
    assert not remove_label(path, first.id, "me")
    with path.open("ab") as file:
        file.write(b'{"schema": "whet/lab')
    (third,) = add_labels(path, [new_label(unit, "true", "me")])

    assert [line.id for line in read_labels(path)] == [second.id, third.id]


def test_a_last_line_without_its_end_is_kept_because_an_editor_may_leave_it_so(tmp_path: Path) -> None:
    unit, path = units_of(tmp_path)[0], tmp_path / "labels.jsonl"
    add_labels(path, [new_label(unit, "true", "me")])
    path.write_bytes(path.read_bytes().rstrip())

    add_labels(path, [new_label(unit, "true", "you")])

    assert [line.label.by for line in read_labels(path)] == ["me", "you"]


def test_each_bad_line_of_labels_is_named_by_its_number(tmp_path: Path) -> None:
    unit, path = units_of(tmp_path)[0], tmp_path / "labels.jsonl"
    add_labels(path, [new_label(unit, "true", "me")])
    with path.open("ab") as file:
        file.write(b'<<<<<<< HEAD\n\n{"schema": "whet/label/2"}\n{"schema": "whet/label/1", "label": "maybe"}\n')

    with pytest.raises(StoreError) as refusal:
        read_labels(path)

    problems = refusal.value.message.splitlines()
    assert [problem.split(":")[1] for problem in problems] == ["2", "4", "5"]
    assert all("is not a label" in problem for problem in problems)


def test_labels_are_beside_the_suite_and_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    path = labels_path(tmp_path / "evals" / "evals.json")
    path.symlink_to(tmp_path / "elsewhere")

    assert path == labels_path(tmp_path / "evals") == tmp_path / "evals" / "labels.jsonl"
    assert policy_of(path) is None
    (tmp_path / "evals" / "labelling.md").write_text("True is true.")
    assert policy_of(path) is not None


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere.jsonl", "is a link that leads nowhere"),
        ("labels.jsonl", "is a link that leads nowhere"),
        ("elsewhere.jsonl", "is a link, and labels are only added to a file"),
    ],
)
def test_a_link_in_the_place_of_labels_is_refused_in_one_clear_sentence(
    tmp_path: Path, target: str, words: str
) -> None:
    path = tmp_path / "labels.jsonl"
    (tmp_path / "elsewhere.jsonl").write_text("")
    path.symlink_to(tmp_path / target)

    with pytest.raises(StoreError) as refusal:
        add_labels(path, [new_label(many(1)[0], "true", "me")])

    assert refusal.value.message == f"{path} {words}"
    assert refusal.value.hint


def test_strata_are_arm_and_verdict_and_near_and_far_where_both_are_many() -> None:
    sizes = {name: len(members) for name, members in strata_of(many()).items()}

    assert sizes == {
        **{f"{arm}/fail": 8 for arm in ("new", "old")},
        **{f"{arm}/pass/{side}": 16 for arm in ("new", "old") for side in ("near", "far")},
    }


def test_a_draw_takes_equal_numbers_of_each_stratum_until_one_is_used_up_and_goes_on_in_the_same_order() -> None:
    units = many()

    short, longer, whole = (draw(units, n, "seed") for n in (30, 60, 1000))

    assert Counter(entry.stratum for entry in short) == dict.fromkeys(strata_of(units), 5)
    assert longer[:30] == short
    assert len({entry.unit.key for entry in whole}) == len(units) == len(whole)
    assert [entry.place for entry in whole] == list(range(1, len(units) + 1))
    assert draw(units, 30, "another seed") != short


def test_trials_that_come_later_do_not_change_the_order_of_those_that_there_were() -> None:
    fewer, more = many(40), many(50)
    known = {unit.key for unit in fewer}

    before, after = (
        [entry.unit.key for entry in draw(units, 1000, "seed") if entry.stratum == "new/fail"]
        for units in (fewer, more)
    )

    assert [key for key in after if key in known] == before


def test_every_unit_of_a_stratum_is_drawn_as_often_as_any_other() -> None:
    units = many()
    fails = [unit for unit in units if not unit.passed and unit.key.arm == "new"]

    counts = Counter(entry.unit.key for seed in range(400) for entry in draw(units, 24, str(seed)))

    # Four of eight each time: 200 on average, with a standard deviation of 10.
    assert all(150 < counts[unit.key] < 250 for unit in fails)


def test_the_queue_leaves_out_what_has_a_label_and_its_order_tells_no_stratum() -> None:
    units = many()
    done = {entry.unit.key for entry in draw(units, 10, "seed")}

    queue = label_queue(units, 60, "seed", done)

    assert len(queue) == 50
    assert not done & {entry.unit.key for entry in queue}
    assert [entry.place for entry in queue] != sorted(entry.place for entry in queue)


def test_a_second_person_is_asked_about_a_third_of_what_one_other_has_labelled() -> None:
    units = many()
    first = [entry.unit.key for entry in draw(units, 30, "seed")]
    people = dict.fromkeys(first, ("me",))

    queue = second_queue(units, "seed", people, "you")

    assert len(queue) == 10
    assert {entry.unit.key for entry in queue} <= set(first)
    assert second_queue(units, "seed", people, "me") == []


def test_labels_come_from_a_table_and_its_mistakes_are_named(tmp_path: Path) -> None:
    units = units_of(tmp_path)
    table = tmp_path / "labels.csv"
    rows = [f"{units[0].statement_id},{units[0].answer_id},True,ann", f"{units[0].statement_id},nowhere,false,"]
    table.write_text("\n".join(["statement_id,answer_id,label,by", *rows]) + "\n")

    imported = import_labels(table, units, "me")

    assert [(label.by, label.label, label.key) for label in imported.labels] == [("ann", "true", units[0].key)]
    assert imported.unknown == 1
    table.write_text("statement_id,answer_id,label\nx,y,perhaps\nx,y,\n")
    with pytest.raises(UsageError, match=r"labels\.csv:2: label is 'perhaps'.*\n.*labels\.csv:3: label is ''"):
        import_labels(table, units, "me")
    table.write_text("statement_id,label\n")
    with pytest.raises(UsageError, match="has no column answer_id"):
        import_labels(table, units, "me")


def test_feedback_of_skill_creator_counts_where_a_case_has_one_statement(tmp_path: Path) -> None:
    run = make_judged_run(
        tmp_path / "run",
        tmp_path / "s.json",
        [
            JudgedTrial(case=case, arm=arm, number=1, answer=f"{case} {arm}", ratings=ratings)
            for case, ratings in (("a", {NAMED: [8]}), ("b", {NAMED: [8], SHORT: [8]}))
            for arm in ("skill", "no_skill")
        ],
        judge=USUAL,
    )
    units, feedback = judged_units(read_run(run)), tmp_path / "feedback.json"

    def write(*reviews: tuple[str, str]) -> None:
        listed = [{"run_id": name, "feedback": text, "timestamp": "t"} for name, text in reviews]
        feedback.write_text(json.dumps({"reviews": listed, "status": "complete"}))

    write(("eval-1-with_skill-run-1", ""), ("eval-1-without_skill-run-1", "Wrong planet."), ("eval-9-x-run-1", ""))
    imported = import_labels(feedback, units, "me", cases=("a", "b"))
    write(("eval-2-with_skill-run-1", ""))

    assert [(label.key.arm, label.label, label.note) for label in imported.labels] == [
        ("skill", "true", None),
        ("no_skill", "false", "Wrong planet."),
    ]
    assert imported.unknown == 1
    with pytest.raises(UsageError, match="about a case with 2 statements"):
        import_labels(feedback, units, "me", cases=("a", "b"))
