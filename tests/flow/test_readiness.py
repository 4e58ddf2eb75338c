"""What is asked of agents before a run spends anything, and what becomes of programs that never begin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from project import Project

from whet.agents import programs
from whet.model.run import Runner
from whet.run.readiness import refuse_unready
from whet.sandbox.local import LocalSandbox

RUNNER = """
[runners.{id}.agent]
type = "{type}"
{more}
"""
CASE = "suite = [Case(id='a', prompt='Go.', check=ok)]\n"
SUITE = f"from whet import Case\n\ndef ok(session, ctx): pass\n\n{CASE}"
WORKS = "#!/bin/sh\necho 9.9.9\n"
# Whatever variables the tests are run with.
LOGGED_IN = {"ANTHROPIC_API_KEY": "sk-of-nobody-000000", "GEMINI_API_KEY": "sk-of-nobody-000000"}


@pytest.fixture
def asked(project: Project) -> Project:
    """A project of one case, with an empty folder of programs that comes first on the PATH."""
    project.suite(CASE)
    (project.root / "bin").mkdir()
    project.env["PATH"] = f"{project.root / 'bin'}:/usr/bin:/bin"
    return project


def runner(project: Project, kind: str, more: str = "") -> None:
    project.settings(RUNNER.format(id="r", type=kind, more=more))


def nothing_began(project: Project) -> bool:
    return not project.output_dir.exists() or not list(project.output_dir.iterdir())


@pytest.mark.parametrize("kind", ["command", "acp"])
@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "/no/such/program"])
def test_a_program_of_yours_that_is_not_there_is_said_before_anything_begins(
    asked: Project, kind: str, program: str
) -> None:
    runner(asked, kind, f'command = "{program}"')

    outcome = asked.run()

    assert outcome.code == 2, outcome.stdout
    assert "runners.r: there is no program" in outcome.stderr
    assert "no/such" in outcome.stderr or "no-such-program" in outcome.stderr
    assert nothing_began(asked)


def test_a_program_that_only_the_path_of_its_runner_or_of_an_arm_has_is_there(asked: Project) -> None:
    asked.write("tools/mine", WORKS, mode=0o755)
    path = f"{asked.root / 'tools'}:/usr/bin:/bin"

    runner(asked, "command", f'command = "mine"\nenv = {{ PATH = "{path}" }}')
    of_runner = asked.run()
    runner(asked, "command", 'command = "mine"')
    of_arm = asked.run("--arm", f"one=env:PATH={path}")
    nowhere = asked.run()

    assert (of_runner.code, of_arm.code, nowhere.code) == (0, 0, 2), of_arm.stdout + of_runner.stdout


def test_a_program_that_is_not_there_is_said_before_anything_begins(asked: Project) -> None:
    runner(asked, "claude-code")

    outcome = asked.run(env=LOGGED_IN)

    assert outcome.code == 2
    assert 'runners.r: there is no program "claude" for claude-code; install it: npm install' in outcome.stderr
    assert nothing_began(asked)


def test_a_program_that_does_not_start_is_said_before_anything_begins(asked: Project) -> None:
    asked.write("bin/claude", "#!/bin/sh\necho 'Error: cannot find native binary' >&2\nexit 1\n", mode=0o755)
    runner(asked, "claude-code")

    outcome = asked.run(env=LOGGED_IN)

    assert outcome.code == 2
    assert 'does not start: "--version" ended with exit code 1' in outcome.stderr
    assert nothing_began(asked)


def test_a_program_that_takes_long_to_say_its_version_may_still_begin(
    asked: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_PATIENCE_S", 0.2)
    asked.write("bin/claude", "#!/bin/sh\nexec sleep 60\n", mode=0o755)
    execution: Any = SimpleNamespace(runner=Runner(id="r", agent="claude-code"))
    plan: Any = SimpleNamespace(executions=[execution])

    doubts = refuse_unready(plan, LocalSandbox(), {**asked.env, **LOGGED_IN})

    assert doubts == ()


def test_an_agent_that_nothing_logs_in_is_said_before_anything_begins(asked: Project) -> None:
    asked.write("bin/gemini", WORKS, mode=0o755)
    runner(asked, "gemini")

    outcome = asked.run()

    assert outcome.code == 2
    assert "runners.r: gemini has no login; log in once by hand, or set one of GEMINI_API_KEY" in outcome.stderr
    assert nothing_began(asked)


def test_all_that_is_wrong_is_said_at_once(asked: Project) -> None:
    asked.write("bin/gemini", WORKS, mode=0o755)
    asked.settings("".join(RUNNER.format(id=f"r-{kind}", type=kind, more="") for kind in ("gemini", "codex")))

    outcome = asked.run()

    assert outcome.code == 2
    assert "runners.r-gemini: gemini has no login" in outcome.stderr
    assert "runners.r-codex: there is no program" in outcome.stderr


def test_a_login_that_may_come_in_another_way_is_only_doubted(asked: Project) -> None:
    asked.write("bin/gemini", WORKS, mode=0o755)
    runner(asked, "gemini", 'env = {MY_GATEWAY_TOKEN = "1234"}')

    outcome = asked.run()

    assert outcome.code == 3
    assert "runners.r: no login of gemini was found" in outcome.stdout + outcome.stderr


def test_a_runner_that_is_not_in_the_plan_is_not_looked_at(asked: Project) -> None:
    asked.settings(RUNNER.format(id="gone", type="codex", more="") + '[runners.sh.agent]\ntype="command"\ncommand="sh"')

    outcome = asked.run("--runner", "sh")

    assert outcome.code == 1
    assert "codex" not in outcome.stderr


def test_a_program_that_ends_before_any_model_answered_is_no_failure_of_the_agent(asked: Project) -> None:
    asked.write("mine", "#!/bin/sh\necho 'cannot find module x' >&2\nexit 1\n", mode=0o755)
    runner(asked, "gemini", 'command = "./mine"')

    outcome = asked.run()

    assert (outcome.statuses, outcome.codes) == ({"a": "errored"}, {"a": "agent-not-started"}), outcome.stdout
    assert "no model had answered when it ended with exit code 1:\ncannot find module x" in outcome.message("a")


def test_a_program_that_says_that_nobody_has_logged_in_is_errored_as_such(asked: Project) -> None:
    asked.write("mine", "#!/bin/sh\necho 'you must specify the GEMINI_API_KEY' >&2\nexit 41\n", mode=0o755)
    runner(asked, "gemini", 'command = "./mine"')

    outcome = asked.run()

    assert outcome.codes == {"a": "key-refused"}
    assert outcome.message("a").startswith("auth: ended with exit code 41")


def test_the_exit_code_of_a_command_agent_stays_its_own(asked: Project) -> None:
    asked.settings('[runners.r.agent]\ntype = "command"\ncommand = "sh"\nargs = ["-c", "echo no login >&2; exit 41"]\n')

    outcome = asked.run()

    assert (outcome.statuses, outcome.codes) == ({"a": "failed"}, {"a": "agent-crashed"})


def test_a_command_agent_that_tells_of_an_outage_and_sleeps_failed(asked: Project) -> None:
    trouble = '{"type": "trouble", "kind": "overloaded", "status": 529, "message": "m"}'
    asked.write("mine", f"#!/bin/sh\necho '{trouble}'\nexec sleep 60\n", mode=0o755)
    runner(asked, "command", 'command = "./mine"\noutput = "events"')

    outcome = asked.run("--timeout-ms", "1500")

    assert outcome.codes == {"a": "timeout"}


@pytest.mark.parametrize("kind", ["overloaded", "model-rejected", "context", "auth"])
def test_a_command_agent_cannot_leave_the_rate_by_telling_of_trouble(asked: Project, kind: str) -> None:
    trouble = f'{{"type": "trouble", "kind": "{kind}", "message": "m"}}'
    asked.write("mine", f"#!/bin/sh\necho '{trouble}'\nexit 1\n", mode=0o755)
    runner(asked, "command", 'command = "./mine"\noutput = "events"')

    outcome = asked.run("--trials", "2")

    ended = [(trial["status"], trial["failure"]["code"]) for trial in outcome.trials]
    assert ended == [("failed", "agent-crashed")] * 2


def test_a_suite_that_cannot_start_keeps_the_suites_beside_it_from_leaving_a_record(asked: Project) -> None:
    asked.settings('[runners.r.agent]\ntype = "command"\ncommand = "true"\n')
    asked.run()
    before = (asked.output_dir / "latest").resolve()
    asked.write("other/suite.py", SUITE)
    asked.write("other/whet.toml", RUNNER.format(id="r", type="claude-code", more=""))

    outcome = asked.whet("run", "suite.py", "other", env=LOGGED_IN)

    assert outcome.code == 2
    assert 'there is no program "claude"' in outcome.stderr
    assert [each for each in asked.output_dir.iterdir() if not each.is_symlink()] == [before]
    assert (asked.output_dir / "latest").resolve() == before


def test_many_suites_ask_an_agent_once_for_its_version(asked: Project) -> None:
    runner(asked, "claude-code")
    asked.write("bin/claude", f'#!/bin/sh\necho asked >> "{asked.root}/asked"; echo 2.1.197\n', mode=0o755)
    asked.write("whet.toml", (asked.root / "whet.toml").read_text() + '\n[run]\nsandbox = "local"\n')
    for name in ("one", "two", "three"):
        asked.write(f"many/{name}.py", SUITE)

    asked.whet("run", "many", env=LOGGED_IN)

    # Once for its version, and once for the trial of each suite.
    assert (asked.root / "asked").read_text().count("asked") == 1 + 3


def test_a_program_that_prints_something_else_is_errored_alike_with_a_skill_and_without(asked: Project) -> None:
    asked.write("bin/claude", "#!/bin/sh\necho '2.1.325 (Claude Code)'\n", mode=0o755)
    asked.write("skill/SKILL.md", "---\nname: greet\ndescription: Greets. Use when asked to greet.\n---\nSay hello.\n")
    cases = '{"skill_name": "greet", "evals": [{"id": 1, "prompt": "Greet.", "expectations": ["It greets."]}]}'
    asked.write("skill/evals/evals.json", cases)

    outcome = asked.whet("run", "skill", "--trials", "1", env=LOGGED_IN)

    assert outcome.code == 3
    assert "a fault of whet" not in outcome.stdout
    assert [trial["failure"]["code"] for trial in outcome.trials] == ["agent-not-started"] * 2


def test_settings_without_a_runner_are_named_with_the_agent_that_is_installed(asked: Project) -> None:
    asked.write("bin/codex", WORKS, mode=0o755)
    asked.settings('# [runners.codex.agent]\n# type = "codex"\n')

    outcome = asked.run()

    assert outcome.code == 2
    assert f"{asked.root}/whet.toml has none, and codex is installed: add\n" in outcome.stderr
    assert '[runners.codex.agent]\n  type = "codex"\n' in outcome.stderr
