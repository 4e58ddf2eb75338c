"""Agents over the Agent Client Protocol: a whole dialogue with a small program, and what broken ones do to a run."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from project import Outcome, Project, wait_for

TALKER = Path(__file__).with_name("acp_talker.py")


def talk(project: Project, prompt: str, *, first: str = "", agent: str = "", check: str = "ok", **case: Any) -> Outcome:
    """Run one case whose prompt is what the agent does; *first* is what it does before it hears anything."""
    project.settings(f"""
        [defaults]
        timeout_ms = {case.pop("timeout_ms", 20_000)}
        model_silence_ms = 300
        max_output_bytes = {case.pop("most", 4_000_000)}
        [runners.r]
        skills = {case.pop("skills", "[]")}
        [runners.r.agent]
        type = "acp"
        command = "python3"
        args = {json.dumps([str(TALKER), first])}
        {agent}
        env = {{ WHET_TEST = "{{token}}" }}
    """)
    fields = "".join(f", {name}={value!r}" for name, value in case.items())
    project.suite(
        f"def seen(report, ctx):\n    {check}\nsuite = [Case(id='a', prompt={prompt!r}, check=seen{fields})]\n"
    )
    return project.run()


def verdict(outcome: Outcome) -> tuple[str, str | None, str]:
    """The status, the code and the reason of the one trial."""
    return outcome.statuses["a"], outcome.codes["a"], outcome.message("a")


def events(outcome: Outcome, kind: str) -> list[dict[str, Any]]:
    lines = outcome.artifact("a", "events.jsonl").read_bytes().splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == kind]


def sent(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.artifact("a", "sent.jsonl").read_bytes().splitlines()]


WORK = """
think('First I look.')
say('Look', 'ing.')
tool('1', 'execute', rawInput={'command': 'ls', 'cwd': os.getcwd()})
done('1', {'output': 'a.txt', 'exit_code': 2})
update('plan', entries=[{'content': 'write it', 'priority': 'high', 'status': 'pending'}])
open('b.txt', 'w').write('b')
tool('2', 'edit', locations=[{'path': os.getcwd() + '/b.txt'}])
done('2')
say('It is ', 'done.')
end(usage={'inputTokens': 90, 'outputTokens': 7, 'cachedReadTokens': 10, 'totalTokens': 107})
"""


def test_a_session_is_seen_as_that_of_any_other_agent(boxed: Project) -> None:
    check = """
    assert ctx.final_output() == "It is done."
    assert ctx.get_commands() == ("ls",) or list(ctx.get_commands()) == ["ls"]
    assert list(report.file_edits()) == ["b.txt"] and ctx.changes().created == ("b.txt",)
    """

    outcome = talk(boxed, WORK, check=check)

    assert outcome.statuses == {"a": "passed"}, outcome.stdout
    session = outcome.session("a")
    assert (session["session_id"], session["version"], session["steps"]) == ("s-1", "7.1", 4)
    assert session["complete"] is True
    figures = {name: session["usage"][name] for name in ("input_tokens", "cached_tokens", "output_tokens")}
    assert figures == {"input_tokens": 100, "cached_tokens": 10, "output_tokens": 7}
    said = [(event.get("phase"), event["text"]) for event in events(outcome, "message")]
    assert said == [("thinking", "First I look."), ("commentary", "Looking."), ("final", "It is done.")]
    assert [event["exit_code"] for event in events(outcome, "command")] == [2]
    plans = [
        event["args"]["entries"][0]["content"] for event in events(outcome, "tool_call") if event["tool"] == "plan"
    ]
    assert plans == ["write it"]
    assert [message.get("method") for message in sent(outcome)] == ["initialize", "session/new", "session/prompt"]
    assert sent(outcome)[0]["params"]["clientCapabilities"]["fs"] == {"readTextFile": False, "writeTextFile": False}
    assert boxed.left_after_a_while() == []


ASKS = """
answers = [may(str(number), kind, kind + '!') for number, kind in enumerate(('execute', 'read', 'edit'))]
for number in range(3):
    done(str(number), status='completed' if answers[number] == 'allow_once' else 'failed')
