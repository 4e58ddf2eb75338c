"""Who judges: three choices where nobody is named, and warnings where a judge decides on its own answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from whet.errors import UsageError
from whet.model.eval_cases import JudgeHints, LlmRubric, RubricItem
from whet.model.request import Selection, Settings
from whet.model.run import Plan, Runner
from whet.model.suite import Case, Check, Suite
from whet.packages.settings import package_settings
from whet.plan.judge import check_judge, choices_of_judge
from whet.plan.plan import make_plan
from whet.plan.settings.load import load_settings
from whet.plan.who_judges import family_of, plain_model, warnings_on_judge
from whet.service.service import find_lacking

CLAUDE = Runner(id="claude", agent="claude-code")
SONNET = Runner(id="sonnet", agent="claude-code", model="claude-sonnet-5")
CODEX = Runner(id="codex", agent="codex")
OWN = Runner(id="own", agent="command", options={"command": "sh"})


@pytest.fixture(autouse=True)
def nothing_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EVAL_SKILLS_LLM_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")


def settings(judge: Mapping[str, Any], *runners: Runner) -> Settings:
    loaded = load_settings(Path("/nowhere/suite.py"), flags={}, environ={})
    return replace(loaded, runners=runners or (CLAUDE,), judge=judge)


def plan(chosen: Settings, hinted: str | None = None) -> Plan:
    rubric = LlmRubric(
        instruction="do it", rubric=(RubricItem(id="1", description="It is so."),), judge=JudgeHints(model=hinted)
    )
    case = Case(id="a", prompt="do it", checks=(Check(grader="rubric", params={"case": rubric}, label="so"),))
    suite = Suite(name="demo", cases=(case,), source=Path("/suite.json"), digest="0", judge=chosen.judging)
    return make_plan(suite, chosen, Selection())


def codes(chosen: Settings, hinted: str | None = None) -> list[tuple[str, str | None]]:
    return [(warning.code, warning.runner) for warning in warnings_on_judge(plan(chosen, hinted), chosen)]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("claude-sonnet-5", "claude-sonnet-5"),
        ("anthropic/Claude-Sonnet-5-20260115", "claude-sonnet-5"),
        ("us.anthropic.claude-sonnet-5-20260115-v1:0", "claude-sonnet-5"),
        ("claude-sonnet-5@20260115", "claude-sonnet-5"),
        ("gpt-5.5-2026-04-14", "gpt-5.5"),
        ("models/gemini-3-pro-latest", "gemini-3-pro"),
        ("opus[1m]", "opus"),
    ],
)
def test_a_model_is_the_same_whoever_offers_it_and_whenever_it_was_made(name: str, plain: str) -> None:
    assert plain_model(name) == plain


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("claude-haiku-4-5", "Claude"),
        ("opus", "Claude"),
        ("openai/gpt-5.5-mini", "GPT"),
        ("o4-mini", "GPT"),
        ("gemma-4", "Gemini"),
        ("openrouter/qwen/qwen3-coder", "Qwen"),
        ("ours-1", None),
    ],
)
def test_the_family_of_a_model_is_in_its_name(name: str, family: str | None) -> None:
    assert family_of(name) == family


@pytest.mark.parametrize(
    ("judge", "runners", "expected"),
    [
        ({"runner": "claude"}, (CLAUDE,), [("judge-self", "claude")]),
        ({"runner": "own"}, (OWN,), [("judge-self", "own")]),
        ({"runner": "claude"}, (CLAUDE, SONNET, CODEX), [("judge-self", "claude"), ("judge-family", "sonnet")]),
        (
            {"runner": "other"},
            (CLAUDE, replace(CLAUDE, id="other")),
            [("judge-self", "claude"), ("judge-self", "other")],
        ),
        ({"provider": "anthropic", "model": "claude-sonnet-5-20260115"}, (SONNET,), [("judge-self", "sonnet")]),
        ({"provider": "anthropic", "model": "claude-haiku-4-5"}, (SONNET, CODEX), [("judge-family", "sonnet")]),
        ({"model": "gpt-5.5"}, (CODEX, CLAUDE), [("judge-family", "codex")]),
        ({"model": "gpt-5.5"}, (CLAUDE,), []),
        ({"model": "ours-1"}, (replace(OWN, model="theirs-1"),), []),
        ({"model": "gpt-5.5"}, (OWN,), []),
    ],
)
def test_each_runner_is_warned_about_whose_judge_is_itself_or_of_its_family(
    judge: dict[str, Any], runners: tuple[Runner, ...], expected: list[tuple[str, str]]
) -> None:
    assert codes(settings(judge, *runners)) == expected


def test_the_model_that_a_case_names_for_its_judge_is_the_one_that_counts() -> None:
    chosen = settings({"model": "gpt-5.5"}, SONNET)

    assert codes(chosen, "claude-sonnet-5") == [("judge-self", "sonnet")]


def test_an_agent_that_judges_itself_is_named_with_a_way_out() -> None:
    chosen = settings({"runner": "claude"}, CLAUDE)

    (warning,) = warnings_on_judge(plan(chosen), chosen)

    assert warning.message == (
        "runner claude judges its own answers: it may favour what it would write itself; "
        "[judge] in the settings names another"
    )


def test_without_a_judge_there_are_three_choices_and_what_is_there_comes_first() -> None:
    bare = choices_of_judge(settings({}, Runner(id="x", agent="none")), {})
    keyed = choices_of_judge(settings({}, CLAUDE), {"ANTHROPIC_API_KEY": "k"})

    assert [re.split("  +", line.strip()) for line in bare.splitlines()[1:]] == [
        ['runner = "NAME"', "an agent judges: install one first (whet doctor lists them)"],
        ['provider = "openai", model = "gpt-5.5"', "set OPENAI_API_KEY first"],
        ['provider = "anthropic", model = "claude-sonnet-5"', "set ANTHROPIC_API_KEY first"],
    ]
    assert [re.split("  +", line.strip())[-1] for line in keyed.splitlines()[1:]] == [
        "your runner judges, in sessions of its own and with its login",
        "ANTHROPIC_API_KEY is set",
        "set OPENAI_API_KEY first",
    ]


def test_an_installed_agent_is_a_choice_with_the_table_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "codex").write_text("#!/bin/sh\n")
    (tmp_path / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    choices = choices_of_judge(settings({}, Runner(id="x", agent="none")), {})

    assert 'runner = "codex"' in choices.splitlines()[1]
    assert 'codex is installed; add [runners.codex.agent] with type = "codex"' in choices


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"])
def test_a_key_alone_chooses_no_judge(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "k")
    chosen = settings({})

    with pytest.raises(UsageError, match=r'the judge has no model \(for the case "a"\)') as caught:
        check_judge(plan(chosen), chosen)

    assert f"{variable} is set" in str(caught.value.hint)


def test_the_key_of_benchmarks_or_a_model_in_every_case_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings({})
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    check_judge(plan(chosen, "gpt-5.5"), chosen)
    monkeypatch.setenv("EVAL_SKILLS_LLM_KEY", "k")

    check_judge(plan(chosen), chosen)


def test_a_runner_that_judges_needs_no_key_and_a_service_with_one_has_a_judge() -> None:
    chosen = settings({"runner": "claude"}, CLAUDE)

    check_judge(plan(chosen), chosen)

    assert "judge" not in find_lacking(chosen, package_settings({}), {}, verifier_network=False)
    assert (
        "the judge has no model"
        in find_lacking(settings({}), package_settings({}), {}, verifier_network=False)["judge"]
    )


def test_an_evaluation_is_not_offered_an_agent() -> None:
    chosen = settings({})

    with pytest.raises(UsageError) as caught:
        check_judge(plan(chosen), chosen, by_agents=False)

    assert "runner" not in str(caught.value.hint)
    assert "EVAL_SKILLS_LLM_KEY first; then gpt-4o judges" in str(caught.value.hint)
