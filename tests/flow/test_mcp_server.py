"""`whet mcp` as an agent meets it: the SDK's client on the other end of its standard streams."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_client import Answers, RawClient, connected
from pairing import ARMS as SAYING
from pairing import KEY, evals, longest, prepare
from project import EVENTS, PATIENCE_S, SHELL, Project, wait_for

from judging_server import judging

SAYS = 'echo \'{"type":"final_output","text":"%s"}\''
SPENDS = 'echo \'{"type":"usage","input_tokens":10,"output_tokens":1,"cost_usd":0.25}\'; '
# Whether an arm is right is in its model, which the runner passes on.
ARMS = [{"name": "old"}, {"name": "new"}]
GREETS = """
def greets(session, ctx):
    assert session.final_output == "hello", session.final_output
suite = [Case(id="polite", prompt=%r, check=greets), Case(id="rude", prompt=%r, check=greets)]
"""
SLOW = """
suite = [Case(id="slow", prompt="export WHET_TEST={token}; touch {outside}/began; exec sleep 1000", check=ok)]
"""


@pytest.fixture
def greeting(project: Project) -> Project:
    """A suite of which one case fails, with agents that cost a quarter of a dollar a trial."""
    project.suite(GREETS % (SPENDS + SAYS % "hello", SPENDS + SAYS % "go away"))
    project.settings(EVENTS)
    return project


@pytest.fixture
def slow(project: Project) -> Iterator[Project]:
    """A suite whose agent does not end by itself."""
    project.suite(SLOW)
    project.settings(SHELL)
    project.env["WHET_TEST"] = project.token
    yield project
    assert project.left_after_a_while(PATIENCE_S) == []


def agents_of(project: Project) -> list[int]:
    """The agents of a project that still run."""
    return [pid for pid in project.left() if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]


def test_an_agent_sees_seven_typed_tools_that_say_what_they_execute(project: Project) -> None:
    async def talk(server: Answers) -> tuple[str | None, dict[str, Any]]:
        listing = await server.client.list_tools()
        return server.client.instructions, {tool.name: tool for tool in listing.tools}

    instructions, tools = connected(project, talk, "--max-cost", "2")

    assert list(tools) == ["validate", "plan", "run", "compare", "gate", "failures", "trial"]
    assert all(tool.output_schema["properties"] and tool.input_schema["properties"] for tool in tools.values())
    assert all("code" in tools[name].description for name in ("validate", "plan", "run"))
    assert [name for name, tool in tools.items() if tool.annotations.read_only_hint] == [*tools][3:]
    assert "$2.00 together" in tools["run"].description
    assert "never repeat a run" in (instructions or "")


def test_an_agent_validates_plans_runs_and_finds_out_what_failed(greeting: Project) -> None:
    steps: list[tuple[float, float | None]] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        steps.append((done, total))

    async def talk(server: Answers) -> dict[str, Any]:
        valid = await server.ask("validate", path="suite.py")
        called = await server.client.call_tool("run", {"path": "suite.py", "max_cost_usd": 3}, progress_callback=note)
        failures = await server.ask("failures")
        trial = await server.ask("trial", trial=failures["failures"][0]["trial"])
        plan = await server.ask("plan", path="suite.py", effect_points=20)
        gated = await server.ask("gate", min_rate_percent=99)
        return {
            "valid": valid, "ran": called.structured_content, "failures": failures, "trial": trial, "plan": plan,
            "gated": gated,
        }  # fmt: skip

    told = connected(greeting, talk)

    assert (told["valid"]["ok"], told["valid"]["suites"]) == (True, ["suite.py: 2 cases with 2 checks, no problems"])
    [run] = told["ran"]["runs"]
    assert (told["ran"]["exit_code"], told["ran"]["spent_usd"], told["ran"]["left_usd_on_this_server"]) == (1, 0.5, 4.5)
    assert (run["counts"]["passed"], run["counts"]["failed"]) == (1, 1)
    assert (greeting.root / run["record"] / "results.json").is_file()
    assert steps == [(1, 2), (2, 2)]
    assert told["ran"]["next"] == [f"failures with run={run['run']} says what went wrong"]
    [failure] = told["failures"]["failures"]
    assert failure["trial"] == "suite::rude@sh/default#1"
    assert "go away" in failure["reason"]
    assert told["trial"]["final_answer"] == "go away"
    assert told["trial"]["checks"][0]["passed"] is False
    assert told["plan"]["learned_from_run"] == run["run"]
    assert told["plan"]["trials_in_all"] == told["plan"]["trials_per_case_and_arm"] * 4
    assert told["gated"]["answer"] in ("fail", "unknown")


def test_an_agent_asks_what_a_decision_rests_on_and_refuses_a_judge_of_itself(project: Project) -> None:
    with judging(lambda *_: 10, longest) as url:
        prepare(project, url, evals(pairwise={"question": "Which gives reasons?"}))
        ran = project.whet("run", "name", *SAYING, env=KEY)
    pairs, labels = {"pairwise": True}, {"judge_counted": True, "judge_agreement_percent": 80}

    async def talk(server: Answers) -> list[Any]:
        own = await server.client.call_tool("run", {"path": "name", "strict_judge": True, "max_minutes": 1})
        rate = await server.client.call_tool("gate", {"min_rate_percent": 10, "judge_counted": True})
        asked = [await server.ask("gate", margin_points=60, **more) for more in (pairs, labels)]
        return [own, rate, *asked]

    settings = (project.root / "whet.toml").read_text()
    project.settings(f'{settings.partition("[judge]")[0]}[judge]\nrunner = "much"\n')
    own, rate, in_pairs, by_labels = connected(project, talk)

    assert ran.code == 0, ran.stderr
    assert own.is_error
    assert "judges its own answers" in own.content[0].text
    assert "or leave out strict_judge" in own.content[0].text
    assert rate.is_error
    assert "min_rate_percent is for one run by itself" in rate.content[0].text
    assert in_pairs["answer"] == "pass"
    assert any("pairwise: new against old: better" in part["reason"] for part in in_pairs["parts"])
    # No statement was judged, so nothing rests on the judge.
    assert by_labels["answer"] == "pass"


def test_an_agent_compares_two_arms_and_makes_the_run_longer(project: Project) -> None:
    project.suite("""
        def greets(session, ctx):
            assert session.final_output == "hello", session.final_output
        suite = [Case(id="a", prompt='echo "$GREETING"', check=greets)]
    """)
    project.settings(f"""{SHELL}
        [arms.old]
        env = {{ GREETING = "go away" }}
        [arms.new]
        env = {{ GREETING = "hello" }}
    """)

    async def talk(server: Answers) -> list[dict[str, Any]]:
        await server.ask("run", path="suite.py", arms=ARMS, trials=2, max_minutes=1)
        early = await server.ask("gate")
        longer = await server.ask("run", resume="latest", add_trials=8, max_minutes=1)
        return [early, longer, await server.ask("gate"), await server.ask("compare", arms=["old", "new"])]

    early, longer, late, compared = connected(project, talk)

    assert (early["answer"], early["exit_code"]) == ("unknown", 5)
    assert "--add-trials" in early["advice"]
    assert longer["runs"][0]["counts"]["total"] == 20
    assert (late["answer"], late["advice"]) == ("pass", None)
    assert compared["comparisons"][0]["difference_points"] == 100
    assert compared["comparisons"][0]["changed_cases"] == ["a: 0% to 100%"]


def test_paths_lead_nowhere_outside_of_the_project(greeting: Project) -> None:
    secret = greeting.outside / "suite.py"
    secret.write_text("raise SystemExit('loaded')\n")
    (greeting.root / "link.py").symlink_to(secret)
    (greeting.root / "folder").symlink_to(greeting.outside)
    outside = ["../outside/suite.py", str(secret), "link.py", "folder/suite.py", "folder/../../outside/suite.py"]
    no_paths = ["", "\0", "x" * 5000, "nothing.py"]

    async def talk(server: Answers) -> tuple[list[str], list[str], list[str]]:
        return (
            [await server.refused("validate", path=path) for path in outside],
            [await server.refused("run", path=path, max_minutes=1) for path in no_paths],
            [
                await server.refused("run", path="suite.py", max_minutes=1, skill="folder"),
                await server.refused(
                    "run", path="suite.py", max_minutes=1, arms=[{"name": "a", "skill": "../outside"}, {"name": "b"}]
                ),
                await server.refused(
                    "run", path="suite.py", max_minutes=1, arms=[{"name": "a", "prompt": "link.py"}, {"name": "b"}]
                ),
            ],
        )

    strangers, nothing, in_arguments = connected(greeting, talk)

    assert all("is outside of the project" in said for said in [*strangers, *in_arguments]), strangers + in_arguments
    assert all("is not a path" in said or "no such file" in said for said in nothing)
    assert not greeting.output_dir.exists()


def test_settings_that_write_outside_of_the_project_are_refused(greeting: Project) -> None:
    greeting.settings(f'{EVENTS}\n[run]\noutput_dir = "{{outside}}/runs"\n')

    said = connected(greeting, lambda server: server.refused("run", path="suite.py", max_minutes=1))
    greeting.settings(EVENTS)
    (greeting.root / ".whet").symlink_to(greeting.outside)
    linked = connected(greeting, lambda server: server.refused("run", path="suite.py", max_minutes=1))

    assert said.startswith("run.output_dir is ")
    assert "outside of the project (set run.output_dir to a folder of the project" in said
    assert linked.startswith("run.output_dir is ")
    assert list(greeting.outside.iterdir()) == []


def test_arguments_that_make_no_sense_are_refused_in_words(greeting: Project) -> None:
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("run", {"path": "suite.py"}, "a run needs a bound: max_cost_usd, max_minutes or both"),
        ("run", {"path": "suite.py", "max_cost_usd": -1}, "max_cost_usd: should be greater than 0"),
        ("run", {"path": "suite.py", "max_cost_usd": float("1e300")}, "max_cost_usd: should be less than"),
        ("run", {"path": "suite.py", "max_minutes": 0}, "max_minutes: should be greater than 0"),
        ("run", {"path": "suite.py", "max_minutes": 1, "trials": 10**30}, "trials: should be less than"),
        ("run", {"path": "suite.py", "max_minutes": 1, "case": "rude"}, 'no argument "case" (did you mean "cases"?)'),
        ("run", {"path": "suite.py", "max_minutes": 1, "cases": ["rud"]}, 'did you mean "rude"?'),
        ("run", {"path": "suite.py", "max_minutes": 1, "cases": ["--output-dir=/tmp/x"]}, "no case"),
        ("run", {"max_minutes": 1}, "name what to run with path"),
        ("run", {"path": "suite.py", "resume": "latest", "max_minutes": 1}, "name what to run with path"),
        ("run", {"path": "suite.py", "max_minutes": 1, "arms": [{"name": "a=skill:/etc"}]}, "arms.0.name: "),
        ("run", {"path": "suite.py", "max_minutes": 1, "arms": [{"name": "a", "model": "x,skill:/etc"}]}, "a comma"),
        ("failures", {}, "there is none yet: call the tool run"),
        ("failures", {"run": "../../outside"}, "there is no run"),
        ("failures", {"run": "9" * 100_000}, "run: String should have at most 300 characters"),
        ("failures", {"limit": 10**9}, "limit: should be less than or equal to 50"),
        ("trial", {"trial": "x" * 1_000_000}, "trial: String should have at most 2000 characters"),
        ("compare", {"run": "latest", "earlier_run": "latest"}, "there is no run"),
        ("plan", {"path": "suite.py", "effect_points": 0}, "effect_points: should be greater than or equal to 0.1"),
    ]

    async def talk(server: Answers) -> list[str]:
        return [await server.refused(tool, **arguments) for tool, arguments, _ in calls]

    told = connected(greeting, talk)

    assert [said for said, (_, _, expected) in zip(told, calls, strict=True) if expected not in said] == []
    assert max(map(len, told)) < 5000


def test_all_runs_together_cost_what_the_operator_allows(greeting: Project) -> None:
    async def talk(server: Answers) -> tuple[dict[str, Any], str]:
        greedy = await server.ask("run", path="suite.py", max_cost_usd=1000, trials=5)
        return greedy, await server.refused("run", path="suite.py", max_cost_usd=0.01)

    greedy, said = connected(greeting, talk, "--max-cost", "0.5", env={"WHET_MAX_PARALLEL": "1"})

    assert greedy["spent_usd"] == 0.5
    assert greedy["runs"][0]["counts"]["not_run"] == 8
    assert "have spent $0.500 of $0.500, so no more can start (ask the operator" in said


def test_answers_are_bounded_and_say_how_to_get_the_rest(project: Project) -> None:
    project.suite(f"""
        suite = [Case(id=f"case-{{i}}", prompt="{SAYS.replace('"', chr(92) + '"') % ("x" * 9000)}", check=no)
                 for i in range(12)]
    """)
    project.settings(EVENTS)

    async def talk(server: Answers) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        await server.ask("run", path="suite.py", max_minutes=5)
        first = await server.ask("failures")
        rest = await server.ask("failures", offset=10)
        return first, rest, await server.ask("trial", trial="case-3")

    first, rest, trial = connected(project, talk)

    assert (first["total"], len(first["failures"])) == (12, 10)
    assert first["left_out"] == ["2 more failures; call failures with offset=10"]
    assert ([entry["trial"].partition("@")[0] for entry in rest["failures"]], rest["left_out"]) == (
        ["suite::case-10", "suite::case-11"],
        [],
    )
    assert len(trial["final_answer"]) == 4000
    assert "final_answer: 4,000 of 9,000 characters are shown; read the files in .whet/" in "".join(trial["left_out"])


def test_what_a_suite_prints_does_not_reach_the_stream_of_the_protocol(greeting: Project) -> None:
    suite = greeting.root / "suite.py"
    suite.write_text('print("{", flush=True)\nimport os\nos.write(1, b"not json\\n")\n' + suite.read_text())

    async def talk(server: Answers) -> tuple[dict[str, Any], dict[str, Any]]:
        return await server.ask("validate", path="suite.py"), await server.ask("plan", path="suite.py")

    valid, plan = connected(greeting, talk)

    assert (valid["ok"], plan["cases"]) == (True, 2)


def test_runs_of_a_folder_with_settings_of_its_own_are_found_with_those_of_the_project(greeting: Project) -> None:
    for name in ("suite.py", "whet.toml"):
        greeting.write(f"part/{name}", (greeting.root / name).read_text())

    async def talk(server: Answers) -> tuple[dict[str, Any], dict[str, Any]]:
        ran = await server.ask("run", path="part/suite.py", max_minutes=1)
        return ran, await server.ask("failures")

    ran, failures = connected(greeting, talk)

    assert failures["run"] == ran["runs"][0]["run"]
    assert failures["total"] == 1
    assert not (greeting.root / "part" / ".whet").exists()


def test_a_second_run_waits_for_nobody_and_is_refused(slow: Project) -> None:
    async def talk(server: Answers) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: server.client.call_tool("run", {"path": "suite.py", "max_minutes": 5}))
            await anyio.to_thread.run_sync(wait_for, slow.outside / "began")
            said = await server.refused("run", path="suite.py", max_minutes=1)
            tasks.cancel_scope.cancel()
        return said

    said = connected(slow, talk)

    assert said == "a run of this server is under way (wait until it ends, or cancel it)"


def test_a_cancelled_call_ends_its_run_and_the_server_goes_on(slow: Project) -> None:
    async def talk(server: Answers) -> tuple[str, list[int], dict[str, Any]]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: server.client.call_tool("run", {"path": "suite.py", "max_minutes": 5}))
            await anyio.to_thread.run_sync(wait_for, slow.outside / "began")
            tasks.cancel_scope.cancel()
        said = "under way"
        while "under way" in said:
            said = await server.refused("run", path="suite.py", max_minutes=1, cases=["unknown"])
        return said, agents_of(slow), await server.ask("failures")

    said, agents, failures = connected(slow, talk)

    assert "no case" in said
    assert agents == []
    assert failures["status"] in ("unfinished", "interrupted")


def test_a_run_whose_time_is_over_ends_with_its_record(slow: Project) -> None:
    told = connected(slow, lambda server: server.ask("run", path="suite.py", max_minutes=0.05))

    assert (told["ended"], told["runs"][0]["status"]) == ("out of time", "interrupted")
    assert "resume goes on with it" in told["meaning"]
    assert told["next"] == [f"run with resume={told['runs'][0]['run']} goes on with it"]


@pytest.mark.parametrize(("ending", "code"), [("hangs up", 0), ("SIGINT", 130), ("SIGTERM", -15), ("SIGKILL", -9)])
def test_a_client_that_leaves_in_the_middle_of_a_run_leaves_no_process(slow: Project, ending: str, code: int) -> None:
    client = RawClient(slow)
    client.start_run(path="suite.py", max_minutes=5)
    wait_for(slow.outside / "began")

    if ending != "hangs up":
        client.process.send_signal(signal.Signals[ending])
    # Closes its standard input.
    printed, _ = client.process.communicate(timeout=PATIENCE_S)

    assert client.process.returncode == code
    assert all("jsonrpc" in json.loads(line) for line in printed.splitlines())
    assert slow.left_after_a_while(PATIENCE_S) == []


def test_without_the_library_there_is_one_message(project: Project) -> None:
    hiding = "import sys; sys.modules['mcp'] = None; sys.argv = ['whet', 'mcp']; from whet.cli.main import main; main()"

    done = subprocess.run(
        [sys.executable, "-c", hiding], cwd=project.root, capture_output=True, text=True, check=False, env=os.environ
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error[usage]: whet mcp needs the mcp library\n  pip install 'whet-eval[mcp]'\n"