say(' '.join(str(answer) for answer in answers))
end()
"""


@pytest.mark.parametrize(
    ("policy", "answers"),
    [
        ("", ["allow_once", "allow_once", "allow_once"]),
        ('permissions = "allow"', ["allow_once", "allow_once", "allow_once"]),
        ('permissions = "deny"', ["reject_once", "reject_once", "reject_once"]),
        ('permissions = "reads"', ["reject_once", "allow_once", "reject_once"]),
    ],
)
def test_permissions_are_answered_by_the_policy_and_are_evidence(
    project: Project, policy: str, answers: list[str]
) -> None:
    outcome = talk(project, ASKS, agent=policy)

    assert outcome.statuses == {"a": "passed"}, outcome.stdout
    assert outcome.session("a")["final_output"] == " ".join(answers)
    asked = events(outcome, "permission")
    assert [event["allowed"] for event in asked] == [answer == "allow_once" for answer in answers]
    assert [event["tool"] for event in asked] == ["shell", "read", "edit"]
    # A tool that was refused did nothing.
    assert bool(events(outcome, "command")) == (answers[0] == "allow_once")


def test_model_mode_and_login_are_chosen_before_the_prompt(project: Project) -> None:
    agent = 'model = "large-2"\nmode = "careful"\nlogin = "by-key"'

    outcome = talk(project, "say('Yes.'); end()", agent=agent)

    assert outcome.statuses == {"a": "passed"}, outcome.stdout
    asked = [(message["method"], message["params"]) for message in sent(outcome)]
    assert [method for method, _ in asked] == [
        "initialize", "authenticate", "session/new", "session/set_model", "session/set_mode", "session/prompt",
    ]  # fmt: skip
    assert asked[1][1] == {"methodId": "by-key"}
    assert asked[3][1] == {"sessionId": "s-1", "modelId": "large-2"}
    assert outcome.session("a")["model"] == "large-2"


def test_a_model_is_chosen_by_an_option_or_by_an_argument(project: Project) -> None:
    option = {"id": "the-model", "category": "model", "currentValue": "x", "options": []}
    first = f"ANSWERS['session/new'] = {{'sessionId': 's-1', 'configOptions': [{option!r}]}}; "
    first += "ANSWERS['session/set_config_option'] = {}"

    by_option = sent(talk(project, "say('Yes.'); end()", first=first, agent='model = "large-2"'))
    by_argument = talk(project, "say(sys.argv[1]); end()", first="'{model}'", agent='model = "large-2"')

    params = {"sessionId": "s-1", "configId": "the-model", "value": "large-2"}
    assert [each["params"] for each in by_option if each["method"] == "session/set_config_option"] == [params]
    assert by_argument.session("a")["final_output"] == "'large-2'"
    assert "session/set_model" not in [each["method"] for each in sent(by_argument)]


def test_tokens_of_rounds_are_added_up_if_those_of_the_prompt_are_not_told(project: Project) -> None:
    took = "{'content': {'type': 'text', 'text': ''}, '_meta': {'usage': {'inputTokens': 50, 'outputTokens': 4}}}"
    prompt = f"for _ in range(2): update('agent_message_chunk', **{took})\nsay('Yes.'); end()"

    outcome = talk(project, prompt)

    usage = outcome.session("a")["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (100, 8)


def test_at_the_time_limit_the_agent_is_told_to_stop(project: Project) -> None:
    prompt = (
        "say('I try.'); tool('1', 'execute', rawInput={'command': 'sleep 9'}); hear(); say('Bye.'); end('cancelled')"
    )

    outcome = talk(project, prompt, timeout_ms=1500)

    assert (outcome.statuses, outcome.codes) == ({"a": "failed"}, {"a": "timeout"}), outcome.message("a")
    assert sent(outcome)[-1]["method"] == "session/cancel"
    assert '"cancelled"' in outcome.artifact("a", "transcript.jsonl").read_text()
    assert project.left_after_a_while() == []


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("max_tokens", "its limit of tokens"),
        ("max_turn_requests", "its own limit of requests"),
        ("refusal", "it refused"),
        ("cancelled", "it was cancelled"),
        ("nonsense", "its turn ended with nonsense"),
    ],
)
def test_a_turn_that_does_not_end_by_itself_is_unfinished(project: Project, reason: str, said: str) -> None:
    outcome = talk(project, f"say('So far.'); end({reason!r})")

    assert (outcome.statuses, outcome.codes) == ({"a": "failed"}, {"a": "unfinished"})
    assert said in outcome.message("a")


OUTAGES = {
    "a status as the code": ("fail(503, 'The model is overloaded.')", "provider"),
    "a status in the words": ("fail(-32603, 'Internal error: API Error: 529 Overloaded')", "provider"),
    "a name in the data": ("fail(-32603, 'Internal error', errorKind='rate_limit')", "provider"),
    "no connection": ("fail(-32603, 'Internal error: fetch failed')", "provider"),
    "an unknown model": ("fail(404, 'No such model.')", "model-rejected"),
    "after a tool": ("tool('1', 'read'); done('1'); fail(500, 'Oh.')", "provider"),
    "silence until the time limit": ("say('I'); hear()", "provider"),
}


@pytest.mark.parametrize("outage", OUTAGES)
def test_an_outage_is_errored_if_the_agent_is_trusted_and_failed_if_not(project: Project, outage: str) -> None:
    prompt, code = OUTAGES[outage]

    trusted = verdict(talk(project, prompt, agent="trusted = true", timeout_ms=2500))
    other = verdict(talk(project, prompt, timeout_ms=2500))

    assert trusted[:2] == ("errored", code), trusted
    assert other[0] == "failed", other


def test_an_agent_that_wants_a_login_says_so(project: Project) -> None:
    first = "ERRORS['session/new'] = {'code': -32000, 'message': 'Authentication required'}"

    outcome = talk(project, "end()", first=first, agent="trusted = true")

    assert (outcome.statuses, outcome.codes) == ({"a": "errored"}, {"a": "key-refused"})
    assert "the login of acp was refused: Authentication required" in outcome.message("a")


HANDSHAKES = {
    "another version": ("ANSWERS['initialize'] = {'protocolVersion': 99}", "it speaks version 99"),
    "no version": ("ANSWERS['initialize'] = []", "it speaks version null"),
    "no session": ("ANSWERS['session/new'] = {'sessionId': 7}", "names no session"),
    "an error": ("ERRORS['initialize'] = {'code': 1, 'message': 'No.'}", "initialize failed: No."),
    "an odd error": ("ERRORS['session/new'] = 'no'", "session/new failed"),
    "an exit": ("sys.exit(3)", "exit code 3"),
    "a good exit": ("sys.exit(0)", "did not finish"),
}


@pytest.mark.parametrize("handshake", HANDSHAKES)
def test_an_agent_that_opens_no_session_fails_with_the_reason(project: Project, handshake: str) -> None:
    first, said = HANDSHAKES[handshake]

    outcome = talk(project, "end()", first=first)

    assert outcome.statuses == {"a": "failed"}, outcome.stdout
    assert said in outcome.message("a")
    assert "Traceback" not in outcome.stderr


def test_an_agent_without_a_choice_of_models_is_not_run_with_another_one(project: Project) -> None:
    outcome = talk(project, "end()", first="ANSWERS['session/new'] = {'sessionId': 's-1'}", agent='model = "m"')

    assert outcome.statuses == {"a": "failed"}
    assert "it offers no choice of a model" in outcome.message("a")


ODD = {
    "garbage": "[print(each) for each in ('no json', '[]', '7', '{' * 9000)]; os.write(1, b'\\xff\\x00\\n')",
    "another session": "update('agent_message_chunk', session='s-2', content={'type': 'text', 'text': 'Not me.'})",
    "updates without sense": "[send(method='session/update', params=p) for p in (None, [], {'update': 3}, 'x')]",
    "odd updates": "[update(k, content=c, toolCallId=c, entries=c) for k in ('tool_call', 'plan', 'usage_update',"
    " 'tool_call_update', 'agent_message_chunk', None) for c in (None, 7, [], [3], {}, {'text': 4}, 'x')]",
    "unknown requests": "[(send(id=n, method=m), hear()) for n, m in enumerate(('fs/read_text_file', 'x'))]",
    "requests with odd ids": "[send(id=i, method='x') for i in (None, [], {}, 1.5, True)]",
    "odd permissions": "[(send(id=n, method='session/request_permission', params=p), hear())"
    " for n, p in enumerate((None, [], {'sessionId': 's-1'}, {'sessionId': 's-1', 'options': [7]}, {'options': []}))]",
    "answers to nothing": "[send(id=i, result={'stopReason': 'end_turn'}) for i in (0, 99, 4711, '100', None)]",
    "two ends": "send(id=1, result={}); send(id=3, result={'sessionId': 's-9'})",
}


@pytest.mark.parametrize("odd", ODD)
def test_what_makes_no_sense_is_left_out_and_the_session_goes_on(project: Project, odd: str) -> None:
    outcome = talk(project, f"{ODD[odd]}\nsay('Done.')\nend()")

    assert outcome.statuses == {"a": "passed"}, (outcome.message("a"), outcome.stderr)
    assert outcome.session("a")["final_output"].endswith("Done.")
    assert "Traceback" not in outcome.stderr + outcome.stdout


HOSTILE = {
    "never answers the first request": ("end()", "time.sleep(600)", "timeout"),
    "goes in the middle": ("say('I'); os._exit(0)", "", "unfinished"),
    "crashes in the middle": ("say('I'); os._exit(9)", "", "agent-crashed"),
    "closes its input and stays": ("say('I'); os.close(0); time.sleep(600)", "", "timeout"),
    "asks for ever and reads nothing": (
        "while True: send(id=1, method='session/request_permission', params={'sessionId': 's-1', 'options': [{}]})",
        "",
        "output-limit",
    ),
    "prints one endless line": ("while True: print('x' * 100000, end='')", "", "output-limit"),
    "says that its provider failed": ("fail(529, 'overloaded')", "", "unfinished"),
    "asks after its end": ("end('refusal'); say('more'); may('1', 'execute', 'x')", "", "unfinished"),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_that_an_agent_does_takes_it_out_of_the_rate(project: Project, hostile: str) -> None:
    prompt, first, code = HOSTILE[hostile]

    outcome = talk(project, prompt, first=first, timeout_ms=3000)

    assert (outcome.statuses, outcome.codes) == ({"a": "failed"}, {"a": code}), (outcome.message("a"), outcome.stderr)
    assert "Traceback" not in outcome.stderr.replace('Traceback (most recent call last):\n  File "' + str(TALKER), "")
    assert project.left_after_a_while() == []


def test_steps_and_budget_hold_while_it_speaks(project: Project) -> None:
    rounds = "for n in range(9): tool(str(n), 'read'); done(str(n))\nhear()"
    costs = "update('usage_update', used=1, size=2, cost={'amount': 3.5, 'currency': 'USD'}); hear()"

    stepped = verdict(talk(project, rounds, max_steps=2))
    spent = verdict(talk(project, costs, budget_usd=1.0))

    assert stepped[:2] == ("failed", "max-steps")
    assert spent[:2] == ("failed", "budget")
    assert "$3.5" in spent[2]


def test_what_is_said_in_both_directions_is_kept_without_secrets(project: Project) -> None:
    project.env["MY_SECRET_TOKEN"] = "s3cr3t-value-0123456789"
    agent = 'pass_env = ["MY_SECRET_TOKEN"]'

    outcome = talk(project, "say(os.environ['MY_SECRET_TOKEN']); end() # s3cr3t-value-0123456789", agent=agent)

    assert outcome.statuses == {"a": "passed"}, outcome.stdout
    for name in ("transcript.jsonl", "sent.jsonl", "events.jsonl", "session.json"):
        kept = outcome.artifact("a", name).read_text()
        assert "s3cr3t-value" not in kept, name
    assert "session/prompt" in outcome.artifact("a", "sent.jsonl").read_text()


def test_skills_go_where_the_agent_looks_and_nowhere_if_that_is_unknown(project: Project) -> None:
    project.write("skills/tidy-up/SKILL.md", "---\nname: tidy-up\ndescription: Tidy.\n---\nBody.\n")
    look = "say(open(os.environ['HOME'] + '/.mine/skills/tidy-up/SKILL.md').read()); end()"
    given = {"skills": '["./skills/tidy-up"]'}

    placed = talk(project, look, agent='skills_dir = ".mine/skills"', **given).session("a")["final_output"]
    refused = talk(project, look, **given)

    assert placed.endswith("Body.")
    assert refused.code == 2
    assert "agent.skills_dir: is missing" in refused.stderr


def test_a_model_that_is_to_be_named_must_be_there(project: Project) -> None:
    outcome = talk(project, "end()", first="'{model}'")

    assert outcome.code == 2
    assert "agent.model: is missing" in outcome.stderr


def test_without_the_library_one_line_says_how_to_install_it(project: Project) -> None:
    project.write("no/acp/__init__.py", "raise ImportError('not here')\n")
    project.env["PYTHONPATH"] = str(project.root / "no")

    outcome = talk(project, "end()")

    assert outcome.code == 2
    assert "agents of type acp need the agent-client-protocol library; pip install 'whet-eval[acp]'" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_the_doctor_knows_the_type_and_the_program_behind_it(project: Project) -> None:
    project.write("bin/gemini", "#!/bin/sh\necho 1.0\n", mode=0o755)
    gemini = f'type = "acp"\ncommand = "{project.root}/bin/gemini"\nargs = ["--acp"]'
    project.settings(f'[runners.r.agent]\n{gemini}\n[runners.s.agent]\ntype = "acp"\n')

    outcome = project.whet("doctor")

    assert "agent.command: is missing" in outcome.stdout
    assert "GEMINI_API_KEY" in outcome.stdout
    assert f"acp ({project.root}/bin/gemini)" in outcome.stdout


def test_an_interrupt_ends_the_agent_and_keeps_the_record(project: Project) -> None:
    project.settings(f"""
        [runners.r.agent]
        type = "acp"
        command = "python3"
        args = ["{TALKER}"]
        env = {{ WHET_TEST = "{{token}}" }}
    """)
    project.suite(
        'suite = [Case(id=\'a\', prompt=\'open("{outside}/on", "w").write("1"); time.sleep(600)\', check=ok)]'
    )
    running = project.start("suite.py")
    wait_for(project.outside / "on")

    running.send_signal(signal.SIGINT)
    outcome = project.outcome(running)

    assert outcome.code == 130
    assert "Traceback" not in outcome.stderr
    assert project.left_after_a_while() == []
