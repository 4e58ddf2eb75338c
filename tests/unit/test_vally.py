"""Specs of Vally: how each field is read, what each grader becomes, and what is refused or lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whet.errors import SuiteError
from whet.grade.answers.assertions import decide_assertion
from whet.grade.answers.texts import AssertionSubject
from whet.model.eval_cases import BooleanAssertion, LlmRubric
from whet.model.events import Event, SkillSignal, ToolCall, ToolResult, TurnStarted
from whet.model.grade import Grade
from whet.model.session import Session, SessionSummary, TurnSummary
from whet.model.suite import Case, Check, Suite
from whet.reading.claims.forms import Quits
from whet.run.attempt.grading import conclude
from whet.run.attempt.record import AttemptRecord
from whet.suites.format import format_of, load_suite
from whet.suites.other_tools.shared import find_fixture

SAYS = {"type": "output-matches", "config": {"pattern": "hello"}}


def stimulus(*graders: Any, **more: Any) -> dict[str, Any]:
    prompt = {} if "turns" in more else {"prompt": "Greet me."}
    return {"name": "greets", **prompt, "graders": list(graders or (SAYS,)), **more}


def loaded(root: Path, *stimuli: dict[str, Any], **top: Any) -> Suite:
    path = root / "evals/greet/eval.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"name": "greet", "stimuli": stimuli or [stimulus()], **top}), encoding="utf-8")
    return load_suite(path)


def only(suite: Suite) -> Case:
    (case,) = suite.cases
    return case


def check_of(root: Path, kind: str, **config: Any) -> Check:
    return only(loaded(root, stimulus({"type": kind, "config": config}))).checks[0]


def refused(root: Path, *stimuli: dict[str, Any], **top: Any) -> str:
    with pytest.raises(SuiteError) as caught:
        loaded(root, *stimuli, **top)
    return "\n".join(f"{problem}\n{problem.hint}" for problem in caught.value.problems)


def losses(suite: Suite) -> str:
    return "\n".join(map(str, suite.lost))


def seen(root: Path, *events: Event, answer: str = "", **more: Any) -> AssertionSubject:
    session = Session(runner="r", agent="copilot", prompt="p", final_output=answer, events=events, **more)
    return AssertionSubject(session=session, workspace=root, skill_names=frozenset({"greeter"}))


def holds(check: Check, subject: AssertionSubject) -> bool:
    case = check.params["case"]
    assert isinstance(case, BooleanAssertion)
    return all(decide_assertion(assertion, subject).state == "passed" for assertion in case.assertions)


def skill(root: Path, name: str = "greeter") -> Path:
    place = root / "skills" / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Greet.\n---\nSay hello.\n")
    return place


def settings(root: Path, **environments: Any) -> None:
    (root / ".vally.yaml").write_text(json.dumps({"environments": environments}))


def test_a_document_with_stimuli_is_a_spec_whatever_it_is_called(tmp_path: Path) -> None:
    path = tmp_path / "fragment.yml"
    path.write_text("stimuli:\n  - {name: a, prompt: b, graders: [{type: completed}]}\n")

    suite = load_suite(path)

    assert (format_of(path), suite.name, [case.id for case in suite.cases]) == ("vally", "fragment", ["a"])


@pytest.mark.parametrize("name", ["defaults", "config"])
def test_defaults_hold_for_every_stimulus(tmp_path: Path, name: str) -> None:
    values = {"runs": 3, "timeout": "2m", "model": "m", "executor": "copilot-sdk"}

    case = only(loaded(tmp_path, **{name: values}))

    assert (case.trials, case.limits.timeout_s, case.model) == (3, 120.0, "m")


def test_without_defaults_a_stimulus_runs_once_for_two_minutes(tmp_path: Path) -> None:
    suite = loaded(tmp_path)

    assert (only(suite).trials, suite.usual_timeout_s) == (1, 120.0)


def test_tags_are_inherited_key_by_key(tmp_path: Path) -> None:
    suite = loaded(tmp_path, stimulus(tags={"area": ["a", "b"], "on": True}), tags={"area": "old", "tier": "one two"})

    assert only(suite).tags == ("area:a", "area:b", "tier:one-two", "on:true")


def test_turns_are_the_prompts_of_a_conversation(tmp_path: Path) -> None:
    case = only(loaded(tmp_path, stimulus(SAYS, {**SAYS, "turn": 0}, turns=["One.", {"prompt": "Two."}])))

    assert (case.prompt, case.then) == ("One.", ("Two.",))
    assert [(check.turn, check.soft) for check in case.checks] == [(1, True), (None, False)]


def test_a_grader_of_a_turn_sees_that_turn_alone(tmp_path: Path) -> None:
    calls = {"type": "tool-calls", "turn": 1, "config": {"required": ["bash"]}}
    (check,) = only(loaded(tmp_path, stimulus(calls, turns=["One.", "Two."]))).checks
    summary = SessionSummary(
        runner="r",
        agent="copilot",
        prompt="One.",
        turns=(TurnSummary(number=1, prompt="One."), TurnSummary(number=2, prompt="Two.")),
    )

    def subject(turn: int) -> AssertionSubject:
        starts = (TurnStarted(turn=1, prompt="One."), TurnStarted(turn=2, prompt="Two."))
        events: tuple[Event, ...] = (*starts[:turn], ToolCall(tool="bash"), *starts[turn:])
        return AssertionSubject(session=Session.of(summary, events), workspace=tmp_path)

    assert (holds(check, subject(1)), holds(check, subject(2))) == (False, True)


@pytest.mark.parametrize(
    ("kind", "config", "answer", "wanted"),
    [
        ("output-matches", {"pattern": "(?i)HELLO"}, "say hello", True),
        ("output-matches", {"pattern": "HELLO"}, "say hello", False),
        ("output-matches", {"pattern": "(?is)a.b"}, "A\nB", True),
        ("output-matches", {"pattern": "hello", "negate": True}, "say hello", False),
        ("output-not-matches", {"pattern": "bye"}, "say hello", True),
        ("output-contains", {"substring": "Hello."}, "hello.", True),
        ("output-contains", {"value": "Hello.", "case_sensitive": True}, "hello.", False),
        ("output-not-contains", {"substring": "Hello"}, "hello", False),
        ("completed", {}, " ", False),
        ("exit-success", {}, "x", True),
    ],
)
def test_graders_of_the_answer(tmp_path: Path, kind: str, config: Any, answer: str, wanted: bool) -> None:
    assert holds(check_of(tmp_path, kind, **config), seen(tmp_path, answer=answer)) is wanted


@pytest.mark.parametrize(
    ("kind", "config", "wanted"),
    [
        ("file-exists", {"path": "src/*.py"}, True),
        ("file-not-exists", {"path": "src/*.py"}, False),
        ("file-contains", {"path": "src/a.py", "value": "one"}, True),
        ("file-not-contains", {"path": "src/*.py", "value": "one"}, False),
        ("file-matches", {"path": "**/*.py", "pattern": "(?i)ONE"}, True),
        ("file-not-matches", {"path": "src/*.py", "pattern": "two"}, True),
    ],
)
def test_graders_of_files(tmp_path: Path, kind: str, config: Any, wanted: bool) -> None:
    (tmp_path / "work/src").mkdir(parents=True)
    (tmp_path / "work/src/a.py").write_text("one")

    assert holds(check_of(tmp_path, kind, **config), seen(tmp_path / "work")) is wanted


CALLS = (
    ToolCall(tool="view", id="1", args={"path": "a.md"}),
    ToolCall(tool="bash", id="2", args={"command": "make test"}),
    ToolResult(id="2", output="3 failed"),
    ToolCall(tool="Edit", id="3", args={"file_path": "a.py"}),
    ToolCall(tool="mcp__docs__search", id="4", args={"limit": 3.0}),
)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"required": ["^view$", "bash"]}, True),
        ({"required": ["delete"]}, False),
        ({"required": ["docs-search"]}, True),
        ({"required": [{"name": "bash", "command": "^make"}]}, True),
        ({"required": [{"name": "edit", "path": r"\.py$"}]}, True),
        ({"required": [{"args": {"limit": "^3$"}}]}, True),
        ({"required": [{"result": "failed"}]}, True),
        ({"required": [{"name": "bash", "min_count": 2}]}, False),
        ({"required": [{"name": "bash", "final": True}]}, False),
        ({"required": [{"name": "bash", "at_step": 1}]}, True),
        ({"required": [{"name": "bash", "before_step": 1}]}, False),
        ({"disallowed": ["apply_patch"]}, False),
        ({"disallowed": ["delete"]}, True),
        ({"sequence": ["view", "bash", "edit"]}, True),
        ({"sequence": ["edit", "view"]}, False),
    ],
)
def test_calls_of_tools_are_matched_by_patterns(tmp_path: Path, config: Any, wanted: bool) -> None:
    assert holds(check_of(tmp_path, "tool-calls", **config), seen(tmp_path, *CALLS)) is wanted


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"required": ["greeter"]}, True),
        ({"required": ["other"]}, False),
        ({"disallowed": ["greeter"]}, False),
        ({"required": ["greeter"], "disallowed": ["other"]}, True),
    ],
)
def test_loading_skills_counts_and_is_not_compared(tmp_path: Path, config: Any, wanted: bool) -> None:
    check = check_of(tmp_path, "skill-invocation", **config)

    assert not check.compared
    assert holds(check, seen(tmp_path, SkillSignal(skill="greeter"))) is wanted


def test_constraints_have_to_hold_and_have_no_part_in_the_score(tmp_path: Path) -> None:
    constraints = {
        "max_turns": 5,
        "max_tokens": 100,
        "expect_tools": ["bash"],
        "reject_tools": ["create"],
        "expect_skills": ["greeter"],
        "reject_skills": ["*"],
    }
    case = only(loaded(tmp_path, stimulus(constraints=constraints, expect_activation=False)))

    checks = {check.label: check for check in case.checks[1:]}
    assert {check.weight for check in checks.values()} == {0.0}
    assert holds(checks["max_turns 5"], seen(tmp_path, steps=5))
    assert not holds(checks["max_turns 5"], seen(tmp_path, steps=6))
    assert holds(checks["expect_tools bash"], seen(tmp_path, *CALLS))
    assert holds(checks["reject_tools create"], seen(tmp_path, *CALLS))
    assert not holds(checks["reject_skills *"], seen(tmp_path, SkillSignal(skill="any")))
    assert holds(checks["reject_skills *"], seen(tmp_path))
    assert not holds(checks["skill_triggered"], seen(tmp_path, SkillSignal(skill="greeter")))


def test_budgets_pass_or_fail(tmp_path: Path) -> None:
    graders = [
        {"type": "wall-time", "config": {"max": "120s"}},
        {"type": "token-budget", "config": {"max": 10}},
        {"type": "turn-count", "config": {"max": 3}},
        {"type": "tool-call-count", "config": {"max": 3}},
    ]
    suite = loaded(tmp_path, stimulus(*graders))
    wall_time, _, turns, calls = only(suite).checks

    assert holds(wall_time, seen(tmp_path, duration_s=120.0))
    assert not holds(turns, seen(tmp_path, steps=4))
    assert not holds(calls, seen(tmp_path, *CALLS))
    assert "does not fall little by little" in losses(suite)


@pytest.mark.parametrize("kind", ["wall-time", "token-budget", "turn-count", "tool-call-count"])
def test_what_a_budget_does_not_have_is_lost(tmp_path: Path, kind: str) -> None:
    most = "120s" if kind == "wall-time" else 10

    suite = loaded(tmp_path, stimulus({"type": kind, "config": {"max": most, "warn_at": 5}}))

    assert "warn_at" in losses(suite)


@pytest.mark.parametrize("path", ["a\0b", "x" * 10_000, "../outside"])
def test_a_path_that_names_no_file_of_the_suite_names_nothing(tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").touch()
    (tmp_path / "suite").mkdir()

    assert find_fixture(path, (tmp_path / "suite",)) is None


def test_a_judge_gets_the_rubric_or_the_prompt_of_the_grader(tmp_path: Path) -> None:
    graders = [
        {"type": "prompt"},
        {"type": "prompt", "name": "by prompt", "config": {"prompt": "Is it kind?", "model": "m", "threshold": 0.8}},
    ]
    suite = loaded(tmp_path, stimulus(*graders, rubric=["Says hello.", "Is short."]), config={"judge_model": "usual"})

    by_rubric, by_prompt = (check.params["case"] for check in only(suite).checks)

    assert isinstance(by_rubric, LlmRubric)
    assert [item.description for item in by_rubric.rubric] == ["Says hello.", "Is short."]
    assert (by_rubric.pass_threshold, by_rubric.judge.model) == (0.5, "usual")
    assert [item.description for item in by_prompt.rubric] == ["Is it kind?"]
    assert (by_prompt.pass_threshold, by_prompt.judge.model) == (0.8, "m")


@pytest.mark.parametrize("scale", ["binary", "scale_1_5", "scale_1_10"])
def test_a_judge_has_a_threshold_of_the_normalised_score_on_every_scale(tmp_path: Path, scale: str) -> None:
    (check,) = only(
        loaded(tmp_path, stimulus({"type": "prompt", "config": {"prompt": "Kind?", "scoring": scale}}))
    ).checks

    assert check.params["case"].pass_threshold == 0.5


def test_what_is_for_people_or_for_lint_alone_is_no_error(tmp_path: Path) -> None:
    more = {"$schema": "x", "version": "1.0", "type": "regression", "area": "docs"}
    suite = loaded(tmp_path, defaults={"runs": 0, "judge_reasoning_effort": "high", "executor": "mock"}, **more)

    assert only(suite).trials == 1
    assert [str(loss.field).partition(" ")[0] for loss in suite.lost] == [
        "area",
        "defaults.judge_reasoning_effort",
        "defaults.executor",
        "defaults.runs",
    ]


def test_both_streams_of_a_command_may_be_asked_for_texts(tmp_path: Path) -> None:
    check = check_of(tmp_path, "run-command", command="x", stdout_contains=["a b", "c"], stderr_contains="d")

    command = check.params["claim"].command
    assert command.count('"$place/stdout")" in') == 2
    assert command.count('"$place/stderr")" in') == 1


def test_a_command_is_one_claim_with_all_of_its_conditions(tmp_path: Path) -> None:
    plain = check_of(tmp_path, "run-command", command="make test", expected_exit_code=2)
    full = check_of(
        tmp_path,
        "run-command",
        command="echo",
        args=["a b"],
        sub_path="src",
        env={"X": "1 2"},
        stdout_contains="a b",
    )

    assert plain.params["claim"] == Quits("make test", 2)
    command = full.params["claim"].command
    assert "cd src || exit 125" in command
    assert "export X='1 2'" in command
    assert "echo 'a b'" in command
    assert full.params["claim"].code == 0


def test_weights_go_by_type_or_name_and_are_shared(tmp_path: Path) -> None:
    graders = [{**SAYS, "name": "first"}, SAYS, SAYS, {"type": "completed"}]
    scoring = {"weights": {"output-matches": 0.5, "first": 0.5}, "threshold": 0.7}

    suite = loaded(tmp_path, stimulus(*graders), scoring=scoring)

    assert [check.weight for check in only(suite).checks] == [0.5, 0.25, 0.25]
    assert only(suite).pass_threshold == 0.7
    assert "completed, because scoring gives it no weight" in losses(suite)


def test_weights_with_another_sum_count_by_their_share_and_are_a_warning(tmp_path: Path) -> None:
    scoring = {"weights": {"output-matches": 3, "completed": 1}, "threshold": 0.7}

    suite = loaded(tmp_path, stimulus(SAYS, {"type": "completed"}), scoring=scoring)

    assert [check.weight for check in only(suite).checks] == [3, 1]
    assert "scoring.weights (line 1): have the sum 4, so that each counts as its share" in str(suite.warnings[0])


def test_a_version_may_be_a_number_because_it_is_for_people(tmp_path: Path) -> None:
    assert not loaded(tmp_path, version=1).lost


def test_a_statement_that_yaml_makes_an_object_of_is_refused_with_the_way_out(tmp_path: Path) -> None:
    message = refused(tmp_path, stimulus(rubric=[{"Names the file": "it is a.txt"}]))

    assert 'must be a string, not {"Names the file": "it is a.txt"}' in message
    assert "put the text into quotes" in message


@pytest.mark.parametrize(
    ("weights_that_hold", "required", "passes"),
    [((0.7,), True, True), ((0.3,), True, False), ((0.7, 0.3), False, False)],
)
def test_a_case_with_a_threshold_passes_by_its_score(
    tmp_path: Path, weights_that_hold: tuple[float, ...], required: bool, passes: bool
) -> None:
    scoring = {"weights": {"output-matches": 0.7, "completed": 0.3}, "threshold": 0.7}
    case = only(loaded(tmp_path, stimulus(SAYS, {"type": "completed"}, constraints={"max_turns": 1}), scoring=scoring))
    record = AttemptRecord(runner="r", number=1, artifact_dir="")
    record.grades += [
        Grade(
            check=check.label,
            weight=check.weight,
            value=float(is_held),
            passed=is_held,
            reason="why",
        )
        for check in case.checks
        for is_held in [required if check.weight == 0 else check.weight in weights_that_hold]
    ]

    conclude(record, case)

    assert (record.failure is None) is passes


def test_the_environment_of_a_stimulus_is_added_to_the_one_of_its_spec(tmp_path: Path) -> None:
    place = skill(tmp_path)
    (tmp_path / "evals/greet/in").mkdir(parents=True)
    (tmp_path / "evals/greet/in/a.txt").write_text("a")
    (tmp_path / "near.txt").write_text("b")
    settings(tmp_path, base={"skills": ["skills/greeter"], "files": [{"src": "near.txt", "dest": "b.txt"}]})
    near = {"files": [{"src": "in/a.txt", "dest": "x/a.txt"}, "../../near.txt"], "commands": ["make a", "make b"]}

    suite = loaded(tmp_path, stimulus(environment=near), environment="base")

    case = only(suite)
    assert suite.usual_skill == place
    assert case.skills == ()
    assert [(item.path, item.source and item.source.name) for item in case.placed] == [
        ("b.txt", "near.txt"),
        ("x/a.txt", "a.txt"),
        ("near.txt", "near.txt"),
    ]
    assert case.bootstrap is not None
    assert case.bootstrap.args == ("-c", "set -e\nmake a\nmake b")


def test_several_skills_are_given_to_every_arm(tmp_path: Path) -> None:
    places = (skill(tmp_path, "one"), skill(tmp_path, "two"))
    settings(tmp_path)

    suite = loaded(tmp_path, stimulus(environment={"skills": ["../../skills/one", "../../skills/two/SKILL.md"]}))

    assert (suite.usual_skill, only(suite).skills) == (None, places)


def test_a_file_that_an_environment_of_the_settings_misses_is_a_warning_of_the_suite(tmp_path: Path) -> None:
    settings(tmp_path, base={"files": [{"src": "gone.txt", "dest": "b.txt"}]})

    suite = loaded(tmp_path, stimulus(name="one"), stimulus(name="two"), environment="base")

    warnings = [warning for warning in suite.warnings if "gone.txt" in warning.message]
    assert len(warnings) == 1
    assert Path(warnings[0].file or "").name == ".vally.yaml"


def test_a_copied_folder_leaves_the_spec_out(tmp_path: Path) -> None:
    (tmp_path / "evals/greet").mkdir(parents=True)
    (tmp_path / "evals/greet/data.csv").write_text("1")

    suite = loaded(tmp_path, stimulus(environment={"files": [{"src": ".", "dest": "."}]}))

    assert [item.path for item in only(suite).placed] == ["data.csv"]


def test_a_clone_is_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "clone/.git").mkdir(parents=True)
    git = {"type": "worktree", "source": "../../clone", "ref": "main"}

    suite = loaded(tmp_path, stimulus(environment={"git": git}))

    workspace = only(suite).workspace
    assert workspace is not None
    assert workspace.template_dir == tmp_path / "clone"
    assert "a copy of what the clone has checked out" in losses(suite)


@pytest.mark.parametrize(
    "environment", [{"skills": ["gone"]}, {"git": {"source": "gone"}}, {"files": [{"src": "gone", "dest": "gone"}]}]
)
def test_what_is_missing_from_an_environment_is_named_and_nothing_runs_without_it(
    tmp_path: Path, environment: Any
) -> None:
    suite = loaded(tmp_path, stimulus(environment=environment), stimulus(name="other", environment=environment))

    (warning,) = suite.warnings
    assert "there is no" in str(warning)
    assert "(2 times)" in str(warning)
    assert [item.wanted for case in suite.cases for item in case.placed] == ["gone", "gone"]


@pytest.mark.parametrize("written", ["../../../secret.txt", "/etc/hostname"])
def test_a_file_from_outside_of_the_repository_is_never_copied(tmp_path: Path, written: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)

    suite = loaded(repository, stimulus(environment={"files": [{"src": written, "dest": "x"}]}))

    assert [item.source for item in only(suite).placed] == [None]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"environment": {"mcpServers": {"docs": {"command": "x"}}}}, "starts no MCP servers"),
        ({"environment": "somewhere"}, "there is no .vally.yaml above the spec"),
        ({"environment": "${PLACE}"}, "nothing says what ${PLACE} is; say it with --param PLACE=NAME"),
        ({"artifacts": {"include": ["*"]}}, "nothing here reads it"),
    ],
)
def test_what_a_stimulus_loses_is_named(tmp_path: Path, more: Any, words: str) -> None:
    assert words in losses(loaded(tmp_path, stimulus(**more)))


@pytest.mark.parametrize(
    ("grader", "words"),
    [
        ({"type": "pairwise", "config": {"threshold": 0.7}}, "only who is better counts, and not by how much"),
        ({"type": "pairwise", "config": {"model": "other"}}, "the judge of the settings compares pairs"),
        ({"type": "pairwise", "turn": 0}, "nothing here reads it"),
        ({"type": "program", "config": {"program": "x"}}, "does not ask programs for a score"),
        ({"type": "error-count", "config": {"max": 1}}, "does not count errors"),
        ({"type": "diff-empty"}, "no check of the whole diff"),
        ({"type": "diff-contains", "config": {"value": "x"}}, "no check of the whole diff"),
        ({"type": "run-command", "config": {"command": "x", "stdout_not_matches": ["y"]}}, "by a pattern"),
        ({"type": "new-one"}, "whet does not know it"),
        ({"type": "run-command", "config": {"command": "x", "stdout_matches": "y"}}, "by a pattern"),
        ({"type": "prompt", "config": {"models": ["a", "b"]}}, "nothing here reads it"),
    ],
)
def test_what_a_grader_loses_is_named(tmp_path: Path, grader: Any, words: str) -> None:
    assert words in losses(loaded(tmp_path, stimulus(SAYS, grader)))


@pytest.mark.parametrize(
    ("graders", "question"),
    [
        ([{"type": "pairwise", "config": {"prompt": "Which is kinder?"}}], "Which is kinder?"),
        ([{"type": "pairwise"}], "Which answer does this better?\n- Is kind.\n- Is short."),
        ([{"type": "pairwise", "config": {"prompt": "First?"}}, {"type": "pairwise"}], "First?"),
    ],
)
def test_a_pairwise_grader_asks_about_pairs_and_decides_no_trial(
    tmp_path: Path, graders: list[Any], question: str
) -> None:
    suite = loaded(tmp_path, stimulus(SAYS, *graders, rubric=["Is kind.", "Is short."]))
    alone = loaded(tmp_path, stimulus(*graders))

    case = only(suite)
    assert case.pairwise is not None
    assert (case.pairwise.question, case.pairwise.reference) == (question, None)
    assert len(case.checks) == 1
    assert [check.label for check in only(alone).checks] == ["answers"]
    assert ("another grader of the type pairwise has it" in losses(suite)) == (len(graders) > 1)


def test_a_rubric_that_nothing_asks_for_is_lost(tmp_path: Path) -> None:
    assert "no grader of the type prompt asks for it" in losses(loaded(tmp_path, stimulus(rubric=["Is kind."])))


@pytest.mark.parametrize(
    ("top", "words"),
    [
        ({"defaults": {"runs": 1}, "config": {"runs": 1}}, "config (line 1): cannot be used together with defaults"),
        ({"config": {"timeout": 30}}, "config.timeout (line 1): must be a time with its unit, not 30"),
        ({"scoring": {"weights": {"completed": 0}}}, "scoring.weights (line 1): have the sum 0"),
        ({"scoring": {"weights": {"completed": -1}}}, "weights.completed (line 1): must be a number of at least 0"),
        ({"scoring": {"threshold": 2}}, "scoring.threshold (line 1): must be a number"),
        ({"type": "smoke"}, "type (line 1): must be one of capability, regression"),
    ],
)
def test_a_mistake_in_a_spec_is_refused_with_its_place(tmp_path: Path, top: Any, words: str) -> None:
    message = refused(tmp_path, **top)

    assert words in message
    assert "evals/greet/eval.yaml" in message


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"name": "a", "prompt": "b"}, "graders (line 1): is missing"),
        ({"name": "a", "graders": [SAYS]}, "prompt (line 1): is missing"),
        ({"prompt": "b", "graders": [SAYS]}, "name (line 1): is missing"),
        (stimulus({**SAYS, "turn": 1}), "turn (line 1): must be from 0 to 0"),
        (stimulus({"type": "output-matches"}), "pattern (line 1): is missing"),
        (stimulus({"type": "output-matches", "config": {"pattern": "("}}), "is not a regular expression"),
        (stimulus({"type": "tool-calls"}), "config (line 1): asks for nothing"),
        (stimulus({"type": "tool-calls", "config": {"required": [{}]}}), "fits every call"),
        (stimulus({"type": "skill-invocation", "config": {}}), "asks for nothing"),
        (
            stimulus({"type": "skill-invocation", "config": {"required": ["a"], "disallowed": ["a"]}}),
            '"a" is required too',
        ),
        (stimulus({"type": "wall-time", "config": {"max": "soon"}}), "must be a time with its unit"),
        (stimulus({"type": "file-exists", "config": {"path": "../x"}}), "must not lead out of the project"),
    ],
)
def test_a_mistake_in_a_stimulus_is_refused_with_its_place(tmp_path: Path, item: Any, words: str) -> None:
    assert words in refused(tmp_path, item)


def test_an_environment_that_the_settings_do_not_have_is_refused(tmp_path: Path) -> None:
    settings(tmp_path, docs={})

    message = refused(tmp_path, environment="dosc")

    assert 'has no environment "dosc"' in message
    assert 'did you mean "docs"?' in message


def test_a_key_that_comes_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "eval.yaml"
    path.write_text("stimuli:\n  - name: a\n    prompt: b\n    prompt: c\n    graders: [{type: completed}]\n")

    with pytest.raises(SuiteError) as caught:
        load_suite(path)

    assert "line 4" in str(caught.value)
    assert 'has the key "prompt" a second time; the first is in line 3' in str(caught.value)
