"""Suites of other tools: how each field is read, what is lost, and files that want to do harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whet.errors import ClaimError, SuiteError
from whet.model.suite import SKILL, Case, Suite
from whet.reading.patterns import compiled, dotnet_pattern
from whet.suites.document_formats import document_format
from whet.suites.format import load_suite


def loaded(folder: Path, value: Any, name: str = "evals.json") -> Suite:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return load_suite(path)


def evals(*items: dict[str, Any], **top: Any) -> dict[str, Any]:
    return {"evals": [{"id": number, "prompt": "Do it.", **item} for number, item in enumerate(items, 1)], **top}


def only(suite: Suite) -> Case:
    (case,) = suite.cases
    return case


def labels(case: Case) -> list[str]:
    return [check.label for check in case.checks]


def problems(folder: Path, value: Any, name: str = "evals.json") -> str:
    with pytest.raises(SuiteError) as caught:
        loaded(folder, value, name)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("a.json", {"evals": []}, "agent-skills"),
        ("a.json", {"evals": [{"id": 1, "prompt": "x"}]}, "agent-skills"),
        ("a.json", {"evals": [{"id": "shared-rubric", "expected_repo_state": ["x"]}]}, "bench"),
        ("a.json", [{"id": 1, "prompt": "x"}], "agent-skills"),
        ("a.json", [{"query": "x", "should_trigger": True}], "eval-set"),
        ("a.json", {"query": "x", "expected_behavior": ["y"]}, "agent-skills"),
        ("a.json", {"cases": [{"question": "x", "ground_truth": "y"}]}, "agent-skills"),
        ("a.json", [{"question": "x", "expected_behavior": ["y"]}], "agent-skills"),
        ("a.json", [{"question": "x", "answer": "y"}], "bench"),
        ("a.json", {"cases": [{"prompt": "x", "assertions": ["y"]}], "version": "1"}, "agent-skills"),
        ("a.json", {"name": "n", "cases": [{"prompt": "x", "assertions": ["y"]}]}, "bench"),
        ("a.json", {"cases": [{"prompt": "x", "expect": ["y"], "expected_output": "z"}]}, "bench"),
        ("a.json", {"name": "n", "test_cases": [{"query": "x", "assertions": ["y"]}]}, "agent-skills"),
        ("a.json", {"tests": [{"prompt": "x", "expected_output": "y"}]}, "agent-skills"),
        ("a.json", {"tests": [{"prompt": "x"}]}, "bench"),
        ("a.json", {"scenarios": []}, "scenarios"),
        ("a.json", {"prompts": [], "tests": []}, "promptfoo"),
        ("a.json", {"providers": [], "tests": []}, "promptfoo"),
        ("a.json", {"targets": [], "tests": []}, "promptfoo"),
        ("a.json", {"prompts": [{"raw": "x"}], "results": []}, "bench"),
        ("a.json", {"cases_json": [], "evals": []}, "evals"),
        ("a.json", {"name": "n", "cases": [], "evals": []}, "bench"),
        ("a.json", {"tasks": [{"prompts": 1}]}, "bench"),
        ("a.json", [{"id": "t", "inputData": {}, "prompt": "x"}], "bench"),
        ("a.json", "evals", "bench"),
        ("a.py", {"evals": []}, None),
    ],
)
def test_every_file_has_one_format(tmp_path: Path, name: str, value: Any, found: str | None) -> None:
    (tmp_path / name).write_text(json.dumps(value))

    assert document_format(tmp_path / name) == found


def test_statements_become_checks_of_their_own_that_a_judge_decides(tmp_path: Path) -> None:
    given = {"expectations": ["It says yes"], "expected_chat_output": ["It is short"], "expected_repo_state": "Clean"}

    case = only(loaded(tmp_path, evals(given, skill_name="deploy")))

    assert labels(case) == ["It says yes", "It is short", "Clean"]
    assert {check.grader for check in case.checks} == {"rubric"}
    assert case.scored


def test_what_is_expected_in_words_is_the_statement_if_there_is_no_other(tmp_path: Path) -> None:
    alone, beside = loaded(
        tmp_path, evals({"expected_output": "A table"}, {"expected_output": "A table", "assertions": ["Has rows"]})
    ).cases

    assert labels(alone) == ["A table"]
    assert labels(beside) == ["Has rows"]
    assert "A table" in beside.checks[0].params["case"].reference


@pytest.mark.parametrize(
    ("written", "grader", "label"),
    [
        ({"text": "It is so"}, "rubric", "It is so"),
        ({"name": "short", "description": "It is short"}, "rubric", "It is short"),
        ({"type": "llm_judge", "criterion": "It is kind"}, "rubric", "It is kind"),
        ({"type": "regex", "pattern": "a+", "name": "has_a"}, "answer", "has_a"),
        ({"type": "not_contains", "value": "b"}, "answer", "not_contains b"),
        ({"type": "file_exists", "path": "out/*.md"}, "answer", "file_exists out/*.md"),
        ({"type": "file_exists", "value": "a.md"}, "answer", "file_exists a.md"),
        ({"type": "contains", "path": "a.md", "value": "x"}, "answer", "contains a.md x"),
        ({"type": "contains", "value": "x", "substring": "y", "text": "Has x"}, "rubric", "Has x"),
        ({"type": "shell", "value": "make", "text": "It builds"}, "rubric", "It builds"),
        ({"type": "contains_phrase", "phrase": "gst", "text": "Names gst"}, "answer", "Names gst"),
        ({"type": "not_contains_pattern", "pattern": "a+"}, "answer", "not_contains_pattern a+"),
        ({"type": "contains_pattern", "pattern": "(", "text": "Has it"}, "rubric", "Has it"),
    ],
)
def test_an_assertion_may_be_an_object(tmp_path: Path, written: dict[str, Any], grader: str, label: str) -> None:
    case = only(loaded(tmp_path, evals({"assertions": [written]})))

    assert [(check.grader, check.label) for check in case.checks] == [(grader, label)]


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ({"type": "regex", "value": "(?i)dear"}, "is not a regular expression"),
        ({"type": "regex", "path": "a.md", "value": "(?i)dear"}, "write flags after the last slash: /.../i"),
        ({"type": "contans", "value": "dear"}, 'there is no check of type "contans" here'),
        ({"type": "contans", "value": "dear"}, 'did you mean "contains"?'),
        ({"type": "contains"}, '"contains" needs one text to look for'),
        ({"type": "llm_judge"}, "it says nothing that a judge could verify"),
    ],
)
def test_an_assertion_that_is_not_carried_over_says_why(tmp_path: Path, written: dict[str, Any], reason: str) -> None:
    suite = loaded(tmp_path, evals({"assertions": [written, "It is kind"]}))

    assert reason in str(suite.lost[0])


def test_what_has_to_be_in_a_file_is_one_assertion_and_never_half_true(tmp_path: Path) -> None:
    written = [
        {"type": "contains", "path": "a.md", "value": "x"},
        {"type": "regex", "path": "a.md", "value": "/x/i"},
    ]
    suite = loaded(tmp_path, evals({"assertions": written}))

    assert [len(check.params["case"].assertions) for check in only(suite).checks] == [1, 1]


def test_an_assertion_with_a_path_looks_into_the_file_and_not_at_the_answer(tmp_path: Path) -> None:
    written = [
        {"type": "not_regex", "file": "out/*.md", "pattern": "TODO"},
        {"type": "contains", "path": "../x", "value": "y"},
    ]
    suite = loaded(tmp_path, evals({"assertions": written}))

    (check,) = only(suite).checks
    there, looked = check.params["case"].assertions
    assert (there.op, there.target, there.negate) == ("file_exists", "out/*.md", False)
    assert (looked.op, looked.target, looked.value, looked.negate) == ("file_matches", "out/*.md", "TODO", True)
    assert "evals[0].assertions[1]" in str(suite.lost[0])


def test_a_file_may_be_written_in_the_suite_itself(tmp_path: Path) -> None:
    files = [{"path": "src/app.ts", "content": "let a = 1\n"}, {"path": "empty.txt", "content": ""}]
    case = only(loaded(tmp_path, evals({"prompt": "Mend src/app.ts.", "files": files, "assertions": ["It is so"]})))

    assert [(placed.path, placed.text) for placed in case.placed] == [("src/app.ts", "let a = 1\n"), ("empty.txt", "")]
    assert case.prompt == "Mend src/app.ts.\n\nInput files: empty.txt"


def test_an_unknown_field_is_lost_once_and_no_error(tmp_path: Path) -> None:
    suite = loaded(
        tmp_path, evals(*[{"agent_config": "a", "expectations": ["x"]}] * 2, model="big"), "deploy/evals/evals.json"
    )

    assert [str(lost).partition("evals.json: ")[2] for lost in suite.lost] == [
        "model (line 1): not carried over: nothing here reads it",
        "1: evals[0].agent_config (line 1): not carried over: nothing here reads it (2 times)",
    ]
    assert suite.warnings == ()


def test_what_is_expected_under_another_name_is_a_check_or_a_lost_one(tmp_path: Path) -> None:
    given = {
        "expect": ["Asks first."],
        "fail": ["Guesses."],
        "forbidden_behaviors": ["Deletes."],
        "expected_workflow": ["a", "b"],
        "must_have": [],
        "notes": "For people.",
    }

    suite = loaded(tmp_path, evals(given))

    assert labels(only(suite)) == [
        "Asks first.",
        "The agent does not do this: Guesses.",
        "The agent does not do this: Deletes.",
    ]
    assert only(suite).lost_checks == ("evals[0].expected_workflow: what it expects is not checked; write a statement",)
    assert len(suite.lost) == 3


def test_a_case_that_expects_nothing_is_lost_and_the_others_stay(tmp_path: Path) -> None:
    suite = loaded(tmp_path, evals({}, {"expectations": ["x"]}))

    assert [case.id for case in suite.cases] == ["2"]
    assert "nothing says what is expected" in str(suite.lost[0])


def test_an_eval_may_be_the_whole_file_and_say_its_prompt_as_a_query(tmp_path: Path) -> None:
    suite = loaded(
        tmp_path / "pdf" / "evals",
        {"skills": ["pdf", "ocr"], "query": "Extract it.", "files": [], "expected_behavior": ["Reads.", "Writes."]},
    )

    assert only(suite).prompt == "Extract it."
    assert labels(only(suite)) == ["Reads.", "Writes."]
    assert [str(loss.message) for loss in suite.lost] == [
        "not carried over: runs have one skill under test, and not ocr beside it"
    ]


def test_a_question_has_what_is_expected_forbidden_and_to_be_loaded(tmp_path: Path) -> None:
    question = {"question": "Deploy it.", "ground_truth": "Asks first.", "expected_script": None}
    cases = [
        {**question, "id": "a", "expected_skill": "deploy", "expected_behavior": ["Asks."], "must_not": ["Guess."]},
        {**question, "id": "b", "expected_skill": None},
        {**question, "id": "c", "expected_skill": "other", "expected_script": "scripts/x.py"},
    ]

    suite = loaded(tmp_path, {"skill": "deploy", "cases": cases, "defaults": {"timeout_sec": 60, "judge_model": "m"}})

    assert [labels(case) for case in suite.cases] == [
        ["Asks.", "The agent does not do this: Guess.", "skill_triggered"],
        ["Asks first.", "skill_triggered"],
        ["Asks first."],
    ]
    loads = [case.checks[-1].params["case"].assertions[0].negate for case in suite.cases[:2]]
    assert loads == [False, True]
    assert {case.limits.timeout_s for case in suite.cases} == {60.0}
    assert [(loss.case, loss.field) for loss in suite.lost] == [
        (None, "defaults.judge_model (line 1)"),
        ("c", "cases[2].expected_skill (line 1)"),
        ("c", "cases[2].expected_script (line 1)"),
    ]


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        ({"evals": [{"task": "x", "files": []}]}, "nearest: evals.json"),
        ([{"task": "x", "assert": "y"}], "nearest: promptfoo"),
        ([], "it is an empty list"),
        ({"cases": [{"input": "x", "threshold": 1}]}, "in no known format"),
    ],
)
def test_an_unknown_file_is_in_no_known_format_and_has_a_nearest(tmp_path: Path, value: Any, nearest: str) -> None:
    text = problems(tmp_path, value)

    assert "is in no known format" in text
    assert nearest in text


def test_the_skill_is_the_folder_around_evals(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/SKILL.md").write_text("---\nname: deploy\n---\n")

    inside = loaded(tmp_path, evals({"expectations": ["x"]}), "deploy/evals/evals.json")
    elsewhere = loaded(tmp_path, evals({"expectations": ["x"]}), "other/evals/evals.json")
    own = loaded(tmp_path, evals({"expectations": ["x"], "expected_skill": "deploy"}), "deploy/benchmark/evals.json")

    assert (inside.usual_skill, inside.held_out) == (tmp_path / "deploy", (tmp_path / "deploy/evals",))
    assert (own.usual_skill, own.held_out) == (tmp_path / "deploy", (tmp_path / "deploy/benchmark",))
    assert [check.label for check in only(own).checks] == ["x", "skill_triggered"]
    assert elsewhere.usual_skill is None


@pytest.mark.parametrize(
    ("prompt", "path", "asked"),
    [
        ("Read evals/files/a.csv.", "evals/files/a.csv", "Read evals/files/a.csv."),
        ("Read a.csv.", "a.csv", "Read a.csv."),
        ("Read it.", "evals/files/a.csv", "Read it.\n\nInput files: evals/files/a.csv"),
    ],
)
def test_a_file_lies_where_the_prompt_says(tmp_path: Path, prompt: str, path: str, asked: str) -> None:
    (tmp_path / "s/evals/files").mkdir(parents=True)
    (tmp_path / "s/evals/files/a.csv").write_text("1")

    item = {"prompt": prompt, "files": ["evals/files/a.csv"], "expectations": ["x"]}
    case = only(loaded(tmp_path, evals(item), "s/evals/evals.json"))

    assert [(placed.path, placed.source) for placed in case.placed] == [(path, tmp_path / "s/evals/files/a.csv")]
    assert case.prompt == asked


@pytest.mark.parametrize("written", ["../../secret.txt", "/etc/hostname", "evals/link.txt", "evals/gone.txt"])
def test_a_file_from_outside_of_the_skill_is_never_copied(tmp_path: Path, written: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "s/evals").mkdir(parents=True)
    (tmp_path / "s/evals/link.txt").symlink_to(tmp_path / "secret.txt")

    suite = loaded(tmp_path, evals({"files": [written], "expectations": ["x"]}), "s/evals/evals.json")

    (placed,) = only(suite).placed
    assert (placed.source, placed.wanted) == (None, written)
    assert not placed.path.startswith(("/", ".."))
    assert f'there is no file "{written}"' in str(suite.warnings[0])


def test_shared_rubrics_are_read_from_folders_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "tool/evals").mkdir(parents=True)
    (tmp_path / "tool/evals/rubric.json").write_text(
        json.dumps({"evals": [{"id": "q", "expected_repo_state": ["No clutter"]}, "Short"]})
    )

    item = {"expected_repo_state": ["x"]}
    suite = loaded(tmp_path, evals(item, repo_criteria=["evals/rubric.json", "gone.json"]), "tool/s/evals/evals.json")

    assert labels(only(suite)) == ["x", "No clutter", "Short"]
    assert "repo_criteria[1]" in str(suite.lost[0])
    assert suite.workspace is not None
    assert suite.workspace.template_dir == tmp_path
    assert [placed.path for placed in suite.workspace.placed] == ["tool/s/evals", "tool/evals/rubric.json"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"evals": {}}, "evals (line 1): must be a list"),
        ({"evals": []}, "has no cases"),
        ({"evals": [3]}, "must be an object"),
        ({"evals": [{"id": True, "prompt": "x", "expectations": ["y"]}]}, "must be a string or a whole number"),
        ({"evals": [{"id": [], "prompt": "x", "expectations": ["y"]}]}, "must be a string or a whole number"),
        (evals({"expectations": ["y"]}, {"prompt": None, "expectations": ["y"]}), "prompt (line 1): must not be null"),
        ({"evals": [{"id": 1, "prompt": 5, "expectations": ["y"]}]}, "prompt (line 1): must be a string"),
        ({"evals": [{"id": 1, "prompt": "x", "expectations": [5]}]}, "must be a string"),
        ({"evals": [{"id": 1, "prompt": "x", "files": {"a": 1}, "expectations": ["y"]}]}, "must be a list"),
        ({"evals": [{"id": 1, "prompt": "x", "files": [".."], "expectations": ["y"]}]}, "does not name a file"),
        (evals({"files": [{"path": "../a", "content": "b"}], "expectations": ["y"]}), "files[0].path (line 1)"),
        (evals({"files": [{"path": "a"}], "expectations": ["y"]}), "files[0].content (line 1): is missing"),
        (evals({"expectations": ["y"], "id": "a"}, {"expectations": ["y"], "id": "A"}), "would share the folder"),
        (evals({"expectations": ["y"], "id": 1}, {"expectations": ["y"], "id": "1"}), "is the id of"),
        ({"evals": [{"id": "..", "prompt": "x", "expectations": ["y"]}]}, "would leave the run folder"),
        ({"evals": [{"id": 1, "prompt": "a\0b", "expectations": ["y"]}]}, "NUL"),
    ],
)
def test_a_wrong_value_is_one_problem_with_its_place(tmp_path: Path, value: Any, said: str) -> None:
    assert said in problems(tmp_path, value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "eval.yaml",
            "scenarios: !!python/object:os.system [a]\n",
            "the tag tag:yaml.org,2002:python/object:os.system is not supported",
        ),
        (
            "eval.yaml",
            "a: &a [x, x]\n"
            + "\n".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}' if n else '*a'] * 99)}]" for n in range(9))
            + "\nscenarios: []\n",
            "aliases",
        ),
        ("eval.yaml", "scenarios: " + "[" * 500, "nested too deeply"),
        ("eval.yaml", "scenarios: []\nscenarios: []\n", "a second time"),
        ("evals.json", '{"evals": ' + "[" * 5000, "nested too deeply"),
    ],
)
def test_a_hostile_document_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    assert said in problems(tmp_path, text, name)


def test_a_huge_document_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "evals.json"
    with path.open("wb") as file:
        file.truncate(65 * 1024 * 1024)

    with pytest.raises(SuiteError, match="has more than 64 MiB"):
        load_suite(path)


def scenario(**fields: Any) -> dict[str, Any]:
    return {"scenarios": [{"name": "A", "prompt": "Do it.", **fields}]}


def test_a_scenario_has_a_setup_limits_and_checks(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.txt").write_text("a")
    setup = {"copy_test_files": True, "files": [{"path": "b/c.txt", "content": "c"}], "commands": ["make", "false"]}

    case = only(
        loaded(
            tmp_path,
            scenario(
                setup=setup,
                timeout=300,
                expect_tools=["bash"],
                reject_tools=["web"],
                max_turns=5,
                max_tokens=900,
                expect_activation=False,
                rubric=["Is short"],
                assertions=[{"type": "exit_success"}],
            ),
            "eval.json",
        )
    )

    assert [(placed.path, placed.text) for placed in case.placed] == [("data", None), ("b/c.txt", "c")]
    assert case.limits.timeout_s == 300
    assert case.bootstrap is not None
    assert case.bootstrap.args[1] == "/bin/sh -c make || true\n/bin/sh -c false || true"
    assert labels(case) == [
        *("exit_success", "expect_tools bash", "reject_tools web", "max_turns 5", "max_tokens 900"),
        *("skill_triggered", "Is short"),
    ]


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x"])
def test_a_setup_writes_only_into_the_workspace(tmp_path: Path, path: str) -> None:
    assert "path" in problems(
        tmp_path, scenario(setup={"files": [{"path": path, "content": ""}]}, rubric=["x"]), "e.json"
    )


def test_a_source_is_seen_from_the_skill_and_may_lie_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "tests/p/s/fixtures").mkdir(parents=True)
    (tmp_path / "tests/p/s/fixtures/a.cs").write_text("a")
    (tmp_path / "plugins/p/skills/s").mkdir(parents=True)
    (tmp_path / "plugins/p/skills/s/SKILL.md").write_text("---\nname: s\n---\n")
    files = [{"path": "a.cs", "source": "../../../../tests/p/s/fixtures/a.cs"}, {"path": "b.cs", "source": "../b.cs"}]

    suite = loaded(tmp_path, scenario(setup={"files": files}, rubric=["x"]), "tests/p/s/eval.json")

    found, refused = only(suite).placed
    assert found.source == tmp_path / "tests/p/s/fixtures/a.cs"
    assert refused.source is None
    assert suite.usual_skill == tmp_path / "plugins/p/skills/s"


def test_an_assertion_without_an_equal_is_lost(tmp_path: Path) -> None:
    given = [
        {"type": "output_matches", "pattern": "(?>a)"},
        {"type": "telepathy"},
        {"type": "exit_success", "extra": 1},
    ]

    suite = loaded(tmp_path, scenario(assertions=given), "eval.json")

    assert labels(only(suite)) == ["exit_success"]
    assert [str(lost).rpartition("not carried over: ")[2] for lost in suite.lost] == [
        "(?> of .NET has no equal in JavaScript",
        "whet has no assertion 'telepathy'",
        "nothing here reads it",
    ]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("abc", "xABCx", True),
        ("(?-i)abc", "ABC", False),
        ("(?i)a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
        ("(?m)^b$", "a\nb\nc", True),
        ("^b$", "a\nb\nc", False),
        (r"\Aa\z", "a", True),
        ("a$", "a\n", True),
        (r"a\Z", "a\n", True),
        ("(?'n'a)b", "ab", True),
        ("a(?#comment)b", "ab", True),
        (r"[$]\$", "$$", True),
        ("(no|not).{0,5}(x)", "not a x", True),
        (r"\p{Lu}b", "éb", True),
    ],
)
def test_a_pattern_of_dotnet_means_the_same_here(pattern: str, text: str, matches: bool) -> None:
    assert (compiled(dotnet_pattern(pattern)).find(text) is not None) is matches


@pytest.mark.parametrize(
    "pattern", ["(?>a)", "(?(a)b|c)", r"\Ga", "(?x)a b", "[a-z-[b]]", "(?i:a)b(?m)", "(", r"(?m)\Aa"]
)
def test_a_pattern_without_an_equal_is_refused(pattern: str) -> None:
    with pytest.raises(ClaimError):
        dotnet_pattern(pattern)


def test_an_eval_set_asks_whether_the_skill_is_loaded(tmp_path: Path) -> None:
    first, second = loaded(
        tmp_path, [{"query": "Ship it.", "should_trigger": True}, {"query": "Hi.", "should_trigger": False, "x": 1}]
    ).cases

    assert [(case.id, *labels(case)) for case in (first, second)] == [
        ("query-1", "should_trigger"),
        ("query-2", "should_not_trigger"),
    ]
    assert first.arms == (SKILL,)
    assert "must be true or false" in problems(tmp_path, [{"query": "a", "should_trigger": "yes"}])


PROMPTFOO = """
prompts: ["Say {{word}} to {{who}}.", {raw: "{{word}}!", label: short}]
providers: ["exec: ./agent.sh --fast", "openai:gpt-5"]
defaultTest:
  assert: [{type: not-contains, value: sorry}]
