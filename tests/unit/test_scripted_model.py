"""The scripted model: what stands in the script is what comes over the wire, in each of its formats."""

from __future__ import annotations

import gzip
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from whet.testing.scripted_model.script import ScriptError
from whet.testing.scripted_model.server import ScriptedModel

SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}}}
SHELL = {**SCHEMA, "required": ["command", "timeout"]}
TOOLS: dict[str, Any] = {
    "anthropic": [{"name": "Bash", "input_schema": SHELL}],
    "responses": [{"type": "function", "name": "shell", "parameters": SHELL}],
    "chat": [{"type": "function", "function": {"name": "bash", "parameters": SHELL}}],
    "gemini": [{"functionDeclarations": [{"name": "run_shell_command", "parametersJsonSchema": SHELL}]}],
}
PATHS = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/m:streamGenerateContent",
}
FORMATS = list(PATHS)
FULL = {
    "think": "Hm.",
    "say": "I look.",
    "run": "ls -l",
    "usage": {"input": 1000, "cached": 300, "written": 50, "output": 90, "reasoning": 40},
}


def post(
    model: ScriptedModel, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=300)
    try:
        connection.request("POST", path, json.dumps(body), headers or {})
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()


def ask(model: ScriptedModel, wire: str, prefix: str = "", **more: Any) -> tuple[int, dict[str, str], bytes]:
    body = {"model": "m", "stream": True, "tools": TOOLS[wire], **more}
    return post(model, prefix + PATHS[wire], body)


def frames(data: bytes) -> Iterator[tuple[str | None, Any]]:
    for block in data.decode().split("\n\n")[:-1]:
        *names, line = block.split("\n")
        text = line.removeprefix("data: ")
        yield (names[0].removeprefix("event: ") if names else None), (text if text == "[DONE]" else json.loads(text))


def test_anthropic_messages_stream_blocks_between_a_start_and_a_stop() -> None:
    with ScriptedModel([FULL]) as model:
        status, _, data = ask(model, "anthropic")

    got = list(frames(data))
    assert status == 200
    assert [name for name, _ in got] == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]
    assert all(name == value["type"] for name, value in got)
    assert got[0][1]["message"]["usage"] == {
        "input_tokens": 650,
        "cache_creation_input_tokens": 50,
        "cache_read_input_tokens": 300,
        "output_tokens": 1,
    }
    deltas = [value["delta"] for name, value in got if name == "content_block_delta"]
    assert [delta["type"] for delta in deltas[:2]] == ["thinking_delta", "signature_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "I look."
    args = "".join(delta.get("partial_json", "") for delta in deltas)
    assert json.loads(args) == {"command": "ls -l", "timeout": 10_000}
    assert got[-2][1]["delta"]["stop_reason"] == "tool_use"
    assert got[-2][1]["usage"] == {"output_tokens": 90}


def test_anthropic_messages_come_whole_where_no_stream_is_asked_for() -> None:
    with ScriptedModel([FULL]) as model:
        _, _, data = ask(model, "anthropic", stream=False)

    got = json.loads(data)
    assert [block["type"] for block in got["content"]] == ["thinking", "text", "tool_use"]
    assert got["content"][2]["name"] == "Bash"
    assert got["stop_reason"] == "tool_use"


def test_responses_stream_numbered_events_and_end_with_all_items() -> None:
    with ScriptedModel([FULL]) as model:
        _, _, data = ask(model, "responses")

    got = list(frames(data))
    names = [name.removeprefix("response.") for name, _ in got if name]
    assert names == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    assert [value["sequence_number"] for _, value in got] == list(range(len(got)))
    ended = got[-1][1]["response"]
    assert [item["type"] for item in ended["output"]] == ["reasoning", "message", "function_call"]
    assert json.loads(ended["output"][2]["arguments"])["command"] == "ls -l"
    assert ended["usage"] == {
        "input_tokens": 1000,
        "input_tokens_details": {"cached_tokens": 300},
        "output_tokens": 90,
        "output_tokens_details": {"reasoning_tokens": 40},
        "total_tokens": 1090,
    }


def test_responses_find_tools_in_the_input_and_write_programs_for_those_that_take_text() -> None:
    exec_tool = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}
    items = [{"type": "additional_tools", "tools": [exec_tool]}]
    with ScriptedModel([{"run": "ls"}]) as model:
        _, _, data = ask(model, "responses", tools=[], input=items)
        seen = model.requests

    item = list(frames(data))[-1][1]["response"]["output"][0]
    assert item["type"] == "custom_tool_call"
    assert 'exec_command({cmd: "ls"})' in item["input"]
    assert "namespace" not in item
    assert seen[0].tools == ("exec",)


