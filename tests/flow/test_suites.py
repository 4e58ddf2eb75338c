"""Suites in Python: the forms they may take, and every mistake told at once before anything runs."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

import json

import pytest
from project import PATIENCE_S, SHELL, Project


@pytest.mark.parametrize(
    "text",
    [
        "suite = [Case(id='a', prompt='echo hi', check=hi), Case(id='b', prompt='echo hi', check=hi)]",
        "suite = (Case(id='a', prompt='echo hi', check=hi), Case(id='b', prompt='echo hi', check=hi))",
        "suite = {'a': Case(prompt='echo hi', check=hi), 'b': Case(id='b', prompt='echo hi', check=hi)}",
        """
@case(prompt="echo hi", tags=["x"])
def a(report, ctx): hi(report, ctx)
@case(prompt="echo hi", id="b", timeout_ms=5000)
async def other(report, ctx): hi(report, ctx)
""",
        """
@case(prompt="echo hi")
def a(report, ctx): hi(report, ctx)
suite = [a, Case(id="b", prompt="echo hi", check=hi)]
""",
    ],
    ids=["list", "tuple", "map", "marked", "both"],
)
def test_a_suite_may_be_written_in_several_forms(project: Project, text: str) -> None:
    project.settings(SHELL)
    project.suite("def hi(report, ctx): assert ctx.final_output() == 'hi'\n" + text)

    done = project.run()

    assert done.code == 0, done.stderr
    assert list(done.statuses) == ["a", "b"]


def test_a_check_takes_what_it_wants_and_may_be_async(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        import functools
        def none(): pass
        def one(report): assert report.final_output == "hi"
        def only_ctx(ctx): assert ctx.final_output() == "hi"
        def two(report, ctx): assert report.final_output == ctx.final_output()
        def many(*args): assert len(args) == 2
        def default(report, ctx=None): assert ctx is not None
        async def later(report, ctx):
            await asyncio.sleep(0.01)
            assert ctx.final_output() == "hi"
        async def later_none(): await asyncio.sleep(0)
        class Callable:
            def __call__(self, report, ctx): assert report.final_output == "hi"
        def with_word(word, report, ctx): assert word in report.final_output
        checks = dict(none=none, one=one, only_ctx=only_ctx, two=two, many=many, default=default, later=later,
                      later_none=later_none, object=Callable(), partial=functools.partial(with_word, "hi"))
        suite = [Case(id=name, prompt="echo hi", check=check) for name, check in checks.items()]
        async def fails(report):
            await asyncio.sleep(0)
            assert False, "later"
        suite.append(Case(id="fails", prompt="echo hi", check=fails))
    """)

    done = project.run()

    wrong = {trial["case"]: trial["failure"]["message"] for trial in done.trials if not trial["passed"]}
    assert wrong == {"fails": "later"}


def test_a_suite_may_import_its_neighbours_and_print_while_it_loads(project: Project) -> None:
    project.settings(SHELL)
    project.write("helpers.py", "WORD = 'hi'\n")
    project.suite("""
        from helpers import WORD
        print("loading")
        suite = [Case(id="a", prompt=f"echo {WORD}", check=lambda report: expect.ok(report.final_output == WORD))]
    """)

    done = project.run("--reporter", "json")

    assert done.code == 0, done.stderr
    assert "loading" not in done.stdout


