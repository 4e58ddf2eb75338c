"""Bench suites as the model sees them, and held against the schema that is published of them."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import SuiteError
from whet.model.suite import Limits, Suite
from whet.reading.claims.forms import Contains, Exists, Passes, Quits
from whet.reading.paths import Globs
from whet.suites.format import load_suite

EXAMPLE = """{
  "name": "core-refactors",
  "description": "Tests for common refactoring tasks",
  "model": "claude-opus-4-6",
  "defaults": {"budget": 3.00, "timeout": 180},
  "cases": [
    {
      "id": "extract-auth",
      "prompt": "Extract auth logic into src/auth.ts",
      "expect": [
        "file:src/auth.ts exists",
        "file:src/auth.ts contains 'export function'",
        "test:npm test passes"
      ],
      "budget": 2.00,
      "timeout": 120
    },
    {
      "id": "add-tests",
      "prompt": "Add unit tests for src/budget.ts",
      "expect": ["file:test/budget.test.ts exists", "test:npm test passes"]
    }
  ]
}"""
CASE = {"id": "a", "prompt": "p", "expect": ["test:true"]}


def load(folder: Path, text: str | dict[str, Any], name: str = "suite.json") -> Suite:
    path = folder / name
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return load_suite(path)


def problems(folder: Path, text: str | dict[str, Any], name: str = "suite.json") -> list[str]:
    with pytest.raises(SuiteError) as caught:
        load(folder, text, name)
    return [f"{problem} | {problem.hint}".removeprefix(f"{folder}/") for problem in caught.value.problems]


def suite_with(**fields: Any) -> dict[str, Any]:
    return {"name": "s", "cases": [CASE], **fields}


def case_with(**fields: Any) -> dict[str, Any]:
    return suite_with(cases=[{**CASE, **fields}])


def test_the_whole_example_becomes_cases_with_their_defaults_settled(tmp_path: Path) -> None:
    suite = load(tmp_path, EXAMPLE)

    first, second = suite.cases
    assert (suite.name, suite.description) == ("core-refactors", "Tests for common refactoring tasks")
    assert [check.params["claim"] for check in first.checks] == [
        Exists("src/auth.ts"),
        Contains("src/auth.ts", "export function"),
        Passes("npm test"),
    ]
    assert [check.params["line"] for check in first.checks] == [11, 12, 13]
    assert first.checks[2].label == "test:npm test passes"
    assert first.limits == Limits(budget_usd=2.0, timeout_s=120.0)
    assert second.limits == Limits(budget_usd=3.0, timeout_s=180.0)
    assert (first.model, second.model) == ("claude-opus-4-6", "claude-opus-4-6")
    assert suite.warnings == ()


def test_yaml_says_the_same_as_json(tmp_path: Path) -> None:
    text = """
        name: core
        protect: ["test/**"]
        defaults: {model: small, env: {A: "1", B: "2"}, setup: npm ci}
        cases:
          - id: one
            prompt: |
              Extract it.
            expect:
              - file:src/auth.ts contains 'export function'
              - {test: npm run lint, exits: 2}
            model: large
            env: {B: "3"}
            protect: [spec/**]
            tags: [a, b, a]
            setup: [npm ci, npm run build]
          - {id: two, prompt: p, expect: ["test:true"]}
    """

    suite = load(tmp_path, text, "suite.yaml")

    first, second = suite.cases
    assert first.prompt == "Extract it.\n"
    assert first.checks[1].params["claim"] == Quits("npm run lint", 2)
    assert first.checks[1].label == "test:npm run lint exits 2"
    assert (first.model, second.model) == ("large", "small")
    assert (first.env, second.env) == ({"A": "1", "B": "3"}, {"A": "1", "B": "2"})
    assert (first.protect, second.protect) == (("test/**", "spec/**"), ("test/**",))
    assert first.tags == ("a", "b")
    assert first.bootstrap is not None
    assert first.bootstrap.args == ("-c", "set -e\nnpm ci\nnpm run build")
    assert second.bootstrap is not None
    assert second.bootstrap.args == ("-c", "npm ci")


def test_every_problem_is_found_at_once_with_case_place_and_near_miss(tmp_path: Path) -> None:
    text = """{
        "name": "s",
        "cases": [
            {"id": "one", "prompt": " ", "expect": [
                "file:a exist",
                {"file": "a", "contain": "x"},
                "test:true", 7]},
            {"id": "two", "prompt": "p", "expect": [], "budget": -1, "timeout": "120"}
        ]}"""

    found = problems(tmp_path, text)

    assert found == [
        "suite.json: one: cases[0].prompt (line 4): must not be empty | None",
        'suite.json: one: cases[0].expect[0] (line 5): "exist" is not something to say of a file | did you mean "exists"?',  # noqa: E501
        'suite.json: one: cases[0].expect[1] (line 6): "contain" cannot be said of a "file" | did you mean "contains"?',
        "suite.json: one: cases[0].expect[3] (line 7): must be a string or an object, not 7 | None",
        'suite.json: two: cases[1].expect (line 8): is empty: the case would pass whatever the agent does | such as "test:npm test"',  # noqa: E501
        'suite.json: two: cases[1].timeout (line 8): must be a number above 0, not "120" | leave out the quotes',
        "suite.json: two: cases[1].budget (line 8): must be a number above 0, not -1 | None",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"name": "s"}, "cases (line 1): is missing"),
        ({"cases": [CASE]}, "name (line 1): is missing"),
        (suite_with(cases=[]), "has no cases"),
        (suite_with(cases={}), "must be a list of cases"),
        (suite_with(cases=["x"]), "cases[0] (line 1): must be an object"),
        ([], "it is an empty list"),
        (suite_with(name=""), "name (line 1): must not be empty"),
        (suite_with(name=5), 'must be a string, not 5 | put it in quotes: "5"'),
        (suite_with(defaults=3), "defaults (line 1): must be an object"),
        (suite_with(defaults={"budget": 0}), "defaults.budget (line 1): must be a number above 0"),
        (suite_with(protect="test"), "must be a list of strings"),
        (suite_with(protect=["/etc/**"]), "protect[0] (line 1): must be relative"),
        (case_with(protect=["../x"]), "cases[0].protect[0] (line 1): must not lead out"),
        (case_with(id=None), "cases[0].id (line 1): must be a string, not null"),
        (case_with(id=".."), "leave the run folder"),
        (case_with(prompt="a\0b"), "NUL"),
        (case_with(expect="test:true"), "put it into a list"),
        (case_with(budget=True), "must be a number above 0, not true"),
        (case_with(env={"A B": "x"}), "env.A B (line 1): is not the name of a variable"),
        (case_with(env={"A": 1}), "env.A (line 1): must be a string"),
        (case_with(tags=[1]), "tags[0] (line 1): must be a string"),
        (suite_with(cases=[CASE, CASE]), "cases[1].id (line 1): is the id of cases[0] (line 1) too"),
        (suite_with(cases=[CASE, {**CASE, "id": "A"}]), 'would share the folder "A" with cases[0] (line 1), "a"'),
        ('{"name": "s", "name": "t", "cases": []}', 'has the key "name" a second time'),
        ('{"name": "s",}', "line 1: has a comma before"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: Any, message: str) -> None:
    found = problems(tmp_path, json.dumps(text) if isinstance(text, list) else text)

    assert message in "\n".join(found)


def test_a_number_of_yaml_that_was_meant_as_an_id_is_shown_as_it_was_written(tmp_path: Path) -> None:
    found = problems(tmp_path, "name: s\ncases:\n- {id: 010, prompt: no, expect: ['test:true']}", "suite.yaml")

    assert found == ['suite.yaml: cases[0].id (line 3): must be a string, not 010 | put it in quotes: "010"']


@pytest.mark.parametrize(
    ("text", "warning", "hint"),
    [
        (suite_with(nmae="x"), "nmae (line 1): is not a known field", '"name"'),
        (case_with(budgetUsd=1), "budgetUsd", '"budget"'),
        (case_with(timeout_ms=1), "timeout_ms", '"timeout"'),
        (suite_with(defaults={"expect": []}), "defaults.expect", "known: budget"),
        (case_with(timeout=120_000), "looks like milliseconds", "write 120"),
        (case_with(expect=["file:a exists", "no-file:a"]), "can never hold together", None),
        (case_with(expect=["test:a", "test:a passes"]), "says the same", None),
        (case_with(expect=["file:a matches /x/g"]), "flag g has no effect", None),
        (suite_with(protect=["tset/**"]), 'protect[0] (line 1): "tset/**" protects nothing: there is no "tset"', None),
        (case_with(protect=["a/b.py"]), 'cases[0].protect[0] (line 1): "a/b.py" protects nothing', None),
    ],
)
def test_what_looks_wrong_is_a_warning(tmp_path: Path, text: Any, warning: str, hint: str | None) -> None:
    suite = load(tmp_path, text)

    [found] = suite.warnings
    assert warning in str(found)
    assert hint is None or hint in (found.hint or "")


def test_a_misspelled_field_is_told_beside_what_is_then_missing(tmp_path: Path) -> None:
    with pytest.raises(SuiteError) as caught:
        load(tmp_path, suite_with(cases=[{"id": "a", "prompt": "p", "expects": ["test:true"]}]))

    assert "expect (line 1): is missing" in str(caught.value.problems[0])
    assert caught.value.warnings[0].hint == 'did you mean "expect"?'


@pytest.mark.parametrize("here", [".", "repo", "plain", "plain/bench"])
def test_the_project_of_a_suite_is_its_repository_else_the_folder_of_its_settings_wherever_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str
) -> None:
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / "repo/bench").mkdir()
    (tmp_path / "repo/bench/whet.toml").touch()
    (tmp_path / "plain/bench").mkdir(parents=True)
    (tmp_path / "plain/whet.toml").touch()
    (tmp_path / "other/bench").mkdir(parents=True)

    monkeypatch.chdir(tmp_path / here)
    found = [load(tmp_path / name, suite_with()).workspace for name in ("repo/bench", "plain/bench", "other/bench")]

    assert [spec.template_dir for spec in found if spec] == [
        tmp_path / "repo",
        tmp_path / "plain",
        tmp_path / "other/bench",
    ]


# Suites that are good, and suites that a schema can see are not.
GOOD: list[dict[str, Any]] = [
    json.loads(EXAMPLE),
    suite_with(),
    {"$schema": "x", "version": 2, **suite_with(description="d", model="m", protect=["test/**"])},
    suite_with(defaults={"budget": 0.5, "timeout": 1, "model": "m", "env": {"A": ""}, "setup": ["a", "b"]}),
    case_with(budget=1, timeout=0.5, model="m", protect=["a"], tags=["x"], env={"A": "b"}, setup="npm ci"),
    case_with(
        expect=[
            "file:my notes.md exists",
            " file: a created ",
            'file:a contains "x"',
            "file:a contains 'two\nlines'",
            "file:a matches /x/i",
            "diff:.",
            "no-file:a b",
            "test:npm test",
            "test:x fails",
            "test:x exits 3",
            "test:x prints 'y'",
            {"file": "a", "exists": True},
            {"file": "c", "created": True},
            {"file": "a", "contains": " "},
            {"file": "a", "matches": "/x/"},
            {"diff": "a"},
            {"no-file": "b"},
            {"test": "a"},
            {"test": "b", "passes": True},
            {"test": "c", "fails": True},
            {"test": "c", "exits": 0},
            {"test": "c", "prints": "x"},
        ]
    ),
]
BAD: list[Any] = [
    [],
    {},
    {"name": "s"},
    {"cases": [CASE]},
    suite_with(name=""),
    suite_with(name=1),
    suite_with(nmae="x"),
    suite_with(cases=[]),
    suite_with(cases=[7]),
    suite_with(model=""),
    suite_with(protect="x"),
    suite_with(protect=["/x"]),
    suite_with(protect=["a/../x"]),
    suite_with(defaults=[]),
    suite_with(defaults={"budget": 0}),
    suite_with(defaults={"timeout": "1"}),
    suite_with(defaults={"tags": []}),
    suite_with(cases=[{"id": "a", "prompt": "p"}]),
    suite_with(cases=[{"id": "a", "expect": ["test:true"]}]),
    case_with(id=""),
    case_with(id=3),
    case_with(prompt=" "),
    case_with(expect=[]),
    case_with(expect="test:true"),
    case_with(expect=[3]),
    case_with(expect=[""]),
    case_with(expect=["hello"]),
    case_with(expect=["nofile:a"]),
    case_with(expect=["file:a"]),
    case_with(expect=["file:a contains x"]),
    case_with(expect=["file:a contains ''"]),
    case_with(expect=["file:a matches x"]),
    case_with(expect=["file:a matches /x/q"]),
    case_with(expect=["test:"]),
    case_with(expect=["test: passes"]),
    case_with(expect=["diff:"]),
    case_with(expect=[{}]),
    case_with(expect=[{"file": "a"}]),
    case_with(expect=[{"file": "", "exists": True}]),
    case_with(expect=[{"file": "/a", "exists": True}]),
    case_with(expect=[{"file": "a", "exists": False}]),
    case_with(expect=[{"file": "a", "exists": True, "contains": "x"}]),
    case_with(expect=[{"file": "a", "diff": "x"}]),
    case_with(expect=[{"test": "a", "exits": 256}]),
    case_with(expect=[{"test": "a", "exits": "2"}]),
    case_with(expect=[{"test": "a", "prints": ""}]),
    case_with(env={"A B": "x"}),
    case_with(env={"A": 1}),
    case_with(tags="x"),
    case_with(setup=3),
    case_with(budget=-1),
]


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    text = files("whet.suites").joinpath("bench.schema.json").read_text("utf-8")
    document = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


@pytest.mark.parametrize("suite", GOOD, ids=range(len(GOOD)))
def test_what_loads_is_valid_by_the_schema(tmp_path: Path, schema: jsonschema.Draft202012Validator, suite: Any) -> None:
    (tmp_path / "test").mkdir()

    assert load(tmp_path, suite).warnings == ()
    assert [error.message for error in schema.iter_errors(suite)] == []


@pytest.mark.parametrize("suite", BAD, ids=range(len(BAD)))
def test_what_is_not_valid_by_the_schema_does_not_load_without_a_word(
    tmp_path: Path, schema: jsonschema.Draft202012Validator, suite: Any
) -> None:
    try:
        words = load(tmp_path, json.dumps(suite)).warnings
    except SuiteError as error:
        words = error.problems

    assert words
    assert not schema.is_valid(suite)


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("test", ["test", "test/a", "test/b/c"], ["tests", "a/test", "test.py"]),
        ("test/**", ["test/a", "test/b/c"], ["tests/a", "a/test/b"]),
        ("test/*.ts", ["test/a.ts"], ["test/b/a.ts", "test/a.tsx"]),
        ("**/*.test.ts", ["a.test.ts", "src/deep/b.test.ts"], ["a.ts", "src/test.ts"]),
        ("src/**/fixtures", ["src/fixtures/a", "src/a/b/fixtures"], ["fixtures", "src/fixture"]),
        ("./a?c", ["abc"], ["ac", "a/c"]),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_a_pattern_of_paths_holds_what_it_names(pattern: str, inside: list[str], outside: list[str]) -> None:
    globs = Globs([pattern])

    assert [path for path in inside if not globs.holds(path)] == []
    assert [path for path in outside if globs.holds(path)] == []


@given(st.lists(st.sampled_from(["a", "b", "*", "**", "a*"]), min_size=1, max_size=4).map("/".join))
def test_every_folder_above_what_a_pattern_holds_leads_to_it(pattern: str) -> None:
    globs = Globs([pattern])
    paths = [path for path in ("a", "a/b", "a/b/a", "b/b/a/a", "ab/a/b/b/a") if globs.holds(path)]

    above = ["/".join(path.split("/")[:count]) for path in paths for count in range(1, path.count("/") + 1)]

    assert [folder for folder in above if not globs.leads_to(folder)] == []
