"""Record and replay: a recorded run is given back, with what it printed, changed and came to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from project import EVENTS, SHELL, Project

from whet import plugins
from whet.agents.contract import Agent
from whet.agents.replay.agent import Recording, find_recording
from whet.model import codec
from whet.model.run import Runner
from whet.model.session import SessionSummary

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
REPLAY = """
[runners.again.agent]
type = "replay"
script = "recording"
"""
# Without its journal, nothing tells whether a recording was changed.
AS_IT_IS = REPLAY.replace("recording", "recording/trials")
BINARY = """
    def looked(report, ctx):
        assert (ctx.workspace / "deep/picture.bin").read_bytes() == bytes(range(256)) * 4
        assert (ctx.workspace / "link").readlink() == Path("deep/picture.bin")
        assert (ctx.workspace / "run.sh").stat().st_mode & 0o777 == 0o755
        assert report.final_output == "done", report.final_output
    AGENT = '''
    mkdir deep
    python3 -c "open('deep/picture.bin','wb').write(bytes(range(256))*4)"
    ln -s deep/picture.bin link
    echo true > run.sh; chmod 755 run.sh
    echo done
    '''
    suite = [Case(id="c", prompt=AGENT, check=looked)]
"""


def record(project: Project, runner: str = SHELL, *args: str) -> Path:
    """Run the suite with a real agent, and keep the run folder as the recording."""
    project.settings(runner)
    outcome = project.run(*args)
    recording = project.root / "recording"
    shutil.copytree(outcome.folder, recording, symlinks=True)
    project.settings(REPLAY)
    return recording


def transcript(folder: Path, name: str) -> bytes:
    return next(iter(folder.glob(f"trials/*/*/*/1/1/{name}"))).read_bytes()


def test_a_replayed_case_gets_its_files_back_also_binary_ones_links_and_modes(boxed: Project) -> None:
    boxed.suite(BINARY)
    record(boxed)

    outcome = boxed.run()

    assert (outcome.code, outcome.statuses) == (0, {"c": "passed"}), outcome.stdout


def test_a_replayed_transcript_is_the_recorded_one_byte_for_byte_and_reads_into_the_same_events(
    project: Project,
) -> None:
    project.suite("""
        def seven(report, ctx): assert report.final_output == "seven"
        AGENT = '''
        echo '{"type": "tool_call",  "tool": "bash", "id": "1", "args": {"x": "\\u00e4"}}'
        echo '{"type":"usage","input_tokens":7,"output_tokens":2}'
        echo '{"type":"final_output","text":"seven"}'
        echo grumble >&2
        '''
        suite = [Case(id="c", prompt=AGENT, check=seven)]
    """)
    recording = record(project, EVENTS)

    outcome = project.run()

    assert outcome.code == 0, outcome.stdout
    for name in ("transcript.jsonl", "stderr.log"):
        assert transcript(outcome.folder, name) == transcript(recording, name)
    usage = outcome.trial("c")["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (7, 2)


def recorded_session(project: Project, agent: str, situation: str, files: dict[str, bytes]) -> list[bytes]:
    """A recording of a real agent, as a run of it would have left it; its events."""
    stdout = (TRANSCRIPTS / situation / "stdout.jsonl").read_bytes()
    adapter: Agent = plugins.find("agents", agent)()
    events = [event for line in stdout.splitlines() for event in adapter.events(line)]
    events += adapter.ending(files)
    folder = project.root / "recording" / "trials" / "c" / "real" / "default" / "1" / "1"
    folder.mkdir(parents=True)
    (folder / "transcript.jsonl").write_bytes(stdout)
    lines = [codec.encode(event) for event in events]
    (folder / "events.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    session = SessionSummary(runner="real", agent=agent, prompt="p", exit_code=0)
    (folder / "session.json").write_bytes(codec.encode(session))
    return lines


@pytest.mark.parametrize(("agent", "situation"), [("claude-code", "claude/tools"), ("copilot", "copilot/plain")])
def test_the_events_of_a_recorded_agent_are_the_same_also_those_from_other_files_than_its_transcript(
    project: Project, agent: str, situation: str
) -> None:
    usage = TRANSCRIPTS / situation / "usage.json"
    asked = {"copilot-usage.json": usage.read_bytes()} if usage.exists() else {}
    events = recorded_session(project, agent, situation, asked)
    project.settings(REPLAY)
    project.suite('suite = [Case(id="c", prompt="p", check=ok)]')

    outcome = project.run()

    assert outcome.statuses == {"c": "passed"}, outcome.message("c")
    assert outcome.artifact("c", "events.jsonl").read_bytes().splitlines() == events
    assert outcome.trial("c")["usage"]["input_tokens"]


def test_what_a_command_printed_is_read_again_from_its_lines_also_if_whet_kept_their_times(project: Project) -> None:
    project.suite('''
        AGENT = """echo '{"type":"final_output","text":"done"}'; echo this is no event"""
        suite = [Case(id="c", prompt=AGENT, check=ok)]
    ''')
    recording = record(project, EVENTS)
    assert json.loads(transcript(recording, "events.jsonl"))["at"]

    outcome = project.run()

    assert outcome.trial("c")["failure"]["code"] == "normalization"


def test_what_an_agent_deleted_and_modified_is_so_again(project: Project) -> None:
    project.write("template/old/gone.txt", "gone")
    project.write("template/kept.txt", "one")
    project.suite("""
        def looked(report, ctx):
            assert ctx.changes().deleted == ("old/gone.txt",), ctx.changes()
            assert ctx.changes().modified == ("kept.txt",)
            assert not (ctx.workspace / "old").exists()
            assert ctx.read("kept.txt") == "two\\n"
        workspace = Workspace(mode="isolated", template_dir="template")
        suite = [Case(id="c", prompt="rm -r old; echo two > kept.txt", check=looked)]
    """)
    record(project)

    outcome = project.run()

    assert outcome.statuses == {"c": "passed"}, outcome.message("c")


def test_a_case_without_a_recording_is_found_before_anything_starts(project: Project) -> None:
    project.suite('suite = [Case(id="c", prompt="true", check=ok)]')
    record(project)
    project.suite('suite = [Case(id="c", prompt="true", check=ok), Case(id="new", prompt="true", check=ok)]')

    outcome = project.run()

    assert outcome.code == 2
    assert 'runners.again.agent.script: case "new" has no recording in' in outcome.stderr


def test_each_trial_gets_its_own_recording_and_further_ones_the_first(project: Project) -> None:
    project.suite('suite = [Case(id="c", prompt="echo x >> {outside}/count; wc -l < {outside}/count", check=ok)]')
    record(project, SHELL, "--trials", "2", "--schedule", "serial")

    outcome = project.run("--trials", "3")

    assert [trial["final_output"].strip() for trial in outcome.trials] == ["1", "2", "1"]


def test_a_recording_that_lacks_a_changed_file_is_errored_and_says_which(project: Project) -> None:
    project.suite("""
        suite = [Case(id="c", prompt="truncate -s 40M big.bin; mkfifo pipe; echo hi > small.txt", check=ok)]
    """)
    record(project)

    outcome = project.run()

    assert (outcome.code, outcome.statuses) == (3, {"c": "errored"})
    assert "big.bin (it has 41,943,040 bytes, which is too large to record)" in outcome.message("c")
    assert "pipe (it is neither a file nor a link)" in outcome.message("c")
    assert "incomplete = true" in outcome.message("c")


def test_an_incomplete_recording_is_played_where_that_is_asked_for(project: Project) -> None:
    project.suite("""
        def looked(report, ctx): assert ctx.read("small.txt") == "hi\\n"
        suite = [Case(id="c", prompt="mkfifo pipe; echo hi > small.txt", check=looked)]
    """)
    record(project)
    project.settings(REPLAY + "options = { incomplete = true }\n")

    outcome = project.run()

    assert outcome.statuses == {"c": "passed"}, outcome.message("c")


def test_what_was_not_recorded_is_said_when_it_is_recorded(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="c", prompt="mkfifo pipe", check=ok)]')

    outcome = project.run()

    assert outcome.trial("c")["notes"] == ["pipe was not recorded: it is neither a file nor a link"]


def test_an_agent_that_crashed_crashes_again(project: Project) -> None:
    project.suite('suite = [Case(id="c", prompt="echo half; exit 3", check=ok)]')
    record(project)

    outcome = project.run()

    assert (outcome.code, outcome.codes) == (1, {"c": "agent-crashed"})


def test_the_recording_of_one_of_several_runners_is_named_by_options(project: Project) -> None:
    project.suite('suite = [Case(id="c", prompt="echo $WHET_RUNNER_ID", check=ok)]')
    record(project, SHELL + '[runners.other.agent]\ntype = "command"\ncommand = "sh"\n')
    unsaid = project.run()
    project.settings(REPLAY + 'options = { runner = "other" }\n')

    outcome = project.run()

    assert unsaid.code == 2
    assert 'was recorded by other, sh: say which, as options = { runner = "other" }' in unsaid.stderr
    assert outcome.trial("c")["final_output"] == "other"


def test_each_arm_of_a_case_gets_its_own_recording_back(project: Project) -> None:
    project.suite('suite = [Case(id="c", prompt="echo hi", check=ok)]')
    trials = record(project) / "trials"
    runner = Runner(id="again", agent="replay", options={"script": str(trials)})
    alone = find_recording(runner, "c", "terse", 1)
    shutil.copytree(trials / "c/sh/default", trials / "c/sh/terse")

    found = {arm: find_recording(runner, "c", arm, 1) for arm in ("default", "terse", "other")}

    assert isinstance(alone, Recording)
    assert alone.folder == trials / "c/sh/default/1/1"
    assert [getattr(found[arm], "folder", None) for arm in ("default", "terse")] == [
        trials / "c/sh/default/1/1",
        trials / "c/sh/terse/1/1",
    ]
    assert found["other"] == 'case "c" was recorded in the arms default, terse, and not in other'


@pytest.mark.parametrize("name", ["../outside/evil", "/tmp/evil", "a/../../evil"])
def test_a_recording_cannot_write_outside_of_the_workspace(project: Project, name: str) -> None:
    project.suite('suite = [Case(id="c", prompt="echo x > a", check=ok)]')
    recording = record(project)
    listed = next(iter(recording.glob("trials/*/*/*/1/1/changes.json")))
    listed.write_text(json.dumps({**json.loads(listed.read_text()), "deleted": [name]}))
    project.settings(AS_IT_IS)
    (project.outside / "evil").write_text("still here")

    outcome = project.run()

    assert outcome.statuses == {"c": "failed"}
    assert "which is not a path below a workspace" in outcome.message("c")
    assert (project.outside / "evil").exists()


def test_secrets_are_not_in_the_recording(project: Project) -> None:
    project.settings(SHELL + 'env = { API_KEY = "sk-very-secret-value" }\n')
    project.suite('suite = [Case(id="c", prompt="echo $API_KEY > key.txt", check=ok)]')

    outcome = project.run()

    artifacts = outcome.artifact("c", "changes.tar").read_bytes() + outcome.artifact("c", "changes.json").read_bytes()
    assert b"sk-very-secret-value" not in artifacts
    assert json.loads(outcome.artifact("c", "changes.json").read_bytes())["masked"] == ["key.txt"]


TOLD = """
[runners.writer]
{skills}
[runners.writer.agent]
type = "claude-code"
model = "claude-sonnet-4-5"
command = "{program}"
"""
SPEAKS = """#!/bin/sh
cat > /dev/null
echo '{"type":"system","subtype":"init","session_id":"s-1"}'
call='{"type":"tool_use","id":"1","name":"Bash","input":{"command":"cat skills/tone/style.md"}}'
echo '{"type":"assistant","message":{"id":"m","content":['"$call"']}}'
echo '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1","content":"Be kind."}]}}'
usage='{"input_tokens":1000,"output_tokens":10}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"done","usage":'"$usage"'}'
"""


def test_a_replay_knows_the_skills_and_the_model_of_its_recording(project: Project) -> None:
    project.write("skills/tone/SKILL.md", "---\nname: tone\ndescription: How we talk.\n---\nBe kind.\n")
    project.suite("""
        def looked(report, ctx):
            assert report.placed_skills == ("tone",)
            expect.skills.has(report, "tone", min_confidence="medium")
        suite = [Case(id="c", prompt="Go.", check=looked)]
    """)
    program = project.write("bin/speaks", SPEAKS, mode=0o755)
    recording = record(project, TOLD.format(skills='skills = ["skills/tone"]', program=program))
    before = json.loads(transcript(recording, "session.json"))

    outcome = project.run()

    assert outcome.code == 0, outcome.stdout + outcome.stderr
    after = outcome.session("c")
    assert before["usage"]["cost_usd"] > 0
    assert (after["model"], after["usage"]) == (before["model"], before["usage"])
    assert outcome.trial("c")["detected_skills"] != []


def test_a_recording_whose_events_were_spoiled_is_errored_and_names_the_line(project: Project) -> None:
    project.suite("suite = [Case(id='c', prompt='Go.', check=ok)]")
    program = project.write("bin/speaks", SPEAKS, mode=0o755)
    recording = record(project, TOLD.format(skills="", program=program))
    events = next(iter(recording.glob("trials/*/*/*/1/1/events.jsonl")))
    events.write_bytes(events.read_bytes().splitlines(keepends=True)[0] + b'{"type": "zzz"}\n')
    project.settings(AS_IT_IS)

    outcome = project.run()

    failure = outcome.trial("c")["failure"]
    assert outcome.code == 3, outcome.stdout + outcome.stderr
    assert f"{events}: line 2 is not an event" in failure["message"]
    assert "fault of whet" not in outcome.stdout
