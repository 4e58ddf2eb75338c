"""Recordings of the real programs as trajectories: each call and sub-agent in its place, and Harbor takes them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from reading import RECORDINGS, garbled_output, read_output, read_recording
from test_every_agent import AGENTS

from whet import plugins
from whet.model import codec
from whet.model.events import Event, Message, ToolCall, ToolResult, UsageSeen
from whet.model.run import AttemptResult, TrialKey, TrialResult
from whet.model.session import SessionSummary
from whet.record.read.stream import RecordedAttempt, RecordedTrial
from whet.report.export._atif import trajectory
from whet.report.export._steps import ExportStep, steps_of

# The recordings of agents that speak a protocol are dialogues, and are read in another way.
ALL = sorted(
    str(path.parent.relative_to(RECORDINGS)) for path in RECORDINGS.glob("*/*/stdout.jsonl") if path.parts[-3] in AGENTS
)
CONSTRAINTS = RECORDINGS.parents[1] / "constraints.txt"
_JUDGE = """
import json, sys
from harbor.utils.trajectory_validator import TrajectoryValidator
judge = TrajectoryValidator()
print(json.dumps({path: None if judge.validate(path) else judge.errors for path in sys.argv[1:]}))
"""


def _trajectory(name: str, folder: Path) -> dict[str, Any]:
    program = name.partition("/")[0]
    read = read_recording(plugins.find("agents", AGENTS[program])(), name)
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(codec.encode_lines(read.events))
    session = SessionSummary(
        runner="r", agent=AGENTS[program], prompt="Do it.", final_output=read.session.final_output, model="m"
    )
    attempt = AttemptResult(number=1, status="passed", duration_s=1, artifact_dir="a", usage=read.session.usage)
    return _of(attempt, session, folder)


def _of(attempt: AttemptResult, session: SessionSummary, folder: Path) -> dict[str, Any]:
    result = TrialResult(
        key=TrialKey(suite="s", case="c", runner="r", arm="default", number=1),
        status="passed",
        score=1.0,
        duration_s=1.0,
        started_at="2026-01-01T00:00:00+00:00",
        artifact_dir="a",
        attempts=(attempt,),
    )
    trial = RecordedTrial(run="run", result=result, tags=(), weight=None, agent=None, model=None, run_dir=folder)
    made = trajectory(trial, RecordedAttempt(attempt=attempt, folder=folder, session=session), session)
    found: dict[str, Any] = json.loads(codec.encode(made))
    return found


def _steps(*events: Event) -> list[ExportStep]:
    return steps_of(SessionSummary(runner="r", agent="a", prompt="Go."), events)


@pytest.mark.parametrize("program", AGENTS)
def test_each_call_of_a_program_has_what_came_back_for_it(program: str, tmp_path: Path) -> None:
    made = _trajectory(f"{program}/tools", tmp_path / "a")

    calls = [call for step in made["steps"] for call in step.get("tool_calls", [])]
    answers = {
        result["source_call_id"]: result["content"]
        for step in made["steps"]
        for result in step.get("observation", {"results": []})["results"]
    }
    assert len(calls) >= 3
    assert set(answers) == {call["tool_call_id"] for call in calls}
    assert "out.txt" in answers[calls[0]["tool_call_id"]]
    assert made["steps"][0]["source"] == "user"
    assert made["steps"][-1]["message"] == "skillgym ready"


@pytest.mark.parametrize("program", ["claude", "gemini", "opencode"])
def test_what_a_sub_agent_did_is_a_trajectory_of_its_own(program: str, tmp_path: Path) -> None:
    made = _trajectory(f"{program}/sub_agent", tmp_path / "a")

    (inside,) = made["subagent_trajectories"]
    (called,) = [call for step in made["steps"] for call in step.get("tool_calls", [])]
    (result,) = [found for step in made["steps"] if "observation" in step for found in step["observation"]["results"]]
    within = [call for step in inside["steps"] for call in step.get("tool_calls", [])]
    assert result["source_call_id"] == called["tool_call_id"]
    assert result["subagent_trajectory_ref"] == [{"trajectory_id": inside["trajectory_id"]}]
    assert inside["steps"][0] == inside["steps"][0] | {"source": "user", "message": "Look."}
    assert [call["arguments"].get("command") for call in within][:2] == ["cat notes.txt", "cat missing.txt"]
    assert made["steps"][-1]["message"] == "All is ready."


def test_the_usage_of_a_round_stands_with_it_and_that_of_a_session_at_the_end(tmp_path: Path) -> None:
    each, whole = _trajectory("opencode/tools", tmp_path / "a"), _trajectory("codex/tools", tmp_path / "b")

    told = [step["metrics"]["completion_tokens"] for step in each["steps"] if "metrics" in step]
    assert told == [28, 22, 23, 24]
    assert each["final_metrics"]["total_completion_tokens"] == sum(told)
    assert not any("metrics" in step for step in whole["steps"])
    assert whole["final_metrics"]["total_prompt_tokens"] == 8000
    assert whole["final_metrics"]["total_cached_tokens"] == 3000


def test_trouble_is_a_step_of_the_system(tmp_path: Path) -> None:
    made = _trajectory("claude/rate_limit_then_ok", tmp_path / "a")

    assert [step["extra"]["trouble"] for step in made["steps"] if step["source"] == "system"] == ["rate-limit"]


def test_sub_agents_that_are_called_together_do_not_stand_in_each_other() -> None:
    first, second = (ToolCall(tool="Task", id=name, args={"subagent_type": name}) for name in "ab")
    done = [ToolResult(id=name) for name in ("c", "b", "a")]

    _, step = _steps(first, second, ToolCall(tool="Bash", id="c"), *done)

    assert [(call.id, [inner.calls[0].id for inner in call.inside]) for call in step.calls] == [("a", []), ("b", ["c"])]
    assert all(call.result for call in step.calls)


def test_sub_agents_without_end_are_kept_to_a_depth(tmp_path: Path) -> None:
    talk = [(ToolCall(tool="t", args={"agent_name": "a"}), Message(role="assistant", text="b")) for _ in range(5000)]
    (tmp_path / "events.jsonl").write_bytes(codec.encode_lines([event for pair in talk for event in pair]))
    attempt = AttemptResult(number=1, status="failed", duration_s=1, artifact_dir="a")

    made = _of(attempt, SessionSummary(runner="r", agent="a", prompt="Go."), tmp_path)

    depth = 0
    while "subagent_trajectories" in made:
        (made,) = made["subagent_trajectories"]
        depth += 1
    assert depth == 20
    assert sum(len(step.get("tool_calls", [])) for step in made["steps"]) == 5000 - 20


def test_calls_without_ids_and_results_without_calls_are_kept() -> None:
    events = [ToolCall(tool="x"), ToolCall(tool="y"), ToolResult(tool="y", output="1"), ToolResult(output="2")]

    _, step, stray = _steps(*events, ToolResult(id="gone", output="3"))

    assert [(call.id, call.result and call.result.output) for call in step.calls] == [("call-1", "2"), ("call-2", "1")]
    assert stray.stray
    assert stray.stray.output == "3"


def test_what_a_round_reads_and_is_told_before_it_stands_with_that_round() -> None:
    events = [UsageSeen(input_tokens=7), Message(role="assistant", text="a"), UsageSeen(output_tokens=1)]

    _, step = _steps(*events)

    assert step.usage
    assert (step.usage.input_tokens, step.usage.output_tokens) == (7, None)


@pytest.mark.root
@pytest.mark.slow
def test_harbor_takes_the_trajectory_of_every_recording(harbor: Path, tmp_path: Path) -> None:
    paths = [tmp_path / "all" / name / "trajectory.json" for name in ALL]
    for name, path in zip(ALL, paths, strict=True):
        made = _trajectory(name, path.parent)
        path.write_bytes(codec.encode_pretty(made))
    wrong = tmp_path / "wrong.json"
    wrong.write_bytes(codec.encode(made | {"steps": [made["steps"][0] | {"step_id": 2}]}))

    judged = subprocess.run(
        [str(harbor), "-c", _JUDGE, *map(str, (*paths, wrong))], capture_output=True, check=True, text=True
    )

    verdicts = json.loads(judged.stdout)
    assert "expected 1" in verdicts.pop(str(wrong))[0]
    assert len(verdicts) == len(ALL) > 70
    assert {path: errors for path, errors in verdicts.items() if errors} == {}


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("folder", AGENTS)
def test_harbor_takes_the_trajectory_of_garbled_output(folder: str, harbor: Path, tmp_path: Path) -> None:
    read = read_output(plugins.find("agents", AGENTS[folder])(), garbled_output(folder, 1), exit_code=1)
    (tmp_path / "events.jsonl").write_bytes(codec.encode_lines(read.events))
    attempt = AttemptResult(number=1, status="failed", duration_s=1, artifact_dir="a", usage=read.session.usage)
    path = tmp_path / "trajectory.json"
    path.write_bytes(codec.encode(_of(attempt, SessionSummary(runner="r", agent="a", prompt="Go."), tmp_path)))

    judged = subprocess.run([str(harbor), "-c", _JUDGE, str(path)], capture_output=True, check=True, text=True)

    assert json.loads(judged.stdout) == {str(path): None}
