"""Benchmarks as people write them: what is taken, what is refused with its place, and how one is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whet.errors import SuiteError, UnknownName, UsageError
from whet.model.callable import MISSING
from whet.suites.benchmark import LoadedBenchmark, find_benchmark, read_benchmark, read_tasks


def task(identifier: str = "one", **changes: Any) -> dict[str, Any]:
    plain = {
        "id": identifier,
        "description": "adds",
        "inputData": {"query": "1+1"},
        "expectedOutput": {"type": "exact", "value": "2"},
        "evaluator": {"type": "exact"},
    }
    return {key: value for key, value in {**plain, **changes}.items() if value is not None}


def document(*tasks: Any, **changes: Any) -> dict[str, Any]:
    plain = {
        "id": "mine",
        "name": "My benchmark",
        "version": "1.0.0",
        "domain": "custom",
        "scoringMethod": "mean",
        "tasks": list(tasks) or [task()],
    }
    return {key: value for key, value in {**plain, **changes}.items() if value is not None}


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def read(tmp_path: Path, content: Any, **more: Any) -> LoadedBenchmark:
    return read_benchmark(write(tmp_path / "b.json", content), **more)


def problems(tmp_path: Path, content: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        read(tmp_path, content)
    return [str(problem).removeprefix(f"{tmp_path}/b.json: ") for problem in caught.value.problems]


def test_a_whole_benchmark_is_taken_with_every_field(tmp_path: Path) -> None:
    full = task(timeoutMs=10000, tags=["math", "math"], weight=2)

    loaded = read(tmp_path, document(full, maxLatencyMs=5000, k=3, metadata={"source": "us"}))

    found = loaded.benchmark
    assert (found.id, found.name, found.version, found.domain, found.scoring) == (
        "mine",
        "My benchmark",
        "1.0.0",
        "custom",
        "mean",
    )
    assert (found.max_latency_ms, found.k, found.metadata) == (5000, 3, {"source": "us"})
    assert (found.tasks[0].timeout_ms, found.tasks[0].tags, found.tasks[0].weight) == (10000, ("math",), 2)
    assert found.tasks[0].input == {"query": "1+1"}
    assert loaded.notes == ()


def test_what_is_left_out_has_its_documented_default(tmp_path: Path) -> None:
    found = read(tmp_path, document(task(description=None))).benchmark

    assert (found.max_latency_ms, found.k, found.metadata) == (30000, 1, {})
    assert (found.tasks[0].timeout_ms, found.tasks[0].tags, found.tasks[0].weight) == (None, (), 1)


@pytest.mark.parametrize(
    ("expected", "evaluator", "kind"),
    [
        ({"type": "exact", "value": 1}, {"type": "exact_match"}, "exact"),
        ({"type": "exact_match", "value": 1}, None, "exact"),
        ({"type": "schema", "schema": {}}, {"type": "json_schema"}, "json_schema"),
        ({"schema": {}}, {"type": "schema"}, "json_schema"),
        ({"type": "contains", "keywords": ["a"]}, {"caseSensitive": True}, "contains"),
        ({"patterns": ["a+"]}, {"type": "regex"}, "regex"),
        ({"type": "llm_judge", "judgePrompt": "Rate it"}, None, "llm_judge"),
        ({"type": "custom", "customScorerPath": "g.py:f"}, None, "custom"),
        ({"type": "custom"}, {"customScorerPath": "g.py:f"}, "custom"),
    ],
)
def test_the_evaluator_follows_from_either_place_and_any_name(
    tmp_path: Path, expected: dict[str, Any], evaluator: dict[str, Any] | None, kind: str
) -> None:
    found = read(tmp_path, document(task(expectedOutput=expected, evaluator=evaluator))).benchmark

    assert found.tasks[0].evaluator.kind == kind


def test_a_contradiction_between_the_two_places_is_an_error(tmp_path: Path) -> None:
    found = problems(tmp_path, document(task(evaluator={"type": "contains"})))

    assert found[0] == 'one: tasks[0].evaluator.type: is "contains", but expectedOutput.type is "exact"'


def test_a_task_without_an_evaluator_takes_the_given_one_or_is_an_error(tmp_path: Path) -> None:
    bare = document(task(expectedOutput={"value": "2"}, evaluator=None))

    found = read(tmp_path, bare, default="exact").benchmark

    assert found.tasks[0].evaluator.kind == "exact"
    assert problems(tmp_path, bare) == ["one: tasks[0].evaluator.type: is missing, and expectedOutput.type too"]


def test_case_matters_unless_keywords_are_looked_for(tmp_path: Path) -> None:
    contains = task("two", expectedOutput={"type": "contains", "keywords": ["a"]}, evaluator=None)

    found = read(tmp_path, document(task(), contains)).benchmark

    assert [each.evaluator.case_sensitive for each in found.tasks] == [True, False]


def test_null_is_a_value_and_nothing_is_none(tmp_path: Path) -> None:
    null = task(expectedOutput={"type": "exact", "value": None})
    judged = task("two", expectedOutput={"type": "llm_judge", "judgePrompt": "Rate"}, evaluator=None)

    found = read(tmp_path, document(null, judged)).benchmark

    assert found.tasks[0].expected.value is None
    assert found.tasks[1].expected.value is MISSING


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": None}, "id: is missing"),
        ({"scoringMethod": "median"}, 'scoringMethod: must be one of mean, weighted_mean, pass_at_k, not "median"'),
        ({"scoringMethod": None}, "scoringMethod: is missing"),
        ({"maxLatencyMs": 0}, "maxLatencyMs: must be a number above 0, not 0"),
        ({"k": 1.5}, "k: must be an integer of at least 1, not 1.5"),
        ({"tasks": []}, "tasks: must be a list with at least one task, not []"),
        ({"tasks": [1]}, "tasks[0]: must be an object, not 1"),
        ({"version": 2}, "version: must be a string, not 2"),
        ({"metadata": []}, "metadata: must be an object, not []"),
    ],
)
def test_a_wrong_field_of_a_benchmark_is_named_by_its_place(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    content = document()
    for key, value in changes.items():
        if value is None:
            del content[key]
        else:
            content[key] = value

    assert problems(tmp_path, content) == [message]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputData": "x"}, 'tasks[0].inputData: must be an object, not "x"'),
        ({"timeoutMs": -1}, "tasks[0].timeoutMs: must be a number above 0, not -1"),
        ({"timeoutMs": True}, "tasks[0].timeoutMs: must be a number above 0, not true"),
        ({"weight": -1}, "tasks[0].weight: must be a number of at least 0, not -1"),
        ({"tags": ["a", 1]}, "tasks[0].tags[1]: must be a string, not 1"),
        ({"expectedOutput": {"type": "exact"}}, "tasks[0].expectedOutput.value: is missing, and exact looks at"),
        (
            {"evaluator": {"type": "EXACT"}},
            "tasks[0].evaluator.type: must be one of exact, contains, regex, json_schem",
        ),
        ({"evaluator": {"caseSensitive": 1}}, "tasks[0].evaluator.caseSensitive: must be true or false, not 1"),
        (
            {"expectedOutput": {"type": "contains", "keywords": []}, "evaluator": None},
            "tasks[0].expectedOutput.keywords: must not be empty",
        ),
        (
            {"expectedOutput": {"type": "regex", "patterns": ["ok", "("]}, "evaluator": None},
            "tasks[0].expectedOutput.patterns[1]: is not a regular expression: missing ), unterminated subpattern",
        ),
        (
            {"expectedOutput": {"type": "schema", "schema": {"type": "strin"}}, "evaluator": None},
            "tasks[0].expectedOutput.schema: is not a JSON Schema: type:",
        ),
        (
            {"expectedOutput": {"type": "schema", "schema": {"$ref": "http://127.0.0.1:9/"}}, "evaluator": None},
            "tasks[0].expectedOutput.schema: is not a JSON Schema: ",
        ),
        (
            {"expectedOutput": {"type": "llm_judge"}, "evaluator": None},
            "tasks[0].expectedOutput.judgePrompt: is missing",
        ),
        (
            {"expectedOutput": {"type": "custom"}, "evaluator": None},
            "tasks[0].expectedOutput.customScorerPath: is missing",
        ),
    ],
)
def test_a_wrong_field_of_a_task_is_named_by_its_place(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    found = problems(tmp_path, document(task(**changes)))

    assert len(found) == 1
    assert found[0].startswith(f"one: {message}")


def test_every_problem_is_found_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, document(task(inputData=1), task("two", weight="x"), name=None))

    assert len(found) == 3


def test_two_tasks_of_one_id_are_refused(tmp_path: Path) -> None:
    found = problems(tmp_path, document(task(), task("two"), task()))

    assert found == ['tasks[2].id: "one" is also the id of tasks[0]']


def test_keys_that_nothing_reads_are_mentioned_and_no_reason_to_refuse(tmp_path: Path) -> None:
    written = document(task(timoutMs=5), difficulty="easy")

    notes = [str(note).split("b.json: ")[1] for note in read(tmp_path, written).notes]

    assert notes == [
        "difficulty: is not a known field, and is ignored",
        "one: tasks[0].timoutMs: is not a known field, and is ignored",
    ]
    assert read(tmp_path, written).notes[1].hint == 'did you mean "timeoutMs"?'


def test_what_an_evaluator_does_not_look_at_is_mentioned(tmp_path: Path) -> None:
    written = document(task(expectedOutput={"type": "exact", "value": 1, "keywords": ["a"]}))

    assert "keywords: is not used by exact" in str(read(tmp_path, written).notes[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": "a",\n  oops}', "is not JSON: Expecting property name enclosed in double quotes in line 2, column 3"),
        ('{"id": "a", "id": "b"}', 'has the key "id" twice in one object'),
        ('{"weight": NaN}', "has the number NaN, which JSON does not have"),
        ("[]", "must be an object, not []"),
        ("[" * 100_000, "is nested deeper than 200 levels"),
    ],
)
def test_a_file_that_is_no_benchmark_at_all_says_why(tmp_path: Path, text: str, message: str) -> None:
    assert problems(tmp_path, text) == [message]


def test_the_digest_changes_with_the_content_and_not_with_its_layout(tmp_path: Path) -> None:
    plain = read(tmp_path, document()).benchmark.digest
    laid_out = read(tmp_path, json.dumps(document(), indent=4)).benchmark.digest
    changed = read(tmp_path, document(task(weight=2))).benchmark.digest

    assert plain == laid_out
    assert plain != changed


def test_bare_tasks_are_a_benchmark_called_custom(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", [task()])

    found = read_tasks(path).benchmark

    assert (found.id, found.scoring, len(found.tasks)) == ("custom", "mean", 1)


def test_problems_of_bare_tasks_are_named_by_their_place_in_the_list(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", [task(weight=-1)])

    with pytest.raises(SuiteError, match=r"one: \[0\].weight: must be"):
        read_tasks(path)


def test_a_whole_benchmark_can_stand_where_bare_tasks_do(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", document(scoringMethod="weighted_mean"))

    assert read_tasks(path).benchmark.scoring == "weighted_mean"


@pytest.mark.parametrize("place", ["mine.json", "other-name.json", "mine/benchmark.json", "definitions/mine.json"])
def test_a_benchmark_is_found_by_the_id_in_its_file(tmp_path: Path, place: str) -> None:
    path = write(tmp_path / place, document())

    assert find_benchmark("mine", [tmp_path]) == path


def test_a_benchmark_is_found_by_the_path_of_its_file_or_folder(tmp_path: Path) -> None:
    path = write(tmp_path / "folder" / "benchmark.json", document())

    assert find_benchmark(str(path), []) == path
    assert find_benchmark(str(tmp_path / "folder"), []) == path


def test_a_broken_neighbour_is_no_reason_not_to_find_a_benchmark(tmp_path: Path) -> None:
    write(tmp_path / "a.json", "{")
    path = write(tmp_path / "b.json", document())

    assert find_benchmark("mine", [tmp_path]) == path


def test_an_unknown_benchmark_is_answered_with_the_nearest_and_with_what_could_not_be_read(tmp_path: Path) -> None:
    write(tmp_path / "a.json", "{")
    write(tmp_path / "b.json", document())

    with pytest.raises(UnknownName, match='no benchmark is called "mien"') as caught:
        find_benchmark("mien", [tmp_path])

    assert caught.value.hint is not None
    assert 'did you mean "mine"?' in caught.value.hint
    assert "a.json is not JSON" in caught.value.hint


def test_two_files_of_one_id_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.json", document())
    write(tmp_path / "b.json", document())

    with pytest.raises(UsageError, match='two benchmarks are called "mine"'):
        find_benchmark("mine", [tmp_path])


def test_ones_own_benchmark_comes_before_one_of_whet(tmp_path: Path) -> None:
    path = write(tmp_path / "coding.json", document(id="coding-easy"))

    assert find_benchmark("coding-easy", [tmp_path]) == path
    assert find_benchmark("coding-easy", []).is_file()


def test_a_path_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="there is no such file"):
        find_benchmark(str(tmp_path / "none.json"), [])
    with pytest.raises(SuiteError, match=r"has no benchmark\.json"):
        find_benchmark(f"{tmp_path}/", [])
