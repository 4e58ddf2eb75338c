"""Runs whose agents go through the gateway: programs of your own, with the variables of a provider."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from project import Outcome, Project

from whet.testing.scripted_model.server import ScriptedModel

KEY = "sk-secret-0123456789abcdef"
# The prompt is Python, with `ask` to ask the model.
AGENT = """
import json, os, socket, sys, urllib.error, urllib.request
def ask(text="hello", **more):
    said = [{"role": "user", "content": text}]
    body = json.dumps({"model": "claude-sonnet-4-5", "tools": [{"name": "Bash"}], "messages": said, **more}).encode()
    url, key = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", os.environ["ANTHROPIC_API_KEY"]
    request = urllib.request.Request(url, body, {"x-api-key": key})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["content"][0]["text"]
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"
def reaches(host, port):
    try:
        socket.create_connection((host, int(port)), 3).close()
        return True
    except OSError:
        return False
exec(sys.stdin.read())
"""
RUNNER = """
[runners.mine.agent]
type = "command"
command = "python3"
args = ["./agent.py"]
mounts = ["."]
provider = "anthropic"
"""
HELLO = {"say": "Hello.", "usage": {"input": 1000, "cached": 200, "output": 20}}


def played(
    project: Project, steps: list[dict[str, Any]], prompt: str, *flags: str, check: str = "pass", more: str = ""
) -> tuple[Outcome, ScriptedModel]:
    """Run one case while the model follows *steps*."""
    project.write("agent.py", AGENT)
    project.suite(f"def seen(report, ctx):\n    {check}\nsuite = [Case(id='a', prompt={prompt!r}, check=seen)]\n")
    project.settings(RUNNER + more)
    with ScriptedModel(steps) as model:
        environ = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": KEY}
        return project.run(*flags, env=environ), model


def noted(outcome: Outcome) -> list[dict[str, Any]]:
    """What the gateway noted."""
    return [json.loads(line) for line in outcome.artifact("a", "requests.jsonl").read_text().splitlines()]


def test_a_program_of_your_own_asks_its_model_without_the_key(boxed: Project) -> None:
    prompt = 'print(ask()); print(os.environ["ANTHROPIC_API_KEY"], file=open("key.txt", "w"))'
    check = f'assert ctx.final_output() == "Hello." and {KEY[3:]!r} not in ctx.read("key.txt")'

    outcome, model = played(boxed, [HELLO], prompt, check=check)

    assert outcome.statuses == {"a": "passed"}, outcome.stdout
    assert model.requests[0].headers["x-api-key"] == KEY
    session = outcome.session("a")
    assert (session["usage"]["input_tokens"], session["usage"]["output_tokens"]) == (1000, 20)
    assert set(session["usage"]["sources"].values()) == {"gateway"}
    assert session["usage"]["cost_source"] == "prices"
    assert (session["route"], session["requests"]) == ("gateway to anthropic", 1)
    assert 0 < session["first_token_s"] <= session["model_s"] <= session["duration_s"]
    assert boxed.whet("verify", "latest").code == 0


@pytest.mark.bubblewrap
def test_with_the_model_alone_nothing_else_answers_but_what_is_allowed(project: Project) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"a page")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    project.sandbox = "bubblewrap"
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Page) for _ in range(2)]
    for each in servers:
        threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    allowed, other = (each.server_address[1] for each in servers)
    prompt = f"""
        def through(target):
            proxy = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
            with socket.create_connection((proxy[0], int(proxy[1])), 5) as tunnel:
                tunnel.sendall(f"CONNECT {{target}} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
                if b" 200 " not in tunnel.recv(4096):
                    return "refused"
                tunnel.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
                return tunnel.makefile("rb").read().decode().split("\\r\\n\\r\\n")[1]
        print(ask(), reaches("127.0.0.1", {allowed}), reaches("127.0.0.1", {other}))
        print(through("127.0.0.1:{allowed}"), through("127.0.0.1:{other}"), through("localhost:{allowed}"))
    """
    prompt = "\n".join(line.removeprefix("        ") for line in prompt.splitlines())
    check = (
        'assert ctx.final_output().split("\\n") == ["Hello. False False", "a page refused refused"], ctx.final_output()'
    )
    try:
        more = f'network = "model"\nallow = ["127.0.0.1:{allowed}"]\n'
        outcome, _ = played(project, [HELLO], prompt, check=check, more=more)
    finally:
        for each in servers:
            each.shutdown()
            each.server_close()

    assert outcome.statuses == {"a": "passed"}, outcome.stdout
    tunnels = [line for line in noted(outcome) if line["method"] == "CONNECT"]
    assert [line["outcome"] for line in tunnels] == ["answered", "refused", "refused"]


def test_without_a_boundary_the_run_says_so_and_goes_on(project: Project) -> None:
    outcome, _ = played(project, [HELLO], "print(ask())", more='network = "model"\n')

    assert outcome.statuses == {"a": "passed"}
    assert 'runner mine: `network = "model"` is no boundary in the local sandbox' in outcome.stdout


def test_a_boundary_that_is_required_ends_the_run_before_it_starts(project: Project) -> None:
    outcome, model = played(project, [HELLO], "print(ask())", more='network = "model"\nnetwork_required = true\n')

    assert (outcome.code, model.requests) == (2, ())
    assert "the local sandbox leaves the network open" in outcome.stderr


def test_the_money_of_a_run_stops_a_trial_under_way_and_a_resumed_run_tries_it_again(project: Project) -> None:
    prompt = "for n in range(5): print(ask(str(n)))"

    outcome, model = played(project, [HELLO] * 5, prompt, "--max-cost", "0.001")

    assert outcome.codes == {"a": "max-cost"}, outcome.stdout
    assert outcome.trial("a")["failure"]["cause"] == "cancelled"
    assert len(model.requests) == 1
    assert noted(outcome)[-1]["outcome"] == "refused"
    with ScriptedModel([HELLO] * 5) as again:
        environ = {"ANTHROPIC_BASE_URL": again.url, "ANTHROPIC_API_KEY": KEY}
        resumed = project.whet("run", "--resume", "latest", "--max-cost", "1", env=environ)
    assert resumed.statuses == {"a": "passed"}, resumed.stdout + resumed.stderr


def test_a_request_that_was_not_recorded_is_errored_with_the_difference(project: Project) -> None:
    recorded, _ = played(project, [HELLO], 'print(ask("Do it well."))', "--record-to", "tapes")
    assert recorded.code == 0

    outcome, model = played(project, [], 'print(ask("Do it fast."))', "--cassette", "tapes")

    assert outcome.codes == {"a": "cassette"}, outcome.stdout
    assert outcome.statuses == {"a": "errored"}
    assert '"Do it fast." instead of "Do it well."' in outcome.message("a")
    assert model.requests == ()


def test_a_second_recording_replaces_the_first(project: Project) -> None:
    prompt = 'print(ask("one")); print(ask("two"))'
    steps = [[{"say": f"{word} {number}"} for number in (1, 2)] for word in ("old", "new")]
    played(project, steps[0], prompt, "--record-to", "tapes")
    (cassette,) = (project.root / "tapes").rglob("*.jsonl")
    later = cassette.with_name("2.jsonl")
    later.write_bytes(cassette.read_bytes())

    recorded, _ = played(project, steps[1], prompt, "--record-to", "tapes")
    again, _ = played(project, [], prompt, "--cassette", "tapes")

    assert recorded.code == 0, recorded.stderr
    assert again.session("a")["final_output"].split("\n") == ["new 1", "new 2"]
    assert len(cassette.read_text().splitlines()) == 3
    assert not later.exists()


def test_a_recording_that_gets_no_answer_leaves_the_earlier_one(project: Project) -> None:
    played(project, [{"say": "old"}], "print(ask())", "--record-to", "tapes")

    played(project, [], "sys.exit(1)", "--record-to", "tapes")
    again, _ = played(project, [], "print(ask())", "--cassette", "tapes")

    assert again.session("a")["final_output"].strip() == "old"


def test_what_was_not_recorded_can_be_added(project: Project) -> None:
    prompt = 'print(ask("one")); print(ask("two"))'
    played(project, [HELLO], 'print(ask("one"))', "--record-to", "tapes")

    added, model = played(project, [HELLO], prompt, "--cassette", "tapes", "--cassette-mode", "new")
    again, none = played(project, [], prompt, "--cassette", "tapes")

    assert (added.code, again.code) == (0, 0), again.stdout
    assert (len(model.requests), none.requests) == (1, ())


def test_a_case_without_a_cassette_is_errored(project: Project) -> None:
    project.write("tapes/other/1.jsonl", "")

    outcome, _ = played(project, [HELLO], "print(ask())", "--cassette", "tapes")

    assert outcome.codes == {"a": "cassette"}
    assert "there is no cassette for" in outcome.message("a")


@pytest.mark.parametrize(
    ("step", "verdict"),
    [
        ({"fail": "overloaded", "status": 529}, ("errored", "provider")),
        ({"fail": "server"}, ("errored", "provider")),
        # These a program can bring about, and so could choose which of its trials count.
        ({"fail": "rate-limit"}, ("failed", "agent-crashed")),
        ({"fail": "bad-request"}, ("failed", "agent-crashed")),
        ({"say": "Hello."}, ("failed", "agent-crashed")),
    ],
    ids=["529", "500", "429", "400", "none"],
)
def test_an_outage_that_no_program_can_bring_about_is_not_its_failure(
    project: Project, step: dict[str, Any], verdict: tuple[str, str]
) -> None:
    outcome, _ = played(project, [{**step, "always": True}], "print(ask()); sys.exit(1)")

    trial = outcome.trial("a")
    assert (trial["status"], trial["failure"]["code"]) == verdict, outcome.stdout


def test_a_model_that_fails_on_purpose_fails_the_same_again(project: Project) -> None:
    prompt = "print([ask(str(n))[:3] for n in range(12)])"
    more = "\n[gateway.faults]\nstatus_500 = 0.3\nstatus_529 = 0.3\nseed = 3\n"

    answers = [played(project, [HELLO] * 12, prompt, more=more)[0].session("a")["final_output"] for _ in range(2)]

    assert answers[0] == answers[1]
    assert "500" in answers[0]
    assert "529" in answers[0]
    assert "Hel" in answers[0]


@pytest.mark.parametrize(("share", "told"), [(1, True), (0, False)])
def test_an_agent_that_got_nothing_but_faults_says_so(project: Project, share: int, told: bool) -> None:
    more = f"\n[gateway.faults]\nstatus_429 = {share}\n"

    outcome, _ = played(project, [HELLO], "ask(); sys.exit(1)", more=more)

    assert outcome.codes == {"a": "agent-crashed"}, outcome.stdout
    assert ("faults on purpose (gateway.faults)" in outcome.message("a")) is told


def test_arms_may_differ_in_the_faults_of_their_models(project: Project) -> None:
    bad = RUNNER.replace("runners.mine", "runners.bad") + "faults = { status_500 = 0.5, seed = 3 }\n"
    prompt = "print([ask(str(n))[:3] for n in range(12)])"

    outcome, model = played(
        project, [HELLO] * 30, prompt, "--arm", "calm=runner:mine", "--arm", "stormy=runner:bad", more=bad
    )

    said = {
        path.parts[-4]: json.loads(path.read_text())["final_output"] for path in outcome.folder.rglob("session.json")
    }
    assert set(said) == {"calm", "stormy"}, outcome.stdout + outcome.stderr
    assert "500" not in said["calm"]
    assert 0 < said["stormy"].count("500") < 12
    assert len(model.requests) == 24 - said["stormy"].count("500")


def test_trials_at_the_same_time_ask_their_provider_one_after_the_other_if_that_is_asked_for(project: Project) -> None:
    under_way, most, lock = 0, 0, threading.Lock()

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            time.sleep(0.05)
            with lock:
                under_way -= 1
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"content": [{"text": "Hello."}]}')

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    project.write("agent.py", AGENT)
    project.suite("suite = [Case(id='a', prompt='for n in range(5): print(ask(str(n)))', check=ok)]\n")
    project.settings(RUNNER + "[gateway]\nmax_requests = 1\n[run]\nmax_parallel = 4\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        environ = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_address[1]}", "ANTHROPIC_API_KEY": KEY}
        outcome = project.run("--trials", "4", env=environ)
        server.shutdown()

    assert [trial["status"] for trial in outcome.trials] == ["passed"] * 4, outcome.stdout
    assert most == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('network = "some"', "must be one of none, model, full"),
        ('allow = ["example.com"]', "must be a host and a port"),
        ('provider = "other"', "must be one of anthropic, openai, gemini"),
    ],
)
def test_a_wrong_setting_is_named(project: Project, line: str, problem: str) -> None:
    outcome, _ = played(project, [], "print(ask())", more=f"{line}\n" if "provider" not in line else "")
    if "provider" in line:
        project.settings(RUNNER.replace('provider = "anthropic"', line))
        outcome = project.run()

    assert outcome.code == 2
    assert problem in outcome.stderr, outcome.stderr


BEGIN = """
import time
url = os.environ["ANTHROPIC_BASE_URL"].removeprefix("http://")
place, _, path = url.partition("/")
host, _, port = place.partition(":")
way = socket.create_connection((host, int(port)))
def head(length):
    return f"POST /{path}/v1/messages HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {length}\\r\\n\\r\\n".encode()
body = json.dumps({"model": "claude-sonnet-4-5", "messages": []}).encode()
stream = json.dumps({"model": "claude-sonnet-4-5", "messages": [], "stream": True}).encode()
"""


class Impatient(BaseHTTPRequestHandler):
    """A provider that lists its models and answers nothing else, and hangs up on a request that does not come."""

    timeout = 1.0
    lists_models = True

    def do_GET(self) -> None:
        """List no models, or say nothing."""
        if not self.lists_models:
            time.sleep(30)
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        """Read, and say nothing."""
        if self.rfile.read(int(self.headers["Content-Length"])):
            time.sleep(30)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


class Dead(Impatient):
    """A provider that takes connections and says nothing."""

    lists_models = False


def judged(project: Project, does: str, provider_class: type[Impatient]) -> tuple[str, str]:
    """The status and the code of a trial whose agent does this with a provider that answers no request for a model."""
    project.write("agent.py", AGENT)
    project.suite(f"suite = [Case(id='a', prompt={BEGIN + does!r}, check=lambda report, ctx: None)]\n")
    project.settings(RUNNER + "[defaults]\nmodel_silence_ms = 500\ntimeout_ms = 6000\n")
    provider = ThreadingHTTPServer(("127.0.0.1", 0), provider_class)
    provider.daemon_threads = True
    threading.Thread(target=provider.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        environ = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{provider.server_port}", "ANTHROPIC_API_KEY": KEY}
        trial = project.run(env=environ).trial("a")
    finally:
        provider.shutdown()
        provider.server_close()
    return trial["status"], trial["failure"]["code"]


STREAM = "way.sendall(head(len(stream)) + stream); "


@pytest.mark.parametrize(
    ("does", "code"),
    [
        ("way.sendall(head(1000) + b'{'); time.sleep(60)", "timeout"),
        ("way.sendall(head(len(body)) + body); time.sleep(2); way.close(); sys.exit(1)", "agent-crashed"),
        ("way.sendall(head(len(body)) + body); time.sleep(60)", "timeout"),
        (
            "way.sendall(head(len(body)) + body[:9]); time.sleep(2); way.sendall(body[9:]); time.sleep(1); sys.exit(1)",
            "agent-crashed",
        ),
        # A model that thinks for long sends nothing for long.
        (STREAM + "time.sleep(2); way.close(); sys.exit(1)", "agent-crashed"),
        (STREAM + "time.sleep(60)", "timeout"),
    ],
    ids=["half a request", "hangs up", "waits", "hung up on", "hangs up on a stream", "waits for a stream"],
)
def test_no_request_that_takes_long_makes_a_failed_trial_errored(project: Project, does: str, code: str) -> None:
    assert judged(project, does, Impatient) == ("failed", code)


@pytest.mark.parametrize("does", ["time.sleep(2); way.close(); sys.exit(1)", "time.sleep(60)"])
def test_a_stream_of_a_provider_that_does_not_answer_whet_either_is_an_outage(project: Project, does: str) -> None:
    assert judged(project, STREAM + does, Dead) == ("errored", "provider")


@pytest.mark.parametrize("lent", [True, False], ids=["named", "not named"])
def test_settings_name_what_else_a_key_may_do_and_a_provider_too(boxed: Project, lent: bool) -> None:
    more = 'network = "model"\n'
    if lent:
        more += 'allow_requests = ["GET /v1/files"]\nallow_hosted_tools = ["web_search"]\n'
    prompt = """
try: files = urllib.request.urlopen(os.environ["ANTHROPIC_BASE_URL"] + "/v1/files").status
except urllib.error.HTTPError as error: files = error.code
print(files, ask(tools=[{"type": "web_search_20250305", "name": "web_search"}])[:3])
"""
    check = f"assert ctx.final_output() == {'404 Hel' if lent else '403 403'!r}, ctx.final_output()"

    outcome, model = played(boxed, [HELLO], prompt, check=check, more=more)

    assert outcome.statuses == {"a": "passed"}, outcome.stdout
    assert len(model.requests) == (2 if lent else 0)
