"""What an agent controls cannot take it out of the rate: what it prints or leaves behind fails it, and errs nobody."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import json

import pytest
from benching import by_id, case, run, write
from project import EVENTS, PYTHON, SHELL, Project


@pytest.mark.parametrize(
    "printed",
    [
        "echo oops",
        "echo '{}'; echo '[1, 2'",
        """echo '{"type": "no_such_event"}'""",
        """printf '{"type": "message", "role": "assistant", "text": "\\377\\376"}\\n'""",
        """python3 -c 'print("{\\"type\\": \\"tool_call\\", \\"tool\\": \\"x\\", \\"args\\": " + "[" * 100000 + "]" * 100000 + "}")'""",
        """python3 -c 'print("{\\"type\\": \\"usage\\", \\"input_tokens\\": 1" + "0" * 5000 + "}")'""",
        """echo '{"type": "usage", "input_tokens": -5}'""",
        "head -c 3000000 /dev/zero",
    ],
)
def test_an_agent_that_garbles_its_own_output_has_failed_and_may_try_again(project: Project, printed: str) -> None:
    project.settings(EVENTS)
    project.suite(f"suite = [Case(id='a', prompt={printed!r}, check=ok)]")

    done = project.run("--retries", "1")

    trial = done.trial("a")
    assert (trial["status"], trial["failure"]["code"], trial["failure"]["cause"]) == (
        "failed",
        "normalization",
        "agent",
    )
    assert len(trial["attempts"]) == 2
    assert done.code == 1


def test_an_agent_that_prints_nonsense_whenever_it_is_wrong_does_not_raise_its_rate(project: Project) -> None:
    project.settings(EVENTS)
    agent = """n=$(ls {outside} | wc -l); touch {outside}/$n; test $((n % 2)) = 0 && echo '{"type": "final_output", "text": "yes"}' || echo oops"""
    project.suite(f"""
        suite = [Case(id="a", prompt={agent!r}, check=lambda s: expect.equal(s.final_output, "yes"))]
    """)

    done = project.run("--trials", "4", "--schedule", "serial")

    rate = done.results["cases"][0]["executions"][0]["rate"]
    assert (rate["passed"], rate["total"], rate["errored"]) == (2, 4, 0)


def test_a_check_that_hangs_on_what_the_agent_left_has_failed_and_one_that_hangs_anyway_is_the_suites(
    project: Project,
) -> None:
    project.settings(SHELL + "[defaults]\ncheck_timeout_ms = 2000\n")
    project.suite("""
        import re
        def reads(ctx):
            if (ctx.workspace / "hang").exists(): time.sleep(600)
        def searches(session): re.search(r"(a+)+$", session.final_output)
        def dies(ctx):
            if (ctx.workspace / "hang").exists(): os._exit(1)
        def hangs(session): time.sleep(600)
        suite = [Case(id="files", prompt="touch hang", check=reads),
                 Case(id="answer", prompt="echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", check=searches),
                 Case(id="dies", prompt="touch hang", check=dies),
                 Case(id="always", prompt="touch hang", check=hangs),
                 Case(id="expected", prompt="touch hang", check=reads, expected_fail=True)]
    """)

    done = project.run()

    assert done.statuses == {
        "files": "failed",
        "answer": "failed",
        "dies": "failed",
        "always": "errored",
        "expected": "failed",
    }
    assert done.codes["files"] == done.codes["answer"] == "undecidable"
    assert done.codes["always"] == "check-timeout"
    assert done.trial("files")["failure"]["cause"] == "agent"
    assert "did not end within 2 s; it decides on the untouched workspace" in done.message("files")


def test_the_untouched_workspace_has_its_template_and_bootstrap(project: Project) -> None:
    project.settings(SHELL + "[defaults]\ncheck_timeout_ms = 2000\n")
    project.write("template/from_template", "x")
    project.suite("""
        def hangs_where_all_is_there(ctx):
            made = ["from_template", "from_bootstrap"]
            if all((ctx.workspace / name).exists() for name in made): time.sleep(600)
        workspace = Workspace(mode="isolated", template_dir="template", bootstrap=Bootstrap(command="touch", args=["from_bootstrap"]))
        suite = [Case(id="a", prompt="touch more", check=hangs_where_all_is_there)]
    """)

    done = project.run()

    assert done.codes == {"a": "check-timeout"}, done.stderr
    assert done.statuses == {"a": "errored"}


def test_a_shared_workspace_is_held_against_a_fresh_one(project: Project) -> None:
    project.settings(SHELL + '[defaults]\ncheck_timeout_ms = 2000\n[run.workspace]\nmode = "shared"\n')
    project.suite("""
        def reads(ctx):
            if (ctx.workspace / "hang").exists(): time.sleep(600)
        suite = [Case(id="a", prompt="touch hang", check=reads)]
    """)

    done = project.run()

    assert done.codes == {"a": "undecidable"}, done.stderr


HOSTILE = {
    "link": "import os, shutil; p = os.getcwd(); shutil.rmtree(p); os.symlink('/', p)",
    "file": "import os, shutil; p = os.getcwd(); shutil.rmtree(p); open(p, 'w').close()",
    "gone": "import os, shutil; shutil.rmtree(os.getcwd())",
    "names": "import os\nfor n in (b'\\xff\\xfe', b'a\\nb', b'\\x1b[2J', b'-rf', b'x' * 255): open(n, 'w').write('x')",
    "deep": "import os\nfor _ in range(3000):\n    os.mkdir('d'); os.chdir('d')\nopen('f', 'w').close()",
    "special": "import os, socket\nos.mkfifo('fifo'); s = socket.socket(socket.AF_UNIX); s.bind('socket')",
    "closed": "import os\nos.mkdir('d'); open('d/f', 'w').close(); os.chmod('d', 0); open('g', 'w').close(); os.chmod('g', 0)",
    "giant": "import os\nf = open('giant', 'wb'); f.truncate(1 << 42)",
    "bytes": "open('f', 'wb').write(b'\\xff\\xfe\\x00' * 1000)",
    "loop": "import os; os.symlink('loop', 'loop'); os.symlink('..', 'up')",
}


def test_no_state_of_a_workspace_takes_an_agent_out_of_the_rate(boxed: Project) -> None:
    boxed.settings(PYTHON + "[run]\nmax_parallel = 2\n")
    cases = "".join(f"Case(id={name!r}, prompt={prompt!r}, check=wants),\n" for name, prompt in HOSTILE.items())
    boxed.suite(f"def wants(session, ctx): assert ctx.read('wanted') == 'x'\nsuite = [{cases}]")

    done = boxed.run()

    assert set(done.statuses.values()) == {"failed"}, (done.codes, {case: done.message(case) for case in HOSTILE})
    assert {trial["failure"]["cause"] for trial in done.trials} == {"agent"}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_state_of_a_workspace_makes_a_claim_undecided(bench: Project, name: str) -> None:
    bench.settings(PYTHON)
    claims = (
        "file:wanted exists",
        "file:wanted contains 'x'",
        "file:wanted matches /x/",
        "file:README.md changed",
        "test:true passes",
    )
    write(bench, *(case(f"c{number}", HOSTILE[name], claim) for number, claim in enumerate(claims[:3])))

    _, results = run(bench)

    assert {entry["status"] for entry in results["cases"]} <= {"failed", "agent_error"}, results["cases"]


def test_a_claim_that_the_agents_own_file_keeps_from_being_decided_is_not_met(bench: Project) -> None:
    bench.write("old.txt", "a" * 60 + "b")
    hangs = "printf 'a%.0s' $(seq 60) > new.txt; echo b >> new.txt"
    write(
        bench,
        case("pattern", hangs, "file:new.txt matches /^(a+)+$/"),
        case("large", "head -c 17000000 /dev/zero > new.txt", "file:new.txt matches /x/"),
        case("untouched", "touch made", "file:old.txt matches /^(a+)+$/"),
    )

    ended, results = run(bench)

    statuses = {ident: entry["status"] for ident, entry in by_id(results).items()}
    assert statuses == {"pattern": "failed", "large": "failed", "untouched": "infra_error"}, json.dumps(results)
    assert ended.code == 1


VERIFIERS = {
    "hangs": ("#!/bin/bash\ntest -e hang && sleep 600\nexit 1\n", "touch hang"),
    "is-killed": ("#!/bin/bash\ntest -e hang && kill -9 $$\nexit 1\n", "touch hang"),
    "bad-reward": ('#!/bin/bash\ncat reward > "$LOGS_DIR/reward.txt"\n', "echo nonsense > reward"),
}


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_verifier_that_only_the_agents_files_keep_from_deciding_has_failed_it(project: Project, name: str) -> None:
    project.settings(SHELL)
    verifier, prompt = VERIFIERS[name]
    project.write("task/tests/test.sh", verifier, mode=0o755)
    project.write("task/reward", "0.5")
    cases = [
        {"case_kind": "task_package", "id": ident, "environment_ref": "task", "instruction": instruction}
        for ident, instruction in (("spoils", prompt), ("idles", "true"))
    ]
    hints = {"resource_hints": {"timeout_ms": 1500}}
    document = {"name": "s", "source_kind": "manual", "verifier_kind": "deterministic"}
    document["cases_json"] = [case | hints for case in cases]
    project.write("suite.json", json.dumps(document))

    done = project.whet("run", "suite.json", "--sandbox", "local")

    assert done.statuses == {"spoils": "failed", "idles": "failed"}, done.stdout
    assert "so what the agent left is the reason" in done.message("spoils")
    assert "so what the agent left" not in done.message("idles")


def test_errored_trials_are_told_beside_the_rate_with_its_bounds(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        def exits_every_second_time(session):
            mark = Path("{outside}/mark")
            mark.write_text((mark.read_text() if mark.exists() else "") + "x")
            if len(mark.read_text()) in (1, 2, 4): os._exit(1)
        suite = [Case(id="a", prompt="true", check=exits_every_second_time)]
    """)

    done = project.run("--trials", "3", "--schedule", "serial", "--reporter", "terminal", "--reporter", "markdown=r.md")

    rate = done.results["cases"][0]["executions"][0]["rate"]
    errored = rate["errored"]
    assert errored > 0
    assert (rate["if_errored_failed"], rate["if_errored_passed"]) == (rate["passed"] / 3, 1.0)
    told = f"{errored} errored: {rate['passed'] / 3 * 100:.0f}-100 %"
    assert told in done.stdout
    assert told in (project.root / "r.md").read_text()