def test_chat_completions_stream_deltas_and_tell_usage_to_those_who_ask() -> None:
    with ScriptedModel([{**FULL, "times": 2}]) as model:
        _, _, asked = ask(model, "chat", stream_options={"include_usage": True})
        _, _, unasked = ask(model, "chat")

    got = [value for _, value in frames(asked)]
    deltas = [value["choices"][0]["delta"] for value in got[:-2]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[1] == {"reasoning_content": "Hm."}
    assert "".join(delta.get("content") or "" for delta in deltas) == "I look."
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["function"] == {"name": "bash", "arguments": ""}
    assert json.loads("".join(call["function"]["arguments"] for call in calls))["command"] == "ls -l"
    assert got[-3]["choices"][0]["finish_reason"] == "tool_calls"
    assert got[-2]["usage"]["prompt_tokens"] == 1000
    assert got[-2]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 40}
    assert got[-1] == "[DONE]"
    assert b'"usage"' not in unasked


def test_gemini_streams_whole_answers_and_the_last_one_stops() -> None:
    with ScriptedModel([FULL]) as model:
        _, _, data = ask(model, "gemini")

    got = [value["candidates"][0] for _, value in frames(data)]
    parts = [candidate["content"]["parts"][0] for candidate in got]
    assert parts[0] == {"text": "Hm.", "thought": True}
    assert "".join(part.get("text", "") for part in parts[1:]) == "I look."
    assert parts[-1]["functionCall"]["name"] == "run_shell_command"
    assert [candidate.get("finishReason") for candidate in got] == [None, None, None, "STOP"]
    usage = json.loads(data.decode().rsplit("data: ", 1)[1])["usageMetadata"]
    assert usage == {
        "promptTokenCount": 1000,
        "cachedContentTokenCount": 300,
        "candidatesTokenCount": 50,
        "thoughtsTokenCount": 40,
        "totalTokenCount": 1090,
    }


def test_a_write_becomes_whatever_the_agent_has_for_it() -> None:
    write = {"write": "a.txt", "text": "one\ntwo\n"}
    editor = {"name": "Write", "input_schema": {"properties": {"file_path": {}, "content": {}}}}
    patch = {"type": "custom", "name": "apply_patch"}
    with ScriptedModel([{**write, "times": 3}]) as model:
        _, _, edited = ask(model, "anthropic", stream=False, tools=[editor])
        _, _, patched = ask(model, "responses", stream=False, tools=[patch])
        _, _, printed = ask(model, "chat", stream=False)

    assert json.loads(edited)["content"][0]["input"] == {"file_path": "a.txt", "content": "one\ntwo\n"}
    assert "*** Add File: a.txt\n+one\n+two\n" in json.loads(patched)["output"][0]["input"]
    assert "> a.txt" in json.loads(printed)["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]


@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize(
    ("fault", "status"),
    [("auth", 401), ("model-rejected", 404), ("bad-request", 400), ("rate-limit", 429), ("server", 500)],
)
def test_a_fault_has_its_status_and_asks_to_try_again_at_once(wire: str, fault: str, status: int) -> None:
    with ScriptedModel([{"fail": fault}, {"say": "well"}]) as model:
        failed, headers, data = ask(model, wire)
        then, _, _ = ask(model, wire)

    assert failed == status
    assert headers["retry-after"] == "0"
    assert json.loads(data)["error"]["message"]
    assert then == 200


def test_a_fault_may_ask_to_try_again_later_in_seconds_and_in_milliseconds() -> None:
    with ScriptedModel([{"fail": "rate-limit", "retry_after": 2.5}]) as model:
        _, headers, _ = ask(model, "anthropic")

    assert (headers["retry-after"], headers["retry-after-ms"]) == ("2.5", "2500")


def test_an_overloaded_provider_says_so_in_its_own_way() -> None:
    with ScriptedModel([{"fail": "overloaded", "always": True}]) as model:
        statuses = {wire: ask(model, wire)[0] for wire in FORMATS}

    assert statuses == {"anthropic": 529, "responses": 503, "chat": 503, "gemini": 503}


@pytest.mark.parametrize("wire", FORMATS)
def test_a_stream_that_is_cut_has_a_beginning_and_no_end(wire: str) -> None:
    script = [{"say": "a long story", "cut": True}]

    with ScriptedModel(script) as model, pytest.raises(http.client.IncompleteRead) as cut:
        ask(model, wire)

    assert cut.value.partial.startswith((b"event: ", b"data: "))
    assert not any(end in cut.value.partial for end in (b"message_stop", b"completed", b"[DONE]", b"STOP"))


def test_one_that_hangs_ends_when_the_client_leaves_or_the_model_does() -> None:
    body = json.dumps({"model": "m", "stream": True, "tools": TOOLS["chat"]})
    with ScriptedModel([{"hang": True, "always": True}]) as model:
        left = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=300)
        left.request("POST", PATHS["chat"], body)
        left.getresponse().read(1)
        left.close()
        stayed = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=300)
        stayed.request("POST", PATHS["chat"], body)
        answer = stayed.getresponse()

    with pytest.raises(http.client.IncompleteRead):
        answer.read()
    stayed.close()
    assert not [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]


