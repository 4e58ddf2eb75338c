"""Configurations of promptfoo: tests in other files, what decides, templates, and what each assertion becomes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from whet.errors import SuiteError
from whet.grade.answers.assertions import decide_assertion
from whet.grade.answers.texts import AssertionSubject
from whet.model.eval_cases import BooleanAssertion, ExactMatch, JavascriptCall, JsonSchema, LlmRubric
from whet.model.events import ToolCall
from whet.model.grade import Grade
from whet.model.session import Session, Usage
from whet.model.suite import Case, Check, Suite
from whet.reading.documents import DocumentError
from whet.reading.yaml import read_yaml
from whet.run.attempt.grading import conclude
from whet.run.attempt.record import AttemptRecord
from whet.suites.format import load_suite
from whet.suites.other_tools.promptfoo.logic import UnfilledTemplate
from whet.suites.other_tools.promptfoo.rows import assertion_in, split_values
from whet.suites.other_tools.promptfoo.templates import fill_template

SAYS = {"type": "contains", "value": "x"}


def loaded(folder: Path, **top: Any) -> Suite:
    (folder / "p.json").write_text(json.dumps({"prompts": ["Do {{task}}."], "providers": ["echo"], **top}))
    return load_suite(folder / "p.json")


def only(suite: Suite) -> Case:
    (case,) = suite.cases
    return case


def checks_of(folder: Path, *assertions: Any, **test: Any) -> tuple[Check, ...]:
    return only(loaded(folder, prompts=["Do it."], tests=[{"assert": list(assertions), **test}])).checks


def holds(check: Check, output: str) -> bool:
    session = Session(runner="r", agent="a", prompt="", final_output=output, usage=Usage())
    subject = AssertionSubject(session=session, workspace=Path())
    case = check.params["case"]
    assert isinstance(case, BooleanAssertion)
    outcomes = [decide_assertion(assertion, subject).state == "passed" for assertion in case.assertions]
    return all(outcomes) if case.match == "all" else any(outcomes)


COLUMNS = "task,__expected,__expected2 ,__description,__threshold,__prefix,__suffix,__metric"
CSV = f"""{COLUMNS},__config:__expected2:threshold
dig,contains: x,latency(5000),first,0.5,Please. ,!,m,900
"sing, loud",plain text,,,,,,,
"""
YAML = """
- vars: {task: dig}
  assert: [{type: contains, value: x}]
- vars: {task: sing}
  assert: [{type: contains, value: y}]
