"""Suites of `claude plugin eval`: how each field is read, what each grader becomes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whet.errors import SuiteError
from whet.grade.answers.assertions import decide_assertion
from whet.grade.answers.texts import AssertionSubject, NoText, text_for_judge, text_of
from whet.model.eval_cases import Assertion, BooleanAssertion, LlmRubric
from whet.model.events import FileRead, Message, ToolCall
from whet.model.session import Session
from whet.model.suite import Case, Suite
from whet.suites.find import find_suites
from whet.suites.format import load_suite

GRADER = "---\ntype: regex\npattern: hello\n---\n"
PROMPT = "---\nruns: 2\n---\n\nGreet me.\n"
WHOLE = """\
schema_version: "1.1"
name: whole
execution:
  prompt: Greet me.
graders:
  - {name: says, type: regex, pattern: hello}
"""


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def plugin(root: Path, files: dict[str, str], manifest: str = '{"name": "greeter"}') -> Path:
    return written(root, {".claude-plugin/plugin.json": manifest, **files})


def case_of(root: Path, *graders: str, prompt: str = PROMPT, **more: str) -> Case:
    files = {f"graders/g{number}.md": text for number, text in enumerate(graders, 1)}
    written(root / "evals/a", {"prompt.md": prompt, **files, **more})
    (case,) = load_suite(plugin(root, {}) / "evals").cases
    return case


def yaml_case(root: Path, text: str, **files: str) -> tuple[Suite, Case]:
    written(root / "evals/a", {"case.yaml": text, **files})
    suite = load_suite(plugin(root, {}) / "evals")
    return suite, suite.cases[0]


def problems(root: Path, files: dict[str, str]) -> str:
    with pytest.raises(SuiteError) as caught:
        load_suite(plugin(root, {f"evals/{name}": text for name, text in files.items()}) / "evals")
    return str(caught.value)


def grader(fields: str, body: str = "") -> str:
    return f"---\n{fields}\n---\n{body}"


def assertion_of(root: Path, fields: str, body: str = "") -> Assertion:
    checked = case_of(root, grader(fields, body)).checks[0].params["case"]
    assert isinstance(checked, BooleanAssertion)
    return checked.assertions[0]


def subject(root: Path, events: tuple[Any, ...] = (), *, agent: str = "claude-code", **more: Any) -> AssertionSubject:
    session = Session(runner="r", agent=agent, prompt="p", final_output="The answer.", events=events)
    return AssertionSubject(session=session, workspace=root, **more)


def held(root: Path, fields: str, seen: AssertionSubject) -> str:
    return decide_assertion(assertion_of(root, fields), seen).state


def test_every_field_of_a_front_matter_becomes_what_we_call_it(tmp_path: Path) -> None:
    front = """\
---
schema_version: "1.1"
name: greets
description: For people.
expected_outcome: A greeting.
tags: [short, kind]
plugins: ["../.."]
runs: 5
model: large
max_turns: 7
timeout_seconds: 60
env: {EVAL_NAME: Ada}
---

  Greet me.