def test_requests_without_tools_take_no_step_and_get_the_shape_that_they_ask_for() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}, "n": {"type": "integer"}}}
    shaped = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    with ScriptedModel([{"say": "the answer"}]) as model:
        _, _, title = post(model, PATHS["anthropic"], {"model": "m", **shaped})
        _, _, count = post(model, "/v1/messages/count_tokens", {"model": "m"})
        _, _, answer = ask(model, "anthropic", stream=False)
        turns = model.turns

    assert json.loads(json.loads(title)["content"][0]["text"]).keys() == {"title", "n"}
    assert json.loads(count) == {"input_tokens": 1000}
    assert json.loads(answer)["content"][0]["text"] == "the answer"
    assert [turn.step for turn in turns] == [1]


def test_scripts_are_followed_side_by_side_under_their_names() -> None:
    with ScriptedModel({"a": [{"say": "A1"}, {"say": "A2"}], "b": [{"say": "B1"}]}) as model:
        said = [json.loads(ask(model, "chat", f"/s/{name}", stream=False)[2]) for name in ("a", "b", "a")]
        missing = ask(model, "chat", "/s/c")
        over = ask(model, "chat", "/s/b")

    assert [each["choices"][0]["message"]["content"] for each in said] == ["A1", "B1", "A2"]
    assert missing[0] == 400
    assert 'no script \\"c\\"' in missing[2].decode()
    assert "no more steps" in over[2].decode()


def test_every_request_is_kept_with_what_it_asked() -> None:
    with ScriptedModel([{"say": "ok", "always": True}]) as model:
        ask(model, "gemini", "", note="hallo")
        packed = gzip.compress(json.dumps({"model": "packed", "tools": TOOLS["chat"]}).encode())
        connection = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=300)
        connection.request("POST", PATHS["chat"], packed, {"Content-Encoding": "gzip"})
        connection.getresponse().read()
        connection.request("POST", PATHS["chat"], iter([b'{"model":', b'"chunked"}']), {"Authorization": "Bearer x"})
        connection.getresponse().read()
        connection.close()
        first, second, third = model.requests

    assert (first.format, first.model, first.tools, first.step) == ("gemini", "m", ("run_shell_command",), 1)
    assert "hallo" in first.text
    assert (second.model, second.path) == ("packed", "/v1/chat/completions")
    assert (third.model, third.tools, third.headers["authorization"]) == ("chunked", (), "Bearer x")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"sai": "x"}, 'did you mean "say"'),
        ({"fail": "tired"}, 'no fault is called "tired"'),
        ({"tools": [{"run": "a", "read": "b"}]}, "exactly one of"),
        ({"usage": {"in": 1}}, 'usage has no "in"'),
    ],
)
def test_a_script_with_a_mistake_is_refused_before_it_is_served(step: dict[str, Any], said: str) -> None:
    with pytest.raises(ScriptError, match=said):
        ScriptedModel([step])


def test_a_step_that_needs_a_tool_that_is_not_offered_says_so() -> None:
    with ScriptedModel([{"run": "ls"}]) as model:
        status, _, data = ask(model, "anthropic", tools=[{"name": "Other"}])

    assert status == 400
    assert "offers none for it: Other" in data.decode()


def test_as_a_command_it_prints_its_address_and_serves_a_file(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"say": "from a file"}]))
    process = subprocess.Popen(
        [sys.executable, "-m", "whet.testing.scripted_model.server", str(script)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip().removeprefix("http://")

        connection = http.client.HTTPConnection(address, timeout=300)
        connection.request("POST", PATHS["chat"], json.dumps({"model": "m", "tools": TOOLS["chat"]}))
        data = connection.getresponse().read()
        connection.close()
    finally:
        process.terminate()
        process.communicate()

    assert "from a file" in data.decode()


def test_as_a_command_it_refuses_a_file_that_is_no_script(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('[{"sai": "x"}]')

    ended = subprocess.run(
        [sys.executable, "-m", "whet.testing.scripted_model.server", str(tmp_path / "script.json")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 2
    assert 'did you mean "say"?' in ended.stderr
