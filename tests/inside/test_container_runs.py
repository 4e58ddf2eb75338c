"""Whole runs in containers: what an agent sees there, what is built, and what is left."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from images import call_podman, containers_left
from project import SHELL, Outcome, Project
from tasks import write_task

SUITE = """
@case(prompt={prompt})
def works(session, ctx):
    {check}
"""
WAITING = """
suite = [
    Case(id=f"waits-{number}", prompt="echo {token}; sleep 600; : {token}", check=ok, timeout_ms=600_000)
    for number in range(10)
]
"""


def run_one(project: Project, prompt: str, check: str = "pass", *args: str) -> Outcome:
    project.suite(SUITE.replace("{prompt}", repr(prompt)).replace("{check}", check))
    return project.run(*args)


def test_an_agent_works_in_its_workspace_and_sees_the_image_instead_of_the_machine(
    project: Project, image: str
) -> None:
    secret = project.outside / "secret"
    secret.write_text("of the machine")
    prompt = f"cat {secret} /etc/hostname 2>&1; ls /etc > listed; echo hello > made; touch /etc/new || echo closed"

    ended = run_one(project, prompt, "assert sorted(ctx.changes().created) == ['listed', 'made']", "--image", image)

    assert ended.statuses == {"works": "passed"}, ended.stderr + ended.stdout
    said = ended.session("works")["final_output"]
    assert "of the machine" not in said
    assert "closed" in said
    assert containers_left(f"whet.run={ended.folder.name}") == []


def test_commands_of_checks_run_in_the_same_image(project: Project, image: str) -> None:
    check = "assert ctx.run(['sh', '-c', 'ls /app && ! test -e /usr/bin/apt-get']).ok"

    ended = run_one(project, "true", check, "--image", image)

    assert ended.statuses == {"works": "passed"}, ended.message("works")


def test_without_an_image_nothing_starts(project: Project) -> None:
    ended = run_one(project, "true")

    assert ended.code == 2
    assert "no image is named for sh" in ended.stderr
    assert "run.image" in ended.stderr


def test_an_image_that_nobody_has_is_the_fault_of_nobody_in_the_trial(project: Project) -> None:
    ended = run_one(project, "true", "pass", "--image", "127.0.0.1:1/nothing:none")

    assert ended.statuses == {"works": "errored"}
    assert ended.codes == {"works": "image-missing"}
    assert "127.0.0.1:1/nothing:none" in ended.message("works")


def test_a_folder_is_built_once_by_its_content_and_clean_removes_it(
    project: Project, image: str, cleaning: None
) -> None:
    project.write("box/Dockerfile", f"FROM {image}\nCOPY note /note\nRUN echo built-{{token}} > /built\n")
    project.write("box/note", "first {token}\n")

    def seen() -> tuple[str, int]:
        """What the agent reads, and how many images were built."""
        ended = run_one(project, "cat /note /built", "pass", "--image", "./box", "--trials", "2")
        return ended.session("works")["final_output"].split()[0], len(list(ended.folder.glob("images/*.log")))

    first, again = seen(), seen()
    project.write("box/note", "second {token}\n")
    changed = seen()
    cleaned = project.whet("clean", "--images")

    assert (first, again, changed) == (("first", 1), ("first", 0), ("second", 1))
    assert "removed" in cleaned.stdout
    assert seen() == ("second", 1)


def test_clean_counts_what_it_removed_and_says_that_the_rest_is_in_use(
    project: Project, image: str, cleaning: None
) -> None:
    project.whet("clean", "--images")
    project.write("box/Dockerfile", f"FROM {image}\nRUN echo {{token}} > /built\n")
    nothing = project.whet("clean", "--images", "--dry-run")
    (log,) = run_one(project, "true", "pass", "--image", "./box").folder.glob("images/*.log")
    built = f"localhost/whet:{log.stem}"
    foretold = project.whet("clean", "--images", "--dry-run")
    name = f"holds-{project.token}"
    call_podman("create", "--name", name, built, "true")

    try:
        held = project.whet("clean", "--images")
    finally:
        call_podman("rm", "--force", name)
    freed = project.whet("clean", "--images")

    assert (nothing.code, nothing.stdout) == (0, "there is nothing to remove\n")
    assert re.fullmatch(rf"image      {built}  [\d.,]+ MB\nwould remove 1 thing, [1-9][\d.,]* MB\n", foretold.stdout), (
        foretold.stdout
    )
    assert (held.code, "removed 0 images" in held.stdout) == (1, True), held.stdout
    assert f"{built}: in use by a run" in held.stderr
    assert "forc" not in held.stderr
    assert "removed 1 image\n" in freed.stdout, freed.stderr


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("./nothere", "--image: there is no folder "),
        ("BAD NAME", "--image: 'BAD NAME' is not the name of an image"),
    ],
)
def test_an_image_that_cannot_be_one_is_refused_before_anything_starts(
    project: Project, option: str, said: str
) -> None:
    ended = run_one(project, "true", "pass", "--image", option)
    project.settings(f'[run]\nimage = "{option}"\n{SHELL}')
    by_file = run_one(project, "true")

    assert (ended.code, by_file.code) == (2, 2)
    assert f"error[usage]: {said}" in ended.stderr
    assert "run.image (" in by_file.stderr
    assert not list(project.output_dir.glob("2*"))


def test_a_build_that_fails_says_why_and_its_log_is_kept(project: Project, image: str) -> None:
    project.write("box/Dockerfile", f"FROM {image}\nRUN echo the-reason >&2; exit 3\n")

    ended = run_one(project, "true", "pass", "--image", "./box")

    assert ended.codes == {"works": "image"}
    assert "the-reason" in ended.message("works")
    assert "the-reason" in next((ended.folder / "images").glob("*.log")).read_text()


def test_a_command_of_the_settings_installs_into_a_derived_image_once(
    project: Project, image: str, cleaning: None
) -> None:
    project.settings(f"""
        [run]
        image = "{image}"
        install = "echo installed > /usr/bin/tool-{project.token}"
        [runners.sh.agent]
        type = "command"
        command = "sh"
    """)

    ended = run_one(project, f"cat /usr/bin/tool-{project.token}", "pass", "--trials", "2")
    project.whet("clean", "--images")

    assert ended.statuses == {"works": "passed"}
    assert ended.session("works")["final_output"].strip() == "installed"


def test_the_case_decides_on_its_image_before_the_runner_and_the_settings(
    project: Project, image: str, small_image: str
) -> None:
    project.suite(f"""
        @case(prompt="command -v python3 || echo none", image="{small_image}")
        def own(session, ctx): pass
        @case(prompt="command -v python3 || echo none")
        def usual(session, ctx): pass
    """)

    ended = project.run("--image", image)

    assert ended.session("own")["final_output"].strip() == "none"
    assert ended.session("usual")["final_output"].strip() == "/usr/bin/python3"


def test_limits_and_the_network_hold(project: Project, image: str) -> None:
    project.settings("""
        [defaults]
        max_memory_mb = 64
        max_processes = 30
        [runners.sh.agent]
        type = "command"
        command = "sh"
        network = false
    """)
    hungry = "python3 -c 'x = bytearray(500_000_000)'; echo $?; cat /proc/net/dev | wc -l; "
    forks = "(for i in $(seq 60); do sleep 5 & done) 2>/dev/null; set -- /proc/[0-9]*; echo $#"

    ended = run_one(project, hungry + forks, "pass", "--image", image)

    memory, interfaces, processes = ended.session("works")["final_output"].split()[:3]
    assert memory != "0"
    # Two lines of a head, and the loopback.
    assert interfaces == "3"
    assert int(processes) <= 31


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("head -c 60000000 /dev/zero > large; sleep 60", "failed"),
        ("for at in /tmp /var/tmp /run; do head -c 60000000 /dev/zero > $at/large && exit 7; done; true", "passed"),
    ],
)
def test_a_ceiling_of_disk_holds_in_the_workspace_and_in_memory(
    project: Project, image: str, script: str, status: str
) -> None:
    project.settings(SHELL + "[defaults]\nmax_disk_mb = 30\n")

    ended = run_one(project, script, "pass", "--image", image)

    assert ended.statuses == {"works": status}, ended.message("works")
    assert ended.codes == {"works": "ceiling" if status == "failed" else None}


def test_a_program_is_looked_for_in_the_image_unless_it_is_named_from_here(project: Project, image: str) -> None:
    tool = project.write("tool", "#!/bin/sh\necho mounted $0\n", mode=0o755)
    project.settings(f"""
        [run]
        image = "{image}"
        [runners.mounted.agent]
        type = "command"
        command = "./tool"
        [runners.inside.agent]
        type = "command"
        command = "{tool}"
        [runners.named.agent]
        type = "command"
        command = "busybox"
        args = ["echo", "of the image"]
    """)
    project.suite("suite = [Case(id='works', prompt='do', check=ok)]")

    ended = project.run()

    said = {
        trial["runner"]: (ended.folder / trial["artifact_dir"] / "transcript.txt").read_text().strip()
        for trial in ended.trials
        if not trial["failure"]
    }
    assert said == {"mounted": "mounted /opt/whet/agent/tool", "named": "of the image"}
    assert [trial["failure"]["code"] for trial in ended.trials if trial["failure"]] == ["agent-not-found"]


def test_a_variable_of_several_lines_and_a_secret_reach_the_agent_and_no_argument_list(
    project: Project, image: str
) -> None:
    project.settings(f"""
        [run]
        image = "{image}"
        [runners.sh.agent]
        type = "command"
        command = "sh"
        env = {{ LINES_OF = "one\\ntwo", TOOL_API_KEY = "hidden-{project.token}" }}
    """)

    ended = run_one(project, 'echo "$LINES_OF" | wc -l; test -n "$TOOL_API_KEY" && sleep 1 && echo there')

    assert ended.session("works")["final_output"].split() == ["2", "there"]


def test_skills_of_an_evaluation_are_called_in_the_image(project: Project, image: str) -> None:
    where = "import json, os, sys; call = json.loads(sys.stdin.readline())"
    answer = "print(json.dumps({'jsonrpc': '2.0', 'id': call['id'], 'result': os.path.isdir('/app')}))"
    project.write("skill/skill.py", f"{where}\n{answer}\n")
    project.write(
        "skill/skill.json",
        json.dumps(
            {
                "id": "s",
                "name": "s",
                "version": "1.0.0",
                "description": "d",
                "adapterType": "subprocess",
                "entrypoint": "python3 skill.py",
                "inputSchema": {},
                "outputSchema": {},
            }
        ),
    )
    task = {"id": "t", "inputData": {}, "expectedOutput": {"value": True}, "evaluator": {"type": "exact"}}
    told = {"id": "b", "version": "1.0.0", "name": "b", "domain": "d", "scoringMethod": "mean", "tasks": [task]}
    project.write("b.json", json.dumps(told))
    call = ("eval", "--skills", "skill", "--benchmark", "./b.json", "--sandbox", "container")

    without = project.whet(*call)
    ended = project.whet(*call, env={"WHET_IMAGE": image})

    assert without.code == 2
    assert "no image is named for the skills" in without.stderr
    assert ended.code == 0, ended.stdout + ended.stderr
    assert "1 of 1 call passed" in ended.stdout
    assert containers_left(f"whet.run={ended.folder.name}") == []


def begun(project: Project, image: str, count: int) -> subprocess.Popen[bytes]:
    """Begin a run whose agents wait, and return its process once *count* of their containers run."""
    project.suite(WAITING)
    process = project.start("suite.py", "--image", image, "--max-parallel", str(count))
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if (project.output_dir / "latest").exists():
            run = (project.output_dir / "latest").resolve().name
            if len(containers_left(f"whet.run={run}")) >= count and len(project.left()) >= count:
                return process
        time.sleep(0.2)
    process.kill()
    project.outcome(process)
    raise AssertionError("the containers never came")


@pytest.mark.slow
def test_ctrl_c_leaves_no_container(project: Project, image: str) -> None:
    process = begun(project, image, 3)
    run = (project.output_dir / "latest").resolve().name

    process.send_signal(signal.SIGINT)
    ended = project.outcome(process, within_s=60)

    assert ended.code == 130
    assert containers_left(f"whet.run={run}") == []
    assert project.left_after_a_while() == []


@pytest.mark.slow
def test_after_a_kill_among_ten_containers_the_next_start_of_any_run_leaves_none(
    project: Project, image: str, tmp_path: Path
) -> None:
    process = begun(project, image, 10)
    run = (project.output_dir / "latest").resolve().name

    # Whichever run begins next removes them, also one of another test: it waits for the lock.
    with Path("/var/tmp/whet-0/containers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process.kill()
        project.outcome(process, within_s=60)
        foretold = project.whet("clean", "--images", "--dry-run")
        still = containers_left(f"whet.run={run}", "{{.Names}}")
    other = Project(tmp_path / "other")
    other.settings('[runners.sh.agent]\ntype = "command"\ncommand = "true"\n')
    other.suite("suite = [Case(id='other', prompt='x', check=ok)]")
    ended = other.run()

    assert len(still) == 10
    assert {f"container  {name}" for name in still} <= set(foretold.stdout.splitlines()), foretold.stdout
    assert ended.code == 0, ended.stderr
    assert containers_left(f"whet.run={run}") == []
    assert project.left_after_a_while() == []


@pytest.mark.slow
def test_two_starts_at_once_after_a_kill_remove_what_was_left_and_nothing_of_anybody_else(
    project: Project, image: str, tmp_path: Path
) -> None:
    process = begun(project, image, 10)
    run = (project.output_dir / "latest").resolve().name
    owner = containers_left(f"whet.run={run}", '{{index .Labels "whet.owner"}}')[0]
    assert owner.startswith(f"{process.pid}-")
    # Somebody else's, of an image that has the label.
    name = f"other-{project.token}"
    call_podman("create", "--name", name, "--label", f"whet.owner={owner}", image, "true")
    others = []
    for number in range(2):
        other = Project(tmp_path / f"other-{number}")
        other.settings('[runners.sh.agent]\ntype = "command"\ncommand = "true"\n')
        other.suite("suite = [Case(id='other', prompt='x', check=ok)]")
        others.append(other)

    try:
        process.kill()
        project.outcome(process, within_s=60)
        started = [other.start("suite.py") for other in others]
        ended = [other.outcome(each, within_s=60) for other, each in zip(others, started, strict=True)]

        assert [each.code for each in ended] == [0, 0], [each.stderr for each in ended]
        assert containers_left(f"whet.run={run}") == []
        assert call_podman("container", "inspect", "--format", "{{.State.Status}}", name) == "created"
        assert project.left_after_a_while() == []
    finally:
        call_podman("rm", "--force", name)


def _files_with(text: str) -> list[Path]:
    """Files of whet outside of every project that hold *text*."""
    places = [*Path(tempfile.gettempdir()).glob("whet-*"), Path(f"/var/tmp/whet-{os.getuid()}")]
    found = subprocess.run(
        ["grep", "-rlsF", "--devices=skip", text, *map(str, places)], stdout=subprocess.PIPE, text=True, check=False
    )
    return [Path(line) for line in found.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["image", "task"])
def test_after_a_kill_the_next_start_of_any_run_removes_the_variables_of_the_agent(
    project: Project, image: str, tmp_path: Path, kind: str
) -> None:
    secret = f"secret-{project.token}"
    project.settings(SHELL + f'env = {{ KEY = "{secret}" }}\n')
    waits = f"echo {project.token}; sleep 600; : {project.token}"
    if kind == "task":
        project.sandbox = "auto"
        write_task(project.root / "tasks/waits", image, instruction_DOT_md=waits)
        process = project.start("tasks")
    else:
        project.suite(f"suite = [Case(id='waits', prompt='{waits}', check=ok)]")
        process = project.start("suite.py", "--image", image)
    deadline = time.monotonic() + 300
    while not _files_with(secret) and time.monotonic() < deadline:
        time.sleep(0.05)
    handed = _files_with(secret)

    process.kill()
    project.outcome(process, within_s=60)
    other = Project(tmp_path / "other")
    other.settings('[runners.sh.agent]\ntype = "command"\ncommand = "true"\n')
    other.suite("suite = [Case(id='other', prompt='x', check=ok)]")
    ended = other.run()

    assert ended.code == 0, ended.stderr
    assert handed, "this test needs the file while an agent runs"
    assert not any(path.parent.exists() for path in handed)
    assert _files_with(secret) == []
    assert project.left_after_a_while() == []


SETUID = """cp /bin/busybox evil; chmod 4755 evil; chmod 2755 evil; chmod u+s evil
    python3 -c 'import os; os.open("made", os.O_CREAT | os.O_WRONLY, 0o6755)' || true
    python3 -c 'import os; os.mknod("node", 0o104755)' || true; chmod 750 evil; ls -l"""


def test_no_program_of_a_container_becomes_setuid_here(project: Project, image: str) -> None:
    ended = run_one(project, SETUID, "assert False", "--image", image)

    assert ended.codes == {"works": "assertion"}, ended.stderr
    left = list((ended.folder / ended.trial("works")["workspace_dir"]).iterdir())
    assert "evil" in {path.name for path in left}
    assert [path.name for path in left if path.stat().st_mode & 0o6000] == []
    assert (next(path for path in left if path.name == "evil").stat().st_mode & 0o777) == 0o750


def test_a_folder_of_yours_gets_no_setuid_program_while_the_agent_works(project: Project, image: str) -> None:
    (project.root / "shared").mkdir()
    project.suite(f"""
        workspace = Workspace(mode="shared", cwd="shared")
        suite = [Case(id="works", prompt={SETUID!r}, check=lambda s: expect.does_not_match(s.final_output, "rws|r-s"))]
    """)

    ended = project.run("--image", image)

    assert ended.statuses == {"works": "passed"}, ended.message("works")
    assert [path.name for path in (project.root / "shared").iterdir() if path.stat().st_mode & 0o6000] == []


def test_a_trial_that_only_asks_whether_a_skill_loads_ends_in_a_container_too(project: Project, image: str) -> None:
    project.write("deploy/SKILL.md", "---\nname: deploy\ndescription: Ships the site.\n---\nRun ship.sh.\n")
    loads = '{"type":"skill_signal","skill":"deploy"}'
    query = {"id": "loads", "query": f"echo '{loads}'; sleep 600", "should_trigger": True}
    project.write("deploy/evals/triggers.json", json.dumps([query]))
    project.settings(f'{SHELL}\noutput = "events"\n')

    ended = project.whet("run", "deploy/evals/triggers.json", "--image", image, "--timeout", "120s")

    (trial,) = ended.trials
    assert (trial["status"], trial["ended_early"]["why"]) == ("passed", "loaded"), ended.stderr + ended.stdout
    assert containers_left(f"whet.run={ended.folder.name}") == []
