"""The queue of labels: blind, the same for several people, and nothing that was said is lost."""

from __future__ import annotations

import io
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from whet.cli.judge.terminal import ask
from whet.errors import UsageError
from whet.record.judging.labels_file import read_labels
from whet.record.judging.runs import JudgedRuns, read_judged
from whet.view.addresses import Missing
from whet.view.labels.desk import LabelDesk
from whet.view.labels.queue import LabelQueue, LabelsBeside, QueueOptions

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from judged_run import JudgedTrial, make_judged_run

TRUE, SHORT = "It names Jupiter.", "It is short."
HIDDEN = ("hidden-arm", "other-arm", "secret-runner", "a-judge", "Because.", "pass", "fail", "verdict", "rating")


@pytest.fixture
def judged(tmp_path: Path) -> JudgedRuns:
    trials = [
        JudgedTrial(case=case, arm=arm, number=number, answer=f"Jupiter, {case}.", ratings={TRUE: [9], SHORT: [2]})
        for case in ("a", "b")
        for arm in ("hidden-arm", "other-arm")
        for number in (1, 2)
    ]
    run = make_judged_run(tmp_path / "run", tmp_path / "s.json", trials, runner="secret-runner")
    return read_judged([str(run)], tmp_path)


def queue_of(judged: JudgedRuns, n: int = 6, *, second: bool = False) -> LabelQueue:
    folders = {run.run_dir.name: run.run_dir for run in judged.runs}
    options = QueueOptions(n=n, seed="a seed", second=second)
    return LabelQueue(judged.units, folders, LabelsBeside(judged.labels), options)


def test_nothing_that_is_served_says_what_a_person_must_not_know(judged: JudgedRuns) -> None:
    desk = LabelDesk(queue_of(judged), "ada")

    served = desk.get("labels", {})
    for name in json.loads(served)["names"]:
        served += desk.get(f"labels/{name}", {})

    assert [word for word in HIDDEN if word in served.decode().replace(str(judged.labels), "")] == []
    assert "Jupiter, a." in served.decode()


@pytest.mark.parametrize("path", ["runs", "runs/run", "runs/run/notes", "labels/zz", "labels/zz/reason", "history/s"])
def test_nothing_but_the_queue_is_served(judged: JudgedRuns, path: str) -> None:
    desk = LabelDesk(queue_of(judged), "ada")

    with pytest.raises(Missing):
        desk.get(path, {})


def test_the_judges_reason_is_refused_before_a_label_and_a_label_after_it_does_not_count(judged: JudgedRuns) -> None:
    queue = queue_of(judged)
    name = queue.document("ada").names[0]

    with pytest.raises(UsageError, match="after your label"):
        queue.reason(name, "ada")
    queue.label(name, "true", "ada")
    reason = queue.reason(name, "ada")
    late = queue.label(name, "false", "ada")

    assert (reason.verdict in ("pass", "fail"), reason.reason.endswith("Because.")) == (True, True)
    assert not late.counts
    assert [line.label.after_reveal for line in read_labels(judged.labels)] == [False, True]
    # Somebody else has to say something first, too.
    with pytest.raises(UsageError, match="after your label"):
        queue.reason(name, "ben")


def test_a_label_is_kept_with_how_it_was_drawn_and_the_statement_is_asked_no_more(judged: JudgedRuns) -> None:
    queue = queue_of(judged)
    first, *others = queue.document("ada").names

    queue.label(first, "unsure", " ada ", " odd words ")

    assert queue.document("ben").names == tuple(others)
    [line] = read_labels(judged.labels)
    assert (line.label.by, line.label.note, line.label.seed, line.label.label) == (
        "ada",
        "odd words",
        "a seed",
        "unsure",
    )
    assert line.label.stratum
    assert line.label.draw