def test_every_mistake_is_told_at_once_with_file_case_and_field(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        workspace = Workspace(mode="isolate", cwd="x", template_dir="missing", bootstap=1,
                              bootstrap=Bootstrap(comand="x", timeout_ms=-1, env={"A": 1}))
        suite = [
            Case(id="twice", prompt="x", check=ok), Case(id="twice", prompt="x", check=ok),
            Case(id="a b", prompt="x", check=ok), Case(id="a-b", prompt="x", check=ok),
            Case(id="Upper", prompt="x", check=ok), Case(id="upper", prompt="x", check=ok),
            Case(id="..", prompt="x", check=ok), Case(id="", prompt="x", check=ok), Case(id="n" * 200, prompt="x", check=ok),
            Case(id=7, prompt="x", check=ok), Case(prompt="x", check=ok),
            Case(id="no-prompt", check=ok), Case(id="empty-prompt", prompt=" ", check=ok), Case(id="no-check", prompt="x"),
            Case(id="bad-check", prompt="x", check=3), Case(id="greedy", prompt="x", check=lambda a, b, c: 0),
            Case(id="typo", promt="x", check=ok), Case(id="tags", prompt="x", tags="smoke", check=ok),
            Case(id="time", prompt="x", timeout_ms=0, check=ok), Case(id="steps", prompt="x", max_steps=True, check=ok),
            Case(id="flag", prompt="x", expected_fail="yes", check=ok),
            Case(id="classify", prompt="x", classify_failure="x", check=ok),
            Case(id="nul", prompt="a\\0b", check=ok), "not a case", Case("positional"),
        ]
    """)

    done = project.run()

    lines = [line for line in done.stderr.splitlines() if line.startswith("error[suite]")]
    assert done.code == 2
    assert all("suite.py" in line for line in lines)
    assert not project.output_dir.exists()
    for case, field in [
        ("twice", "id: is the id of another case too"), ("a-b", 'would share the folder "a-b"'), ("upper", "would share the folder"),
        ("..", "id: would leave the run folder"), ("suite[7]", "id: must not be empty"), ("nnn", "id: is longer"),
        ("suite[9]", "id: must be a string"), ("suite[10]", "id: is missing"), ("no-prompt", "prompt: is missing"),
        ("empty-prompt", "prompt: must not be empty"), ("no-check", "check: is missing"),
        ("bad-check", "check: must be a function"), ("greedy", "check: must be callable"), ("typo", "promt: is not a known field"),
        ("tags", "tags: must be a list"), ("time", "timeout_ms: must be an integer"), ("steps", "max_steps: must be"),
        ("flag", "expected_fail: must be True or False"), ("classify", "classify_failure: must be a function"),
        ("nul", "prompt: holds a character"), ("suite[23]", "must be a Case"), ("suite[24]", "named fields only"),
        ("", "workspace.mode: must be one of shared, isolated"), ("", "workspace.template_dir"),
        ("", "workspace.bootstap: is not a known field"), ("", "workspace.bootstrap.comand: is not a known field"),
        ("", "workspace.bootstrap.command: is missing"), ("", "workspace.bootstrap.timeout_ms"),
        ("", "workspace.bootstrap.env"),
    ]:  # fmt: skip
        assert any(case in line and field in line for line in lines), (case, field)
    assert 'did you mean "prompt"?' in done.stderr
    assert 'did you mean "bootstrap"?' in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "has no `suite`"),
        ("suite = []", "has no cases"),
        ("suite = 3", "must be a list or a map"),
        ("suite = {'a': Case(id='b', prompt='x', check=ok)}", 'the map calls it "a"'),
        ("import nothing_like_it", "No module named"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("1/0", "ZeroDivisionError"),
        ("workspace = 3\nsuite = [Case(id='a', prompt='x', check=ok)]", "must be a Workspace"),
        (
            "workspace = Workspace(mode='isolated', cwd='x')\nsuite = [Case(id='a', prompt='x', check=ok)]",
            "workspace.cwd",
        ),
        (
            "@case(prompt='x')\ndef a(): pass\n@case(prompt='x')\ndef a(): pass",
            "is the id of another case too",
        ),
        ("@case(prompt='x')\ndef a(): pass\nsuite = [Case(id='b', prompt='x', check=ok)]", "not listed in `suite`"),
        ("@case()\ndef a(): pass", "prompt: is missing"),
        ("@case(prompt='x', timeout=3)\ndef a(): pass", 'did you mean "timeout_ms"?'),
    ],
)
def test_a_suite_that_cannot_be_run_says_why_and_starts_nothing(project: Project, text: str, said: str) -> None:
    project.settings(SHELL)
    project.suite(text)

    done = project.run()

    assert done.code == 2
    assert "error[suite]" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not project.output_dir.exists()


def test_a_suite_that_is_not_there_or_not_a_file_is_told(project: Project) -> None:
    project.settings(SHELL)
    project.write("notes.txt", "x")

    missing = project.whet("run", "nothing.py")
    folder = project.whet("run", ".")
    text = project.whet("run", "notes.txt")
    none = project.whet("run")

    assert [done.code for done in (missing, folder, text, none)] == [2, 2, 2, 2]
    assert "nothing.py" in missing.stderr
    assert "folder" in folder.stderr
    assert "no known format" in text.stderr
    assert "no suite was given" in none.stderr


@pytest.mark.parametrize(
    "name",
    [
        "json.py",
        "whet.py",
        "queue.py",
        "my suite.py",
        "a.b.py",
    ],
)
def test_a_suite_may_have_any_name(project: Project, name: str) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id="a", prompt="echo hi", check=lambda report: expect.ok(report.final_output == "hi")),
                 Case(id="b", prompt="true", check=no, classify_failure=lambda result: "x")]
    """, f"suites/{name}")  # fmt: skip

    done = project.whet("run", f"suites/{name}")

    assert done.code == 1, done.stderr
    assert done.statuses == {"a": "passed", "b": "failed"}


