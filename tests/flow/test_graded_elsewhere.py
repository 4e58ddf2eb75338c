"""What an agent leaves is run when it is graded: it then sees no answers, and reaches no more than the agent did."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import dedent
from typing import Any

import pytest
from benching import case, write
from project import Project

OFFLINE = """
[runners.py.agent]
type = "command"
command = "python3"
args = ["-"]
network = {network}

[runners.other.agent]
type = "command"
command = "true"
env = {{ OTHER_TOKEN = "tok-of-another-runner" }}
"""
# Prints what it can read of the places that it is given.
SPY = """
import sys
for path in sys.argv[1:]:
    try:
        print("READ", open(path).read())
    except OSError as error:
        print("closed", path, error.strerror)
"""


def settle(project: Project, network: str = "false") -> None:
    project.sandbox = "bubblewrap"
    project.settings(OFFLINE.format(network=network))


def leaves(name: str, program: str) -> str:
    """The prompt of an agent that writes *program* and knows nothing."""
    return f"open({name!r}, 'w').write({dedent(program)!r})"


@contextmanager
def listener() -> Iterator[int]:
    """A port of this machine that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.bubblewrap
def test_a_program_that_looks_for_the_answers_when_it_is_graded_finds_none(project: Project) -> None:
    settle(project)
    planted = leaves("solve.py", """
        import glob, re, sys
        for line in open("/proc/self/mountinfo"):
            place = line.split()[4]
            for file in glob.glob(place + "/*.py") if not place.startswith(("/usr", "/proc", "/etc", "/opt")) else ():
                if found := re.search('"%s": "([0-9]+)"' % sys.argv[1], open(file).read()):
                    print(found[1])
    """)  # fmt: skip
    project.suite(f"""
        HIDDEN = {{"7": "5040"}}
        def solves(ctx):
            assert ctx.run(["python3", "solve.py", "7"]).stdout.strip() == HIDDEN["7"]
        suite = [Case(id="a", prompt={planted!r}, check=solves)]
    """)

    done = project.run("--runner", "py")

    assert done.codes == {"a": "assertion"}


@pytest.mark.bubblewrap
def test_commands_of_checks_see_neither_the_suite_nor_the_settings(project: Project) -> None:
    settle(project)
    project.write("notes/answers.txt", "the answer\n")
    project.suite(f"""
        def spies(ctx):
            here = str(Path(__file__).parent)
            # Put together, so that the line does not name them.
            ran = ctx.run("python3 spy.py $(echo " + " ".join(f"'{{here[0]}}''{{here[1:]}}/{{name}}'" for name in
                ("suite.py", "whet.toml", "notes/answers.txt")) + ")")
            assert "READ" not in ran.stdout and ran.stdout.count("closed") == 3, ran.stdout + ran.stderr
        suite = [Case(id="a", prompt={leaves("spy.py", SPY)!r}, check=spies)]
    """)

    done = project.run("--runner", "py")

    assert done.code == 0, done.message("a")


@pytest.mark.bubblewrap
@pytest.mark.parametrize(("network", "setting", "reached"), [
    ("false", "", "refused"),
    ('"full"', "", "reached"),
    ("false", '[run]\ncheck_network = "full"', "reached"),
])  # fmt: skip
def test_commands_of_checks_have_the_network_of_the_runner(
    project: Project, network: str, setting: str, reached: str
) -> None:
    settle(project, network)
    project.settings(OFFLINE.format(network=network) + setting)
    with listener() as port:
        planted = leaves("call.py", f"""
            import socket
            try:
                socket.create_connection(("127.0.0.1", {port}), timeout=3)
                print("reached")
            except OSError:
                print("refused")
        """)  # fmt: skip
        project.suite(f"""
            def calls(ctx): expect.equal(ctx.run("python3 call.py").stdout.strip(), "{reached}")
            suite = [Case(id="a", prompt={planted!r}, check=calls)]
        """)

        done = project.run("--runner", "py")

    assert done.code == 0, done.message("a")


def test_what_a_suite_declares_is_there_for_commands_of_its_checks(boxed: Project) -> None:
    boxed.settings(OFFLINE.format(network='"full"'))
    boxed.write("tools/check.py", "import sys; print(open(sys.argv[1]).read() + ' checked')")
    boxed.write("wanted.txt", "only for b")
    boxed.suite(
        """
        HERE = Path(__file__).parent
        check_files = ["tools"]
        def uses(ctx):
            expect.equal(ctx.run(["python3", str(HERE / "tools/check.py"), "made"]).stdout, "hi checked\\n")
            expect.equal(ctx.run('python3 "$WHET_SUITE_DIR/tools/check.py" made').stdout, "hi checked\\n")
            expect.not_equal(ctx.run(f"echo x > {HERE}/tools/new").exit_code, 0) if "{sandbox}" != "local" else None
        def uses_own(ctx): expect.equal(ctx.run(["cat", str(HERE / "wanted.txt")]).stdout, "only for b")
        wrote = "open('made', 'w').write('hi')"
        suite = [
            Case(id="a", prompt=wrote, check=uses),
            Case(id="b", prompt=wrote, check=uses_own, check_files=[HERE / "wanted.txt"]),
            Case(id="c", prompt=wrote, check=uses_own),
        ]
    """.replace("{sandbox}", boxed.sandbox)
    )

    done = boxed.run("--runner", "py")

    assert done.codes == {"a": None, "b": None, "c": "check-mistake"}, [done.message(name) for name in "ab"]
    assert 'check_files = ["wanted.txt"]' in done.message("c")


