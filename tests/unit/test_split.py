"""Parts of a suite: what cases say of themselves in every format, how the rest is drawn, and the lock that keeps it."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from whet.decide.improve.spending import error_of_step
from whet.errors import SuiteError, UsageError
from whet.model.eval_cases import TriggerQuery
from whet.model.suite import Case, Check, Part, Suite
from whet.record.improve.split_lock import count_confirm, draw_parts
from whet.suites.format import load_suite
from whet.suites.split.draw import draw, position, refuse_few_triggers
from whet.suites.split.lock import SplitLock, drawn_lock, find_lock

SAID = {"split": "holdout", "source": "bug"}
PLUGIN = {
    "evals/a/case.yaml": "schema_version: '1'\nname: a\nsplit: holdout\nsource: bug\nexecution: {prompt: Hi.}\n"
    "graders: [{name: g, type: regex, pattern: x}]\n",
}
DOCUMENTS: dict[str, Any] = {
    "evals.json": {"evals": [{"id": "a", "prompt": "Hi.", "expectations": ["It is kind"], **SAID}]},
    "queries.json": [{"query": "Hi.", "should_trigger": True, **SAID}],
    "eval.json": {
        "scenarios": [{"name": "a", "prompt": "Hi.", "assertions": [{"type": "output_contains", "value": "x"}], **SAID}]
    },
    "vally.json": {
        "name": "v",
        "stimuli": [
            {
                "name": "a",
                "prompt": "Hi.",
                "graders": [{"type": "output-contains", "config": {"substring": "x"}}],
                **SAID,
            }
        ],
    },
    "promptfoo.json": {
        "prompts": ["Hi."],
        "providers": ["echo"],
        "tests": [{"assert": [{"type": "contains", "value": "x"}], "metadata": SAID}],
    },
    "bench.json": {"name": "b", "cases": [{"id": "a", "prompt": "Hi.", "expect": ["file:x exists"], **SAID}]},
    "suite.json": {
        "name": "s",
        "source_kind": "manual",
        "verifier_kind": "deterministic",
        "cases_json": [{"case_kind": "exact_match", "instruction": "Hi.", "expected": 1, **SAID}],
    },
}
PYTHON = "from whet import Case\n\nsuite = [Case(id='a', prompt='Hi.', check=print, split='holdout', source='bug')]\n"


def written(folder: Path, name: str, value: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def plain(name: str, *, split: Part | None = None, tags: Sequence[str] = ()) -> Case:
    return Case(id=name, prompt=f"Do {name}.", checks=(Check(grader="python"),), split=split, tags=tuple(tags))


def query(name: str, *, wanted: bool) -> Case:
    params = {"case": TriggerQuery(query=name, expectation="should_trigger" if wanted else "should_not_trigger")}
    return Case(id=name, prompt=name, checks=(Check(grader="trigger", params=params),))


def suite_of(folder: Path, cases: Sequence[Case], *, name: str = "s", file: str = "suite.json") -> Suite:
    return Suite(name=name, cases=tuple(cases), source=written(folder, file, "{}"), digest="")


def write_lock(suite: Suite) -> SplitLock:
    path, earlier = find_lock(suite)
    lock = drawn_lock(suite, earlier, None)
    written(path.parent, path.name, {name: getattr(lock, name) for name in lock.__struct_fields__})
    return lock


@pytest.mark.parametrize("name", [*DOCUMENTS, "suite.py"])
def test_a_case_of_every_format_says_its_part_and_its_source(tmp_path: Path, name: str) -> None:
    suite = load_suite(written(tmp_path, name, DOCUMENTS.get(name, PYTHON)))

    (case,) = suite.cases
    assert (case.split, case.source) == ("held-out", "bug")
    assert not [
        problem for problem in (*suite.lost, *suite.warnings) if "split" in str(problem) or "meta" in str(problem)
    ]


def test_a_case_of_a_plug_in_says_its_part(tmp_path: Path) -> None:
    for name, text in PLUGIN.items():
        written(tmp_path, name, text)

    (case,) = load_suite(tmp_path / "evals").cases

    assert (case.split, case.source) == ("held-out", "bug")


@pytest.mark.parametrize(("word", "part"), [("tune", "practice"), ("holdback", "sealed"), ("sealed", "sealed")])
def test_the_words_of_other_tools_are_known(tmp_path: Path, word: str, part: str) -> None:
    document = {"name": "b", "cases": [{"id": "a", "prompt": "Hi.", "expect": ["file:x exists"], "split": word}]}

    assert load_suite(written(tmp_path, "b.json", document)).cases[0].split == part


def test_a_word_that_is_no_part_is_a_problem_in_our_formats_and_a_loss_in_others(tmp_path: Path) -> None:
    ours = {"name": "b", "cases": [{"id": "a", "prompt": "Hi.", "expect": ["file:x exists"], "split": "heldout"}]}
    other = {"evals": [{"id": "a", "prompt": "Hi.", "expectations": ["x"], "split": "train", "source": "http://x"}]}

    with pytest.raises(SuiteError) as refused:
        load_suite(written(tmp_path, "b.json", ours))
    suite = load_suite(written(tmp_path, "evals.json", other))

    assert refused.value.problems[0].hint == 'did you mean "held-out"?'
    assert [(problem.case, problem.field and problem.field.partition(" ")[0]) for problem in suite.lost] == [
        ("a", "evals[0].split"),
        ("a", "evals[0].source"),
    ]


def test_the_position_of_a_case_is_its_hash() -> None:
    digest = hashlib.sha256(b"whet-split-1\nseed\ncase").digest()

    assert position("seed", "case") == int.from_bytes(digest[:8], "big") / 2**64


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, {"held-out": 1}),
        (7, {"practice": 3, "held-out": 4}),
        (39, {"practice": 19, "held-out": 20}),
        (40, {"practice": 16, "held-out": 16, "sealed": 8}),
        (41, {"practice": 16, "held-out": 17, "sealed": 8}),
    ],
)
def test_half_is_practice_and_from_40_cases_on_a_fifth_is_sealed(number: int, expected: dict[str, int]) -> None:
    parts = draw([plain(str(index)) for index in range(number)], "seed", {})

    assert Counter(parts.values()) == expected


def test_the_smallest_positions_are_practice_whatever_the_order_of_the_cases() -> None:
    cases = [plain(str(index)) for index in range(10)]
    in_order = sorted(cases, key=lambda case: position("seed", case.id))

    parts = draw(cases, "seed", {})

    assert [case.id for case in in_order[:5]] == [case.id for case in in_order if parts[case.id] == "practice"]
    assert draw(cases[::-1], "seed", {}) == parts


def test_queries_and_tags_of_8_cases_are_halved_by_themselves() -> None:
    tagged = [plain(f"a{index}", tags=["a", "z"]) for index in range(8)]
    few = [plain(f"b{index}", tags=[f"b{index}"]) for index in range(4)]
    queries = [query(f"q{index}", wanted=index < 4) for index in range(8)]

    parts = draw([*tagged, *few, *queries], "seed", {})

    for group in (tagged, few, queries[:4], queries[4:]):
        assert Counter(parts[case.id] for case in group) == {"practice": len(group) // 2, "held-out": len(group) // 2}


def test_what_a_case_says_wins_and_moves_no_other() -> None:
    cases = [plain(str(index)) for index in range(6)]
    said = [plain("x", split="sealed"), *cases]

    parts = draw(said, "seed", {})

    assert parts == {"x": "sealed", **draw(cases, "seed", {})}


def test_few_triggers_of_a_kind_are_refused_with_the_number_that_is_missing() -> None:
    cases = [query(f"yes{index}", wanted=True) for index in range(6)] + [query("no", wanted=False)]

    with pytest.raises(UsageError) as refused:
        refuse_few_triggers(cases, draw(cases, "seed", {}))

    assert "3 more in practice that should not; 2 more in held-out that should not" in refused.value.message


def test_a_suite_that_is_not_only_of_triggers_needs_none() -> None:
    cases = [plain("a"), query("no", wanted=False)]

    refuse_few_triggers(cases, draw(cases, "seed", {}))


def test_new_cases_move_no_other(tmp_path: Path) -> None:
    before = write_lock(suite_of(tmp_path, [plain(str(index)) for index in range(20)]))

    after = write_lock(suite_of(tmp_path, [plain(str(index)) for index in range(60)]))

    assert {case: after.cases[case] for case in before.cases} == before.cases
    assert len(after.cases) == 60
    assert list(after.cases)[:20] == list(before.cases)


def test_a_case_that_is_gone_keeps_its_part_for_when_it_comes_back(tmp_path: Path) -> None:
    before = write_lock(suite_of(tmp_path, [plain(str(index)) for index in range(6)]))

    after = write_lock(suite_of(tmp_path, [plain("0")]))

    assert after == before


def test_another_seed_than_that_of_the_lock_is_refused(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, [plain("0")])
    write_lock(suite)

    with pytest.raises(UsageError, match='drawn with the seed "s"'):
        drawn_lock(suite, find_lock(suite)[1], "t")


def bench_suite(folder: Path, *cases: dict[str, Any], name: str = "b", file: str = "b.json") -> Path:
    entries = [{"prompt": "Hi.", "expect": ["file:x exists"], **case} for case in cases]
    return written(folder, file, {"name": name, "cases": entries})


def test_loading_a_suite_gives_cases_the_parts_of_its_lock(tmp_path: Path) -> None:
    path = bench_suite(tmp_path, {"id": "a"}, {"id": "b"})
    lock = write_lock(load_suite(path))

    cases = load_suite(path).cases

    assert {case.id: case.split for case in cases} == lock.cases
    assert sorted(lock.cases.values()) == ["held-out", "practice"]


def test_a_held_out_case_that_was_edited_says_so_and_one_of_practice_does_not(tmp_path: Path) -> None:
    path = bench_suite(tmp_path, {"id": "a", "split": "practice"}, {"id": "b", "split": "held-out"})
    write_lock(load_suite(path))
    bench_suite(
        tmp_path, {"id": "a", "prompt": "Ho.", "split": "practice"}, {"id": "b", "prompt": "Ho.", "split": "held-out"}
    )

    assert [(case.id, case.edited) for case in load_suite(path).cases] == [("a", False), ("b", True)]


def test_the_folder_and_the_tags_of_a_suite_are_no_edit(tmp_path: Path) -> None:
    first = bench_suite(tmp_path / "one", {"id": "a", "split": "held-out"})
    write_lock(load_suite(first))
    second = bench_suite(tmp_path / "two", {"id": "a", "split": "held-out", "tags": ["x"], "budget": 1})
    (tmp_path / "two" / "split.lock.json").write_bytes((tmp_path / "one" / "split.lock.json").read_bytes())

    assert [case.edited for case in load_suite(second).cases] == [False]


def test_nothing_moves_from_practice_to_what_is_held_out(tmp_path: Path) -> None:
    path = bench_suite(tmp_path, {"id": "a", "split": "practice"})
    write_lock(load_suite(path))
    bench_suite(tmp_path, {"id": "a", "split": "held-out"})

    with pytest.raises(SuiteError, match="is held-out, and was practice when"):
        load_suite(path)


def test_a_held_out_case_may_become_practice_and_stays_that(tmp_path: Path) -> None:
    path = bench_suite(tmp_path, {"id": "a", "split": "held-out"})
    write_lock(load_suite(path))
    bench_suite(tmp_path, {"id": "a", "split": "practice"})
    write_lock(load_suite(path))
    bench_suite(tmp_path, {"id": "a"})

    assert [case.split for case in load_suite(path).cases] == ["practice"]


def test_the_second_suite_of_a_folder_has_a_lock_of_its_own(tmp_path: Path) -> None:
    first = bench_suite(tmp_path, {"id": "a"}, {"id": "b"})
    second = bench_suite(tmp_path, {"id": "a"}, {"id": "b"}, file="c.json")
    write_lock(load_suite(first))

    assert load_suite(second).cases[0].split is None
    write_lock(load_suite(second))

    assert sorted(path.name for path in tmp_path.glob("*.lock.json")) == ["c.split.lock.json", "split.lock.json"]
    assert all(case.split for path in (first, second) for case in load_suite(path).cases)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("<<<<<<< ours\n{}", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("\0", "cannot be read"),
        ("[]", "its schema must be whet/split/1, and it has none"),
        ('{"schema": "whet/split/2"}', 'its schema must be whet/split/1, and it is "whet/split/2"'),
        ('{"schema": "whet/split/1"}', "missing required field"),
        ('{"schema": "whet/split/1", "suite": "b", "seed": "b", "cases": {"a": "tune"}}', "Invalid enum value"),
        ('{"schema": "whet/split/1", "suite": "b", "seed": "b", "cases": {"a": "sealed"}}', "are not those of"),
        ('{"schema": "whet/split/1", "suite": "b", "seed": "b", "cases": {"a": "sealed", "a": "sealed"}}', '"a"'),
        ('{"schema": "whet/split/1", "suite": "b", "seed": "b", "confirms": {"a": 0}}', "Expected `int` >= 1"),
        ('{"schema": "whet/split/1", "suite": "x", "seed": "b"}', 'is the split of the suite "x", and b.json is "b"'),
    ],
)
def test_a_damaged_or_foreign_lock_gives_one_clear_error(tmp_path: Path, text: str, words: str) -> None:
    path = bench_suite(tmp_path, {"id": "a"})
    (tmp_path / "split.lock.json").write_text(text)

    with pytest.raises(SuiteError) as refused:
        load_suite(path)

    (problem,) = refused.value.problems
    assert problem.file == str(tmp_path / "split.lock.json")
    assert words in problem.message
    assert problem.hint


def test_a_lock_that_is_no_file_gives_one_clear_error(tmp_path: Path) -> None:
    path = bench_suite(tmp_path, {"id": "a"})
    (tmp_path / "split.lock.json").mkdir()

    with pytest.raises(SuiteError, match="cannot be read"):
        load_suite(path)


HELD = {"split": "held-out"}


def counted(path: Path) -> int:
    return count_confirm(load_suite(path))[0]


def test_confirm_steps_on_a_split_are_counted_for_good_and_share_one_error(tmp_path: Path) -> None:
    path = bench_suite(tmp_path, {"id": "a", **HELD}, {"id": "b", "split": "practice"}, {"id": "c", "split": "sealed"})
    draw_parts(load_suite(path))

    steps = [count_confirm(load_suite(path)) for _ in range(3)]

    assert [step for step, _ in steps] == [1, 2, 3]
    assert [error for _, error in steps] == [error_of_step(step) for step in (1, 2, 3)]
    assert find_lock(load_suite(path))[1] == replace(draw_parts(load_suite(path))[2], confirms={"a": 3})


def test_neither_new_nor_edited_cases_give_a_free_look(tmp_path: Path) -> None:
    path = bench_suite(tmp_path, {"id": "a", **HELD}, {"id": "b", **HELD})
    draw_parts(load_suite(path))
    first = counted(path)
    bench_suite(tmp_path, {"id": "a", "prompt": "Ho.", **HELD}, {"id": "b", **HELD}, {"id": "c", **HELD})
    draw_parts(load_suite(path))
    second = counted(path)
    # The new case stays, which was looked at together with the old ones.
    bench_suite(tmp_path, {"id": "c", **HELD}, {"id": "d", **HELD})
    third = counted(path)

    assert (first, second, third) == (1, 2, 3)


def test_a_set_of_which_every_case_is_new_begins_anew(tmp_path: Path) -> None:
    path = bench_suite(tmp_path, {"id": "a", **HELD}, {"id": "b", **HELD})
    draw_parts(load_suite(path))
    counted(path)
    bench_suite(tmp_path, {"id": "a", "split": "practice"}, {"id": "c", **HELD})
    draw_parts(load_suite(path))

    assert counted(path) == 1


def count_often(suite: Suite) -> list[int]:
    return [count_confirm(suite)[0] for _ in range(60)]


def test_those_who_count_at_once_get_different_numbers(tmp_path: Path) -> None:
    path = bench_suite(tmp_path, {"id": "a", **HELD})
    suite = load_suite(path)
    draw_parts(suite)
    processes = multiprocessing.get_context("spawn")

    with processes.Pool(3, initializer=processes.Barrier(3).wait) as pool:
        steps = [step for own_steps in pool.map(count_often, [suite] * 3, chunksize=1) for step in own_steps]

    assert sorted(steps) == list(range(1, 181))


def test_without_a_lock_nothing_is_counted(tmp_path: Path) -> None:
    path = bench_suite(tmp_path, {"id": "a", **HELD})

    with pytest.raises(UsageError, match=r"has no split\.lock\.json"):
        counted(path)