@pytest.mark.parametrize(
    "hang",
    [
        "time.sleep(600)",
        "while True: pass",
        "subprocess.run(['sleep', '600'])",
        "import threading; threading.Event().wait()",
        "try: time.sleep(600)\nexcept Exception: time.sleep(600)",
    ],
)
def test_a_suite_that_hangs_while_it_is_imported_is_ended_with_its_line(project: Project, hang: str) -> None:
    project.settings(SHELL)
    file = project.suite(f"# here\n{hang}\nsuite = [Case(id='a', prompt='true', check=ok)]")
    line = file.read_text().splitlines().index("# here") + 2

    done = project.run(env={"WHET_IMPORT_TIMEOUT_MS": "500"})

    assert done.code == 2
    told = f"line {line}: cannot be imported: it did not end within 0.5 s (at suite.py, line {line})"
    assert done.stderr.startswith(f"error[suite]: {file}: {told}\n")
    assert "Traceback" not in done.stderr
    assert not project.output_dir.exists()


def test_a_helper_that_hangs_while_it_is_imported_is_named(project: Project) -> None:
    project.settings(SHELL)
    project.write("helpers.py", "import time\n\ntime.sleep(600)\n")
    project.suite("import helpers\nsuite = [Case(id='a', prompt='true', check=ok)]")

    done = project.run(env={"WHET_IMPORT_TIMEOUT_MS": "500"})

    assert done.code == 2
    assert "it did not end within 0.5 s (at helpers.py, line 3)\n" in done.stderr


def test_a_suite_that_catches_all_while_it_is_imported_is_ended_too(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        while True:
            try: time.sleep(0.01)
            except BaseException: pass
    """)

    done = project.run(env={"WHET_IMPORT_TIMEOUT_MS": "500"})

    assert done.code == 2
    assert done.stderr.startswith(
        f"error[suite]: {project.root}/suite.py: cannot be imported: it did not end within 0.5 s"
    )
    assert not project.output_dir.exists()


def test_a_slow_import_is_announced_and_goes_on(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        while not Path("{outside}/go").exists(): time.sleep(0.01)
        suite = [Case(id="a", prompt="true", check=ok)]
    """)
    running = project.start("suite.py", "--reporter", "json")
    assert running.stderr is not None

    said = running.stderr.readline().decode()
    (project.outside / "go").touch()
    done = project.outcome(running, within_s=PATIENCE_S)

    assert said.startswith(f"importing {project.root}/suite.py ... (at suite.py, line ")
    assert done.code == 0
    assert done.stderr == ""
    assert json.loads(done.stdout)["counts"]["passed"] == 1


@pytest.mark.parametrize("text", ["soon", "0", "-1", "1.5", "1" * 30])
def test_a_limit_for_imports_that_is_none_is_one_line(project: Project, text: str) -> None:
    project.settings(SHELL)
    project.suite("suite = [Case(id='a', prompt='true', check=ok)]")

    done = project.run(env={"WHET_IMPORT_TIMEOUT_MS": text})

    assert done.code == 2
    assert done.stderr.startswith("error[usage]: WHET_IMPORT_TIMEOUT_MS: must be a number of milliseconds")
    assert len(done.stderr.splitlines()) == 1


def test_a_check_may_have_an_alarm_of_its_own_after_the_import(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        def check():
            assert left > 0
            assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
            assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
        suite = [Case(id="a", prompt="true", check=check)]
    """)

    done = project.run()

    assert done.code == 0, done.stdout
