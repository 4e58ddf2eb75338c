"""What an agent inside bubblewrap can see and touch: what was declared, and nothing else."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest
from project import SHELL, Outcome, Project

pytestmark = pytest.mark.bubblewrap


@pytest.fixture
def walled(project: Project) -> Project:
    project.sandbox = "bubblewrap"
    return project


def told(project: Project, script: str, *, settings: str = SHELL, env: dict[str, str] | None = None) -> str:
    """What an agent that runs *script* prints."""
    project.settings(settings)
    project.suite(f"suite = [Case(id='a', prompt={script!r}, check=ok)]")
    done = project.run(env=env)
    assert done.code == 0, done.stderr + done.message("a")
    return said(done)


def said(done: Outcome) -> str:
    return done.artifact("a", "transcript.txt").read_text() if done.artifact("a", "transcript.txt").exists() else ""


def test_the_run_says_which_sandbox_it_used(walled: Project) -> None:
    walled.settings(SHELL)
    walled.suite("suite = [Case(id='a', prompt='true', check=ok)]")

    done = walled.run("--sandbox", "auto")

    assert done.results["sandbox"] == "bubblewrap"
    assert "bubblewrap" in done.stdout


def test_it_cannot_read_the_users_home(walled: Project) -> None:
    secret = walled.root.parent / "home" / ".netrc"
    secret.write_text("machine of mine")

    seen = told(walled, f"cat {secret} 2>&1; ls -A {secret.parent} 2>&1; ls -A ~")

    assert "machine of mine" not in seen
    assert ".netrc: No such file" in seen


def test_a_program_that_lies_in_the_users_home_does_not_open_the_home(walled: Project) -> None:
    home = walled.root.parent / "home"
    (home / ".netrc").write_text("machine of mine")
    program = home / "agent.sh"
    program.write_text(f"#!/bin/sh\ncat {home}/.netrc\nexit 0\n")
    program.chmod(0o755)

    seen = told(walled, "ignored", settings='[runners.sh.agent]\ntype = "command"\ncommand = "~/agent.sh"\n')

    assert "machine of mine" not in seen


def test_it_can_write_to_workspace_home_and_temporary_folder_only(walled: Project) -> None:
    places = ["$WHET_WORKSPACE", "$HOME", "$TMPDIR", "/tmp", str(walled.root), str(walled.outside), "/etc", "/usr", "/"]
    script = "; ".join(f"(: > {place}/probe) 2>/dev/null && echo {index}" for index, place in enumerate(places))

    seen = told(walled, script + "; true")

    # 3 is its own /tmp, which nobody else sees; 8 is the root of the namespace, which is as private.
    assert set(seen.split()) - {"8"} == {"0", "1", "2", "3"}
    assert not Path("/tmp/probe").exists()
    assert not Path("/probe").exists()
    assert list(walled.root.parent.rglob("probe")) == []


def test_it_sees_what_its_arguments_name_read_only_and_nothing_else_of_its_project(walled: Project) -> None:
    for name in ("agent.sh", "named.txt", "option.txt", "folder/inner.txt", "answers.txt", "suites/data.txt"):
        walled.write(name, f"echo this is {name}\n")
    walled.write(
        "agent.sh", f"cd {walled.root}; cat named.txt option.txt folder/* answers.txt suites/* whet.toml; : > named.txt"
    )
    walled.settings(f"""
        [runners.sh.agent]
        type = "command"
        command = "sh"
        args = ["./agent.sh", "./named.txt", "--option={walled.root}/option.txt", "./folder"]
        [runners.other.agent]
        type = "command"
        command = "true"
        env = {{ OTHER = "of another runner" }}
    """)
    walled.suite("suite = [Case(id='a', prompt='x', check=ok)]", "suites/suite.py")

    done = walled.whet("run", "suites/suite.py", "--runner", "sh")

    seen = done.artifact("a", "transcript.txt").read_text()
    assert [name for name in ("named.txt", "option.txt", "folder/inner.txt") if f"this is {name}" not in seen] == []
    assert "answers.txt" not in seen
    assert "data.txt" not in seen
    assert "another runner" not in seen
    assert "Read-only" in done.artifact("a", "stderr.log").read_text()


def test_a_prompt_that_names_a_file_shows_nothing(walled: Project) -> None:
    answers = walled.write("answers.txt", "the answer is 42")
    walled.settings('[runners.cat.agent]\ntype = "command"\ncommand = "cat"\nargs = ["{prompt}"]\n')
    walled.suite(f"suite = [Case(id='a', prompt={str(answers)!r}, check=ok)]")

    done = walled.run()

    assert done.statuses == {"a": "failed"}
    assert "42" not in said(done)


def test_a_program_that_lies_in_a_project_does_not_open_the_project(walled: Project) -> None:
    (walled.root / "lib").mkdir()
    answers = walled.write("answers.txt", "the answer is 42")
    walled.write("bin/agent", f"#!/bin/sh\necho started; cat {answers}; ls {walled.root}\n", mode=0o755)

    seen = told(walled, "x; true", settings='[runners.a.agent]\ntype = "command"\ncommand = "./bin/agent"\n')

    assert "started" in seen
    assert "42" not in seen
    assert "whet.toml" not in seen


def test_it_reads_settings_of_the_kernel_that_others_may_read_and_changes_none(walled: Project) -> None:
    settings = Path("/proc/sys")
    script = """
    cd /proc/sys
    cat kernel/osrelease net/core/somaxconn kernel/random/uuid kernel/random/uuid
    (echo 1 > vm/swappiness) 2>/dev/null && echo written
    cat net/ipv4/tcp_fastopen_key vm/mmap_rnd_bits 2>/dev/null
    (umount /proc/sys) 2>/dev/null && echo bare
    true
    """

    release, connections, one, other, *more = told(walled, script).splitlines()

    assert release == (settings / "kernel/osrelease").read_text().strip()
    assert connections == (settings / "net/core/somaxconn").read_text().strip()
    # Each is drawn when it is read.
    assert len({one, other, (settings / "kernel/random/uuid").read_text().strip()}) == 3
    assert more == []


def test_it_does_not_see_earlier_results(walled: Project) -> None:
    script = f"ls -A {walled.root}/.whet/runs; ls {walled.root}; cat {walled.root}/.whet/runs/latest/results.json; true"
    shown = SHELL + 'mounts = ["."]\n'
    told(walled, script, settings=shown)

    seen = told(walled, script, settings=shown)

    assert "whet.toml" in seen
    assert "passed" not in seen
    assert "latest" not in seen


def test_it_does_not_see_the_workspaces_of_other_trials(walled: Project) -> None:
    walled.settings(SHELL)
    walled.suite("""
        look = 'echo mine > mine; sleep 0.5; ls -A $HOME/..; ls -A $TMPDIR/..'
        def alone(report, ctx): assert len(set(report.final_output.split())) == 3, report.final_output
        suite = [Case(id=n, prompt=look, check=alone) for n in "ab"]
    """)

    done = walled.run("--max-parallel", "2")

    assert done.code == 0, [said(done), done.message("a")]


def test_it_sees_mounts_of_the_run_and_of_its_runner(walled: Project) -> None:
    for name in ("one", "two", "three"):
        (walled.outside / name).mkdir()
        (walled.outside / name / "file").write_text(f"this is {name}")
    settings = SHELL + 'mounts = ["{outside}/one"]\n[run]\nmounts = ["{outside}/two"]\n'

    seen = told(walled, f"cat {walled.outside}/*/file; (: > {walled.outside}/one/file) 2>&1; true", settings=settings)

    assert "this is one" in seen
    assert "this is two" in seen
    assert "this is three" not in seen
    assert "Read-only" in seen


def test_it_does_not_see_our_environment(walled: Project) -> None:
    seen = told(
        walled,
        "env; cat /proc/*/environ | tr '\\0' '\\n'; ls /proc | grep -c '^[0-9]'",
        env={"OUR_PLAIN_VARIABLE": "plain-value", "OUR_API_KEY": "secret-value-123"},
    )

    assert "plain-value" not in seen
    assert "OUR_API_KEY" not in seen
    assert int(seen.split()[-1]) < 10


def test_it_has_a_network_only_where_it_may(walled: Project) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    threading.Thread(target=_answer, args=(server,), daemon=True).start()
    script = f"import socket; print(socket.create_connection(('127.0.0.1', {port}), 5).recv(5))"
    program = '[runners.sh.agent]\ntype = "command"\ncommand = "python3"\nargs = ["-"]\n'

    allowed = told(walled, script, settings=program)
    walled.settings(program + "network = false\n")
    refused = walled.run()
    server.close()

    assert "hello" in allowed
    assert refused.statuses == {"a": "failed"}
    assert "refused" in refused.message("a").lower() or "unreachable" in refused.message("a").lower()


def test_a_scripted_agent_has_a_network_unless_it_may_not(walled: Project) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    threading.Thread(target=_answer, args=(server,), daemon=True).start()
    script = f"import socket; print(socket.create_connection(('127.0.0.1', {port}), 5).recv(5))"
    runner = '[runners.demo.agent]\ntype = "scripted"\nscript = "steps.json"\n'
    walled.write("steps.json", json.dumps([{"run": f'python3 -c "{script}"'}, {"answer": "done"}]))
    walled.suite("""
        def heard(report, ctx):
            heard = [getattr(event, "output", "") for event in report.events]
            assert any("hello" in each for each in heard), heard
        suite = [Case(id="a", prompt="call", check=heard)]
    """)

    walled.settings(runner)
    allowed = walled.run().statuses
    walled.settings(runner + "network = false\n")
    refused = walled.run().statuses
    server.close()

    assert (allowed, refused) == ({"a": "passed"}, {"a": "failed"})


def _answer(server: socket.socket) -> None:
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        with peer:
            peer.sendall(b"hello")


def test_each_attempt_has_an_empty_home_of_its_own(walled: Project) -> None:
    walled.settings(SHELL)
    walled.suite("""
        script = 'test -z "$(ls -A $HOME)" && test -z "$(ls -A $TMPDIR)" && touch $HOME/x $TMPDIR/x && exit 1'
        suite = [Case(id="a", prompt=script, check=ok), Case(id="b", prompt=script + "; exit 7", check=ok)]
    """)

    done = walled.run("--retries", "2", "--max-parallel", "1")

    codes = {attempt["failure"]["message"] for trial in done.trials for attempt in trial["attempts"]}
    assert codes == {"ended with exit code 1"}


def test_a_scripted_agent_does_not_see_the_suite(walled: Project) -> None:
    walled.settings('[runners.demo.agent]\ntype = "scripted"\nscript = "steps.json"\n')
    walled.write(
        "steps.json", f'[{{"run": "cat {walled.root}/suite.py; ls -A {walled.root}/.whet"}}, {{"answer": "done"}}]'
    )
    walled.suite("""
        def hidden(report, ctx):
            assert not any("Case(" in getattr(event, "output", "") for event in report.events)
        suite = [Case(id="a", prompt="look around", check=hidden)]
    """)

    done = walled.run()

    assert done.code == 0, done.message("a")


def test_results_stay_hidden_where_a_folder_of_programs_holds_them(walled: Project) -> None:
    for name in ("bin", "lib"):
        (walled.root / name).mkdir()
    walled.settings('[runners.demo.agent]\ntype = "scripted"\nscript = "steps.json"\n')
    walled.write("steps.json", f'[{{"run": "ls {walled.root}/.whet/runs"}}, {{"answer": "done"}}]')
    walled.suite("""
        def hidden(report, ctx):
            assert not any("latest" in getattr(event, "output", "") for event in report.events)
        suite = [Case(id="a", prompt="look around", check=hidden)]
    """)

    done = walled.run(env={"PATH": f"{walled.root}/bin{os.pathsep}{os.environ['PATH']}"})

    assert done.code == 0, done.message("a")