tests:
  - description: greets
    vars: {word: hello, who: [Ann, Bob]}
    assert:
      - {type: icontains, value: "{{word}}", weight: 2}
      - {type: contains-any, value: [a, b]}
      - {type: is-json}
      - {type: regex, value: "h.*o"}
      - {type: starts-with, value: He}
      - {type: cost, threshold: 0.5}
      - {type: latency, threshold: 2000}
      - {type: llm-rubric, value: Is polite}
      - {type: perplexity, threshold: 3}
"""


def test_a_configuration_of_promptfoo_makes_a_case_of_each_prompt_and_row(tmp_path: Path) -> None:
    suite = loaded(tmp_path, PROMPTFOO, "promptfooconfig.yaml")

    assert [(case.id, case.prompt) for case in suite.cases] == [
        ("greets / 1 / 1", "Say hello to Ann."),
        ("greets / short / 1", "hello!"),
        ("greets / 1 / 2", "Say hello to Bob."),
        ("greets / short / 2", "hello!"),
    ]
    assert labels(suite.cases[0]) == [
        *('not-contains "sorry"', 'icontains "hello"', 'contains-any ["a", "b"]', "is-json", 'regex "h.*o"'),
        *('starts-with "He"', "cost 0.5", "latency 2000", "Is polite"),
    ]
    assert suite.cases[0].checks[1].weight == 2
    lost = "\n".join(map(str, suite.lost))
    assert 'type = "command", command = "./agent.sh", args = ["--fast"]' in lost
    assert "no equivalent of perplexity" in lost


@pytest.mark.parametrize("prompt", ["{% if a %}x{% endif %}", "{{ word | wordcount }}", "{{gone}}", "file://../x.txt"])
def test_a_prompt_with_logic_is_lost_with_its_case(tmp_path: Path, prompt: str) -> None:
    (tmp_path.parent / "x.txt").write_text("secret")
    test = {"vars": {"word": "a"}, "assert": [{"type": "contains", "value": "x"}]}

    suite = loaded(tmp_path, {"prompts": [prompt, "plain"], "tests": [test]}, "p.json")

    assert [case.prompt for case in suite.cases] == ["plain"]
    assert len(suite.lost) == 1


def test_variables_do_not_explode(tmp_path: Path) -> None:
    many = {f"v{number}": list(map(str, range(100))) for number in range(9)}
    test = {"vars": many, "assert": [{"type": "contains", "value": "x"}]}

    assert "combinations" in problems(tmp_path, {"prompts": ["x"], "tests": [test]}, "p.json")


def test_what_is_in_other_files_is_lost_and_what_is_here_stays(tmp_path: Path) -> None:
    test = {"assert": [{"type": "contains", "value": "x"}, {"type": "regex", "value": "y", "weight": 0}]}
    elsewhere = ["file://tests.yaml", {"path": "file://tests.py:make"}]

    suite = loaded(
        tmp_path, {"prompts": ["plain"], "tests": [*elsewhere, test], "defaultTest": "file://usual.yaml"}, "p.json"
    )

    assert labels(only(suite)) == ['contains "x"']
    assert [str(lost).partition(": not carried over: ")[2] for lost in suite.lost] == [
        f'what holds for every test: there is no file "file://usual.yaml" in {tmp_path}',
        f'there is no file "file://tests.yaml" in {tmp_path}',
        '"file://tests.py:make" is a program, which whet does not run',
        "an assertion that decides nothing",
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"prompts": ["x"], "tests": "file://tests.csv"}, "there is no case that says what is expected"),
        ({"prompts": ["x"], "tests": ["file://tests.yaml"]}, "there is no case that says what is expected"),
        ({"prompts": ["{{ a | b }}"], "tests": [{"assert": [{"type": "contains", "value": "x"}]}]}, "there is no case"),
        (evals({}), "there is no case that says what is expected and can be carried over"),
    ],
)
def test_a_suite_of_which_nothing_is_left_is_refused(tmp_path: Path, value: Any, said: str) -> None:
    with pytest.raises(SuiteError) as caught:
        loaded(tmp_path, value, "p.json")

    assert said in str(caught.value)
    assert "not carried over" in str(caught.value.problems[0].hint) or "tests.csv" in said