def test_the_rate_of_first_attempts_stands_beside_one_that_retries_raised(project: Project) -> None:
    project.settings(SHELL)
    agent = "if [ -e {outside}/done-$WHET_RUN ]; then echo yes; else touch {outside}/done-$WHET_RUN; echo no; fi"
    project.suite(f"""
        suite = [Case(id="a", prompt={agent!r}, check=lambda s: expect.equal(s.final_output, "yes"))]
    """)
    reporters = ("terminal", "markdown=r.md", "junit=j.xml", "bench=b.json")

    done = project.run(
        "--trials", "3", "--retries", "2", "--schedule", "serial", *(f"--reporter={name}" for name in reporters)
    )

    rate = done.results["cases"][0]["executions"][0]["rate"]
    assert (rate["passed"], rate["first_passed"], rate["first_total"], rate["flaky"]) == (3, 2, 3, 1)
    for shown in (done.stdout, (project.root / "r.md").read_text()):
        assert "2/3  67 %" in shown
        assert "2 at the first attempt, 1 flaky" in shown
    assert 'name="as expected at the first attempt" value="2 of 3"' in (project.root / "j.xml").read_text()
    case = json.loads((project.root / "b.json").read_text())["cases"][0]
    assert (case["passRate"], case["firstPassRate"], case["flaky"]) == (1.0, 0.666667, 1)


@pytest.mark.parametrize(
    "leaves",
    [
        "for _ in range(400): os.mkdir('d' * 10); os.chdir('d' * 10)\nopen('f', 'w').write('x')",
        "open('sparse', 'w').truncate(1 << 42)",
    ],
    ids=["deep", "sparse"],
)
def test_what_a_failing_agent_leaves_neither_ends_nor_holds_up_the_run(boxed: Project, leaves: str) -> None:
    boxed.settings(PYTHON)
    boxed.suite(
        f"suite = [Case(id='a', prompt={'import os' + chr(10) + leaves!r}, check=no), Case(id='b', prompt='pass', check=ok)]"
    )

    done = boxed.run()
    looked = boxed.whet("verify", "latest")

    assert done.statuses == {"a": "failed", "b": "passed"}, done.stderr
    assert looked.code == 0, looked.stdout
