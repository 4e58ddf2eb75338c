"""A provider that lets nobody in ends the trials of a runner; a program that provokes a refusal ends nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from project import SHELL, Outcome, Project

from whet.testing.scripted_model.server import ScriptedModel

KEY, ANOTHER = "sk-secret-0123456789abcdef", "sk-another-0123456789abcd"
# The prompt is Python, with `ask` to ask the model; the program ends badly if the model does not answer.
AGENT = """
import json, os, sys, urllib.request
def ask(path="/v1/messages", key=os.environ["ANTHROPIC_API_KEY"], method="POST", **headers):
    said = [{"role": "user", "content": "hello"}]
    body = json.dumps({"model": "claude-sonnet-4-5", "tools": [{"name": "Bash"}], "messages": said}).encode()
    named = {"x-api-key": key, **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + path, body, named, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
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
ONE_BY_ONE = ("--trials", "3", "--max-parallel", "1")
HELLO = {"say": "Hello.", "always": True}


@contextmanager
def strict_provider(*, lists_for_all: bool = False) -> Iterator[str]:
    """A provider that refuses more than keys: requests of another organisation, and one path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200 if lists_for_all or self.headers.get("x-api-key") == KEY else 401)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("x-api-key") != KEY or self.headers.get("organization"):
                self._answer(401)
            else:
                self._answer(403 if self.path.startswith("/beta") else 200)

        def _answer(self, status: int) -> None:
            content = [{"type": "text", "text": "Hello."}]
            data = json.dumps({"type": "message", "content": content, "error": {"message": "no"}}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ran(project: Project, url: str, prompt: str, *flags: str, more: str = "", key: str = KEY) -> Outcome:
    project.write("agent.py", AGENT)
    project.suite(f"suite = [Case(id='a', prompt={prompt!r}, check=ok)]\n")
    project.settings(RUNNER + more)
    return project.run(*flags, env={"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key})


def verdicts(outcome: Outcome, runner: str = "mine") -> list[tuple[str, str | None]]:
    trials = [trial for trial in outcome.trials if trial["runner"] == runner]
    return [(trial["status"], (trial["failure"] or {}).get("code")) for trial in trials]


def started(outcome: Outcome) -> list[Path]:
    """The folders of attempts that began."""
    return [path for trial in outcome.trials if (path := outcome.folder / trial["artifact_dir"]).is_dir()]


def test_a_refused_key_of_a_program_of_your_own_ends_its_runner_and_no_other(project: Project) -> None:
    other = '[runners.other.agent]\ntype = "command"\ncommand = "true"\n'
    with ScriptedModel([HELLO], keys=(KEY,)) as model:
        outcome = ran(project, model.url, "ask()", *ONE_BY_ONE, "--retries", "2", more=other, key=ANOTHER)
        asked = [request.path for request in model.requests]

    assert outcome.code == 3, outcome.stdout
    assert verdicts(outcome) == [("errored", "key-refused")] * 3
    assert verdicts(outcome, "other") == [("passed", None)] * 3
    assert asked == ["/v1/messages", "/v1/models"]
    assert len(started(outcome)) == 1 + 3
    assert "the key in ANTHROPIC_API_KEY was refused (401) by http://127.0.0.1" in outcome.message("a")
    assert "its other trials do not start" in outcome.stdout + outcome.stderr
    assert "--last-failed" not in outcome.stdout
    assert project.whet("verify", "latest").code == 0


def test_a_resumed_run_tries_again_what_a_refused_key_kept_off(project: Project) -> None:
    with ScriptedModel([HELLO], keys=(KEY,)) as model:
        refused = ran(project, model.url, "ask()", *ONE_BY_ONE, key=ANOTHER)
        environ = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": KEY}
        again = project.whet("run", "--resume", "latest", env=environ)

    assert refused.code == 3
    assert again.code == 0, again.stdout
    assert verdicts(again) == [("passed", None)] * 3
    assert project.whet("verify", "latest").code == 0


PROVOKED = {
    "without its key": "ask(key='')",
    "with a key of its own": "ask(key='sk-of-my-own-00000000')",
    "in the name of others": "ask(organization='others')",
    "at a path that the key may not use": "ask('/beta/v1/messages')",
    "after it was answered": "ask(); ask(organization='others')",
}


@pytest.mark.parametrize("lists_for_all", [False, True], ids=["list by key", "open list"])
@pytest.mark.parametrize("how", PROVOKED)
def test_a_program_that_provokes_a_refusal_has_failed_and_its_other_trials_start(
    project: Project, how: str, lists_for_all: bool
) -> None:
    with strict_provider(lists_for_all=lists_for_all) as url:
        outcome = ran(project, url, PROVOKED[how], *ONE_BY_ONE)

    assert outcome.code == 1, outcome.stdout
    assert {status for status, _ in verdicts(outcome)} == {"failed"}
    assert len(started(outcome)) == 3


def test_a_provider_that_nobody_can_reach_ends_its_runner(project: Project) -> None:
    outcome = ran(project, "http://127.0.0.1:9", "ask()", *ONE_BY_ONE, "--retries", "2")

    assert outcome.code == 3, outcome.stdout
    assert verdicts(outcome) == [("errored", "provider-unreachable")] * 3
    assert len(started(outcome)) == 1
    assert "http://127.0.0.1:9 does not answer" in outcome.message("a")


def test_a_provider_that_has_answered_and_is_gone_ends_no_runner(project: Project) -> None:
    with ScriptedModel([HELLO]) as model:
        # The program ends the provider itself, after its first answer.
        prompt = (
            "import pathlib; gone = pathlib.Path('{outside}/gone')\n"
            "if not gone.exists(): ask(); gone.touch()\n"
            "else:\n"
            "    import time\n"
            "    while not pathlib.Path('{outside}/ended').exists(): time.sleep(0.01)\n"
            "    ask()\n"
        ).replace("{outside}", str(project.outside))

        def end() -> None:
            while not (project.outside / "gone").exists():
                threading.Event().wait(0.01)
            model.__exit__()
            (project.outside / "ended").touch()

        ending = threading.Thread(target=end)
        ending.start()
        more = f'[run]\nmounts = ["{project.outside}"]\n'
        outcome = ran(project, model.url, prompt, *ONE_BY_ONE, more="" if project.sandbox == "local" else more)
        ending.join()

    assert verdicts(outcome) == [("passed", None), ("errored", "provider"), ("errored", "provider")], outcome.stdout
    assert len(started(outcome)) == 3


def test_a_refused_key_of_a_judge_ends_what_it_has_to_decide(project: Project) -> None:
    suite = {
        "name": "s",
        "source_kind": "manual",
        "verifier_kind": "llm_judge",
        "cases_json": [
            {"id": name, "case_kind": "llm_rubric", "instruction": "echo Hello.", "rubric": "polite"}
            for name in ("a", "b", "c")
        ],
    }
    project.write("suite.json", json.dumps(suite))
    with ScriptedModel([], keys=(KEY,)) as model:
        project.settings(f'{SHELL}\n[judge]\nurl = "{model.url}/v1"\nmodel = "m"\n')
        environ = {"EVAL_SKILLS_LLM_KEY": ANOTHER}
        outcome = project.whet("run", "suite.json", "--max-parallel", "1", "--retries", "2", env=environ)
        asked = len(model.requests)

    assert outcome.code == 3, outcome.stdout + outcome.stderr
    assert set(outcome.codes.values()) == {"judge-refused"}
    assert "the key of the judge in EVAL_SKILLS_LLM_KEY was refused (401)" in outcome.message("a")
    assert asked == 1
    assert len(started(outcome)) == 1
    assert "--last-failed" not in outcome.stdout


def test_a_refused_key_of_the_user_model_ends_the_other_conversations(project: Project) -> None:
    project.suite("""
        met = User(goal="Be greeted.", max_turns=3)
        suite = [
            Case(id="a", prompt="echo Hello.", check=ok, user=met),
            Case(id="b", prompt="echo Hello.", check=ok, user=met),
            Case(id="c", prompt="echo Hello.", check=ok),
        ]
    """)
    with ScriptedModel([], keys=(KEY,)) as model:
        project.settings(f'{SHELL}resume = []\n[user]\nurl = "{model.url}/v1"\nmodel = "m"\n')
        environ = {"EVAL_SKILLS_LLM_KEY": ANOTHER}
        outcome = project.run("--max-parallel", "1", "--retries", "2", env=environ)
        asked = len(model.requests)

    assert outcome.codes == {"a": "user-refused", "b": "user-refused", "c": None}, outcome.stdout
    assert "in EVAL_SKILLS_LLM_KEY was refused (401)" in outcome.message("a")
    assert asked == 1
    assert len(started(outcome)) == 2


def test_a_refused_key_is_told_once_for_all_arms_and_names_no_folder_that_is_not_there(project: Project) -> None:
    for name in ("old", "new"):
        project.write(f"{name}/SKILL.md", f"---\nname: tidy\ndescription: How to tidy up.\n---\nTidy up the {name}.\n")
    arms = ("--skill", "old", "--arm", "old=skill:old,env:A=1", "--arm", "new=skill:new,env:A=2")
    with ScriptedModel([HELLO], keys=(KEY,)) as model:
        outcome = ran(project, model.url, "ask()", *ONE_BY_ONE, *arms, key=ANOTHER)

    assert outcome.code == 3, outcome.stdout + outcome.stderr
    assert (outcome.stdout + outcome.stderr).count("its other trials do not start") == 1, outcome.stdout
    named = [line.split()[-1] for line in outcome.stdout.splitlines() if " artifacts " in line]
    assert named
    assert [path for path in named if not (project.root / path).is_dir()] == []
    assert "no session tells what it reads" not in outcome.stdout