"""
TESTS = [
    {"vars": {"task": "dig"}, "assert": [{"type": "contains", "value": "x"}]},
    {"vars": {"task": "sing"}, "assert": [{"type": "contains", "value": "y"}]},
]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tests.yaml", YAML),
        ("tests.json", json.dumps(TESTS)),
        ("tests.jsonl", "\n\n".join(map(json.dumps, TESTS))),
        ("tests.csv", "task,__expected\ndig,contains: x\nsing,contains: y\n"),
    ],
)
@pytest.mark.parametrize("reference", ["file://{}", "{}", "file://cases/../{}", "file://*s{}"])
def test_tests_are_read_from_a_file_of_each_kind(tmp_path: Path, name: str, text: str, reference: str) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / name).write_text("\ufeff" * name.endswith("csv") + text, encoding="utf-8")
    written = reference.format(Path(name).suffix if "*" in reference else name)

    for tests in (written, [written], [{"path": written}]):
        suite = loaded(tmp_path, tests=tests)

        assert [case.prompt for case in suite.cases] == ["Do dig.", "Do sing."]
        assert [case.checks[0].label for case in suite.cases] == ['contains "x"', 'contains "y"']
        assert set(suite.held_out) == {tmp_path / "p.json", tmp_path / name}


def test_a_case_of_a_file_has_its_place_there_and_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "tests.yaml").write_text(YAML)
    before = loaded(tmp_path, tests="tests.yaml")
    (tmp_path / "tests.yaml").write_text(YAML.replace("sing", "run"))

    after = loaded(tmp_path, tests="tests.yaml")

    location = before.cases[1].location
    assert location is not None
    assert (location.file, location.line) == (str(tmp_path / "tests.yaml"), 4)
    assert before.digest != after.digest


def test_columns_of_a_row_mean_what_they_mean_there(tmp_path: Path) -> None:
    (tmp_path / "tests.csv").write_text(CSV)

    first, second = loaded(tmp_path, tests="tests.csv").cases

    assert (first.id, first.prompt, first.pass_threshold) == ("first", "Please. Do dig.!", 0.5)
    assert [check.label for check in first.checks] == ['contains "x"', "latency 900"]
    assert (second.prompt, second.pass_threshold) == ("Do sing, loud.", None)
    assert [check.label for check in second.checks] == ['equals "plain text"']


def test_a_limit_of_an_assertion_without_a_number_is_that_of_the_first(tmp_path: Path) -> None:
    columns = "task,__expected,__expected2,__config:__expected:threshold"
    (tmp_path / "tests.csv").write_text(f"{columns}\ndig,latency(5000),latency(6000),900\n")

    (case,) = loaded(tmp_path, tests="tests.csv").cases

    assert [check.label for check in case.checks] == ["latency 900", "latency 6000"]


@pytest.mark.parametrize(
    ("cell", "assertion"),
    [
        ("x", {"type": "equals", "value": "x"}),
        ("Note: this", {"type": "equals", "value": "Note: this"}),
        ("not-contains: x", {"type": "not-contains", "value": "x"}),
        ('contains-any:a, "b,c"', {"type": "contains-any", "value": ["a", "b,c"]}),
        ("fn: output.length > 1", {"type": "javascript", "value": "output.length > 1"}),
        ("javascript: output.length > 1", {"type": "javascript", "value": "output.length > 1"}),
        ("grade: is polite", {"type": "llm-rubric", "value": "is polite"}),
        ("file://a.js:f", {"type": "javascript", "value": "file://a.js:f"}),
        ("similar(0.9): x", {"type": "similar", "value": "x", "threshold": 0.9}),
        ("latency", {"type": "latency", "threshold": 0.75}),
        ("is-json", {"type": "is-json"}),
    ],
)
def test_a_cell_is_an_assertion_by_its_type_or_what_the_answer_equals(cell: str, assertion: dict[str, Any]) -> None:
    assert assertion_in(cell) == assertion


def test_values_between_commas_may_be_in_quotes() -> None:
    assert split_values(r'a, "b, ""c""" , "d\"e",,') == ["a", 'b, "c"', 'd"e']


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ("gone.yaml", 'there is no file "gone.yaml"'),
        ("tests.xlsx", "whet reads tests in YAML, JSON, JSON lines and CSV"),
        ("make.py:tests", "is a program, which whet does not run"),
        ("https://docs.google.com/spreadsheets/d/1", "is no file of this machine"),
        ("../outside.csv", 'there is no file "../outside.csv"'),
    ],
)
def test_tests_that_cannot_be_read_are_left_out_with_the_reason(tmp_path: Path, tests: str, why: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "tests.xlsx").write_text("")
    (tmp_path / "outside.csv").write_text("task,__expected\nsteal,x\n")

    suite = loaded(folder, tests=[tests, {"vars": {"task": "it"}, "assert": [SAYS]}])

    assert len(suite.cases) == len(suite.lost_cases) == 1
    assert why in "\n".join(map(str, suite.lost))


def test_a_mistake_in_a_file_of_tests_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "tests.yaml").write_text("- vars: {task: dig}\n  assert:\n    - value: x\n")

    with pytest.raises(SuiteError, match=r"tests.yaml: .*tests\[0\].assert\[0\].type \(line 3\): is missing"):
        loaded(tmp_path, tests="tests.yaml")


