"""Conversations over the Agent Client Protocol: one program that waits while checks and users have their say."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from project import Outcome, Project, wait_for
from test_users import KEY, reply

from whet.testing.scripted_model.server import ScriptedModel

TALKER = Path(__file__).with_name("acp_talker.py")
RUNNER = f"""
    [defaults]
    timeout_ms = 20_000
    model_silence_ms = 300
    [runners.r.agent]
    type = "acp"
    command = "python3"
    args = ["{TALKER}"]
    env = {{ WHET_TEST = "{{token}}" }}
"""
TRUSTED = "    trusted = true\n"


def talk(project: Project, *turns: str, first: str = "ok", last: str = "ok", agent: str = "", **case: Any) -> Outcome:
    """Run one conversation whose prompts are what the agent does; *first* is the check of its first turn."""
    project.settings(RUNNER + agent)
    fields = "".join(f", {name}={value!r}" for name, value in case.items())
    listed = ", ".join([f"Turn({turns[0]!r}, check=first)", *map(repr, turns[1:])])
    project.suite(
        f"def first(session, ctx):\n    {first}\ndef last(session, ctx):\n    {last}\n"
        f"suite = [Case(id='a', turns=[{listed}], check=last{fields})]\n"
    )
    return project.run()


def lines(outcome: Outcome, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.artifact("a", name).read_bytes().splitlines()]


def methods(outcome: Outcome, turn: int) -> list[str]:
    return [message.get("method", "") for message in lines(outcome, f"turns/{turn}/sent.jsonl")]


TURNS = (
    """
kept = [os.getpid()]
open('a.txt', 'w').write('one')
tool('1', 'edit', locations=[{'path': os.getcwd() + '/a.txt'}]); done('1')
say('Which city?')
end(usage={'inputTokens': 100, 'outputTokens': 7, 'totalTokens': 107})
""",
    """
assert kept == [os.getpid()]
os.remove('a.txt'); open('b.txt', 'w').write('two')
say('Booked.')
end(usage={'inputTokens': 200, 'outputTokens': 9, 'totalTokens': 209})
""",
    "end()",
)
FIRST = """
    assert (session.final_output, len(session.turns)) == ("Which city?", 1)
    assert ctx.changes().created == ("a.txt",) and ctx.read("a.txt") == "one"
"""
LAST = """
    assert [turn.final_output for turn in session.turns] == ["Which city?", "Booked.", ""]
    assert [turn.usage.input_tokens for turn in session.turns][:2] == [100, 200]
    assert [turn.session_id for turn in session.turns] == ["s-1"] * 3
    assert list(session.turns[0].file_edits()) == ["a.txt"]
    assert ctx.changes().created == ("b.txt",)
