"""Agents in containers that reach their model and nothing else: the image needs nothing for it, not even Python."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from images import containers_left
from programs import KEY
from project import Outcome, Project
from stage import Stage
from tasks import TESTS, write_task
from test_agents_inside import program, stage
from test_real_gateway import FIRST, LOOK, READY, noted, sent

from whet.errors import SandboxError
from whet.sandbox.contract import Inlet
from whet.sandbox.engine import Engine
from whet.sandbox.gateway_port import opened
from whet.testing.scripted_model.server import ScriptedModel

__all__ = ["program", "stage"]
RUNNER = """
[runners.sh.agent]
type = "command"
command = "sh"
provider = "anthropic"
network = "model"
"""
# Busybox alone: it asks the model, counts its networks, and knocks at the gateway and at another port of the machine.
KNOCK = """
knock() { printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 127.0.0.1 $1 > page; [ -s page ] && echo open || echo closed; }
"""
ASK = f"""
{KNOCK}
ask() {{ wget -q -O - --header "x-api-key: $ANTHROPIC_API_KEY" --post-data "$BODY" $ANTHROPIC_BASE_URL/v1/messages; }}
BODY='{json.dumps({"model": "claude-sonnet-4-5", "tools": [{"name": "Bash"}], "messages": []})}'
ask > answer.txt; env > env.txt; wc -l < /proc/net/dev > networks.txt
{{ knock 47115; knock PORT; }} > reached.txt
"""
ANSWERED = {"say": "Hello.", "usage": {"input": 1000, "cached": 200, "output": 20}}


@contextmanager
def answering() -> Iterator[tuple[str, dict[str, str], ScriptedModel]]:
    """A model; the program that asks it, the variables of whet, and a port of this machine that the program tries."""
    with ScriptedModel([ANSWERED] * 9) as model, ScriptedModel() as other:
        environ = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": KEY}
        yield ASK.replace("PORT", other.url.rpartition(":")[2]), environ, model
        assert other.requests == ()


def holds_no_key(outcome: Outcome) -> bool:
    record = [path for path in outcome.output_dir.rglob("*") if path.is_file()]
    return [path for path in record if KEY.encode() in path.read_bytes()] == []


def test_a_program_of_an_image_without_anything_reaches_its_model_alone(project: Project, small_image: str) -> None:
    project.settings(RUNNER)
    check = """
    assert "Hello." in ctx.read("answer.txt"), ctx.read("answer.txt")
    assert ctx.read("networks.txt").strip() == "3"
    assert ctx.read("reached.txt").split() == ["open", "closed"], ctx.read("reached.txt")
    assert "sk-whet-" in ctx.read("env.txt") and "sk-scripted" not in ctx.read("env.txt")
    """
    with answering() as (prompt, environ, model):
        project.suite(f"def seen(report, ctx):{check}\nsuite = [Case(id='a', prompt={prompt!r}, check=seen)]\n")

        outcome = project.run("--image", small_image, "--trials", "3", env=environ)

    assert [trial["status"] for trial in outcome.trials] == ["passed"] * 3, outcome.stdout + outcome.stderr
    assert "no boundary" not in outcome.stdout
    assert [request.headers["x-api-key"] for request in model.requests] == [KEY] * 3
    assert outcome.session("a")["usage"]["sources"]["input_tokens"] == "gateway"
    assert holds_no_key(outcome)
    assert containers_left(f"whet.run={outcome.folder.name}") == []
    assert project.left_after_a_while() == []


def test_a_host_that_is_allowed_is_reached_through_the_gateway(project: Project, image: str) -> None:
    with ScriptedModel() as one, ScriptedModel() as other:
        allowed, closed = (each.url.removeprefix("http://") for each in (one, other))
        project.settings(RUNNER.replace('command = "sh"', 'command = "python3"\nargs = ["-"]'))
        project.settings((project.root / "whet.toml").read_text() + f'allow = ["{allowed}"]\n')
        prompt = f"""