@pytest.mark.parametrize("as_file", [False, True])
def test_what_holds_for_every_test_is_added_or_replaced(tmp_path: Path, as_file: bool) -> None:
    usual: dict[str, Any] = {
        "vars": {"task": "dig", "tone": "kind"},
        "assert": [{"type": "contains", "value": "{{tone}}"}],
        "threshold": 0.4,
        "options": {"prefix": "Please. "},
    }
    (tmp_path / "usual.yaml").write_text(json.dumps(usual))
    tests = [
        {"vars": {"tone": "rude"}},
        {"assert": [SAYS], "threshold": 1, "options": {"prefix": "Now. ", "disableDefaultAsserts": True}},
    ]

    suite = loaded(tmp_path, tests=tests, defaultTest="file://usual.yaml" if as_file else usual)

    assert [(case.prompt, case.pass_threshold) for case in suite.cases] == [
        ("Please. Do dig.", 0.4),
        ("Now. Do dig.", 1),
    ]
    assert [[check.label for check in case.checks] for case in suite.cases] == [['contains "rude"'], ['contains "x"']]


def test_without_tests_what_holds_for_all_is_the_only_one(tmp_path: Path) -> None:
    suite = loaded(tmp_path, defaultTest={"vars": {"task": "dig"}, "assert": [SAYS]})

    assert only(suite).prompt == "Do dig."


def test_merge_keys_fill_in_what_a_test_does_not_say(tmp_path: Path) -> None:
    text = """
prompts: ["Do {{task}} {{how}}."]
providers: [echo]
base: &base {task: dig, how: well}
usual: &usual
  assert: [{type: contains, value: x}]
tests:
  - <<: *usual
    vars: {how: fast, <<: *base}
"""
    (tmp_path / "p.yaml").write_text(text)

    case = only(load_suite(tmp_path / "p.yaml"))

    assert case.prompt == "Do dig fast."
    assert len(case.checks) == 1


def test_the_first_of_several_objects_that_are_merged_wins() -> None:
    document = read_yaml("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b]}\n")

    assert document.root.plain()["c"] == {"x": 1, "y": 1, "z": 2}


def test_only_objects_can_be_merged() -> None:
    with pytest.raises(DocumentError, match="merges an object, or a list of objects in line 1"):
        read_yaml("a: {<<: [1]}")


