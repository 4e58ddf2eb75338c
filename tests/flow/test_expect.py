"""Expectations in the real command: collected, classified, explained, and with a context that can be trusted."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import json

import pytest
from project import EVENTS, SHELL, Project

RAN_PNPM = """echo '{"type": "command", "command": "pnpm test", "exit_code": 1}'; echo '{"type": "final_output", "text": "done"}'"""


@pytest.fixture
def expecting(project: Project) -> Project:
    project.settings(EVENTS)
    return project


def test_a_trial_fails_once_with_all_that_does_not_hold(expecting: Project) -> None:
    expecting.suite(f"""
        RAN_PNPM = {RAN_PNPM!r}
        def many(report, ctx):
            expect.soft.commands.includes(report, "cargo build")
            expect.soft.commands.includes(ctx, "pnpm")
            with expect.soft():
                assert report.final_output == "finished"
                assert len(report.commands()) == 1
            expect.soft.commands.succeeded(ctx, command("pnpm").arg("test"))
        def hard(report, ctx):
            expect.soft.skills.has(report, "style")
            expect.output.includes(report, "finished")
        def crash(report, ctx):
            expect.soft.skills.has(report, "style")
            {{}}["missing"]
        suite = [Case(id=check.__name__, prompt=RAN_PNPM, check=check) for check in (many, hard, crash)]
    """)

    done = expecting.run()

    assert done.code == 1, done.stderr
    assert done.codes == {"many": "assertion", "hard": "assertion", "crash": "check-crash"}
    many = done.message("many").splitlines()
    assert many[0] == "3 expectations do not hold"
    assert [line.split(": ", 1)[1] for line in many if line[0].isdigit() and ". suite.py:" in line] == [
        'expected a command matching "cargo build"',
        'assert report.final_output == "finished"',
        'expected a command matching command("pnpm").arg("test") to succeed',
    ]
    assert "left:  report.final_output = 'done'" in done.message("many")
    assert done.message("hard").startswith("2 expectations do not hold\n1. suite.py:")
    assert 'expected skill "style"' in done.message("crash")
    assert "KeyError: 'missing'" in done.message("crash")
    assert done.trial("hard")["failure"]["location"]["file"].endswith("suite.py")
    assert 'expected a command matching "cargo build"' in done.stdout


def test_failures_with_one_class_are_put_together(expecting: Project) -> None:
    expecting.suite(f"""
        RAN_PNPM = {RAN_PNPM!r}
        def block(report):
            with expect.classify("wrong-cli-alias", label="Wrong CLI alias"):
                expect.commands.includes(report, "npm run")
        def call(report):
            expect.classify("wrong-cli-alias", lambda: expect.commands.includes(report, "yarn"), label="Wrong CLI alias")
        async def later(report):
            async def look():
                await asyncio.sleep(0)
                assert report.final_output == "finished"
            await expect.classify("wrong-cli-alias", look, label="Wrong CLI alias")
        def soft(report):
            with expect.classify("wrong-cli-alias", label="Wrong CLI alias"):
                expect.soft.ok(False)
            expect.ok(False)
        def overridden(report):
            with expect.classify("wrong-cli-alias"):
                expect.ok(False)
        def unclassified(report):
            expect.ok(False)
        suite = [Case(id=check.__name__, prompt=RAN_PNPM, check=check) for check in (block, call, later, soft, unclassified)]
        suite.append(Case(id="overridden", prompt=RAN_PNPM, check=overridden, classify_failure=lambda result: "later"))
    """)

    done = expecting.run()

    alias = {"id": "wrong-cli-alias", "label": "Wrong CLI alias"}
    classes = {trial["case"]: trial["failure_class"] for trial in done.trials}
    assert classes == {
        "block": alias,
        "call": alias,
        "later": alias,
        "soft": alias,
        "unclassified": {"id": "assertion", "label": "Assertion failure"},
        "overridden": {"id": "later", "label": None},
    }
    assert done.trial("block")["grades"][0]["failure_class"] == alias
    assert "Wrong CLI alias · 4 trials" in done.stdout


def test_questions_are_kept_with_the_failure_and_only_then(expecting: Project) -> None:
    expecting.suite(f"""
        RAN_PNPM = {RAN_PNPM!r}
        def asks(report):
            expect.soft.commands.includes(report, "cargo", explain="Why did you not use cargo?")
            expect.commands.includes(report, "make", explain="And make?")
        def holds(report):
            expect.commands.includes(report, "pnpm", explain="Why not?")
        def fails_without(report):
            expect.commands.includes(report, "make")
        suite = [Case(id=check.__name__, prompt=RAN_PNPM, check=check) for check in (asks, holds, fails_without)]
    """)

    done = expecting.run()

    kept = json.loads(done.artifact("asks", "explain.json").read_text())["questions"]
    assert [asked["question"] for asked in kept] == ["Why did you not use cargo?", "And make?"]
    assert kept[0]["location"]["file"] == str(expecting.root / "suite.py")
    assert kept[1]["location"]["line"] == kept[0]["location"]["line"] + 1
    assert not done.artifact("holds", "explain.json").exists()
    assert not done.artifact("fails_without", "explain.json").exists()


def test_a_secret_in_a_question_or_a_message_is_masked(expecting: Project) -> None:
    expecting.suite(f"""
        RAN_PNPM = {RAN_PNPM!r}
        def asks(report):
            expect.ok(os.environ["THE_TOKEN"] == "x", "the token is " + os.environ["THE_TOKEN"])
            expect.commands.includes(report, "cargo", explain="Why " + os.environ["THE_TOKEN"] + "?")
        def asks_only(report):
            expect.commands.includes(report, "cargo", explain="Why " + os.environ["THE_TOKEN"] + "?")
        suite = [Case(id=check.__name__, prompt=RAN_PNPM, check=check) for check in (asks, asks_only)]
    """)

    done = expecting.run(env={"THE_TOKEN": "hunter2-and-more"})

    assert "hunter2" not in done.artifact("asks_only", "explain.json").read_text()
    assert "hunter2" not in (done.folder / "results.json").read_text()
    assert "hunter2" not in done.stdout


def test_a_plain_assert_explains_itself_in_a_suite_and_in_modules_beside_it(project: Project) -> None:
    project.settings(SHELL)
    project.write(
        "helpers/counting.py",
        """
        def few(words):
            assert len(words) < 2, "too many words"
        """,
    )
    project.write(
        "late.py",
        """
        def short(text):
            assert text.strip() == "a"
        """,
    )
    project.suite("""
        from helpers.counting import few
        def here(report):
            expected = ["a", "c"]
            assert report.final_output.split() == expected
        def beside(report):
            few(report.final_output.split())
        def imported_later(report):
            from late import short
            short(report.final_output)
        suite = [Case(id=check.__name__, prompt="echo a b", check=check) for check in (here, beside, imported_later)]
    """)

    done = project.run()

    assert done.code == 1, done.stderr
    assert done.message("here").startswith(
        "assert report.final_output.split() == expected\n"
        "  left:  report.final_output.split() = ['a', 'b']\n"
        "  right: expected = ['a', 'c']\n"
    )
    assert done.message("beside").splitlines()[:3] == [
        "too many words",
        "assert len(words) < 2",
        "  left:  len(words) = 2",
    ]
    assert done.trial("beside")["failure"]["location"] == {"file": str(project.root / "helpers/counting.py"), "line": 3}
    assert "left:  text.strip() = 'a b'" in done.message("imported_later")
    assert not list(project.root.rglob("__pycache__"))


def test_a_failure_in_a_helper_of_expect_names_the_helper_s_line(expecting: Project) -> None:
    expecting.write(
        "helper.py", "from whet import expect\n\ndef ran(report):\n    expect.commands.includes(report, 'make')\n"
    )
    expecting.suite(f"""
        from helper import ran
        suite = [Case(id="a", prompt={RAN_PNPM!r}, check=lambda report: ran(report))]
    """)

    done = expecting.run()

    assert done.trial("a")["failure"]["location"] == {"file": str(expecting.root / "helper.py"), "line": 4}


def test_every_group_works_on_a_real_trial(boxed: Project) -> None:
    boxed.settings(EVENTS)
    boxed.write("template/README.md", "old\n")
    boxed.write("template/gone.txt", "x\n")
    boxed.write(
        "template/agent.sh",
        r"""
        echo new > README.md; rm gone.txt; mkdir src; echo 'print(1)' > src/main.py
        echo '{"type": "skill_signal", "skill": "style"}'
        echo '{"type": "file_read", "path": "/skills/notes/SKILL.md"}'
        echo '{"type": "tool_call", "tool": "edit", "args": {"path": "README.md"}}'
        echo '{"type": "command", "command": "cd src && FOO=1 python3 main.py --fast", "exit_code": 0}'
        echo '{"type": "usage", "input_tokens": 100, "output_tokens": 20, "cost_usd": 0.01}'
        echo '{"type": "final_output", "text": "```json\\n{\\"ok\\": true}\\n```"}'
        """,
    )
    boxed.suite("""
        workspace = Workspace(mode="isolated", template_dir="template")
        def all_of_it(report, ctx):
            expect.skills.includes(ctx, ["style", "notes"], min_confidence="strong")
            expect.skills.has(report, "style", min_confidence="explicit")
            expect.file_reads.exactly_one(ctx, "SKILL.md")
            expect.tool_calls.sequence(ctx, [Tool(tool="edit", where=lambda args: args["path"] == "README.md")])
            expect.commands.succeeded(ctx, command("python3").arg("main.py").flag("--fast"))
            expect.files.created(ctx, "src/main.py")
            expect.files.modified(ctx, "README.md")
            expect.files.deleted(ctx, "gone.txt")
            expect.files.unchanged(ctx, "agent.sh")
            expect.files.only_changed(ctx, ["README.md", "gone.txt", "src/*"])
            expect.files.contains(ctx, "src/main.py", "print")
            expect.files.matches(ctx, "README.md", "new")
            expect.usage.tokens(ctx, at_most=120)
            expect.usage.cost(ctx, at_most=0.01)
            expect.usage.duration(ctx, at_most_s=60)
            expect.equal(expect.output.json(ctx, lambda value: value["ok"]), {"ok": True})
            expect.output.matches_schema(ctx, {"type": "object", "required": ["ok"]})
        suite = [Case(id="a", prompt="sh ./agent.sh", check=all_of_it)]
    """)

    done = boxed.run()

    assert done.code == 0, done.message("a")


def test_a_check_can_run_commands_and_read_files_where_the_agent_worked(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.suite("""
        def looks(ctx):
            assert ctx.read("made.txt") == "hello\\n"
            assert ctx.read(ctx.workspace / "made.txt") == "hello\\n"
            ran = ctx.run("cat made.txt; pwd; echo oops >&2; exit 3")
            expect.equal(ran.exit_code, 3)
            expect.equal(ran.stdout, f"hello\\n{ctx.workspace}\\n")
            expect.equal(ran.stderr, "oops\\n")
            assert not ran.ok and not ran.timed_out
            assert ctx.run(["cat", "made.txt"]).ok
            assert ctx.run("echo more >> made.txt").ok
            assert ctx.read("made.txt") == "hello\\nmore\\n"
        async def looks_later(ctx):
            assert ctx.run("cat made.txt").stdout == "hello\\n"
        suite = [Case(id=check.__name__, prompt="echo hello > made.txt", check=check) for check in (looks, looks_later)]
    """)

    done = boxed.run()

    assert done.code == 0, [done.message(case) for case in done.statuses]


def test_a_command_of_a_check_that_takes_too_long_is_ended_with_all_that_it_started(boxed: Project) -> None:
    boxed.settings(SHELL)
    boxed.suite("""
        def waits(ctx):
            ran = ctx.run("echo begun; (sleep 600; : {token}) & setsid sh -c 'sleep 600; : {token}'; : {token}", timeout_s=0.5)
            expect.ok(ran.timed_out)
            expect.ok(not ran.ok)
            expect.equal(ran.stdout, "begun\\n")
        def leaves(ctx):
            assert ctx.run("(sleep 600; : {token}) > /dev/null 2>&1 &").ok
        suite = [Case(id=check.__name__, prompt="true", check=check) for check in (waits, leaves)]
    """)

    done = boxed.run()

    assert done.code == 0, [done.message(case) for case in done.statuses]
    assert boxed.left_after_a_while() == []


def test_a_command_that_may_take_longer_than_its_check_is_refused_with_what_allows_it(boxed: Project) -> None:
    boxed.settings(SHELL + "[defaults]\ncheck_timeout_ms = 20000\n")
    boxed.suite("""
        def longer(ctx): ctx.run("true", timeout_s=20.5)
        def as_long(ctx): assert ctx.run("true", timeout_s=20).ok
        suite = [Case(id=check.__name__, prompt="true", check=check) for check in (longer, as_long)]
    """)

    done = boxed.run()

    assert done.statuses == {"longer": "failed", "as_long": "passed"}
    assert "timeout_s=20.5 is longer than the 20 s that the whole check may take" in done.message("longer")
    assert "check_timeout_ms = 20500" in done.message("longer")


def test_a_command_that_outlasts_its_check_is_ended_with_it(boxed: Project) -> None:
    boxed.settings(SHELL + "[defaults]\ncheck_timeout_ms = 5000\n")
    boxed.suite("""
        def waits(ctx): ctx.run("setsid sh -c 'sleep 600; : {token}'; : {token}")
        suite = [Case(id="waits", prompt="true", check=waits), Case(id="other", prompt="true", check=ok)]
    """)

    done = boxed.run()

    assert done.codes == {"waits": "check-timeout", "other": None}
    assert boxed.left_after_a_while() == []


def test_nothing_outside_of_the_workspace_is_read_by_a_link_or_a_path(boxed: Project) -> None:
    boxed.settings(SHELL)
    (boxed.outside / "secret.txt").write_text("the secret\n")
    boxed.suite("""
        def refused(ctx, path):
            try:
                return "read: " + ctx.read(path)
            except OSError as error:
                return type(error).__name__
        def looks(ctx):
            with expect.soft():
                assert refused(ctx, "link.txt") == "PermissionError"
                assert refused(ctx, "folder/secret.txt") == "PermissionError"
                assert refused(ctx, "../" * 20 + "etc/hostname") == "PermissionError"
                assert refused(ctx, "/etc/hostname") == "PermissionError"
                assert refused(ctx, "inner.txt") == "read: fine\\n"
                assert refused(ctx, "pipe") == "IsADirectoryError"
                assert refused(ctx, ".") == "IsADirectoryError"
                assert refused(ctx, "nothing") == "FileNotFoundError"
            expect.soft.raises(AssertionError, lambda: expect.files.contains(ctx, "link.txt", "secret"))
        suite = [Case(id="looks", check=looks, prompt=
            "echo fine > real.txt; ln -s real.txt inner.txt; ln -s {outside}/secret.txt link.txt; ln -s {outside} folder;"
            "mkfifo pipe")]
    """)

    done = boxed.run()

    assert done.code == 0, done.message("looks")


def test_a_link_to_itself_is_a_file_that_cannot_be_read(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        def looks(ctx):
            expect.raises(OSError, lambda: ctx.read("loop"))
            expect.raises(AssertionError, lambda: expect.files.contains(ctx, "loop", "x"))
        suite = [Case(id="looks", prompt="ln -s loop loop", check=looks)]
    """)

    done = project.run()

    assert done.code == 0, done.message("looks")


