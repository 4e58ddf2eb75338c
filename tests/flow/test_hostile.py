"""Hostile and careless agents: each is one failed or errored trial, and the others of its run still pass."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import pytest
from project import PYTHON, SHELL, Outcome, Project

# Around the hostile case, so that what it breaks would be seen before and after it.
BESIDE = """
def wrote(report, ctx): assert ctx.changes().created == ("mine",), ctx.changes()
def beside(*cases):
    good = lambda n: Case(id=f"good{n}", prompt="echo hello > mine" if RUNNER == "sh" else "open('mine', 'w').write('hello')", check=wrote)
    return [good(1), *cases, good(2), good(3)]
"""
GOOD = {"good1": "passed", "good2": "passed", "good3": "passed"}


def run(project: Project, cases: str, *args: str, settings: str = SHELL, extra: str = "") -> Outcome:
    runner = "py" if settings is PYTHON else "sh"
    project.settings(settings + "[defaults]\ntimeout_ms = 20000\n" + extra)
    project.suite(f"RUNNER = {runner!r}\n{BESIDE}\n" + cases)
    return project.run("--max-parallel", "2", *args)


def others(done: Outcome) -> dict[str, str]:
    return {case: status for case, status in done.statuses.items() if case.startswith("good")}


def test_a_program_that_cannot_start_is_one_errored_trial(boxed: Project) -> None:
    boxed.write("gone", "#!/no-such-program-{token}\n", mode=0o755)
    boxed.settings(SHELL + '[runners.gone.agent]\ntype = "command"\ncommand = "./gone"\n')
    boxed.suite('suite = [Case(id="a", prompt="true", check=ok), Case(id="b", prompt="true", check=ok)]')

    done = boxed.run("--retries", "3")

    assert done.code == 3
    found = {(trial["case"], trial["runner"]): trial for trial in done.trials}
    assert found["a", "sh"]["status"] == found["b", "sh"]["status"] == "passed"
    assert found["a", "gone"]["status"] == found["b", "gone"]["status"] == "errored"
    assert found["a", "gone"]["failure"]["code"] == "agent-not-found"
    assert "/gone" in found["a", "gone"]["failure"]["message"]
    assert found["a", "gone"]["score"] is None
    assert len(found["a", "gone"]["attempts"]) == 1


def test_a_file_that_cannot_be_executed_is_refused_before_anything_starts(boxed: Project) -> None:
    boxed.settings(SHELL + '[runners.plain.agent]\ntype = "command"\ncommand = "./plain.txt"\n')
    boxed.write("plain.txt", "just text\n")
    boxed.suite('suite = [Case(id="a", prompt="true", check=ok)]')

    done = boxed.run()

    assert done.code == 2
    assert f'runners.plain: there is no program "{boxed.root / "plain.txt"}" that can be executed' in done.stderr
    assert not (boxed.root / ".whet").exists()


def test_a_prompt_of_200_kilobytes_arrives_on_stdin_and_is_refused_as_an_argument(boxed: Project) -> None:
    boxed.settings("""
        [runners.stdin.agent]
        type = "command"
        command = "wc"
        args = ["-c"]
        [runners.argument.agent]
        type = "command"
        command = "echo"
        args = ["{prompt}"]
    """)
    boxed.suite("""
        suite = [Case(id="long", prompt="x" * 200_000, check=lambda report, ctx: expect.ok(ctx.final_output().strip() == "200000")),
                 Case(id="short", prompt="hi", check=ok)]
    """)

    done = boxed.run()

    found = {(trial["case"], trial["runner"]): trial for trial in done.trials}
    assert done.code == 3, done.stderr
    assert found["long", "stdin"]["status"] == "passed"
    assert found["short", "argument"]["status"] == "passed"
    assert found["long", "argument"]["status"] == "errored"
    assert "rgument list too long" in found["long", "argument"]["failure"]["message"]


def test_a_prompt_that_begins_with_a_dash_is_handed_on_as_it_is(boxed: Project) -> None:
    boxed.settings("""
        [runners.stdin.agent]
        type = "command"
        command = "cat"
        [runners.argument.agent]
        type = "command"
        command = "printf"
        args = ["%s", "{prompt}"]
        [runners.variable.agent]
        type = "command"
        command = "sh"
        args = ["-c", 'printf %s "$WHET_PROMPT"']
    """)
    boxed.suite(
        'suite = [Case(id="a", prompt="--help -x", check=lambda report, ctx: expect.ok(ctx.final_output() == "--help -x"))]'
    )

    done = boxed.run()

    assert done.code == 0, [trial["failure"] for trial in done.trials]


def test_a_program_that_never_reads_its_megabyte_of_input_simply_ends(boxed: Project) -> None:
    boxed.settings('[runners.deaf.agent]\ntype = "command"\ncommand = "true"\n')
    boxed.suite('suite = [Case(id="a", prompt="x" * 1_000_000, check=ok), Case(id="b", prompt="x", check=ok)]')

    done = boxed.run()

    assert done.code == 0, done.stderr


def test_output_beyond_the_cap_stops_the_agent_and_keeps_what_fits(boxed: Project) -> None:
    done = run(
        boxed,
        """suite = beside(Case(id="loud", prompt="yes", check=ok), Case(id="err", prompt="yes >&2", check=ok))""",
        extra="max_output_bytes = 100000\n",
    )

    assert done.code == 1
    assert others(done) == GOOD
    assert done.codes["loud"] == done.codes["err"] == "output-limit"
    assert done.statuses["loud"] == "failed"
    assert done.artifact("loud", "transcript.txt").stat().st_size == 100_000


@pytest.mark.slow
def test_a_gigabyte_is_stopped_at_the_default_cap(project: Project) -> None:
    done = run(project, """suite = beside(Case(id="loud", prompt="head -c 1000000000 /dev/zero", check=ok))""")

    assert others(done) == GOOD
    assert done.codes["loud"] == "output-limit"
    assert done.artifact("loud", "transcript.txt").stat().st_size == 64 * 1024 * 1024


@pytest.mark.slow
def test_ten_megabytes_of_output_reach_the_check(project: Project) -> None:
    cases = """
    size = 10_000_000
    suite = beside(Case(id="long", prompt=f"head -c {size} /dev/zero | tr '\\\\0' x",
                        check=lambda report, ctx: expect.ok(len(ctx.final_output()) == size)))
    """

    done = run(project, cases.replace("    ", "", 1).replace("\n    ", "\n"))

    assert done.code == 0, done.message("long")


def test_output_without_newlines_or_with_invalid_utf8_is_kept_byte_for_byte(boxed: Project) -> None:
    done = run(
        boxed,
        r"""suite = beside(
            Case(id="flat", prompt="printf abc", check=lambda report, ctx: expect.ok(ctx.final_output() == "abc")),
            Case(id="bad", prompt=r"printf 'a\377\376b\0c'", check=lambda report, ctx: expect.ok(ctx.final_output() == "a\ufffd\ufffdb\0c")))
        """,
    )

    assert done.code == 0, done.trials
    assert done.artifact("bad", "transcript.txt").read_bytes() == b"a\xff\xfeb\0c"


def test_an_agent_that_closes_its_output_early_is_waited_for(boxed: Project) -> None:
    done = run(
        boxed,
        """suite = beside(Case(id="closes", prompt="echo early; exec >&- 2>&-; sleep 0.3; echo x > late",
            check=lambda report, ctx: expect.ok(ctx.changes().created == ("late",) and ctx.final_output() == "early")))""",
    )

    assert done.code == 0, done.message("closes")


def test_an_agent_that_is_killed_by_a_signal_failed_and_did_not_time_out(boxed: Project) -> None:
    done = run(
        boxed,
        """suite = beside(Case(id="kill", prompt="echo last words >&2; kill -KILL $$", check=ok),
                          Case(id="code", prompt="exit 7", check=ok))""",
    )

    assert done.code == 1
    assert others(done) == GOOD
    assert done.codes["kill"] == done.codes["code"] == "agent-crashed"
    assert "signal 9" in done.message("kill")
    assert "last words" in done.message("kill")
    assert "exit code 7" in done.message("code")


def test_a_child_that_keeps_stdout_open_does_not_make_a_good_agent_late(boxed: Project) -> None:
    done = run(
        boxed,
        """suite = beside(Case(id="leaves", prompt="sleep 600 & echo done", timeout_ms=15000,
            check=lambda report, ctx: expect.ok(ctx.final_output() == "done")))""",
    )

    assert done.code == 0, done.message("leaves")


def test_a_daemon_that_goes_on_printing_does_not_make_a_good_agent_fail(boxed: Project) -> None:
    done = run(
        boxed,
        """suite = beside(Case(id="leaves", prompt="setsid sh -c 'while :; do echo log; sleep 0.01; done' & sleep 0.1; exit 0", timeout_ms=15000, check=ok))""",
    )

    assert done.code == 0, done.message("leaves")


def test_a_burst_of_200_processes_is_over_with_its_trial(boxed: Project) -> None:
    done = run(
        boxed,
        """suite = beside(Case(id="bomb", prompt=\"""
            i=0; while [ $i -lt 200 ]; do setsid sh -c 'sleep 600; : {token}' & i=$((i+1)); done; echo done
        \""", check=ok))""",
    )

    assert done.code == 0, done.message("bomb")
    assert boxed.left_after_a_while() == []


def test_ten_thousand_files_are_told_and_cleared_away(boxed: Project) -> None:
    done = run(
        boxed,
        """suite = beside(Case(id="many", timeout_ms=50_000, prompt="for n in range(10000): open(f'f{n}', 'w').write('x')",
            check=lambda report, ctx: expect.ok(len(ctx.changes().created) == 10000)))""",
        settings=PYTHON,
    )

    assert done.code == 0, done.message("many")
    assert done.trial("many")["changed_files"] == 10_000


@pytest.mark.parametrize("ending", ["exit 0", "exit 5"], ids=["and ends well", "and crashes"])
def test_an_agent_that_removes_its_workspace_gets_the_verdict_that_it_would_get_anyway(
    boxed: Project, ending: str
) -> None:
    done = run(
        boxed,
        f"""suite = beside(Case(id="gone", prompt='rm -rf "$WHET_WORKSPACE"; {ending}', check=no))""",
    )

    assert done.code == 1, done.message("gone")
    assert others(done) == GOOD
    assert done.statuses["gone"] == "failed"
    assert done.codes["gone"] == ("assertion" if ending == "exit 0" else "agent-crashed")


@pytest.mark.parametrize("check", ["ok", "no"])
def test_unreadable_files_fifos_sockets_loops_and_odd_names_stop_nothing(boxed: Project, check: str) -> None:
    done = run(
        boxed,
        f'''
MESS = r"""
import os, socket
os.mkdir("closed"); open("closed/in", "w").write("x"); os.chmod("closed/in", 0); os.chmod("closed", 0)
os.mkfifo("fifo")
s = socket.socket(socket.AF_UNIX); s.bind("sock")
os.symlink("loop", "loop"); os.symlink("/", "root"); os.symlink("nowhere", "dangling")
os.mkdir("a"); os.symlink("../a", "a/up")
open("new\\nline", "w").write("x"); open(b"bad\\xff", "w").write("x"); open("esc\\x1b[31m", "w").write("x")
open("big", "w").truncate(10**12)
home = os.environ["HOME"]
os.mkdir(home + "/closed"); open(home + "/closed/in", "w"); os.chmod(home + "/closed", 0)
"""
suite = beside(Case(id="mess", prompt=MESS, check={check}))''',
        settings=PYTHON,
    )

    assert others(done) == GOOD
    assert done.statuses["mess"] == ("passed" if check == "ok" else "failed"), done.message("mess")


@pytest.mark.parametrize("place", [".", "$HOME", "$TMPDIR"])
def test_a_tree_deeper_than_any_path_is_cleared_away(boxed: Project, place: str) -> None:
    done = run(
        boxed,
        f'''
DEEP = """
import os
os.chdir(os.path.expandvars("{place}"))
for _ in range(3000):
    os.mkdir("d"); os.chdir("d")
"""
suite = beside(Case(id="deep", prompt=DEEP, check=ok))''',
        settings=PYTHON,
    )

    assert done.code == 0, done.stderr + done.message("deep")