def test_tests_with_the_same_description_are_told_apart(tmp_path: Path) -> None:
    test = {"description": "same", "vars": {"task": "it"}, "assert": [SAYS]}

    assert [case.id for case in loaded(tmp_path, tests=[test, test]).cases] == ["same", "same (2)"]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{a}} {{ b.c }} {{ d[1] }}", "one two 4"),
        ("{{a}} {{- b.c -}} !", "onetwo!"),
        ("{# for people #}{{ a }}", "one"),
        ("{{ d | join(', ') }} {{ d | length }} {{ d.length }} {{ gone_too | default('x') }}", "3, 4 2 2 x"),
        ("{% if yes %}y{% else %}n{% endif %}{% if gone %}y{% else %}n{% endif %}", "yn"),
        ("{% if a == 'two' %}2{% elif not gone and a == \"one\" %}1{% endif %}", "1"),
        ("{% if a != 'one' or b %}{% if d %}deep{% endif %}{% endif %}", "deep"),
        ("{% for x in d %}{{ loop.index }}:{{ x }}{% if not loop.last %},{% endif %}{% endfor %}", "1:3,2:4"),
        ("{% for key, value in b %}{{ key }}={{ value }}{% endfor %}", "c=two"),
        ("a\n{%- for x in d -%}\n  {{ x }}\n{%- endfor -%}\nb", "a34b"),
        ("{{ a | upper | trim }}", "ONE"),
        ("{{ b | dump }}", '{"c":"two"}'),
        ("{{ d }} {{ yes }}", "[3,4] true"),
    ],
)
def test_variables_of_templates_are_filled_in(template: str, text: str) -> None:
    values = {"a": "one", "b": {"c": "two"}, "d": [3, 4], "yes": True, "gone_too": None}

    assert fill_template(template, values) == text


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% if a %}", "has {% if a %} in it, which does not end"),
        ("{% endfor %}", "has {% endfor %} in it, which whet does not read"),
        ("{% macro x() %}{% endmacro %}", "has {% macro x() %} in it, which whet does not read"),
        ("{% for x %}{% endfor %}", "has {% for x %} in it, which whet does not read"),
        ("{% for x in a %}{% endfor %}", "has a loop over something that is no list"),
        ("{{ a + 1 }}", "has {{ a + 1 }} in it, which whet does not read"),
        ("{{ a.constructor }}", 'needs the variable "a.constructor"'),
        ("{{ gone }}", 'needs the variable "gone", which the test does not have'),
        ("{{ a | sort }}", 'has the filter "sort" in it, which whet does not have'),
        ("{{ a", "has {{ a in it, which does not end"),
        ("{% if a %}" * 30 + "{% endif %}" * 30, "in it, which whet does not read"),
        ("{% for x in b %}" * 10 + "{% endfor %}" * 10, "goes round its loops more than 100,000 times"),
        ("{{" * 200_000, "which does not end"),
        (" " * 300_000 + "{{-", "which does not end"),
        (f"{{{{ a {'|' * 200_000} }}}}", "which is too long"),
        (f"{{% if a {'and a ' * 50_000} %}}{{% endif %}}", "which is too long"),
    ],
)
def test_other_parts_of_templates_are_not(template: str, why: str) -> None:
    with pytest.raises(UnfilledTemplate) as caught:
        fill_template(template, {"a": "one", "b": list(range(10))})

    assert why in str(caught.value)


def test_a_variable_that_a_test_does_not_have_leaves_its_place_empty_with_a_warning(tmp_path: Path) -> None:
    suite = loaded(tmp_path, prompts=["Do {{task}} with {{tool}}."], tests=[{"vars": {"task": "it"}, "assert": [SAYS]}])

    assert only(suite).prompt == "Do it with ."
    assert "vars (line 1): has no tool, so that nothing is in that place of the prompt" in str(suite.warnings[0])


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("{% set x = task %}", "its prompt has {% set x = task %} in it, which whet does not read"),
        ("{{ task | sort }}", 'its prompt has the filter "sort" in it, which whet does not have'),
        ("{{ task.name }}", 'its prompt needs the variable "task.name", which the test does not have'),
        ("{{ env.HOME }}", 'its prompt needs the variable "env.HOME"'),
        ("{{ gone }}", "its prompt is empty"),
    ],
)
def test_a_prompt_that_cannot_be_filled_in_says_why(tmp_path: Path, prompt: str, why: str) -> None:
    with pytest.raises(SuiteError) as caught:
        loaded(tmp_path, prompts=[prompt], tests=[{"vars": {"task": "it"}, "assert": [SAYS]}])

    assert why in str(caught.value.problems[0].hint)


def test_only_a_list_of_texts_makes_a_case_of_each_item(tmp_path: Path) -> None:
    prompt = (
        "{% for line in talk %}{% for who, text in line %}{{ who }}: {{ text }}; {% endfor %}{% endfor %}{{ task }}"
    )
    values = {"talk": [{"Ann": "Hi."}, {"Bob": "Bye."}], "task": ["dig", "sing"], "none": []}

    suite = loaded(tmp_path, prompts=[prompt], tests=[{"vars": values, "assert": [SAYS]}])

    assert [case.prompt for case in suite.cases] == ["Ann: Hi.; Bob: Bye.; dig", "Ann: Hi.; Bob: Bye.; sing"]