def test_a_label_can_be_taken_back_and_one_that_was_there_before_cannot(judged: JudgedRuns) -> None:
    earlier = queue_of(judged)
    names = earlier.document("ada").names
    kept = earlier.label(names[0], "true", "ada")
    queue = queue_of(judged)
    mistake = queue.label(names[1], "true", "ada")

    queue.take_back(mistake.id, "ada")

    assert [line.id for line in read_labels(judged.labels)] == [kept.id]
    with pytest.raises(Missing):
        queue.take_back(kept.id, "ada")


def test_a_longer_queue_goes_on_where_the_shorter_one_ended(judged: JudgedRuns) -> None:
    short, long = queue_of(judged, 3).document("ada"), queue_of(judged, 9).document("ada")

    assert set(short.names) < set(long.names)
    assert (short.drawn, long.drawn) == (3, 9)


def test_a_second_person_is_asked_about_a_third_of_what_another_has_labelled(judged: JudgedRuns) -> None:
    queue = queue_of(judged, 16)
    for name in queue.document("ada").names[:9]:
        queue.label(name, "true", "ada")

    second = queue_of(judged, second=True)

    assert len(second.document("ben").names) == 3
    assert second.document("ada").names == ()


def test_two_people_at_once_lose_nothing(judged: JudgedRuns) -> None:
    names = queue_of(judged, 16).document("ada").names

    def work(person: str) -> None:
        queue = queue_of(judged, 16)
        for name in names:
            queue.label(name, "true" if person == "ada" else "false", person)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, ["ada", "ben"]))

    said = [(line.label.by, line.label.label) for line in read_labels(judged.labels)]
    assert (said.count(("ada", "true")), said.count(("ben", "false")), len(said)) == (16, 16, 32)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{}", "missing required field"),
        (b'{"label": "perhaps", "by": "ada"}', "perhaps"),
        (b'{"label": "true", "by": "  "}', "name of a person"),
        (b'{"label": "true", "by": "' + b"a" * 201 + b'"}', "1 to 200 characters"),
        (b'{"label": "true", "by": "ada", "note": "' + b"n" * 20_001 + b'"}', "at most 20,000"),
        (b'{"label": "true", "by": "ada", "judge_id": "mine"}', "unknown field"),
        (b"\xff", "not a label"),
    ],
)
def test_what_is_no_label_is_refused_and_nothing_is_kept(judged: JudgedRuns, body: bytes, reason: str) -> None:
    queue = queue_of(judged)
    desk = LabelDesk(queue, "ada")
    name = queue.document("ada").names[0]

    with pytest.raises(UsageError, match=reason):
        desk.add(f"labels/{name}", body)

    assert read_labels(judged.labels) == []


def test_the_policy_of_the_suite_is_shown_and_its_digest_is_kept(judged: JudgedRuns) -> None:
    judged.labels.with_name("labelling.md").write_text("Jupiter must be spelt out.")
    queue = queue_of(judged)
    document = queue.document("ada")

    queue.label(document.names[0], "true", "ada")

    assert document.policy == "Jupiter must be spelt out."
    assert read_labels(judged.labels)[0].label.policy


def test_the_terminal_asks_until_it_is_told_to_stop(judged: JudgedRuns) -> None:
    typed = io.StringIO("t\nx\nr\nb\nf\ns\nn\nodd words\nu\nq\n")
    shown = io.StringIO()

    assert ask(queue_of(judged), "ada", typed, shown) == 0

    labels = [(line.label.label, line.label.note) for line in read_labels(judged.labels)]
    assert labels == [("false", None), ("unsure", "odd words")]
    # The first one was taken back after the judge's reason was shown.
    assert [line.label.after_reveal for line in read_labels(judged.labels)] == [True, False]
    text = shown.getvalue()
    before_the_reason = text.partition("the judge said")[0]
    assert [word for word in HIDDEN if word in before_the_reason] == []
    assert "4 left: type the same again to go on" in text


def test_the_terminal_ends_where_only_skipped_statements_are_left(judged: JudgedRuns) -> None:
    shown = io.StringIO()

    ask(queue_of(judged, 2), "ada", io.StringIO("s\ns\n"), shown)

    assert "Only statements that you skipped are left" in shown.getvalue()
    assert read_labels(judged.labels) == []