def test_a_declaration_of_the_suite_itself_or_of_nothing_is_refused(project: Project) -> None:
    project.settings(OFFLINE.format(network='"full"'))
    project.suite("""
        check_files = [".", "nothing", "whet.toml"]
        suite = [Case(id="a", prompt="", check=ok, check_files="tools")]
    """)

    done = project.run("--runner", "py")

    assert done.code == 2
    assert "check_files[0]: . holds suite.py, which no command of a check may read" in done.stderr
    assert "nothing does not exist" in done.stderr
    assert "check_files[2]: whet.toml holds whet.toml" in done.stderr
    assert "check_files: must be a list of strings" in done.stderr


def test_a_declaration_that_leads_to_the_suite_by_a_link_is_refused(project: Project) -> None:
    project.settings(OFFLINE.format(network='"full"'))
    for name, target in (("here", "."), ("self", "suite.py"), ("far", project.root.parent), ("gone", "nowhere")):
        (project.root / name).symlink_to(target)
    project.suite("""
        check_files = ["here", "self", "far", "gone", "same"]
        suite = [Case(id="a", prompt="pass", check=ok)]
    """)
    (project.root / "same").hardlink_to(project.root / "suite.py")

    done = project.run("--runner", "py")

    assert done.code == 2
    for index, name in enumerate(("here", "self", "far")):
        assert f"check_files[{index}]: {name} holds suite.py, which no command of a check may read" in done.stderr
    assert "gone does not exist" in done.stderr
    assert "check_files[4]: same holds suite.py" in done.stderr


@pytest.mark.bubblewrap
def test_a_link_below_what_is_declared_leads_nowhere(project: Project) -> None:
    settle(project)
    project.write("tools/notes.txt", "notes")
    (project.root / "tools/all").symlink_to(project.root)
    project.suite(f"""
        check_files = ["tools"]
        def spies(ctx):
            ran = ctx.run('python3 spy.py "$WHET_SUITE_DIR"/tools/notes.txt "$WHET_SUITE_DIR"/tools/all/suit""e.py')
            assert ran.stdout.startswith("READ notes") and "closed" in ran.stdout, ran.stdout + ran.stderr
            assert ran.stdout.count("READ") == 1, ran.stdout
        suite = [Case(id="a", prompt={leaves("spy.py", SPY)!r}, check=spies)]
    """)

    done = project.run("--runner", "py")

    assert done.code == 0, done.message("a")


@pytest.mark.bubblewrap
def test_a_command_of_a_bench_suite_sees_what_is_declared_and_not_the_suite(bench: Project) -> None:
    bench.sandbox = "bubblewrap"
    bench.write("bench/tools/check.sh", "grep -q made made && echo it is made")
    bench.settings(OFFLINE.format(network="false"))
    spies = 'test:python3 spy.py "$WHET_SUITE_DIR"/suit[e].json prints "READ"'
    write(
        bench,
        case(
            "a",
            leaves("spy.py", SPY) + "; open('made', 'w').write('made')",
            'test:sh "$WHET_SUITE_DIR/tools/check.sh" prints "it is made"',
            spies,
        ),
        check_files=["tools"],
    )

    done = bench.whet("run", "bench/suite.json", "--runner", "py")

    assert [grade["passed"] for grade in done.trial("a")["grades"]] == [True, False], (done.stderr, done.message("a"))
    assert "closed" in done.message("a")


def packages(project: Project, verifier: str, **hints: Any) -> None:
    for name in ("one", "two"):
        project.write(f"{name}/tests/test.sh", f"#!/bin/sh\n{verifier}\n", mode=0o755)
        project.write(f"{name}/solution/solve.sh", "#!/bin/sh\necho the solution\n", mode=0o755)
    cases = [
        {
            "case_kind": "task_package",
            "id": name,
            "instruction": leaves("spy.py", SPY),
            "environment_ref": name,
            "resource_hints": hints,
        }
        for name in ("one", "two")
    ]
    document = {"name": "pk", "source_kind": "manual", "verifier_kind": "deterministic", "cases_json": cases}
    (project.root / "suite.json").write_text(json.dumps(document))


@pytest.mark.bubblewrap
def test_a_verifier_sees_its_own_package_and_nothing_beside_it(project: Project) -> None:
    settle(project)
    other = [
        f"{project.root}/{name}" for name in ("suite.json", "whet.toml", "two/tests/test.sh", "one/solution/solve.sh")
    ]
    packages(
        project,
        f"python3 spy.py {' '.join(other)} > said; cat said; ! grep READ said && [ $(grep -c closed said) = 4 ]",
    )

    done = project.whet("run", "suite.json", "--runner", "py")

    assert done.statuses == {"one": "passed", "two": "passed"}, (done.stderr, done.message("one"))


@pytest.mark.bubblewrap
def test_a_package_gets_no_network_that_the_runner_does_not_have(project: Project) -> None:
    settle(project)
    with listener() as port:
        packages(
            project, f"! python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))'", network=True
        )

        done = project.whet("run", "suite.json", "--runner", "py")

    assert done.statuses == {"one": "passed", "two": "passed"}, (done.stderr, done.message("one"))
    assert 'one: its verifier asks for a network, and runner py has none (run.check_network = "full" gives it)' in (
        done.stdout + done.stderr
    )
