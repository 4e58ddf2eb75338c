"""The gateway lends a model and not a key: which requests pass, and which tools of a provider."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gateway_bench import ASK, bench, run, server, whole

from whet.gateway._rules import Admission, Refusal, Rules
from whet.gateway.routes import PROVIDERS
from whet.reading.requests import request_problem

WELL = b'{"usage": {"input_tokens": 3, "output_tokens": 4}}'


@pytest.mark.parametrize(
    ("provider", "method", "path", "format"),
    [
        # As Claude Code, Codex, OpenCode, Copilot and Gemini ask.
        ("anthropic", "HEAD", "", None),
        ("anthropic", "POST", "/v1/messages", "messages"),
        ("anthropic", "POST", "/v1/messages/count_tokens", None),
        ("anthropic", "GET", "/v1/models", None),
        ("anthropic", "GET", "/v1/models/claude-sonnet-4-5", None),
        ("openai", "POST", "/responses", "responses"),
        ("openai", "POST", "/responses/compact", "responses"),
        ("openai", "GET", "/models", None),
        ("openai", "POST", "/chat/completions", "chat"),
        ("openai", "POST", "/openai/deployments/mine/chat/completions", "chat"),
        ("openai-compatible", "POST", "/chat/completions", "chat"),
        ("openai-compatible", "POST", "/v1/chat/completions", "chat"),
        ("copilot", "POST", "/chat/completions", "chat"),
        ("copilot", "POST", "/responses", "responses"),
        ("copilot", "POST", "/v1/messages", "messages"),
        ("gemini", "POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent", "gemini"),
        ("gemini", "POST", "/v1beta/models/gemini-2.5-pro%3AgenerateContent", "gemini"),
        ("gemini", "POST", "/v1beta/models/gemini-2.5-pro:countTokens", None),
        ("gemini", "GET", "/v1beta/models", None),
    ],
)
def test_what_a_model_needs_passes(provider: str, method: str, path: str, format: str | None) -> None:  # noqa: A002
    admitted = Rules(provider=provider).admit(method, path)

    assert isinstance(admitted, Admission)
    assert (admitted.format, admitted.examined) == (format, method == "POST")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/files"),
        ("POST", "/v1/files"),
        ("DELETE", "/v1/files/x"),
        ("GET", "/v1/files/x/content"),
        ("DELETE", "/v1/models/x"),
        ("POST", "/v1/models"),
        ("POST", "/v1/fine_tuning/jobs"),
        ("GET", "/v1/organization/admin_api_keys"),
        ("GET", "/v1/organizations/api_keys"),
        ("POST", "/v1/realtime/client_secrets"),
        ("GET", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("POST", "/v1/images/generations"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/audio/speech"),
        ("POST", "/v1/videos"),
        ("POST", "/v1/complete"),
        ("POST", "/v1/messages/batches"),
        ("POST", "/v1beta/models/m:predict"),
        ("POST", "/v1beta/models/m:embedContent"),
        ("POST", "/v1beta/cachedContents"),
        ("POST", "/upload/v1beta/files"),
        ("POST", "/v1beta/interactions"),
        ("PUT", "/v1/messages"),
        ("TRACE", "/v1/messages"),
        ("PATCH", "/responses"),
        ("POST", "/v1/messages%2Fbatches"),
        ("POST", "/v1/files/chat/completions"),
    ],
)
def test_what_else_a_key_can_do_is_refused(provider: str, method: str, path: str) -> None:
    assert isinstance(Rules(provider=provider).admit(method, path), Refusal)


def test_a_refused_request_does_not_arrive_and_the_agent_hears_why(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            answer = await at.client.get(f"{at.given.address}/v1/files", headers={"x-api-key": at.key})

            assert answer.status_code == 403
            error = answer.json()["error"]
            assert error["type"] == "permission_error"
            assert "GET /v1/files is not among the requests that a model needs" in error["message"]
            assert "allow_requests" in error["message"]
            (line,) = at.lines
            assert (line["outcome"], line["status"], line["trouble"], seen) == ("refused", 403, None, [])
            assert at.request_log.observation().trouble is None

    run(work)


def test_what_settings_name_passes_and_counts_if_it_may_cost(tmp_path: Path) -> None:
    allowed = ("POST /v1/embeddings", "GET /v1/files/*")
    embedded = b'{"model": "text-embedding-3-small", "usage": {"prompt_tokens": 80, "total_tokens": 80}}'

    async def work() -> None:
        async with server(lambda _: whole(embedded)) as (url, seen), bench(tmp_path, url, allow_requests=allowed) as at:
            paid = await at.ask({"input": "x"}, "/v1/embeddings")
            free = await at.client.get(f"{at.given.address}/v1/files/f1")
            deeper = await at.client.get(f"{at.given.address}/v1/files/f1/content")

            assert (paid.status_code, free.status_code, deeper.status_code) == (200, 200, 403)
            assert [line["format"] for line in at.lines] == ["other", None, None]
            assert (at.request_log.asked, len(seen)) == (1, 2)
            assert (at.request_log.usage.input_tokens, at.request_log.usage.output_tokens) == (80, 0)

    run(work)


@pytest.mark.parametrize("text", ["/v1/files", "get /v1/files", "GET v1/files", "GET /v1/files?x=1", "GET  /x", ""])
def test_a_request_that_is_allowed_has_a_method_and_a_path(text: str) -> None:
    assert request_problem(text) is not None
    assert request_problem("* /v1/files/*") is None


FUNCTION = {"type": "function", "name": "shell", "parameters": {}}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://x.example"}}
FILE = {"fileData": {"fileUri": "https://x.example"}}
PICTURE = {"type": "base64", "media_type": "image/png", "data": "AAAA"}


def user(*content: dict[str, Any]) -> dict[str, Any]:
    """A message with *content*."""
    return {"role": "user", "content": list(content)}


@pytest.mark.parametrize(
    ("format", "body", "name"),
    [
        (
            "messages",
            {"tools": [{"name": "Bash"}, {"type": "web_search_20250305", "name": "web_search"}]},
            "web_search",
        ),
        ("messages", {"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}, "web_fetch"),
        ("messages", {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}, "code_execution"),
        ("messages", {"mcp_servers": [{"type": "url", "url": "https://x.example"}]}, "mcp_servers"),
        ("messages", {"messages": [user({"type": "image", "source": {"type": "url", "url": "https://x"}})]}, "url"),
        ("messages", {"messages": [user({"type": "document", "source": {"type": "url", "url": "http://x"}})]}, "url"),
        ("responses", {"tools": [FUNCTION, {"type": "mcp", "server_url": "https://x.example"}]}, "mcp"),
        ("responses", {"tools": [{"type": "web_search", "external_web_access": True}]}, "web_search"),
        ("responses", {"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "file_search"),
        ("responses", {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}, "code_interpreter"),
        ("responses", {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}, "shell"),
        ("responses", {"tools": [{"type": "namespace", "tools": [{"type": "mcp"}]}]}, "mcp"),
        ("responses", {"prompt": {"id": "pmpt_1"}}, "prompt"),
        ("responses", {"input": [user({"type": "input_image", "image_url": "https://x.example/?q=1"})]}, "url"),
        ("responses", {"input": [{"type": "input_file", "file_url": "https://x.example"}]}, "url"),
        ("chat", {"web_search_options": {"user_location": None}}, "web_search_options"),
        ("chat", {"model": "gpt-4o-search-preview"}, "gpt-4o-search-preview"),
        ("chat", {"model": "vendor/large:online"}, "vendor/large:online"),
        ("chat", {"plugins": [{"id": "web"}]}, "plugins"),
        ("chat", {"messages": [user({"type": "image_url", "image_url": {"url": "https://x.example"}})]}, "url"),
        ("gemini", {"tools": [{"functionDeclarations": []}, {"googleSearch": {}}]}, "googleSearch"),
        ("gemini", {"tools": [{"google_search": {}}]}, "google_search"),
        ("gemini", {"tools": [{"urlContext": {}}]}, "urlContext"),
        ("gemini", {"tools": {"codeExecution": {}}}, "codeExecution"),
        ("gemini", {"contents": [{"parts": [{"fileData": {"fileUri": "https://x.example"}}]}]}, "url"),
        ("gemini", {"contents": [{"parts": [{"file_data": {"file_uri": "https://x.example"}}]}]}, "url"),
        (None, {"messages": [user({"type": "image", "source": {"type": "url", "url": "https://x"}})]}, "url"),
        # Deeper, or beside what only looks like a call of the agent's own tool.
        ("responses", {"input": [{"type": "additional_tools", "tools": [{"type": "mcp"}]}]}, "mcp"),
        ("responses", {"input": [{"type": "tool_search_output", "tools": [{"type": "web_search"}]}]}, "web_search"),
        ("responses", {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "file_search"}]}}, "file_search"),
        ("messages", {"messages": [user({"type": "tool_use", "content": [IMAGE]})]}, "url"),
        ("messages", {"messages": [user({"type": "tool_use", "input": {}, "source": IMAGE["source"]})]}, "url"),
        ("messages", {"messages": [user({"type": "web_search_tool_result", "content": [IMAGE]})]}, "url"),
        ("messages", {"messages": [user({"type": "tool_result", "content": [IMAGE]})]}, "url"),
        ("chat", {"messages": [user({"type": "document_url", "document_url": "https://x.example"})]}, "url"),
        ("chat", {"messages": [user({"type": "input_audio", "input_audio": {"data": "https://x.example"}})]}, "url"),
        ("chat", {"messages": [user({"type": "image", "image": "https://x.example"})]}, "url"),
        ("chat", {"image_urls": ["data:image/png;base64,AA", "https://x.example"]}, "url"),
        ("chat", {"extra_body": {"google": {"cached_content": "cachedContents/1"}}}, "cached_content"),
        ("chat", {"extra_body": {"plugins": [{"id": "web"}]}}, "plugins"),
        ("chat", {"data_sources": [{"type": "azure_search"}]}, "data_sources"),
        ("chat", {"api_base": "https://x.example"}, "api_base"),
        ("gemini", {"cachedContent": "cachedContents/1"}, "cachedContent"),
        ("gemini", {"contents": [{"parts": [{"functionResponse": {"parts": [FILE]}}]}]}, "url"),
        # As servers read names that match letters of any case, and what is empty or stored.
        ("chat", {"tool\u017f": [{"type": "web_search"}]}, "web_search"),
        ("chat", {"web_\u017fearch_options": {"user_location": None}}, "web_\u017fearch_options"),
        ("chat", {"web_search_options": {}}, "web_search_options"),
        ("chat", {"search_parameters": {}}, "search_parameters"),
        ("chat", {"enable_code_interpreter": True}, "enable_code_interpreter"),
        ("chat", {"builtin_tools": [{"type": "web_search"}]}, "builtin_tools"),
        ("chat", {"preset": "mine"}, "preset"),
        ("chat", {"model": "@preset/mine"}, "@preset/mine"),
        ("messages", {"messages": [user({"type": "web_search_result", "image_url": "https://x.example"})]}, "url"),
        # No type that is known, or none at all.
        ("responses", {"tools": [{"type": "function_of_tomorrow"}]}, "function_of_tomorrow"),
        ("messages", {"tools": [{"type": "advisor_20260301", "model": "claude-opus-4-8"}]}, "advisor"),
        ("messages", {"tools": [{"type": ["custom"], "name": "a"}]}, "['custom']"),
        ("chat", {"tools": [{"googleSearch": {}}]}, "googleSearch"),
        ("chat", {"tools": [{"type": "function", "function": {"name": "a"}, "google_search": {}}]}, "google_search"),
        ("chat", {"tools": ["web_search"]}, "web_search"),
        ("chat", {"tools": {"enabled_tools": ["web_search"]}}, "enabled_tools"),
    ],
)
def test_what_the_provider_would_carry_out_is_refused_unless_it_is_named(
    format: Any,  # noqa: A002
    body: dict[str, Any],
    name: str,
) -> None:
    refused = Rules(provider="anthropic", hosted_tools=()).examine(format, body)

    assert refused is not None
    assert refused.startswith(name)
    assert "allow_hosted_tools" in refused
    assert Rules(provider="anthropic", hosted_tools=(name,)).examine(format, body) is None
    assert Rules(provider="anthropic").examine(format, body) is None


@pytest.mark.parametrize(
    ("format", "body"),
    [
        (
            "messages",
            {
                "tools": [{"name": "WebSearch"}, {"type": "custom", "name": "a"}, {"type": "bash_20250124"}],
                "messages": [
                    user({"type": "image", "source": PICTURE}, {"type": "text", "text": "see https://x.example"}),
                    {"role": "assistant", "content": [{"type": "tool_use", "input": {"url": "https://x.example"}}]},
                    user({"type": "tool_result", "content": [{"type": "text", "text": "https://x.example"}]}),
                ],
                "metadata": {"url": "https://x.example"},
            },
        ),
        (
            "responses",
            {
                "tools": [FUNCTION, {"type": "custom"}, {"type": "tool_search", "execution": "client"}],
                "prompt_cache_key": "k",
                "input": [
                    user({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}),
                    {"type": "function_call", "arguments": '{"image_url": "https://x.example"}'},
                    {"type": "function_call_output", "output": "https://x.example"},
                ],
            },
        ),
        ("chat", {"tools": [{"type": "function", "function": {}}], "messages": [{"content": "https://x.example"}]}),
        (
            "responses",
            {
                "text": {"format": {"type": "json_schema", "schema": {"properties": {"tools": ["x"], "url": "x"}}}},
                "tools": [
                    {"type": "function", "name": "a", "parameters": {"properties": {"models": {}, "plugins": {}}}},
                    {"type": "shell", "environment": {"type": "local"}},
                    {"type": "namespace", "name": "n", "tools": [FUNCTION]},
                ],
                "input": [
                    {"type": "mcp_list_tools", "tools": [{"name": "a", "input_schema": {"url": "https://x.example"}}]},
                    {"type": "web_search_call", "action": {"type": "open_page", "url": "https://x.example"}},
                    {"type": "tool_search_output", "tools": [FUNCTION]},
                ],
            },
        ),
        (
            "messages",
            {
                "tools": [{"name": "a", "input_schema": {"properties": {"url": "https://x.example"}}, "strict": True}],
                "messages": [
                    user({"type": "server_tool_use", "input": {"url": "https://x.example", "tools": ["x"]}}),
                    user(
                        {
                            "type": "web_search_tool_result",
                            "content": [{"type": "web_search_result", "url": "https://x.example"}],
                        }
                    ),
                ],
            },
        ),
        (
            "gemini",
            {
                "tools": [{"functionDeclarations": [{"name": "a", "parameters": {"url": {"type": "string"}}}]}],
                "contents": [
                    {"parts": [{"functionCall": {"args": {"url": "https://x.example"}}}]},
                    {"parts": [{"functionResponse": {"response": {"url": "https://x.example"}}}]},
                ],
            },
        ),
    ],
)
def test_an_agents_own_tools_and_words_pass(format: Any, body: dict[str, Any]) -> None:  # noqa: A002
    assert Rules(provider="anthropic", hosted_tools=()).examine(format, body) is None


@pytest.mark.parametrize(
    "more",
    [
        {"models": ["dear-1"]},
        {"fallbacks": [{"model": "dear-1"}]},
        {"fallback_models": ["dear-1"]},
        {"extra_body": {"models": ["dear-1"]}},
        {"model": ["cheap-1", "dear-1"]},
        {"model": "cheap-1,dear-1"},
        {"model\u017f": ["dear-1"]},
    ],
)
def test_a_request_that_names_several_models_is_refused_because_nobody_knows_its_price(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url, provider="openai") as at:
            refused = await at.ask({"model": "cheap-1", "messages": [], **more}, "/chat/completions")
            passed = await at.ask({"model": "cheap-1", "models": [], "messages": []}, "/chat/completions")

            assert (refused.status_code, passed.status_code, len(seen)) == (403, 200, 1)
            assert "choose among models" in refused.json()["error"]["message"]

    run(work)


@pytest.mark.parametrize(
    "more",
    [
        *({"background": value} for value in (True, 1, "true", [0])),
        {"bac\u212aground": True},
        {"deferred": True},
        {"extra_body": {"background": True}},
    ],
)
def test_what_is_answered_in_the_background_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url, provider="openai") as at:
            refused = await at.ask({"model": "gpt-5.5", **more}, "/responses")
            passed = await at.ask({"model": "gpt-5.5", "background": False}, "/responses")

            assert (refused.status_code, passed.status_code, len(seen)) == (403, 200, 1)
            assert "in the background cannot be counted" in refused.json()["error"]["message"]

    run(work)


def test_gateway_and_provider_read_the_same_of_a_key_that_is_there_twice(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url, provider="openai") as at:
            body = b'{"background": true, "b\\u0061ckground": false, "model": "m"}'
            address = f"{at.given.address}/responses"
            passed = await at.client.post(address, content=body)
            packed = await at.client.post(address, content=body, headers={"content-encoding": "gzip"})

            assert (passed.status_code, packed.status_code) == (200, 415)
            assert [json.loads(data.partition(b"\r\n\r\n")[2]) for data in seen] == [
                {"background": False, "model": "m"}
            ]
            assert b"true" not in seen[0]

    run(work)


def test_a_key_is_put_in_only_if_there_is_nothing_around_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with server(lambda _: whole(WELL)) as (url, seen), bench(tmp_path, url) as at:
            for value in (f"Bearer {at.key}", at.key, f"{'x' * 90}{at.key}", f"{at.key}{at.key}", f"a Bearer {at.key}"):
                await at.client.post(f"{at.given.address}/v1/messages", json=ASK, headers={"authorization": value})

            assert [b"sk-real-" in data for data in seen] == [True, True, False, False, False]

    run(work)
