"""Eval suites: what a document says, every problem by its path, and the schema that is published of them."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.errors import SuiteError
from whet.model.eval_cases import TaskPackage, TriggerQuery
from whet.suites.evals.documents import (
    not_runnable_reasons,
    read_manifest,
    read_patch,
    read_suite,
    suite_kind,
    suite_schema,
    to_json,
)

PACKAGE = {
    "case_kind": "task_package",
    "instruction": "Verify the skill archive is mounted and contains a skill document.",
    "environment_ref": "r2://registry/benchmarks/smoke-basic.tar.gz",
    "verifier_ref": "tests/test.sh",
    "skill_bundle_ref": "skill-under-test",
    "resource_hints": {"working_dir": ".", "timeout_ms": 120000},
}
TRIGGER = {"case_kind": "trigger_query", "query": "how do I deploy?", "expectation": "should_trigger"}
RUBRIC = {
    "case_kind": "llm_rubric",
    "instruction": "Explain it.",
    "rubric": [{"id": "short", "description": "It is short.", "weight": 2, "required": True}, "It is true."],
    "judge": {"votes": 3},
    "inputs": {"topic": "ice"},
}
EXACT = {"case_kind": "exact_match", "instruction": "6 * 7", "expected": {"answer": 42}, "path": "/answer"}
SCHEMA = {"case_kind": "json_schema", "query": "List them.", "schema": {"type": "array"}, "extract": "whole"}
BOOLEAN = {
    "case_kind": "boolean_assertion",
    "instruction": "Deploy.",
    "assertions": [
        {"op": "contains", "value": "done"},
        {"op": "json_path", "target": "/a/0", "value": None},
        {"type": "file_exists", "value": "out/a.txt", "negate": True},
        {"op": "regex", "target": "commands", "value": "npm (ci|install)"},
        {"op": "skill_triggered"},
    ],
    "match": "any",
}
CASES = [PACKAGE, TRIGGER, RUBRIC, EXACT, SCHEMA, BOOLEAN]


def suite_of(*cases: Any, **fields: Any) -> dict[str, Any]:
    return {
        "name": "s",
        "source_kind": "manual",
        "verifier_kind": "deterministic",
        "cases_json": list(cases) or [PACKAGE],
        **fields,
    }


def problems(value: Any, **how: Any) -> list[tuple[str, str]]:
    with pytest.raises(SuiteError) as caught:
        read_suite(value, **how)
    return [(problem.field or "", problem.message) for problem in caught.value.problems]


def test_a_case_that_says_little_has_the_documented_defaults() -> None:
    suite = read_suite(suite_of({"case_kind": "task_package", "environment_ref": "r2://b/k.tgz"}))

    (case,) = suite.cases
    assert isinstance(case, TaskPackage)
    assert (case.verifier_ref, case.skill_bundle_ref, case.oracle_ref) == ("tests/test.sh", "skill-under-test", None)
    assert (case.resource_hints.working_dir, case.resource_hints.network, case.weight) == (".", False, 1.0)
    assert (suite.supports_no_skill, suite.source_id) == (False, None)


def test_every_problem_is_found_at_once_each_with_its_path() -> None:
    document = suite_of(
        PACKAGE,
        {"case_kind": "task_pakage"},
        {**PACKAGE, "verifier_ref": "../test.sh", "weight": 0},
        {"case_kind": "task_package"},
        {**TRIGGER, "expectation": "triggers"},
        "a case",
        {**BOOLEAN, "assertions": [{"op": "regex", "value": "("}, {"op": "file_contains", "value": "x"}]},
        source_kind="by hand",
        supports_no_skill="yes",
        nmae="s",
    )

    found = problems(document)

    assert [path for path, _ in found] == [
        "nmae",
        "source_kind",
        "supports_no_skill",
        "cases_json[1].case_kind",
        "cases_json[2].weight",
        "cases_json[2].verifier_ref",
        "cases_json[3].environment_ref",
        "cases_json[4].expectation",
        "cases_json[5]",
        "cases_json[6].assertions[0].value",
        "cases_json[6].assertions[1].target",
    ]
    assert ("cases_json[3].environment_ref", "is missing") in found


@pytest.mark.parametrize("count", [0, 501])
def test_a_suite_has_from_1_to_500_cases(count: int) -> None:
    document = suite_of(cases_json=[PACKAGE] * count)

    found = problems(document)

    assert found == [("cases_json", f"must have from 1 to 500 cases, not {count}")]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("no object", ""),
        (suite_of({**PACKAGE, "instruction": "a\0b"}), "cases_json[0].instruction"),
        (suite_of({**PACKAGE, "source": "\ud800"}), "cases_json[0].source"),
        (suite_of({**EXACT, "expected": float("nan")}), "cases_json[0].expected"),
    ],
)
def test_what_no_json_store_could_keep_is_refused(value: Any, path: str) -> None:
    found = problems(value)

    assert [each for each, _ in found] == [path]


@pytest.mark.parametrize(
    ("expected", "why"), [("a\0b", "holds a NUL character"), ("\ud800", "holds half a surrogate pair")]
)
def test_a_text_that_cannot_be_stored_is_refused_with_the_reason(expected: str, why: str) -> None:
    found = problems(suite_of({**EXACT, "expected": expected}))

    assert found == [("cases_json[0].expected", why)]


@pytest.mark.parametrize("digest", ["0" * 63, "0" * 65, "g" * 64], ids=["short", "long", "no digits"])
def test_the_digest_of_a_package_has_64_hexadecimal_digits(digest: str) -> None:
    right = read_suite(suite_of({**PACKAGE, "environment_sha256": "0123456789abcdef" * 4}))

    found = problems(suite_of({**PACKAGE, "environment_sha256": digest}))

    assert found == [("cases_json[0].environment_sha256", "must be 64 hexadecimal digits")]
    assert to_json(right)["cases_json"][0]["environment_sha256"] == "0123456789abcdef" * 4


def test_nesting_without_end_is_refused_and_not_followed() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]

    found = problems(suite_of({**EXACT, "expected": deep}))

    assert "nested more than 64 levels deep" in found[0][1]


def test_two_cases_that_would_share_a_folder_are_refused() -> None:
    document = suite_of({**PACKAGE, "task_id": "a/b"}, {**TRIGGER, "id": "A-B"})

    found = problems(document)

    assert found == [("cases_json[1].id", 'would share the folder "A-B" with cases_json[0], "a/b"')]


@pytest.mark.parametrize("reference", ["/etc", "./package", "file:///etc", "package.tar.gz"])
def test_a_service_takes_no_package_from_its_own_files(reference: str) -> None:
    document = suite_of({**PACKAGE, "environment_ref": reference})

    here = read_suite(document)
    found = problems(document, remote_only=True)

    assert here.cases[0].kind == "task_package"
    assert [path for path, _ in found] == ["cases_json[0].environment_ref"]


def test_should_trigger_may_be_said_as_yes_or_no() -> None:
    suite = read_suite(suite_of({"case_kind": "trigger_query", "query": "q", "should_trigger": False}))

    (case,) = suite.cases
    assert isinstance(case, TriggerQuery)
    assert case.expectation == "should_not_trigger"


def test_a_patch_changes_what_it_names_and_replaces_all_cases() -> None:
    suite = read_suite(suite_of(PACKAGE, PACKAGE, supports_no_skill=True))

    changed = read_patch({"name": "t", "cases_json": [TRIGGER]}).apply(suite)

    assert (changed.name, changed.supports_no_skill, len(changed.cases)) == ("t", True, 1)


@pytest.mark.parametrize("name", ["source_id", "source_kind"])
def test_a_patch_cannot_change_where_a_suite_comes_from(name: str) -> None:
    with pytest.raises(SuiteError) as caught:
        read_patch({name: "manual"})

    assert [(each.field, each.message) for each in caught.value.problems] == [
        (name, "cannot be changed: make a new suite")
    ]


def test_an_import_manifest_is_a_suite_of_task_packages() -> None:
    case = {key: value for key, value in PACKAGE.items() if key != "case_kind"}

    suite = read_manifest({"name": "m", "supports_no_skill": True, "cases": [{**case, "task_id": "one"}]})

    assert (suite.source_kind, suite.verifier_kind, suite.supports_no_skill) == ("imported", "deterministic", True)
    assert suite.cases[0].task_id == "one"
    assert not_runnable_reasons(suite) == ()


@pytest.mark.parametrize(
    ("cases", "kind"),
    [([PACKAGE, PACKAGE], "task_package"), ([TRIGGER], "trigger_query"), ([PACKAGE, TRIGGER], "mixed")],
)
def test_the_kind_of_a_suite_is_the_kind_that_all_of_its_cases_have(cases: list[Any], kind: str) -> None:
    suite = read_suite(suite_of(*cases))

    assert suite_kind(suite.cases) == kind


@pytest.mark.parametrize(
    ("source", "verifier", "cases", "runnable"),
    [
        ("manual", "llm_judge", [TRIGGER, RUBRIC], True),
        ("manual", "llm_judge", [TRIGGER, EXACT], False),
        ("manual", "deterministic", [EXACT, SCHEMA, BOOLEAN, PACKAGE], True),
        ("manual", "deterministic", [EXACT, TRIGGER], False),
        ("manual", "structured_rubric", [RUBRIC], False),
        ("imported", "deterministic", [PACKAGE], True),
        ("imported", "deterministic", [PACKAGE, EXACT], False),
        ("imported", "llm_judge", [TRIGGER], False),
        ("contributor_aggregate", "deterministic", [PACKAGE], False),
        ("org_exemplars", "llm_judge", [TRIGGER], False),
    ],
)
def test_the_table_of_what_a_service_runs_holds(source: str, verifier: str, cases: list[Any], runnable: bool) -> None:
    suite = read_suite(suite_of(*cases, source_kind=source, verifier_kind=verifier))

    reasons = not_runnable_reasons(suite)

    assert (not reasons) is runnable


def test_what_is_read_is_written_back_and_reads_to_the_same() -> None:
    suite = read_suite(
        suite_of(
            *({**case, "weight": 2, "tags": ["a"], "task_id": f"c{number}"} for number, case in enumerate(CASES)),
            source_id="6F9619FF-8B86-D011-B42D-00CF4FC964FF",
            resource_limits_json={"timeout_ms": 5, "other": [1]},
        )
    )

    document = json.loads(json.dumps(to_json(suite)))

    assert read_suite(document) == suite
    assert document["cases_json"][0]["environment_ref"] == PACKAGE["environment_ref"]
    jsonschema.validate(document, suite_schema())


def test_a_slip_in_the_name_of_the_kind_is_told_as_one() -> None:
    document = suite_of({"case_knd": "exact_match", "query": "q", "expected": 1})

    with pytest.raises(SuiteError) as raised:
        read_suite(document)

    slip = next(problem for problem in raised.value.problems if problem.field == "cases_json[0].case_knd")
    assert slip.hint == 'did you mean "case_kind"?'


# What only the reader can see: a schema knows neither other cases nor the syntax of patterns, schemas and addresses.
_BEYOND = (
    "is the id of",
    "is not a JSON Schema",
    "regular expression",
    "control characters",
    "scheme",
    "bucket",
    "folder",
    "nested",
    "flag",
    "number that is too large",
)
_ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, -1, 1.5, 16, 101, 0.5, 2**70]),
    st.sampled_from(["", " ", "x", "..", "/a", "a/../b", "a\\b", "/a~", "should_trigger", "whole", "any", "output"]),
    st.sampled_from([[], ["x"], [""], [1], {}, {"a": 1}, {"a": "b"}, {"op": "contains", "value": "x"}]),
    # A copy of its own: what is drawn becomes part of a document that is changed further.
).map(copy.deepcopy)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in below for place in _places(item, (*path, key)))]


@st.composite
def _documents(draw: st.DrawFn) -> Any:
    """A good document in which a value was replaced, left out or added."""
    document = copy.deepcopy(suite_of(*draw(st.lists(st.sampled_from(CASES), min_size=1, max_size=3))))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.sampled_from(_places(document)[1:]))
        holder: Any = document
        for key in place[:-1]:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "leave out", "add"])):
            case "replace":
                holder[place[-1]] = draw(_ODD)
            case "leave out":
                del holder[place[-1]]
            case "add" if isinstance(holder, dict):
                names = ["query", "prompt", "task_id", "id", "assertion", "should_trigger", "threshold", "nobody"]
                holder[draw(st.sampled_from(names))] = draw(_ODD)
    return document


@settings(max_examples=300)
@given(_documents())
def test_reader_and_schema_allow_the_same(document: Any) -> None:
    try:
        read_suite(document)
        found: list[str] = []
    except SuiteError as error:
        found = [str(problem) for problem in error.problems]

    said = [error.message for error in jsonschema.Draft202012Validator(suite_schema()).iter_errors(document)]

    seen = [each for each in found if not any(word in each for word in _BEYOND)]
    assert not said or found, said
    assert not seen or said, seen
