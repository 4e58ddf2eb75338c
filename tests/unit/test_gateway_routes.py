"""Which agents go through the gateway, and what they are given for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whet.agents.contract import Task, environment
from whet.gateway.routes import ProxyCredentials, Route, network_of, route_of
from whet.model.run import Runner

ANTHROPIC = {"ANTHROPIC_API_KEY": "sk-ant-real-key"}
OPENAI = {"OPENAI_API_KEY": "sk-real-key-0000"}


def runner(agent: str, **options: Any) -> Runner:
    return Runner(id="r", agent=agent, options=options)


@pytest.mark.parametrize(
    ("made", "environ", "url"),
    [
        (runner("claude-code"), ANTHROPIC, "https://api.anthropic.com"),
        (runner("claude-code"), {**ANTHROPIC, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1/x/"}, "http://127.0.0.1:1/x"),
        (runner("claude-code", env=ANTHROPIC), {}, "https://api.anthropic.com"),
        (runner("codex"), OPENAI, "https://api.openai.com/v1"),
        (runner("gemini"), {"GEMINI_API_KEY": "key-0000"}, "https://generativelanguage.googleapis.com"),
        (runner("opencode"), {**OPENAI, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "http://127.0.0.1:1/v1"),
        (runner("command", command="x", provider="openai"), OPENAI, "https://api.openai.com/v1"),
        (runner("acp", command="codex-acp"), OPENAI, "https://api.openai.com/v1"),
        (runner("acp", command="x", provider="anthropic"), ANTHROPIC, "https://api.anthropic.com"),
    ],
)
def test_an_agent_with_a_key_in_a_variable_goes_through_the_gateway(
    made: Runner, environ: dict[str, str], url: str
) -> None:
    found = route_of(made, environ)

    assert isinstance(found, Route)
    assert found.url == url
    assert len(found.keys) == 1


@pytest.mark.parametrize(
    ("made", "environ", "why"),
    [
        (runner("claude-code"), {"CLAUDE_CODE_OAUTH_TOKEN": "x" * 20}, "there is no key in"),
        (runner("claude-code"), {**ANTHROPIC, "CLAUDE_CODE_USE_BEDROCK": "1"}, "CLAUDE_CODE_USE_BEDROCK sends"),
        (runner("gemini"), {"GOOGLE_API_KEY": "k" * 20, "GOOGLE_GENAI_USE_VERTEXAI": "true"}, "VERTEXAI sends"),
        (runner("opencode"), OPENAI, "OPENAI_BASE_URL is not set"),
        (runner("copilot"), {"GH_TOKEN": "x" * 20}, "COPILOT_PROVIDER_BASE_URL is not set"),
        (runner("cursor-agent"), {"CURSOR_API_KEY": "x" * 20}, "takes no address"),
        (runner("command", command="x"), ANTHROPIC, "takes no address"),
        (runner("acp", command="x"), ANTHROPIC, "takes no address"),
    ],
)
def test_what_has_no_key_or_no_address_is_direct(made: Runner, environ: dict[str, str], why: str) -> None:
    found = route_of(made, environ)

    assert isinstance(found, str)
    assert why in found


def test_an_agent_gets_made_up_keys_and_no_other_secret(tmp_path: Path) -> None:
    environ = {
        **ANTHROPIC,
        "CLAUDE_CODE_OAUTH_TOKEN": "oauth-secret-0000",
        "OTHER_TOKEN": "named-secret-0000",
        "PATH": "/usr/bin",
    }
    made = runner("claude-code", pass_env=("OTHER_TOKEN", "ANTHROPIC_API_KEY"), env={"A": "b"})
    route = route_of(made, environ)
    assert isinstance(route, Route)
    given = ProxyCredentials(route=route, address="http://127.0.0.1:1/s/anthropic", secret="s" * 32)
    task = Task(
        prompt="",
        case="c",
        runner=made,
        workspace=tmp_path,
        home=tmp_path,
        temporary=tmp_path,
        suite_dir=tmp_path,
        settings_dir=None,
        environ=environ,
    )

    env = environment(given.task(task), "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")

    assert env["ANTHROPIC_API_KEY"] == f"sk-whet-0-{'s' * 32}"
    assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1/s/anthropic"
    assert (env["OTHER_TOKEN"], env["A"], env["PATH"]) == ("named-secret-0000", "b", "/usr/bin")
    assert "CLAUDE_CODE_OAUTH_TOKEN" not in env
    assert given.case_env({"ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": "y", "B": "c"}) == {"B": "c"}
    assert given.real_keys == {env["ANTHROPIC_API_KEY"].encode(): b"sk-ant-real-key"}


@pytest.mark.parametrize(
    ("value", "network"), [(True, "full"), (False, "none"), ("model", "model"), (None, "full")], ids=str
)
def test_true_and_false_are_names_for_all_and_nothing(value: Any, network: str) -> None:
    options = {} if value is None else {"network": value}

    assert network_of(Runner(id="r", agent="command", options=options)) == network
