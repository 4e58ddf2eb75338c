"""Plans: what is selected, in which order, and what each execution is given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from whet.errors import UnknownName, UsageError
from whet.model.request import Selection, Settings, parse_shard, split_list
from whet.model.run import Plan, Runner
from whet.model.suite import Case, Limits, Suite, WorkspaceSpec
from whet.plan.plan import describe_plan, make_plan
from whet.plan.settings.load import load_settings


def case(name: str, *tags: str, **limits: Any) -> Case:
    return Case(id=name, prompt="do it", checks=(), tags=tags, limits=Limits(**limits))


def suite(*cases: Case, **given: Any) -> Suite:
    return Suite(name="demo", cases=cases, source=Path("/suite.py"), digest="0", **given)


def settings(flags: Mapping[str, Any] | None = None, **changes: Any) -> Settings:
    loaded = load_settings(Path("/nowhere/suite.py"), flags=flags or {}, environ={})
    runners = (Runner(id="left", agent="command"), Runner(id="right", agent="command", model="m"))
    return replace(loaded, **({"runners": runners} | changes))


def keys(plan: Plan) -> list[tuple[str, str, str]]:
    return [(execution.case.id, execution.runner.id, execution.arm) for execution in plan.executions]


def test_executions_stand_case_by_case_runner_by_runner_arm_by_arm() -> None:
    two = suite(case("b"), case("a"), arms=("with", "without"))

    plan = make_plan(two, settings(trials=3), Selection())

    assert keys(plan) == [
        ("b", "left", "with"),
        ("b", "left", "without"),
        ("b", "right", "with"),
        ("b", "right", "without"),
        ("a", "left", "with"),
        ("a", "left", "without"),
        ("a", "right", "with"),
        ("a", "right", "without"),
    ]
    assert plan.trial_count == 24


def test_selection_keeps_the_declared_order_whatever_the_order_asked_for() -> None:
    three = suite(case("a"), case("b"), case("c"))

    plan = make_plan(three, settings(), Selection(cases=("c", "a"), runners=("right",)))

    assert keys(plan) == [("a", "right", "default"), ("c", "right", "default")]


def test_one_common_tag_is_enough() -> None:
    three = suite(case("a", "x"), case("b", "y", "z"), case("c"))

    plan = make_plan(three, settings(), Selection(tags=("x", "z"), runners=("left",)))

    assert [key[0] for key in keys(plan)] == ["a", "b"]


def test_configured_tags_hold_until_tags_are_typed() -> None:
    two = suite(case("a", "x"), case("b", "y"))
    configured = settings(tags=("x", "of-another-suite"))

    by_file = make_plan(two, configured, Selection(runners=("left",)))
    typed = make_plan(two, configured, Selection(runners=("left",), tags=("y",)))

    assert [key[0] for key in keys(by_file)] == ["a"]
    assert [key[0] for key in keys(typed)] == ["b"]


def test_only_what_failed_last_time_is_planned() -> None:
    two = suite(case("a"), case("b"))

    plan = make_plan(two, settings(), Selection(only=frozenset({("b", "left", "default"), ("gone", "left", "x")})))

    assert keys(plan) == [("b", "left", "default")]


@given(cases=st.integers(1, 12), count=st.integers(1, 6))
def test_shards_share_out_everything_once(cases: int, count: int) -> None:
    many = suite(*(case(f"c{number}") for number in range(cases)))
    whole = keys(make_plan(many, settings(), Selection()))

    parts = [
        keys(make_plan(many, settings(), Selection(shard=(number, count))))
        for number in range(1, min(count, len(whole)) + 1)
    ]

    assert sorted(key for part in parts for key in part) == sorted(whole)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(part == [key for key in whole if key in part] for part in parts)


def test_an_empty_shard_says_how_many_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        make_plan(suite(case("a")), settings(), Selection(shard=(3, 3)))

    assert caught.value.message == "shard 3/3 is empty"
    assert caught.value.hint == "only 2 executions selected: use fewer shards"


@pytest.mark.parametrize(
    ("selection", "message", "hint"),
    [
        (Selection(cases=("alpa",)), 'no case is called "alpa"', 'did you mean "alpha"?'),
        (Selection(runners=("lef",)), 'no runner is called "lef"', 'did you mean "left"?'),
        (Selection(tags=("slwo",)), 'no tag is called "slwo"', 'did you mean "slow"?'),
        (Selection(runners=("q",)), 'no runner is called "q"', 'known: "left", "right"'),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(selection: Selection, message: str, hint: str) -> None:
    with pytest.raises(UnknownName) as caught:
        make_plan(suite(case("alpha", "slow")), settings(), selection)

    assert (caught.value.message, caught.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("selection", "hint"),
    [
        (Selection(cases=("a",), tags=("y",)), 'asked for case "a"; asked for tag "y", the suite has "x", "y"'),
        (Selection(only=frozenset()), "asked for what failed last time"),
    ],
)
def test_selecting_nothing_is_a_usage_error(selection: Selection, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_plan(suite(case("a", "x"), case("b", "y")), settings(), selection)

    assert (caught.value.message, caught.value.hint) == ("nothing is selected from demo", hint)


def test_without_runners_an_example_is_shown() -> None:
    with pytest.raises(UsageError) as caught:
        make_plan(suite(case("a")), settings(runners=()), Selection())

    assert caught.value.message == "no runners are configured"
    looked, example = (caught.value.hint or "").split("\n", 1)
    assert "whet uses an agent on your PATH, and there is none" in looked
    assert example == (
        'write one into whet.toml, such as:\n[runners.demo.agent]\ntype = "command"\ncommand = "./agent.sh"'
    )


def test_workspaces_are_isolated_and_trials_parallel_by_default() -> None:
    plan = make_plan(suite(case("a")), settings(max_parallel=4), Selection())

    assert plan.executions[0].workspace == WorkspaceSpec()
    assert (plan.schedule, plan.max_parallel) == ("parallel", 4)


def test_a_shared_workspace_makes_the_run_serial() -> None:
    shared = settings(cwd=Path("/work"), max_parallel=4)

    plan = make_plan(suite(case("a")), shared, Selection())

    assert plan.executions[0].workspace == WorkspaceSpec(mode="shared", cwd=Path("/work"))
    assert (plan.schedule, plan.max_parallel) == ("serial", 1)


def test_a_schedule_that_was_asked_for_holds_also_in_a_shared_workspace() -> None:
    asked = settings(cwd=Path("/work"), schedule="parallel", max_parallel=4)

    plan = make_plan(suite(case("a")), asked, Selection())

    assert (plan.schedule, plan.max_parallel) == ("parallel", 4)


def test_the_suites_workspace_comes_before_the_configured_one() -> None:
    own = WorkspaceSpec(mode="isolated", template_dir=Path("/own"))
    configured = settings(workspace=WorkspaceSpec(mode="shared", cwd=Path("/configured")))

    by_suite = make_plan(suite(case("a"), workspace=own), configured, Selection())
    by_file = make_plan(suite(case("a")), configured, Selection())

    assert by_suite.executions[0].workspace == own
    assert by_file.executions[0].workspace == configured.workspace


def test_a_shared_workspace_without_a_folder_takes_the_configured_one() -> None:
    nameless = suite(case("a"), workspace=WorkspaceSpec(mode="shared", template_dir=Path("/t")))
    named = suite(case("a"), workspace=WorkspaceSpec(mode="shared", cwd=Path("/named")))

    taken = make_plan(nameless, settings(cwd=Path("/work")), Selection())
    kept = make_plan(named, settings(cwd=Path("/work")), Selection())

    assert taken.executions[0].workspace == WorkspaceSpec(mode="shared", cwd=Path("/work"), template_dir=Path("/t"))
    assert kept.executions[0].workspace.cwd == Path("/named")


def test_a_folder_that_is_typed_beats_the_suites() -> None:
    named = suite(case("a"), workspace=WorkspaceSpec(mode="shared", cwd=Path("/named")))

    plan = make_plan(named, settings(flags={"cwd": "/typed"}), Selection())

    assert plan.executions[0].workspace.cwd == Path("/typed")


def test_a_folder_to_work_in_and_an_isolated_suite_do_not_go_together() -> None:
    isolated = suite(case("a"), workspace=WorkspaceSpec(mode="isolated"))

    with pytest.raises(UsageError) as caught:
        make_plan(isolated, settings(flags={"cwd": "/typed"}), Selection())

    assert caught.value.message == "demo uses isolated workspaces, but a folder to work in is set (flag --cwd)"


def test_limits_of_the_case_come_first_and_steps_take_the_smaller() -> None:
    several = suite(case("own", timeout_s=7.0, max_steps=9, budget_usd=2.0), case("none"), case("few", max_steps=2))

    plan = make_plan(several, settings(timeout_s=60.0, max_steps=5), Selection(runners=("left",)))

    assert [execution.limits for execution in plan.executions] == [
        Limits(timeout_s=7.0, max_steps=5, budget_usd=2.0),
        Limits(timeout_s=60.0, max_steps=5),
        Limits(timeout_s=60.0, max_steps=2),
    ]


def test_a_budget_of_the_case_beats_the_settings_and_one_that_is_typed_beats_both() -> None:
    own = suite(case("own", budget_usd=2.0), case("none"))

    configured = make_plan(own, settings(budget_usd=1.0), Selection(runners=("left",)))
    typed = make_plan(own, settings(flags={"budget_usd": 1.0}), Selection(runners=("left",)))

    assert [execution.limits.budget_usd for execution in configured.executions] == [2.0, 1.0]
    assert [execution.limits.budget_usd for execution in typed.executions] == [1.0, 1.0]


def test_a_time_limit_that_is_typed_beats_the_cases() -> None:
    own = suite(case("own", timeout_s=7.0))

    plan = make_plan(own, settings(flags={"timeout_ms": 1500}), Selection())

    assert plan.executions[0].limits.timeout_s == 1.5


@pytest.mark.parametrize(
    ("values", "names"),
    [((), ()), (["a,b", "c"], ("a", "b", "c")), (["b", " a , b "], ("b", "a"))],
)
def test_lists_may_be_repeated_and_separated_by_commas(values: list[str], names: tuple[str, ...]) -> None:
    assert split_list(values) == names


@pytest.mark.parametrize("value", ["", "a,", ",a", "a,,b", " "])
def test_an_empty_name_in_a_list_is_a_usage_error(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_list([value])

    assert caught.value.message == f'"{value}" has an empty name in it'


def test_a_shard_is_read_as_number_and_count() -> None:
    assert parse_shard("2/5") == (2, 5)


@pytest.mark.parametrize("text", ["", "2", "0/5", "6/5", "-1/5", "1/0", "a/b", "1/2/3", "1.0/2", "²/5"])
def test_anything_else_is_no_shard(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_shard(text)

    assert caught.value.message == f'a shard is written as 2/5, the second of five, not "{text}"'


def test_a_plan_is_described_line_by_line() -> None:
    two = suite(case("short"), case("much-longer", timeout_s=7.5, max_steps=1), arms=("default", "no-skill"))

    lines = describe_plan(make_plan(two, settings(trials=2, max_parallel=4), Selection(runners=("right",))))

    assert lines == [
        "demo: 2 cases on 1 runner, 4 executions, 8 trials",
        "schedule parallel, at most 4 at a time, 0 retries for each trial",
        "",
        "short        right           (command m)  2 trials, 120 s, isolated",
        "short        right/no-skill  (command m)  2 trials, 120 s, isolated",
        "much-longer  right           (command m)  2 trials, 7.5 s, at most 1 step, isolated",
        "much-longer  right/no-skill  (command m)  2 trials, 7.5 s, at most 1 step, isolated",
    ]