CALLED = (ToolCall(tool="search_orders"), ToolCall(tool="search_users"), ToolCall(tool="reply"))


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("trajectory:tool-used", "reply", True),
        ("trajectory:tool-used", "rep", False),
        ("trajectory:tool-used", ["reply", "search_users"], True),
        ("trajectory:tool-used", ["reply", "refund"], False),
        ("trajectory:tool-used", {"pattern": "search*", "min": 2, "max": 2}, True),
        ("trajectory:tool-used", {"pattern": "search*", "max": 1}, False),
        ("not-trajectory:tool-used", "refund", True),
        ("not-trajectory:tool-used", "reply", False),
        ("trajectory:tool-sequence", {"steps": ["search_orders", "reply"]}, True),
        ("trajectory:tool-sequence", {"steps": ["reply", "search_orders"]}, False),
    ],
)
def test_tools_that_were_called_are_checked(tmp_path: Path, kind: str, value: Any, wanted: bool) -> None:
    (check,) = checks_of(tmp_path, {"type": kind, "value": value})
    session = Session(runner="r", agent="a", prompt="", final_output="", events=CALLED)

    outcomes = [
        decide_assertion(assertion, AssertionSubject(session=session, workspace=Path())).state
        for assertion in check.params["case"].assertions
    ]

    assert (set(outcomes) == {"passed"}) is wanted


def test_a_red_team_has_no_tests_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(SuiteError) as caught:
        loaded(tmp_path, redteam={"purpose": "x"})

    assert "redteam (line 1): has no tests here: promptfoo makes those of a red team" in str(caught.value)