def test_a_command_that_does_not_exist_is_not_taken_for_the_agent(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id="looks", prompt="true", check=lambda ctx: ctx.run(["no-such-program"]))]
    """)

    done = project.run()

    assert "Agent" not in done.message("looks")


@pytest.mark.bubblewrap
def test_a_command_of_a_check_sees_no_more_than_the_agent_did(project: Project) -> None:
    project.sandbox = "bubblewrap"
    project.settings(SHELL)
    (project.outside / "secret.txt").write_text("the secret\n")
    project.write("fixture.txt", "of the suite\n")
    project.suite("""
        check_files = ["fixture.txt"]
        def looks(ctx):
            expect.soft.not_equal(ctx.run("cat {outside}/secret.txt").exit_code, 0)
            expect.soft.not_equal(ctx.run("echo x > {outside}/new.txt").exit_code, 0)
            expect.soft.equal(ctx.run(f"cat {Path(__file__).parent}/fixture.txt").stdout, "of the suite\\n")
            expect.soft.not_equal(ctx.run(f"echo x > {Path(__file__).parent}/fixture.txt").exit_code, 0)
            expect.soft.not_equal(ctx.run(f"ls {Path(__file__).parent}/.whet/runs/*/journal.jsonl").exit_code, 0)
            expect.soft.equal(ctx.run("echo $THE_TOKEN").stdout, "\\n")
        suite = [Case(id="looks", prompt="true", check=looks)]
    """)

    done = project.run(env={"THE_TOKEN": "hunter2-and-more"})

    assert done.code == 0, done.message("looks")
    assert not (project.outside / "new.txt").exists()


def test_what_an_agent_does_with_odd_characters_does_not_break_the_message(expecting: Project) -> None:
    expecting.suite(r"""
        def looks(report):
            expect.commands.includes(report, "cargo")
        suite = [Case(id="looks", check=looks, prompt=r'''printf '%s\n' '{"type": "command", "command": "echo \u001b[2J \u0000 \ud83d\ude00 \u2028"}' ''')]
    """)

    done = expecting.run()

    assert done.codes == {"looks": "assertion"}
    assert "\x1b[2J" not in done.stdout


def test_the_context_gives_lists_of_what_the_session_saw(expecting: Project) -> None:
    expecting.suite("""
        def looks(report, ctx):
            assert ctx.get_commands() == ["ls"]
            assert [call.tool for call in ctx.get_tool_calls()] == ["read", "edit"]
            assert [call.tool for call in ctx.get_tool_calls("edit")] == ["edit"]
            assert ctx.get_tool_calls(tool="nothing") == []
            assert ctx.get_file_reads() == ["/a/style/SKILL.md"]
            assert [found.skill for found in ctx.detected_skills()] == ["style"]
            assert ctx.final_output() == "done"
            assert ctx.session is report
            assert ctx.changes().created == ("made.txt",)
            assert (ctx.workspace / "made.txt").is_file()
        suite = [Case(id="looks", check=looks, prompt='''touch made.txt
            echo '{"type": "command", "command": "ls"}'
            echo '{"type": "tool_call", "tool": "read"}'
            echo '{"type": "tool_call", "tool": "edit"}'
            echo '{"type": "file_read", "path": "/a/style/SKILL.md"}'
            echo '{"type": "final_output", "text": "done"}' ''')]
    """)

    done = expecting.run()

    assert done.code == 0, done.message("looks")