import os, socket
host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
for target in ({allowed!r}, {closed!r}):
    with socket.create_connection((host, int(port)), 5) as tunnel:
        tunnel.sendall(f"CONNECT {{target}} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
        print(tunnel.recv(4096).split()[1].decode())
"""
        check = "assert ctx.final_output().split() == ['200', '403'], ctx.final_output()"
        project.suite(f"def seen(report, ctx):\n    {check}\nsuite = [Case(id='a', prompt={prompt!r}, check=seen)]\n")
        environ = {"ANTHROPIC_BASE_URL": one.url, "ANTHROPIC_API_KEY": KEY}

        outcome = project.run("--image", image, env=environ)

    assert outcome.statuses == {"a": "passed"}, outcome.stdout + outcome.stderr


def test_an_agent_that_is_not_in_the_image_has_its_model_alone_and_no_key(stage: Stage, image: str) -> None:
    check = """
    assert ctx.final_output() == "All is ready."
    seen = ctx.read("env.txt") + ctx.read("others.txt")
    assert "HOME=" in seen and "scripted-model-000000" not in seen, seen
    assert ctx.read("found.txt") == "", ctx.read("found.txt")
    assert ctx.read("reached.txt") == "", ctx.read("reached.txt") + ctx.read("errors.txt")
    """
    stage.agent = 'network = "model"'
    with ScriptedModel() as other:
        look = LOOK.replace("PORT", other.url.rpartition(":")[2])

        played = stage.play([{"run": look, "usage": FIRST}, READY], "--image", image, check=check)

    assert played.verdict == ("passed", None), played.story
    assert all(any(KEY in value for value in request.headers.values()) for request in played.turns)
    usage = played.outcome.session("a")["usage"]
    assert {name: usage[name] for name in sent(played)} == sent(played, FIRST, READY["usage"])  # type: ignore[arg-type]
    assert {(line["outcome"], line["status"]) for line in noted(played)} == {("answered", 200)}
    assert holds_no_key(played.outcome)
    assert stage.project.left_after_a_while() == []


def test_a_session_in_a_container_is_played_again_with_the_model_gone(stage: Stage, image: str, tmp_path: Any) -> None:
    stage.agent = 'network = "model"'
    steps = [{"run": "echo hi > out.txt && pwd", "usage": FIRST}, READY]
    check = 'assert ctx.final_output() == "All is ready." and ctx.read("out.txt").strip() == "hi"'
    flags = ("--image", image)
    recorded = stage.play(steps, *flags, "--record-to", str(tmp_path / "tapes"), check=check)

    again = stage.play([], *flags, "--cassette", str(tmp_path / "tapes"), check=check, keyless=True)

    assert (recorded.verdict, again.verdict) == (("passed", None), ("passed", None)), again.story
    assert again.requests == ()


NO_NETWORK = 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n'
# It asks what the agent asked, where the agent asked it.
PRYING = f"""\
#!/bin/sh
{KNOCK}
wc -l < /proc/net/dev > own.txt
knock 47115 > again.txt
grep -q Hello. answer.txt && echo 3 3 open closed closed > wanted.txt
cat networks.txt own.txt reached.txt again.txt | tr '\\n' ' ' > seen.txt
[ "$(echo $(cat seen.txt))" = "$(cat wanted.txt)" ] && echo 1 > /logs/verifier/reward.txt
"""


@pytest.mark.parametrize("network", ["model", "full"])
def test_the_agent_of_a_task_without_a_network_reaches_its_model_and_the_verifier_does_not(
    project: Project, image: str, network: str
) -> None:
    project.sandbox = "auto"
    project.settings(RUNNER.replace('"model"', f'"{network}"') + "[run]\nkeep_warm = true\n")
    with answering() as (prompt, environ, model):
        place = project.root / "tasks/shut"
        write_task(place, image, task_DOT_toml=NO_NETWORK, instruction_DOT_md=prompt, tests__test_DOT_sh=PRYING)

        outcome = project.whet("run", "tasks", "--trials", "3", env=environ)

    assert [trial["status"] for trial in outcome.trials] == ["passed"] * 3, outcome.stdout + outcome.stderr
    assert len(model.requests) == 3
    assert holds_no_key(outcome)
    assert containers_left(f"whet.run={outcome.folder.name}") == []


def test_a_task_with_a_network_has_it_for_the_verifier_and_not_for_an_agent_with_its_model_alone(
    project: Project, image: str
) -> None:
    project.sandbox = "auto"
    project.settings(RUNNER)
    tests = TESTS.replace("answer.txt", "networks.txt").replace("= right", "= 3")
    with answering() as (prompt, environ, model), ScriptedModel() as other:
        # It reaches this machine first, and leaves no reward if it cannot.
        knock = f"{KNOCK}\n[ $(knock {other.url.rpartition(':')[2]}) = open ] || exit 1\n"
        tests = tests.replace("#!/bin/sh\n", f"#!/bin/sh\n{knock}")
        write_task(project.root / "tasks/open", image, instruction_DOT_md=prompt, tests__test_DOT_sh=tests)

        outcome = project.whet("run", "tasks", env=environ)

    assert outcome.statuses == {"open": "passed"}, outcome.stdout + outcome.stderr
    (asked,) = [json.loads(line) for line in outcome.artifact("open", "requests.jsonl").read_text().splitlines()]
    assert (asked["outcome"], asked["input_tokens"]) == ("answered", 1000)
    assert len(model.requests) == 1


def test_docker_is_refused_with_what_to_do() -> None:
    async def work() -> None:
        async with opened(Inlet(take=print), Engine("/usr/bin/docker")):
            pass

    with pytest.raises(SandboxError, match="docker cannot give") as raised:
        asyncio.run(work())

    assert "podman" in (raised.value.hint or "")