"""


def test_one_program_takes_all_turns_in_one_session_and_waits_while_checks_look(boxed: Project) -> None:
    outcome = talk(boxed, *TURNS, first=FIRST, last=LAST)

    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert methods(outcome, 1) == ["initialize", "session/new", "session/prompt"]
    assert methods(outcome, 2) == methods(outcome, 3) == ["session/prompt"]
    assert "Booked." not in outcome.artifact("a", "turns/1/transcript.jsonl").read_text()
    assert "Booked." in outcome.artifact("a", "turns/2/transcript.jsonl").read_text()
    begun = [event["turn"] for event in lines(outcome, "events.jsonl") if event["type"] == "turn_started"]
    assert begun == [1, 2, 3]
    assert (outcome.trial("a")["turns"], outcome.trial("a")["steps"]) == (3, 3)
    assert boxed.left_after_a_while() == []


def test_its_record_is_verified_regraded_and_replayed(project: Project) -> None:
    recorded = talk(project, *TURNS, first=FIRST, last=LAST)
    assert recorded.code == 0, recorded.stdout
    assert project.whet("verify", "latest").code == 0

    regraded = project.whet("regrade", "latest")
    shutil.copytree(recorded.folder, project.root / "recording", symlinks=True)
    project.settings('[runners.r.agent]\ntype = "replay"\nscript = "recording"\n')
    replayed = project.run()

    assert regraded.statuses == {"a": "passed"}, regraded.stdout + regraded.stderr
    assert replayed.statuses == {"a": "passed"}, replayed.stdout + replayed.stderr


def test_a_check_that_fails_ends_the_conversation_and_the_program(project: Project) -> None:
    outcome = talk(project, "end()", "open('{outside}/second', 'w')", first="assert False, 'no'")

    assert outcome.codes == {"a": "assertion"}, outcome.message("a")
    assert outcome.trial("a")["turns"] == 1
    assert not (project.outside / "second").exists()
    assert project.left_after_a_while() == []


SAY = "say('Hm.'); "
LIMITS = {
    "time": ({"timeout_ms": 2500}, "tool('1', 'execute'); hear(); end('cancelled')", "timeout", "still running"),
    "steps before": ({"max_steps": 1}, "end()", "max-steps", "had taken 1 steps before turn 2"),
    "steps": ({"max_steps": 2}, "say('1'); tool('1', 'read'); done('1'); say('2'); end()", "max-steps", "step 3"),
    "budget": ({"budget_usd": 0.3}, "paid(0.5); hear()", "budget", "has spent $0.5 of a budget of $0.3, in turn 2"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_are_those_of_the_whole_conversation(project: Project, limit: str) -> None:
    most, second, code, said = LIMITS[limit]
    # It reports what the session has cost so far.
    paid = "paid = lambda usd: update('usage_update', cost={'currency': 'USD', 'amount': usd})\n"

    outcome = talk(project, paid + "paid(0.25); say('Hm.'); end()", second, "open('{outside}/third', 'w')", **most)

    assert outcome.codes == {"a": code}, outcome.message("a")
    assert outcome.statuses == {"a": "failed"}
    assert said in outcome.message("a")
    if limit == "time":
        assert methods(outcome, 2) == ["session/prompt", "session/cancel"]
    assert not (project.outside / "third").exists()
    assert project.left_after_a_while() == []


def test_the_time_counts_only_while_the_agent_works(project: Project) -> None:
    outcome = talk(project, "end()", "say('Yes.'); end()", first="import time; time.sleep(3)", timeout_ms=2500)

    assert outcome.statuses == {"a": "passed"}, outcome.message("a")
    assert outcome.session("a")["duration_s"] < 3


ENDINGS = {
    "an outage": ("end()", "fail(503, 'The model is overloaded.')", "provider", "overloaded (status 503)"),
    "silence": (SAY + "end()", "hear()", "provider", "the model had said nothing"),
    "a refusal": (SAY + "end()", "end('refusal')", "unfinished", "turn 2: did not finish: it refused"),
    "a crash": (SAY + "end()", "sys.exit(7)", "agent-crashed", "turn 2: ended with exit code 7"),
    "an exit between": (SAY + "end(); os._exit(7)", "end()", "agent-crashed", "turn 2: ended with exit code 7"),
    "a good exit between": (SAY + "end(); os._exit(0)", "end()", "unfinished", "turn 2: ended with exit code 0"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_ends_a_turn_badly_ends_the_conversation(project: Project, ending: str) -> None:
    first, second, code, said = ENDINGS[ending]

    outcome = talk(project, first, second, "open('{outside}/third', 'w')", agent=TRUSTED, timeout_ms=4000)

    assert outcome.codes == {"a": code}, outcome.message("a")
    # Not even a program that is trusted can leave the rate by leaving the conversation.
    assert outcome.statuses == {"a": "errored" if code == "provider" else "failed"}
    assert said in outcome.message("a")
    assert not (project.outside / "third").exists()
    assert outcome.artifact("a", "turns/2").is_dir()
    assert project.whet("verify", "latest").code == 0


def test_what_it_prints_between_two_turns_belongs_to_the_second_one(project: Project) -> None:
    late = "{'jsonrpc': '2.0', 'method': 'session/update', 'params': {'sessionId': 's-1', 'update': {'sessionUpdate': "
    late += "'agent_message_chunk', 'content': {'type': 'text', 'text': 'Late.'}}}}"
    first = f"whole = json.dumps({late}); end(); sys.stdout.write(whole[:60]); sys.stdout.flush()"
    second = "sys.stdout.write(whole[60:] + '\\n'); think('Hm.'); say('Done.'); end()"
    last = 'assert [turn.final_output for turn in session.turns] == ["", "Done."], session.turns'

    outcome = talk(project, first, second, last=last)

    assert outcome.code == 0, outcome.stdout
    said = [event["text"] for event in lines(outcome, "turns/2/events.jsonl") if event["type"] == "message"]
    assert said == ["Late.", "Hm.", "Done."]


def test_what_it_asks_for_after_its_answer_is_answered_with_the_next_prompt_or_before(project: Project) -> None:
    asked = {"toolCall": {"toolCallId": "1"}, "options": [{"optionId": "yes", "kind": "allow_once", "name": "Yes"}]}
    params = {"sessionId": "s-1", **asked}
    first = f"end(); send(id='early', method='session/request_permission', params={params!r})"
    second = "while all(heard.get('id') != 'early' for heard in HEARD): hear()\nsay('Thanks.'); end()"

    outcome = talk(project, first, second)

    assert outcome.statuses == {"a": "passed"}, outcome.message("a")
    sent = [*lines(outcome, "turns/1/sent.jsonl"), *lines(outcome, "turns/2/sent.jsonl")]
    answers = [each["result"]["outcome"] for each in sent if each["id"] == "early"]
    assert answers == [{"outcome": "selected", "optionId": "yes"}]


def test_a_change_while_the_checks_of_a_turn_run_is_noted(project: Project) -> None:
    outcome = talk(project, "end()", "end()", first="(ctx.workspace / 'late').touch()")

    assert outcome.statuses == {"a": "passed"}, outcome.message("a")
    noted = "the workspace changed during the checks of turn 1, and the agent went on in it"
    assert noted in outcome.trial("a")["notes"]


def test_an_agent_whose_program_spoils_the_workspace_while_a_check_runs_it_has_failed(project: Project) -> None:
    spoils = "open('planted.py', 'w').write('import os; os.rename(os.getcwd(), \"{outside}/ws\")'); end()"

    outcome = talk(project, spoils, "end()", first="ctx.run('python3 planted.py')")

    assert (outcome.statuses, outcome.codes) == ({"a": "failed"}, {"a": "workspace-spoiled"}), outcome.stdout


def test_a_user_speaks_with_one_program_until_it_is_satisfied(project: Project) -> None:
    project.suite("""
        def whole(session, ctx): assert (session.user.outcome, session.final_output) == ("satisfied", "Oslo")
        suite = [Case(id="a", prompt="city = 'Oslo'; say('Which?'); end()", check=whole, user=User(goal="A flight."))]
    """)
    with ScriptedModel([reply("say", "say(city); end()"), reply("satisfied")]) as model:
        project.settings(f'{RUNNER}[user]\nurl = "{model.url}/v1"\nmodel = "gpt-4o"\nretries = 0\n')
        outcome = project.whet("run", "suite.py", env={"EVAL_SKILLS_LLM_KEY": KEY})

    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert (outcome.trial("a")["turns"], methods(outcome, 2)) == (2, ["session/prompt"])
    assert project.left_after_a_while() == []


def test_an_interrupt_while_a_check_runs_ends_the_waiting_program(project: Project) -> None:
    project.settings(RUNNER)
    project.suite("""
        import time
        def hangs(session, ctx):
            Path("{outside}/on").touch()
            time.sleep(600)
        suite = [Case(id="a", check=ok, turns=[Turn("end()", check=hangs), "end()"])]
    """)
    running = project.start("suite.py")
    wait_for(project.outside / "on")

    running.send_signal(signal.SIGINT)
    outcome = project.outcome(running)

    assert outcome.code == 130
    assert "Traceback" not in outcome.stderr
    assert project.left_after_a_while() == []


WATCHES = """
import subprocess, threading
open('answer.txt', 'w').write('unknown')
def watch():
    while not os.path.exists('expected.txt'): time.sleep(0.005)
    open('answer.txt', 'w').write(open('expected.txt').read())
threading.Thread(target=watch, daemon=True).start()
away = "while ! [ -e expected.txt ]; do sleep 0.005; done; cp expected.txt stolen.txt"
subprocess.Popen(["setsid", "sh", "-c", away])
time.sleep(0.1)
say('done'); end()
"""
# As checks do that compare with what they know.
COMPARES = """
    (ctx.workspace / "expected.txt").write_text("the answer")
    time.sleep(1)
    same, stolen = ctx.read("answer.txt") == "the answer", (ctx.workspace / "stolen.txt").exists()
    (ctx.workspace / "expected.txt").unlink()
    assert not same and not stolen
"""


def test_nothing_of_an_agent_goes_on_while_its_turn_is_graded(boxed: Project) -> None:
    done = talk(boxed, WATCHES, "say('on'); end()", first=COMPARES.strip(), last="assert session.final_output == 'on'")

    assert done.statuses == {"a": "passed"}, done.message("a")
    assert boxed.left_after_a_while() == []
