"""Agents that need no model: any command, in text or in events, and the scripted one."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import json
import os

import pytest
from project import EVENTS, SHELL, Project


def test_a_text_agent_gets_the_prompt_three_ways_and_its_stdout_is_the_final_output(boxed: Project) -> None:
    boxed.settings("""
        [runners.demo.agent]
        type = "command"
        model = "small"
        command = "sh"
        args = ["-c", 'cat; echo; echo "$WHET_PROMPT"; echo "$0"; echo $WHET_CASE_ID $WHET_RUNNER_ID $WHET_MODEL; pwd; echo noise >&2', "{prompt}"]
    """)
    boxed.suite("""
        def said(report, ctx):
            lines = ctx.final_output().splitlines()
            assert lines[:4] == ["do it", "do it", "do it", "a demo small"], lines
            assert lines[4] == str(ctx.workspace)
            assert report.final_output == ctx.final_output()
            assert report.exit_code == 0 and report.complete and report.model == "small" and report.prompt == "do it"
            assert list(report.events) == [] and report.usage.reported("input_tokens") is None
        suite = [Case(id="a", prompt="do it", check=said)]
    """)

    done = boxed.run()

    assert done.code == 0, done.message("a")
    assert done.artifact("a", "stderr.log").read_text() == "noise\n"
    assert done.trial("a")["cost_usd"] is None


def test_an_events_agent_tells_everything_that_a_check_can_ask_for(boxed: Project) -> None:
    boxed.settings(f'{EVENTS}\nmounts = ["."]\n')
    events = [
        {"type": "message", "role": "user", "text": "hello"},
        {"type": "message", "role": "assistant", "phase": "thinking", "text": "hm"},
        {"type": "message", "role": "assistant", "phase": "commentary", "text": "looking"},
        {"type": "tool_call", "id": "1", "tool": "shell", "args": {"command": "ls"}},
        {"type": "command", "command": "ls", "exit_code": 0},
        {"type": "tool_result", "id": "1", "tool": "shell", "output": "a", "ok": True},
        {"type": "file_read", "path": "/skills/find-skills/SKILL.md"},
        {"type": "file_edit", "path": "a.txt"},
        {"type": "skill_signal", "skill": "other", "signal": "tool:skill"},
        {"type": "tool_call", "id": "2", "tool": "read"},
        {"type": "tool_result", "id": "2", "output": "", "ok": False},
        {"type": "usage", "input_tokens": 10, "output_tokens": 5, "cached_tokens": 4, "cost_usd": 0.25},
        {"type": "usage", "cache_write_tokens": 3, "derived": ["cache_write_tokens"]},
        {"type": "usage", "input_tokens": 1, "output_tokens": 2, "reasoning_tokens": 1, "cost_usd": 0.5},
        {"type": "trouble", "message": "overloaded"},
        {"type": "message", "role": "assistant", "phase": "final", "text": "not the answer"},
        {"type": "final_output", "text": "the answer"},
    ]
    boxed.write("events.jsonl", "\n".join(json.dumps(event) for event in events[:-1]) + "\n\n" + json.dumps(events[-1]))
    boxed.suite(f"""
        def told(report, ctx):
            assert [event.type for event in report.events] == {[event["type"] for event in events]}
            assert ctx.get_commands() == ["ls"]
            assert [call.id for call in ctx.get_tool_calls()] == ["1", "2"]
            assert ctx.get_tool_calls("shell")[0].args == {{"command": "ls"}}
            assert ctx.get_file_reads() == ["/skills/find-skills/SKILL.md"]
            assert report.file_edits() == ("a.txt",)
            skills = {{skill.skill: skill.confidence for skill in ctx.detected_skills()}}
            assert skills == {{"find-skills": "strong", "other": "explicit"}}
            assert ctx.final_output() == "the answer"
            assert report.steps == 3, report.steps
            assert report.usage.total_tokens == 18
        suite = [Case(id="a", prompt="cat {boxed.root}/events.jsonl", check=told)]
    """)

    done = boxed.run()

    assert done.code == 0, done.message("a")
    assert done.trial("a")["usage"] == {
        "total_tokens": 18,
        "input_tokens": 11,
        "output_tokens": 7,
        "cached_tokens": 4,
        "cache_write_tokens": 3,
        "reasoning_tokens": 1,
        "cost_usd": 0.75,
        "cost_source": "agent",
        "sources": {
            "total_tokens": "derived",
            "input_tokens": "provider",
            "output_tokens": "provider",
            "cached_tokens": "provider",
            "cache_write_tokens": "derived",
            "reasoning_tokens": "provider",
        },
    }
    assert done.trial("a")["cost_usd"] == 0.75
    read, loaded = done.trial("a")["detected_skills"]
    assert loaded == {
        "skill": "other",
        "confidence": "explicit",
        "evidence": [{"confidence": "explicit", "why": "loaded by tool:skill", "event": 8}],
    }
    assert (read["skill"], read["confidence"]) == ("find-skills", "strong")


def test_tokens_that_nobody_tells_are_guessed_from_characters_and_cost_nothing(project: Project) -> None:
    project.settings(SHELL.replace("type =", 'model = "gpt-5.5"\ntype ='))
    project.suite("""
        def guessed(report, ctx):
            assert report.usage.sources["output_tokens"] == "chars"
            assert report.usage.reported("output_tokens") is None
        suite = [Case(id="a", prompt="echo 0123456789abcdef", check=guessed), Case(id="silent", prompt=":", check=ok)]
    """)

    done = project.run()

    assert done.code == 0, done.message("a")
    usage = done.trial("a")["usage"]
    assert (usage["output_tokens"], usage["input_tokens"], usage["total_tokens"]) == (4, 6, 10)
    assert set(usage["sources"].values()) == {"chars"}
    assert usage["cost_usd"] is None
    assert "tokens in" not in done.stdout
    # Who says nothing gives nothing to guess from.
    assert done.trial("silent")["usage"]["total_tokens"] is None
    assert done.trial("silent")["usage"]["sources"] == {}


LOGIN = '{"tokens": {"access_token": "eyJ-not-to-be-seen-0001", "refresh": "rt-not-to-be-seen-either-2"}, "type": "x"}'


def test_a_login_can_be_renewed_in_its_copy_and_never_reaches_the_record(boxed: Project) -> None:
    boxed.settings('[runners.x.agent]\ntype = "codex"\n')
    home = boxed.root.parent / "home"
    (home / ".codex").mkdir()
    (home / ".codex/auth.json").write_text(LOGIN)
    boxed.write(
        "bin/codex",
        """#!/bin/sh
        [ "$1" = --version ] && exec echo 1.0
        file=$CODEX_HOME/auth.json
        cat $file >&2
        cat $file > copied.json
        printf '{"type":"item.completed","item":{"type":"agent_message","text":"%s"}}\\n' "$(tr -d '"' < $file)"
        stat -c %a $file > mode.txt
        echo '{}' > $file && echo '{"type":"turn.completed","usage":{}}'
        """,
        mode=0o755,
    )
    boxed.suite('suite = [Case(id="a", prompt="go", check=no)]')

    done = boxed.run(env={"PATH": f"{boxed.root / 'bin'}:{os.environ['PATH']}"})

    assert done.trial("a")["failure"]["code"] == "assertion", done.message("a")
    assert "600" in (done.folder / done.trial("a")["workspace_dir"] / "mode.txt").read_text()
    assert (home / ".codex/auth.json").read_text() == LOGIN
    kept = {path: path.read_bytes() for path in done.folder.rglob("*") if path.is_file()}
    assert [str(path) for path, data in kept.items() if b"not-to-be-seen" in data] == []


def test_without_a_final_output_the_last_message_but_thoughts_is_the_answer(project: Project) -> None:
    project.settings(EVENTS)
    project.suite("""
        AGENT = '''
        echo '{"type":"message","role":"assistant","text":"answer"}'
        echo '{"type":"message","role":"assistant","phase":"thinking","text":"was that right?"}'
        '''
        suite = [Case(id="a", prompt=AGENT, check=lambda report, ctx: expect.ok(ctx.final_output() == "answer")),
                 Case(id="silent", prompt="true", check=lambda report, ctx: expect.ok(ctx.final_output() == ""))]
    """)

    done = project.run()

    assert done.code == 0, done.trials


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("plain text", "print one event per line"),
        ('{"type":"mesage","role":"assistant","text":"x"}', 'did you mean "message"?'),
        ('{"type":"message","role":"nobody","text":"x"}', "role"),
        ('{"type":"message","role":"assistant"}', "text"),
        ('{"text":"no type"}', "type"),
        ("[]", "object"),
    ],
)
def test_a_line_that_is_no_event_fails_the_trial_and_is_named(project: Project, line: str, said: str) -> None:
    project.settings(EVENTS)
    project.write("lines", '{"type":"message","role":"assistant","text":"fine"}\n' + line + "\n")
    project.suite("suite = [Case(id='a', prompt='cat $OLDPWD " + f"{project.root}/lines" + "', check=ok)]")

    done = project.run()

    assert done.code == 1
    assert done.codes == {"a": "normalization"}
    assert "line 2" in done.message("a")
    assert said in done.message("a")
    assert done.artifact("a", "transcript.jsonl").exists()


SCRIPT = """
[[steps]]
think = "let me see"
[[steps]]
say = "I work on {prompt}"
phase = "commentary"
[[steps]]
load_skill = "find-skills"
[[steps]]
read = "given.txt"
[[steps]]
read = "/nowhere/missing.txt"
[[steps]]
write = "deep/new.txt"
text = "made for {prompt}"
[[steps]]
run = "echo out; exit 3"
[[steps]]
delete = "given.txt"
[[steps]]
usage = { input_tokens = 3, cost_usd = 0.5 }
[[steps]]
trouble = "a hiccup"
[[steps]]
wait_s = 0.01
[[steps]]
answer = "done"
"""


def test_a_scripted_agent_really_does_each_step(boxed: Project) -> None:
    boxed.settings('[runners.demo.agent]\ntype = "scripted"\nscript = "steps"\n')
    boxed.write("steps/a.toml", SCRIPT)
    boxed.write("steps/b.json", '[{"say": "hello"}, {"exit": 4}]')
    boxed.write("template/given.txt", "given")
    boxed.suite("""
        workspace = Workspace(mode="isolated", template_dir="template")
        def did(report, ctx):
            kinds = [event.type for event in report.events]
            assert kinds[0] == "message" and kinds[-1] == "final_output"
            assert ctx.final_output() == "done"
            assert ctx.get_commands() == ["echo out; exit 3"]
            assert [call.tool for call in ctx.get_tool_calls()] == ["skill", "read", "read", "write", "shell", "delete"]
            results = [event for event in report.events if event.type == "tool_result"]
            assert [event.ok for event in results] == [True, True, False, True, False, True]
            assert results[1].output == "given" and results[4].output == "out\\n"
            assert [skill.skill for skill in ctx.detected_skills()] == ["find-skills"]
            assert ctx.changes().created == ("deep/new.txt",) and ctx.changes().deleted == ("given.txt",)
            assert (ctx.workspace / "deep/new.txt").read_text() == "made for the task"
            assert report.usage.input_tokens == 3
            assert any(event.type == "trouble" for event in report.events)
            # From the workspace, as the events of every agent; only what is elsewhere has its whole path.
            assert report.file_reads() == ("given.txt", "/nowhere/missing.txt"), report.file_reads()
            assert report.file_edits() == ("deep/new.txt", "given.txt"), report.file_edits()
        suite = [Case(id="a", prompt="the task", check=did), Case(id="b", prompt="x", check=ok)]
    """)

    done = boxed.run()

    assert done.statuses == {"a": "passed", "b": "failed"}, done.message("a")
    assert "exit code 4" in done.message("b")


def test_every_mistake_in_scripts_is_found_before_anything_runs(project: Project) -> None:
    project.settings('[runners.demo.agent]\ntype = "scripted"\nscript = "steps"\n')
    project.write(
        "steps/a.json", '[{"sya": "x"}, {"say": 3}, {"write": "f", "texts": "x"}, "no", {"say": "a", "run": "b"}]'
    )
    project.write("steps/b.toml", "steps = 3")
    project.suite("""
        suite = [Case(id=n, prompt="x", check=ok) for n in ("a", "b", "c")]
    """)

    done = project.run()

    assert done.code == 2
    for said in ("step 1: must have exactly one of", 'did you mean "say"?', "step 2: say", 'step 3: write: has no "texts"',
                 "step 4: is not a table", "step 5", "b.toml: cannot be read", "c.toml: there is no such file"):  # fmt: skip
        assert said in done.stderr
    assert not project.output_dir.exists()


def test_an_agent_gets_little_of_our_environment(project: Project) -> None:
    project.settings(SHELL + 'pass_env = ["ASKED_FOR"]\nenv = { GIVEN = "yes" }\n')
    project.suite("""
        def little(report, ctx):
            names = {line.partition("=")[0] for line in report.final_output.splitlines()}
            assert {"ASKED_FOR", "GIVEN", "HOME", "PATH", "TMPDIR", "WHET_WORKSPACE"} <= names, names
            assert "NOT_ASKED_FOR" not in names and "XDG_RUNTIME_DIR" not in names
            home = next(line for line in report.final_output.splitlines() if line.startswith("HOME="))
            assert home != "HOME=" + os.environ["HOME"]
        suite = [Case(id="a", prompt="env", check=little)]
    """)

    done = project.run(env={"ASKED_FOR": "1", "NOT_ASKED_FOR": "1", "XDG_RUNTIME_DIR": "/run/user/0"})

    assert done.code == 0, done.message("a")


def test_an_agent_that_crashed_is_told_with_the_reason_that_it_gave_in_its_stream(project: Project) -> None:
    program = project.write(
        "bin/codex",
        """#!/bin/sh
        [ "$1" = --version ] && exec echo 1.0
        echo '{"type":"turn.failed","error":{"message":"Missing environment variable: `X`."}}'
        echo 'Reading prompt from stdin...' >&2
        exit 1
        """.replace("        ", ""),
        mode=0o755,
    )
    project.settings(f'[runners.c.agent]\ntype = "codex"\ncommand = "{program}"\n')
    project.suite("suite = [Case(id='a', prompt='Go.', check=ok)]")

    done = project.run(env={"OPENAI_API_KEY": "sk-none-0000000000000000"})

    said = "ended with exit code 1:\nMissing environment variable: `X`.\nReading prompt from stdin..."
    assert done.message("a").startswith(f"no model had answered when it {said}")