"""

    case = case_of(tmp_path, GRADER, prompt=front)

    assert (case.id, case.prompt, case.tags, case.trials, case.model) == (
        "greets",
        "Greet me.",
        ("short", "kind"),
        5,
        "large",
    )
    assert (case.limits.max_steps, case.limits.timeout_s, dict(case.env)) == (7, 60.0, {"EVAL_NAME": "Ada"})
    assert case.scored


def test_without_a_front_matter_the_whole_file_is_the_prompt_and_every_default_holds(tmp_path: Path) -> None:
    case = case_of(tmp_path, GRADER, prompt="Greet me.\n")

    assert (case.id, case.prompt, case.tags, case.trials, case.model) == ("a", "Greet me.", (), 3, None)
    assert (case.limits.max_steps, case.limits.timeout_s) == (10, 300.0)


def test_a_case_yaml_alone_is_a_case(tmp_path: Path) -> None:
    text = WHOLE.replace("execution:", "tags: [x]\nruns: 1\nexecution:\n  max_turns: 3\n  env: {EVAL_A: b}")

    _, case = yaml_case(tmp_path, text)

    assert (case.id, case.prompt, case.tags, case.trials) == ("whole", "Greet me.", ("x",), 1)
    assert (case.limits.max_steps, dict(case.env), case.checks[0].label) == (3, {"EVAL_A": "b"}, "says")


def test_of_both_files_the_front_matter_wins_key_by_key_and_graders_in_files_come_last(tmp_path: Path) -> None:
    text = WHOLE.replace("execution:", "runs: 1\ntags: [x]\nexecution:\n  max_turns: 3")

    _, case = yaml_case(tmp_path, text, **{"prompt.md": "---\nruns: 4\n---\nThe body.", "graders/z.md": GRADER})

    assert (case.prompt, case.trials, case.tags, case.limits.max_steps) == ("The body.", 4, ("x",), 3)
    assert [check.label for check in case.checks] == ["says", "z"]


def test_an_empty_body_leaves_the_prompt_to_case_yaml(tmp_path: Path) -> None:
    _, case = yaml_case(tmp_path, WHOLE, **{"prompt.md": "---\nruns: 4\n---\n"})

    assert (case.prompt, case.trials) == ("Greet me.", 4)


def test_a_scaffold_script_prepares_the_workspace_and_folders_are_put_into_it(tmp_path: Path) -> None:
    text = WHOLE + "context:\n  scaffold_script: make.sh\n  add_dirs: [data]\n"

    _, case = yaml_case(tmp_path, text, **{"make.sh": "touch a\n", "data/x.txt": "x"})

    assert case.bootstrap is not None
    assert (case.bootstrap.command, case.bootstrap.timeout_s) == ("bash", 120)
    assert case.bootstrap.args == (str(tmp_path / "evals/a/make.sh"),)
    assert [(item.path, item.source) for item in case.placed] == [("data", tmp_path / "evals/a/data")]


def test_what_whet_cannot_do_is_a_named_loss(tmp_path: Path) -> None:
    lost = "append_system_prompt: Be kind.\nartifact_publish: true\ngrowthbook_overrides: {a: b}"
    front = f"---\nallowed_tools: [Read]\ndisallowed_tools: [Bash]\n{lost}\n---\nGreet me."
    mocked = grader("type: regex\npattern: x\ntarget: mock_calls")
    files = {"a/prompt.md": front, "a/graders/g.md": GRADER, "a/graders/m.md": mocked}
    plugin(tmp_path, {f"evals/{name}": text for name, text in files.items()})
    written(tmp_path / "evals", {"mocks/tracker/make.md": "Done."})

    suite = load_suite(tmp_path / "evals")

    told = "\n".join(map(str, suite.lost))
    assert [check.label for check in suite.cases[0].checks] == ["g"]
    for part in (
        "allowed_tools (line 2): not carried over",
        "disallowed_tools (line 3): not carried over",
        "append_system_prompt (line 4): not carried over: no agent is given more than its prompt",
        "artifact_publish (line 5): not carried over: whet publishes nothing",
        "growthbook_overrides (line 6): not carried over: it is internal to Claude Code",
        "target (line 4): not carried over: the grader m, because whet has no mocks",
        "mocks: not carried over: whet has no mocks",
    ):
        assert part in told


def test_a_baseline_grader_compares_with_its_transcript_and_decides_no_trial(tmp_path: Path) -> None:
    compared = grader("type: baseline\nbaseline_file: old.jsonl", "As good as before.")
    said = [
        {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}} for text in ("One.", "Two.")
    ]
    transcript = "\n".join(map(json.dumps, [*said, {"type": "result", "result": "ended"}]))
    files = {"a/prompt.md": "Hi.", "a/graders/b.md": compared, "a/old.jsonl": transcript}
    files |= {"b/prompt.md": "Hi.", "b/graders/g.md": GRADER, "b/graders/b.md": compared, "b/old.jsonl": transcript}
    plugin(tmp_path, {f"evals/{name}": text for name, text in files.items()})

    suite = load_suite(tmp_path / "evals")

    alone, beside = suite.cases
    assert [check.label for check in alone.checks] == ["answers"]
    assert [check.label for check in beside.checks] == ["g"]
    for case in suite.cases:
        assert case.pairwise is not None
        assert case.pairwise.question == "Which answer satisfies this better?\nAs good as before."
        assert case.pairwise.reference == "Two."
        assert tmp_path / "evals" / case.id / "old.jsonl" in suite.held_out
    assert suite.lost == ()


@pytest.mark.parametrize(
    ("path", "transcript", "words"),
    [
        ("old.jsonl", None, "does not exist"),
        ("old.jsonl", "", "has no message of an agent"),
        ("old.jsonl", "[]\nnull\n{broken", "has no message of an agent"),
        ("../../../old.jsonl", None, "baseline_file"),
    ],
)
def test_a_transcript_that_says_nothing_is_a_problem_of_the_suite(
    tmp_path: Path, path: str, transcript: str | None, words: str
) -> None:
    compared = grader(f"type: baseline\nbaseline_file: {path}", "As good as before.")
    files = {"a/prompt.md": "Hi.", "a/graders/b.md": compared}
    if transcript is not None:
        files["a/old.jsonl"] = transcript
    plugin(tmp_path, {f"evals/{name}": text for name, text in files.items()})

    with pytest.raises(SuiteError) as caught:
        load_suite(tmp_path / "evals")

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("context", "why"),
    [
        ("context: {history_file: old.jsonl}", "whet resumes no session that it did not begin"),
        ("plugins: [../../../other]", "../../../other is not the plug-in under test"),
    ],
)
def test_a_case_that_would_be_another_one_is_left_out(tmp_path: Path, context: str, why: str) -> None:
    plugin(
        tmp_path,
        {"evals/a/case.yaml": f"{WHOLE}{context}\n", "evals/b/prompt.md": "Hi.", "evals/b/graders/g.md": GRADER},
    )

    suite = load_suite(tmp_path / "evals")

    assert [case.id for case in suite.cases] == ["b"]
    assert why in "\n".join(map(str, suite.lost))


def test_unknown_keys_are_lost_in_case_yaml_and_refused_elsewhere(tmp_path: Path) -> None:
    suite, _ = yaml_case(tmp_path, WHOLE.replace("execution:", "colour: red\nexecution:\n  colour: red"))
    refused = problems(
        tmp_path / "other",
        {"a/prompt.md": "---\ntimeout: 5\n---\nHi.", "a/graders/g.md": grader("type: regex\npattern: x\ncolour: red")},
    )

    lost = "\n".join(map(str, suite.lost))
    assert "colour (line 3): not carried over" in lost
    assert "execution.colour (line 5): not carried over" in lost
    assert "prompt.md: a: timeout (line 2): is not a known field" in refused
    assert "g.md: a: colour (line 4): is not a known field" in refused


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a/prompt.md": "---\nruns: 2\nHi."}, "prompt.md: line 1: has a front matter without an end"),
        ({"a/prompt.md": "---\n- x\n---\nHi."}, "prompt.md: line 2: has a front matter that is not an object"),
        ({"a/prompt.md": "Hi."}, "prompt.md: a: has no graders"),
        ({"a/prompt.md": "---\nruns: 51\n---\nHi.", "a/graders/g.md": GRADER}, "runs (line 2): must be an integer"),
        ({"a/prompt.md": "---\nmax_turns: 0\n---\nHi.", "a/graders/g.md": GRADER}, "max_turns (line 2): must be"),
        ({"a/prompt.md": "---\ntimeout_seconds: 4000\n---\nHi.", "a/graders/g.md": GRADER}, "timeout_seconds (line 2)"),
        ({"a/prompt.md": "---\nenv: {HOME: x}\n---\nHi.", "a/graders/g.md": GRADER}, "env.HOME (line 2)"),
        (
            {"a/prompt.md": '---\nschema_version: "2.0"\n---\nHi.', "a/graders/g.md": GRADER},
            "must be 1 or 1.x, not 2.0",
        ),
        ({"a/prompt.md": "---\nschema_version: 1.1\n---\nHi.", "a/graders/g.md": GRADER}, "must be a string"),
        ({"a/prompt.md": "TODO: describe it", "a/graders/g.md": GRADER}, "the prompt of the template"),
        ({"a/prompt.md": "", "a/graders/g.md": GRADER}, "has no prompt"),
        ({"a/prompt.md": "Hi.", "a/graders/g.md": "---\npattern: x\n---\n"}, "g.md: a: type (line 2): is missing"),
        ({"a/prompt.md": "Hi.", "a/graders/g.md": "---\ntype: contains\n---\n"}, "type (line 2): must be one of regex"),
        ({"a/case.yaml": "- x\n"}, "case.yaml: line 1: must be an object"),
        ({"a/case.yaml": WHOLE.replace("name: whole\n", "")}, "name (line 1): is missing"),
        ({"a/case.yaml": WHOLE.replace('schema_version: "1.1"\n', "")}, "schema_version (line 1): is missing"),
        ({"a/case.yaml": WHOLE.replace("execution:\n  prompt: Greet me.\n", "")}, "execution (line 1): is missing"),
        ({"a/case.yaml": WHOLE + "  - {name: says, type: regex, pattern: x}\n"}, '"says" is a grader already'),
        (
            {"a/case.yaml": WHOLE + "context: {scaffold_script: no.sh}\n"},
            "must be a Bash file in the folder of the case",
        ),
        ({"a/case.yaml": WHOLE + 'context: {scaffold_script: "cd x\\nls"}\n'}, "must be a Bash file"),
        ({"a/case.yaml": WHOLE + "context: {add_dirs: [data]}\n"}, "there is no folder data"),
    ],
)
def test_a_mistake_in_a_file_is_one_error_with_its_place(tmp_path: Path, files: dict[str, str], told: str) -> None:
    message = problems(tmp_path, files)

    assert told in message
    assert len(message.splitlines()) == 1, message


def test_a_grader_file_without_a_front_matter_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    case_of(tmp_path, GRADER, **{"graders/README.md": "About these graders.\n"})

    suite = load_suite(tmp_path / "evals")

    assert len(suite.cases[0].checks) == 1
    assert "graders/README.md has no front matter, so it is no grader" in "\n".join(map(str, suite.warnings))


def test_the_name_in_a_front_matter_replaces_that_of_the_file_and_weights_count(tmp_path: Path) -> None:
    case = case_of(tmp_path, grader("type: regex\nname: polite\nweight: 2.5\npattern: x"))

    assert [(check.label, check.weight) for check in case.checks] == [("polite", 2.5)]


def test_two_cases_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    files = {
        f"evals/{name}": text
        for at in ("g/a", "h/a")
        for name, text in ((f"{at}/prompt.md", "Hi."), (f"{at}/graders/g.md", GRADER))
    }

    suite = load_suite(plugin(tmp_path, files) / "evals")

    assert [case.id for case in suite.cases] == ["a", "h/a"]
    assert 'is the name of another case too, so this one is called "h/a"' in "\n".join(map(str, suite.warnings))


@pytest.mark.parametrize(
    ("fields", "text", "state"),
    [
        ("type: regex\npattern: hello", "well, hello", "passed"),
        ("type: regex\npattern: hello", "bye", "failed"),
        ("type: regex\npattern: HELLO\nflags: i", "well, hello", "passed"),
        ("type: regex\npattern: ^b$\nflags: m", "a\nb\nc", "passed"),
        ("type: regex\npattern: a.b\nflags: s", "a\nb", "passed"),
        ("type: regex\npattern: b\nflags: y", "ab", "failed"),
        ("type: regex\npattern: a\nflags: gy", "ab", "passed"),
        ("type: regex\npattern: a/b", "a/b", "passed"),
        ("type: regex\npattern: hello\nmatch: not_contains", "bye", "passed"),
        ("type: regex\npattern: hello\nmatch: not_contains", "hello", "failed"),
        ("type: regex\npattern: ab\nmatch: count:2", "abab", "passed"),
        ("type: regex\npattern: ab\nmatch: count:2", "ababab", "failed"),
        ("type: regex\npattern: ab\nmatch: count:0", "x", "passed"),
        ("type: regex\npattern: (?i)hello", "hello", "failed"),
        ("type: regex\npattern: (?i)hello\nmatch: not_contains", "bye", "failed"),
        ("type: regex\npattern: (?i)hello\nmatch: count:0", "bye", "failed"),
    ],
)
def test_a_regex_looks_at_the_last_message_as_javascript_does(
    tmp_path: Path, fields: str, text: str, state: str
) -> None:
    said = (Message(role="assistant", text="hello before"), Message(role="assistant", text=text))

    assert held(tmp_path, fields, subject(tmp_path, said)) == state


def test_a_pattern_that_javascript_refuses_is_a_warning(tmp_path: Path) -> None:
    case_of(tmp_path, grader("type: regex\npattern: (?i)hello"))

    (warning,) = load_suite(tmp_path / "evals").warnings

    assert "pattern (line 3)" in str(warning)
    assert "so that the grader never holds" in warning.message
    assert warning.hint == 'write "flags: i" beside it, and take (?i) out'


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ("pattern: two\ntarget: trace", "passed"),
        ("pattern: '^a/b.txt$'\nflags: m\ntarget: files", "passed"),
        ("pattern: c.txt\ntarget: files", "failed"),
        ("pattern: inside\ntarget: {source: file, path: notes.txt}", "passed"),
        ("pattern: outside\nmatch: not_contains\ntarget: {source: file, path: notes.txt}", "passed"),
        ("pattern: x\ntarget: {source: file, path: no.txt}", "failed"),
        ("pattern: x\nmatch: not_contains\ntarget: {source: file, path: no.txt}", "failed"),
        ("pattern: x\nmatch: count:0\ntarget: {source: file, path: no.txt}", "failed"),
        ("pattern: x\nmatch: not_contains\ntarget: {source: file, path: ../outside.txt}", "failed"),
    ],
)
def test_a_regex_looks_at_the_trace_the_created_files_and_one_file(tmp_path: Path, fields: str, state: str) -> None:
    work = written(tmp_path / "work", {"notes.txt": "inside"})
    transcript = (
        written(tmp_path, {"transcript.jsonl": '{"n":"one"}\n{"n":"two"}\n', "outside.txt": "y"}) / "transcript.jsonl"
    )
    seen = subject(work, created=("a/b.txt", "notes.txt"), transcript=transcript)

    assert held(tmp_path, f"type: regex\n{fields}", seen) == state


CALLS = (
    ToolCall(tool="Read", args={"file_path": "a.txt"}),
    ToolCall(tool="Bash", args={"command": "ls é", "timeout": 5.0}),
    ToolCall(tool="Read", args={"file_path": "b.txt"}),
)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ("tool: Read", "passed"),
        ("tool: read", "failed"),
        ("tool: Write", "failed"),
        ("tool: Read\nmin: 3", "failed"),
        ("tool: Read\nmax: 1", "failed"),
        ("tool: Read\nmin: 2\nmax: 2", "passed"),
        ("tool: Write\nmin: 0\nmax: 0", "passed"),
        ("tool: Write\nmax: 0", "failed"),
        ("tool: Read\nmax: 0", "failed"),
        ('tool: Read\ninput_match: \'"file_path":"a\'', "passed"),
        ("tool: Read\ninput_match: c.txt", "failed"),
        ('tool: Bash\ninput_match: \'^\\{"command":"ls é","timeout":5\\}$\'', "passed"),
    ],
)
def test_tool_used_counts_calls_by_name_and_compact_input(tmp_path: Path, fields: str, state: str) -> None:
    assert held(tmp_path, f"type: tool_used\n{fields}", subject(tmp_path, CALLS)) == state


# What other agents call the same tools, and how they load a skill.
OTHER_CALLS = (
    FileRead(path="/home/x/.agents/skills/greet/SKILL.md"),
    ToolCall(tool="shell", args={"cmd": "ls -l"}),
    FileRead(path="/home/x/.agents/skills/greet/SKILL.md"),
    ToolCall(tool="write_file", args={"path": "a.txt", "content": "x"}),
    ToolCall(tool="tracker.make_ticket", args={"title": "y"}),
)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ("tool: Bash", "passed"),
        ("tool: bash", "failed"),
        ('tool: Bash\ninput_match: \'^\\{"command":"ls\'', "passed"),
        ('tool: Write\ninput_match: \'"file_path":"a.txt"\'', "passed"),
        ("tool: Read", "failed"),
        ("tool: Edit\nmin: 0\nmax: 0", "passed"),
        ("tool: mcp__plugin_greeter_tracker__make_ticket", "passed"),
        ("tool: mcp__tracker__make_ticket", "passed"),
        ("tool: mcp__other__make_ticket", "failed"),
        ("tool: mcp__tracker__drop_ticket", "failed"),
        ("tool: Skill\nmax: 1", "passed"),
        ("tool: Skill\nmin: 0\nmax: 0", "failed"),
        ("tool: Skill\ninput_match: greeter:greet", "passed"),
        ('tool: Skill\ninput_match: \'"skill":"greet"\'', "passed"),
        ("tool: Skill\ninput_match: greeter:part", "failed"),
    ],
)
def test_the_names_of_tools_are_those_for_the_same_purpose_with_another_agent(
    tmp_path: Path, fields: str, state: str
) -> None:
    assert held(tmp_path, f"type: tool_used\n{fields}", subject(tmp_path, OTHER_CALLS, agent="codex")) == state


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [("Skill", "Bash", "passed"), ("Write", "Bash", "failed"), ("{tool: Bash, input_match: ls}", "Write", "passed")],
)
def test_the_order_of_tools_is_that_of_another_agent_too(tmp_path: Path, before: str, after: str, state: str) -> None:
    seen = subject(tmp_path, OTHER_CALLS, agent="codex")

    assert held(tmp_path, f"type: tool_order\nbefore: {before}\nafter: {after}", seen) == state


def test_what_claude_code_loads_by_reading_is_no_call_of_a_tool(tmp_path: Path) -> None:
    assert held(tmp_path, "type: tool_used\ntool: Skill", subject(tmp_path, OTHER_CALLS)) == "failed"


def test_a_maximum_of_0_without_a_minimum_is_a_warning(tmp_path: Path) -> None:
    case_of(tmp_path, grader("type: tool_used\ntool: Write\nmax: 0"))

    (warning,) = load_suite(tmp_path / "evals").warnings

    assert "max (line 4): is less than min, which is 1: it never holds" in str(warning)
    assert warning.hint == "write min: 0 too"


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        ("Read", "Bash", "passed"),
        ("Bash", "Read", "failed"),
        ("Read", "Write", "failed"),
        ("Write", "Read", "failed"),
        ("{tool: Bash, input_match: ls}", "{tool: Read, input_match: b.txt}", "passed"),
        ("{tool: Read, input_match: b.txt}", "Bash", "failed"),
    ],
)
def test_tool_order_compares_the_first_calls(tmp_path: Path, before: str, after: str, state: str) -> None:
    fields = f"type: tool_order\nbefore: {before}\nafter: {after}"

    assert held(tmp_path, fields, subject(tmp_path, CALLS)) == state


@pytest.mark.parametrize(
    ("path", "state"),
    [
        ("*.txt", "failed"),
        ("a/*.txt", "passed"),
        ("**/*.txt", "passed"),
        ("**/top.md", "passed"),
        ("a**", "passed"),
        ("a?b.txt", "passed"),
        ("a/b.tx", "failed"),
        (".hidden", "passed"),
        ("a/b+txt", "failed"),
    ],
)
def test_file_exists_looks_at_what_was_created_by_a_glob(tmp_path: Path, path: str, state: str) -> None:
    seen = subject(tmp_path, created=(".hidden", "a/b.txt", "top.md"))
    opposite = {"passed": "failed", "failed": "passed"}[state]

    assert held(tmp_path, f"type: file_exists\npath: {path!r}", seen) == state
    assert held(tmp_path, f"type: file_exists\npath: {path!r}\nexists: false", seen) == opposite


def test_an_llm_grader_is_a_statement_that_most_of_three_votes_decide(tmp_path: Path) -> None:
    case = case_of(tmp_path, grader("type: llm\nfocus: files", "PASS if it greets.\n"))

    rubric = case.checks[0].params["case"]

    assert case.checks[0].grader == "rubric"
    assert isinstance(rubric, LlmRubric)
    assert (rubric.rubric[0].description, rubric.judge.votes, rubric.judge.majority) == ("PASS if it greets.", 3, True)
    assert rubric.focus == "created_files"


def test_a_judge_sees_the_ends_of_a_long_trace_and_a_word_for_no_files(tmp_path: Path) -> None:
    lines = "\n".join(f"line {number}" for number in range(100))
    seen = subject(tmp_path, transcript=written(tmp_path, {"t.jsonl": lines}) / "t.jsonl")

    trace = text_for_judge("trace", seen).split("\n")

    assert (len(trace), trace[0], trace[12], trace[-1]) == (25, "line 0", "[... 76 more messages]", "line 99")
    assert text_for_judge("created_files", seen) == "(no file changes)"
    with pytest.raises(NoText):
        text_for_judge("file:no.txt", seen)


def test_the_last_message_is_the_answer_of_an_agent_that_shows_no_messages(tmp_path: Path) -> None:
    assert text_of("last_message", subject(tmp_path)) == "The answer."


SKILL_USED = "type: tool_used\ntool: Skill"


@pytest.mark.parametrize(
    ("graders", "compared"),
    [
        (("type: regex\npattern: x", SKILL_USED), [True, False]),
        (("type: regex\npattern: x\narm: with-only", "type: regex\npattern: y"), [False, True]),
        (("type: regex\npattern: x", f"{SKILL_USED}\narm: both"), [True, True]),
        ((SKILL_USED, "type: regex\npattern: x\narm: with-only"), [True, True]),
    ],
)
def test_graders_of_the_arm_with_the_plug_in_count_in_no_lift_unless_there_are_no_others(
    tmp_path: Path, graders: tuple[str, ...], compared: list[bool]
) -> None:
    case = case_of(tmp_path, *map(grader, graders))

    assert [check.compared for check in case.checks] == compared


def test_the_evals_of_a_plug_in_are_found_from_its_folder_and_by_any_file_of_a_case(tmp_path: Path) -> None:
    root = plugin(tmp_path / "greeter", {"evals/g/a/prompt.md": PROMPT, "evals/g/a/graders/x.md": GRADER})
    places = (tmp_path, root, root / "evals", root / "evals/g/a", root / "evals/g/a/prompt.md")

    suites = [find_suites([place]).suites[0] for place in places]

    assert [suite.path for suite in suites[:3]] == [root / "evals"] * 3
    assert {suite.skill for suite in suites[:4]} == {root}
    assert all(len(load_suite(suite.path).cases) == 1 for suite in suites)
    assert {load_suite(suite.path).usual_skill for suite in suites} == {root}
    assert {load_suite(suite.path).name for suite in suites} == {"greeter"}


def test_the_manifest_may_name_another_folder_and_a_wrong_one_is_a_warning(tmp_path: Path) -> None:
    files = {
        "evals/a/prompt.md": "Hi.",
        "evals/a/graders/g.md": GRADER,
        "more/b/prompt.md": "Hi.",
        "more/b/graders/g.md": GRADER,
    }
    named = plugin(tmp_path / "n", files, '{"name": "n", "experimental": {"evals": ["./more", "evals"]}}')
    wrong = plugin(tmp_path / "w", files, '{"name": "w", "evals": "more", "experimental": {"evals": "../more"}}')

    suites = [load_suite(find_suites([root]).suites[0].path) for root in (named, wrong)]

    assert [suite.cases[0].id for suite in suites] == ["b", "a"]
    assert [warning.field for warning in suites[1].warnings] == ["evals", "experimental.evals"]


def test_folders_that_hold_no_cases_are_passed_over_and_links_are_followed_inside_only(tmp_path: Path) -> None:
    case = {"prompt.md": "Hi.", "graders/g.md": GRADER}
    hidden = ("results/x", "mocks/x", "node_modules/x", ".git/x", ".claude/x")
    files = {
        f"evals/{place}/{name}": text for place in ("a", "deep/er/b", "a/inner", *hidden) for name, text in case.items()
    }
    plugin(tmp_path / "p", {**files, "evals/only/graders/g.md": GRADER})
    written(tmp_path / "elsewhere/c", case)
    (tmp_path / "p/evals/out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "p/evals/twin").symlink_to(tmp_path / "p/evals/deep")

    suite = load_suite(tmp_path / "p/evals")

    assert [case.id for case in suite.cases] == ["a", "b"]


def test_a_link_to_a_folder_above_is_refused(tmp_path: Path) -> None:
    root = plugin(tmp_path, {"evals/g/a/prompt.md": PROMPT, "evals/g/a/graders/x.md": GRADER})
    (root / "evals/g/up").symlink_to(root)

    with pytest.raises(SuiteError, match="is a link to a folder above it"):
        load_suite(root / "evals")


def test_the_evals_beside_a_skill_are_its_suite_too(tmp_path: Path) -> None:
    written(
        tmp_path / "greet",
        {"SKILL.md": "---\nname: greet\n---\nHi.", "evals/a/prompt.md": "Hi.", "evals/a/graders/g.md": GRADER},
    )

    (found,) = find_suites([tmp_path / "greet"]).suites

    assert (found.path, found.skill) == (tmp_path / "greet/evals", tmp_path / "greet")
    assert load_suite(found.path).usual_skill == tmp_path / "greet"


def test_a_file_called_case_yaml_that_is_no_case_is_of_another_format(tmp_path: Path) -> None:
    written(tmp_path, {"case.yaml": "name: n\ncases:\n  - {id: a, prompt: Hi., expect: ['file:x exists']}\n"})

    assert [case.id for case in load_suite(tmp_path / "case.yaml").cases] == ["a"]