def test_variables_may_name_others_and_files(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("the whole\n")
    (tmp_path / "more.yaml").write_text("tool: spade\n")
    values = {"task": "{{text}} with {{how}}", "text": "file://long.txt", "how": "care"}

    inline = loaded(tmp_path, tests=[{"vars": values, "assert": [SAYS]}])
    in_file = loaded(tmp_path, prompts=["Use a {{tool}}."], tests=[{"vars": "file://more.yaml", "assert": [SAYS]}])

    assert only(inline).prompt == "Do the whole with care."
    assert only(in_file).prompt == "Use a spade."


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("rows.sql", b"SELECT 1;\n", "SELECT 1;"),
        ("page.html", "<p>\u00e9</p>".encode(), "<p>\u00e9</p>"),
        ("facts.yaml", "b: [1, \u00e9]\na: x\n".encode(), '{"b":[1,"\u00e9"],"a":"x"}'),
    ],
)
def test_any_text_may_fill_a_variable(tmp_path: Path, name: str, data: bytes, text: str) -> None:
    (tmp_path / name).write_bytes(data)

    case = only(loaded(tmp_path, tests=[{"vars": {"task": f"file://{name}"}, "assert": [SAYS]}]))

    assert case.prompt == f"Do {text}."


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("make.ts", b"export default () => 1", '"make.ts" is a program, which whet does not run'),
        ("cat.jpg", b"\xff\xd8\xff", '"cat.jpg" is not a text file'),
        ("rows.xlsx", b"PK\x03\x04\0\0", '"rows.xlsx" is not a text file'),
        ("logo.svg", b"<svg/>", '"logo.svg" is not a text file'),
    ],
)
def test_what_is_no_text_fills_no_variable(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    (tmp_path / name).write_bytes(data)
    tests = [{"vars": {"task": f"file://{name}"}, "assert": [SAYS]}, {"vars": {"task": "x"}, "assert": [SAYS]}]

    suite = loaded(tmp_path, tests=tests)

    assert [case.id for case in suite.cases] == ["2"]
    assert why in "\n".join(map(str, suite.lost))


def test_only_the_first_test_of_a_conversation_is_a_case_of_its_own(tmp_path: Path) -> None:
    prompt = "{% for turn in _conversation %}{{ turn.input }}{% endfor %}Do {{task}}."
    tests = [
        {"vars": {"task": task}, "metadata": {"conversationId": conversation}, "assert": [SAYS]}
        for task, conversation in (("dig", "a"), ("fill", "a"), ("sing", "b"))
    ]

    suite = loaded(tmp_path, prompts=[prompt], tests=tests)

    assert [case.prompt for case in suite.cases] == ["Do dig.", "Do sing."]
    assert suite.lost_cases == ("2",)
    assert "goes on with a conversation that an earlier test began" in str(suite.lost[-1])


def test_prompts_with_the_same_label_are_told_apart(tmp_path: Path) -> None:
    prompts = [{"raw": "One.", "label": "short"}, {"raw": "Two.", "label": "short"}]

    assert [case.id for case in loaded(tmp_path, prompts=prompts, tests=[{"assert": [SAYS]}]).cases] == [
        *("1 / short", "1 / short 2"),
    ]


def test_each_test_of_a_scenario_is_run_with_each_set_of_its_data(tmp_path: Path) -> None:
    config = [{"vars": {"task": "dig", "word": "a"}, "assert": [SAYS]}, {"vars": {"task": "sing", "word": "b"}}]
    test = {"description": "works", "assert": [{"type": "contains", "value": "{{word}}"}]}

    suite = loaded(tmp_path, scenarios=[{"config": config, "tests": [test]}, {"config": config[:1]}])

    assert [(case.id, case.prompt, [check.label for check in case.checks]) for case in suite.cases] == [
        ("works", "Do dig.", ['contains "a"', 'contains "x"']),
        ("works (2)", "Do sing.", ['contains "b"']),
        ("3", "Do dig.", ['contains "x"']),
    ]


def test_an_assertion_may_refer_to_a_template_of_the_configuration(tmp_path: Path) -> None:
    tests = [{"vars": {"task": "dig"}, "assert": [{"$ref": "#/assertionTemplates/says", "weight": 2}]}]

    case = only(loaded(tmp_path, tests=tests, assertionTemplates={"says": SAYS}))

    assert [(check.label, check.weight) for check in case.checks] == [('contains "x"', 2)]
    with pytest.raises(SuiteError, match=r'there is nothing at "#/assertionTemplates/says"'):
        loaded(tmp_path, tests=tests)


def test_prompts_are_read_from_files_and_parts_of_them(tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("One {{task}}.\n---\nTwo {{task}}.\n")
    (tmp_path / "whole.md").write_text("Three\n---\n{{task}}.")
    (tmp_path / "make.js").write_text("module.exports = () => 'x'")
    (tmp_path / "rows.csv").write_text('label,prompt\na,"Four, {{task}}."\n')
    (tmp_path / "lines.csv").write_text("prompt\nFive {{task}}.\n")
    (tmp_path / "chat.jsonl").write_text('"Six {{task}}."\n')
    prompts = ["file://two.txt", {"id": "whole.md", "label": "w"}, "make.js", "rows.csv", "lines.csv", "chat.jsonl"]

    suite = loaded(tmp_path, prompts=prompts, tests=[{"vars": {"task": "it"}, "assert": [SAYS]}])

    assert [(case.id, case.prompt) for case in suite.cases] == [
        *(("1 / 1", "One it."), ("1 / 2", "Two it."), ("1 / w", "Three\n---\nit.")),
        *(("1 / 4", "Four, it."), ("1 / 5", "Five it."), ("1 / 6", '"Six it."')),
    ]
    assert '"make.js" is a program, which whet does not run' in str(suite.lost[-1])


@pytest.mark.parametrize(
    ("assertion", "good", "bad"),
    [
        ({"type": "contains-all", "value": "a, b"}, "b a", "a"),
        ({"type": "not-contains-all", "value": ["a", "b"]}, "a", "a b"),
        ({"type": "not-contains-any", "value": ["a", "b"]}, "c", "a"),
        ({"type": "not-icontains-any", "value": ["A"]}, "c", "a"),
        ({"type": "icontains-any", "value": ["A"]}, "a", "c"),
        ({"type": "not-equals", "value": "a"}, "b", "a"),
        ({"type": "not-starts-with", "value": "a"}, "ba", "ab"),
        ({"type": "not-regex", "value": "a+b"}, "b", "aab"),
        ({"type": "contains", "value": 42}, "it is 42", "it is 4"),
        ({"type": "word-count", "value": 2}, " two\nwords ", "one"),
        ({"type": "word-count", "value": {"max": 2}}, "", "one two three"),
        ({"type": "word-count", "value": {"min": 2}}, "one two three", "one"),
        ({"type": "not-word-count", "value": {"min": 1, "max": 2}}, "one two three", "one"),
    ],
)
def test_an_assertion_about_the_answer_decides_as_it_does_there(
    tmp_path: Path, assertion: dict[str, Any], good: str, bad: str
) -> None:
    (check,) = checks_of(tmp_path, assertion)

    assert holds(check, good)
    assert not holds(check, bad)


def test_values_and_schemas_may_be_in_files_or_text(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("hello {{name}}")
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    (tmp_path / "rubric.md").write_text("Is polite.")

    checks = checks_of(
        tmp_path,
        {"type": "contains", "value": "file://long.txt"},
        {"type": "is-json", "value": "file://schema.json"},
        {"type": "contains-json", "value": "type: array\nminItems: 1"},
        {"type": "equals", "value": {"a": [1]}},
        {"type": "llm-rubric", "value": "file://rubric.md"},
    )

    assert checks[0].params["case"].assertions[0].value == "hello {{name}}"
    cases = [check.params["case"] for check in checks[1:4]]
    assert [type(case) for case in cases] == [JsonSchema, JsonSchema, ExactMatch]
    assert [cases[0].schema, cases[1].schema] == [{"type": "object"}, {"type": "array", "minItems": 1}]
    assert checks[4].params["statement"] == "Is polite."


def test_what_a_judge_decides_has_its_threshold_and_its_denial(tmp_path: Path) -> None:
    checks = checks_of(
        tmp_path,
        {"type": "llm-rubric", "value": "Is polite", "threshold": 0.9},
        {"type": "not-llm-rubric", "value": "Is rude"},
        {"type": "factuality", "value": "Paris is in France."},
        {"type": "g-eval", "value": ["Is short", "Is clear"], "threshold": 0.5},
    )

    cases: list[LlmRubric] = [check.params["case"] for check in checks]
    assert [case.pass_threshold for case in cases] == [0.9, 0.7, 0.7, 0.5]
    assert cases[1].rubric[0].description == "This is not the case: Is rude"
    assert "agrees with this reference" in cases[2].rubric[0].description
    assert [item.description for item in cases[3].rubric] == ["Is short", "Is clear"]


def test_a_skill_that_has_to_be_used_is_not_compared(tmp_path: Path) -> None:
    both, none = checks_of(
        tmp_path, {"type": "skill-used", "value": ["a", "b"]}, {"type": "not-skill-used", "value": "c"}
    )

    assert not both.compared
    assert [part.value for part in both.params["case"].assertions] == ["a", "b"]
    assert none.params["case"].assertions[0].negate


@pytest.mark.parametrize(
    "assertion",
    [
        {"type": "similar", "value": "x"},
        {"type": "not-is-json"},
        {"type": "contains", "value": "{{ gone }}"},
        {"type": "contains", "value": "x", "transform": "output.trim()"},
        {"type": "regex", "value": "("},
        {"type": "word-count", "value": {"min": "few"}},
        {"type": "cost"},
        {"type": "is-json", "value": "file://gone.json"},
        {"type": "javascript", "value": "file://check.ts"},
        {"type": "skill-used", "value": {"pattern": "a*"}},
    ],
)
def test_an_assertion_without_an_equal_is_a_lost_check(tmp_path: Path, assertion: dict[str, Any]) -> None:
    case = only(loaded(tmp_path, prompts=["Do it."], tests=[{"assert": [SAYS, assertion]}]))

    assert (len(case.checks), len(case.lost_checks)) == (1, 1)


@pytest.mark.parametrize(
    "test",
    [{"assertScoringFunction": "file://score.js"}, {"options": {"transform": "output.trim()"}}],
)
def test_what_else_decides_is_lost_with_its_name(tmp_path: Path, test: dict[str, Any]) -> None:
    case = only(loaded(tmp_path, prompts=["Do it."], tests=[{"assert": [SAYS], **test}]))

    (lost,) = case.lost_checks
    assert next(iter(test)) in lost


def graded(*values: float, part_of: Any = None, passes_from: float | None = None) -> str:
    """Return why an attempt failed whose checks have these grades; empty if it passed."""
    checks = tuple(Check(grader="answer", label=str(number), part_of=part_of) for number, _ in enumerate(values))
    case = Case(id="a", prompt="x", checks=checks, pass_threshold=passes_from)
    record = AttemptRecord(runner="r", number=1, artifact_dir="a")
    record.grades = [
        Grade(check=check.label, value=value, passed=value >= 1, reason=f"{value} is too little")
        for check, value in zip(checks, values, strict=True)
    ]
    conclude(record, case)
    return record.failure.message if record.failure else ""


def test_a_set_of_assertions_needs_its_threshold_and_weighs_as_one(tmp_path: Path) -> None:
    parts = [{"type": "contains", "value": "a", "weight": 3}, {"type": "contains", "value": "b"}]

    all_of, first, second, third, fourth = checks_of(
        tmp_path,
        SAYS,
        {"type": "assert-set", "weight": 2, "threshold": 0.5, "assert": parts},
        {"type": "assert-set", "assert": parts},
    )

    assert all_of.part_of is None
    assert [check.weight for check in (first, second, third, fourth)] == [1.5, 0.5, 0.75, 0.25]
    assert first.part_of == second.part_of
    assert first.part_of is not None
    assert third.part_of is None
    assert graded(1, 0, part_of=first.part_of) == ""
    assert "scores 0.00, and needs 0.5: 0 is too little" in graded(0, 0, part_of=first.part_of)
    assert graded(1, 0) == "0 is too little"
    assert graded(0.9, 0.9, part_of=replace(first.part_of, threshold=0.95)).startswith("tests[0].assert[1] scores 0.90")


def test_a_threshold_of_a_test_outranks_its_single_assertions(tmp_path: Path) -> None:
    case = only(loaded(tmp_path, prompts=["Do it."], tests=[{"assert": [SAYS, SAYS], "threshold": 0.5}]))

    assert case.pass_threshold == 0.5
    assert graded(1, 0, passes_from=0.5) == ""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_javascript_is_a_call_with_all_that_it_may_look_at(tmp_path: Path) -> None:
    (tmp_path / "check.js").write_text("module.exports = () => true")

    inline, negated, from_file = checks_of(
        tmp_path,
        {"type": "javascript", "value": "output.length > {{least}}", "threshold": 0.3, "config": {"a": 1}},
        {"type": "not-javascript", "value": "output === ''"},
        {"type": "javascript", "value": "file://check.js:named"},
        vars={"least": 3},
    )

    call: JavascriptCall = inline.params["call"]
    assert (call.code, call.threshold, call.config, dict(call.values)) == (
        "output.length > 3",
        0.3,
        {"a": 1},
        {"least": 3},
    )
    assert negated.params["call"].negate
    assert (from_file.params["call"].file, from_file.params["call"].function) == (str(tmp_path / "check.js"), "named")


def test_javascript_is_lost_where_there_is_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    case = only(
        loaded(tmp_path, prompts=["Do it."], tests=[{"assert": [SAYS, {"type": "javascript", "value": "true"}]}])
    )

    assert case.lost_checks == ("tests[0].assert[1].type: javascript, because there is no node on PATH",)
