"""Checks that decide nothing, and checks that raise: none passes by mistake, and each says what it stumbled over."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

from project import SHELL, Project


def test_a_forgotten_await_fails_the_check_that_forgot_it(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        kept = []
        async def helper(session): assert False
        def calls_it(session): helper(session)
        def calls_it_deeper(session): [calls_it(session) for _ in range(2)]
        def keeps_it(session): kept.append(helper(session))
        def classifies(session): expect.classify("x", lambda: helper(session))
        async def awaits_another(session):
            expect.classify("x", lambda: helper(session))
        async def begins_a_task(session):
            asyncio.get_running_loop().create_task(helper(session))
        async def lets_a_task_fail(session):
            asyncio.get_running_loop().create_task(helper(session))
            await asyncio.sleep(0.05)
        async def cancels_a_task(session):
            asyncio.get_running_loop().create_task(asyncio.sleep(600)).cancel()
        async def fine(session): pass
        async def awaits(session):
            await fine(session)
            await expect.classify("x", lambda: fine(session))
            await asyncio.gather(fine(session), asyncio.create_task(fine(session)))
        suite = [Case(id=f.__name__, prompt="true", check=f) for f in (
            calls_it, calls_it_deeper, keeps_it, classifies, awaits_another, begins_a_task, lets_a_task_fail,
            cancels_a_task, awaits)]
    """)

    done = project.run()

    forgetful = ("calls_it", "calls_it_deeper", "keeps_it", "classifies", "awaits_another", "begins_a_task")
    assert {case: done.codes[case] for case in forgetful} == dict.fromkeys(forgetful, "check-mistake")
    assert done.codes["lets_a_task_fail"] == "assertion"
    assert (done.statuses["cancels_a_task"], done.statuses["awaits"]) == ("passed", "passed")
    assert "helper was never awaited" in done.message("calls_it")
    assert "helper was never awaited" in done.message("classifies")
    assert "helper was never awaited" in done.message("calls_it_deeper")
    assert done.trial("calls_it")["failure"]["cause"] == "suite"
    line = done.trial("calls_it")["failure"]["location"]["line"]
    assert "def calls_it(session)" in (project.root / "suite.py").read_text().splitlines()[line - 1]


def test_a_check_that_failed_already_is_told_by_its_failure_and_not_by_what_it_did_not_come_to_await(
    project: Project,
) -> None:
    project.settings(SHELL)
    project.suite("""
        async def helper(session): pass
        async def fails(session):
            later = helper(session)
            assert session.final_output == "yes"
            await later
        suite = [Case(id="fails", prompt="echo no", check=fails),
                 Case(id="expected", prompt="echo no", check=fails, expected_fail=True)]
    """)

    done = project.run()

    assert done.codes["fails"] == "assertion"
    assert done.statuses["expected"] == "expected-failed"


def test_a_check_that_returns_true_or_false_decided_nothing(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        async def coroutine(session): return True
        suite = [
            Case(id="false", prompt="true", check=lambda s: False),
            Case(id="true", prompt="true", check=lambda s: s.final_output == ""),
            Case(id="async", prompt="true", check=coroutine),
            Case(id="classified", prompt="true", check=lambda s: expect.classify("x", lambda: True)),
            Case(id="expectation", prompt="true", check=lambda s: expect.equal(s.final_output, "")),
            Case(id="nothing", prompt="true", check=lambda s: None),
            Case(id="number", prompt="true", check=lambda s: 0),
        ]
        def gives_what_it_is_given(session):
            expect.equal(expect.classify("x", lambda: False), False)
        suite.append(Case(id="given", prompt="true", check=gives_what_it_is_given))
    """)

    done = project.run()

    mistaken = ("false", "true", "async", "classified")
    assert {case: done.codes[case] for case in mistaken} == dict.fromkeys(mistaken, "check-mistake")
    assert "returned False" in done.message("false")
    assert {done.statuses[case] for case in ("expectation", "nothing", "number", "given")} == {"passed"}


def test_ok_takes_no_function_for_the_truth(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        def given_a_lambda(session): expect.ok(lambda: False)
        def given_a_method(session): expect.soft.ok(session.commands)
        suite = [Case(id=f.__name__, prompt="true", check=f) for f in (given_a_lambda, given_a_method)]
    """)

    done = project.run()

    assert done.codes == {"given_a_lambda": "check-mistake", "given_a_method": "check-mistake"}
    assert "the function commands is always true: call it" in done.message("given_a_method")


def test_a_check_that_stumbles_over_an_answer_fails_shows_it_and_is_tried_again(project: Project) -> None:
    project.settings(SHELL)
    agent = "if [ -e {outside}/again ]; then echo '{\"a\": 3}'; else touch {outside}/again; echo 'Sorry, I cannot.'; fi"
    project.suite(f"""
        import json
        def reads_json(session): assert json.loads(session.final_output)["a"] == 3
        suite = [Case(id="a", prompt={agent!r}, check=reads_json)]
    """)

    done = project.run("--retries", "2")

    trial = done.trial("a")
    assert (trial["status"], trial["flaky"], len(trial["attempts"])) == ("passed", True, 2)
    first = trial["attempts"][0]["failure"]
    assert (first["code"], first["cause"]) == ("check-crash", "agent")
    assert first["message"].startswith("JSONDecodeError: Expecting value")
    assert "where  session.final_output = 'Sorry, I cannot.'" in first["message"]


def test_a_crash_shows_the_values_of_the_statement_that_raised(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        import json
        def key(session):
            answer = json.loads(session.final_output)
            count = 1
            expect.equal(answer["missing"], 3)
        def parse(text): return int(text)
        def in_a_helper(session): parse(session.final_output)
        def of_the_context(session, ctx): json.loads(ctx.read("out.json"))
        def by_output(ctx): int(ctx.final_output())
        prompt = "echo '{\\"a\\": 1}' | tee out.json; echo broken >> out.json"
        suite = [Case(id=f.__name__, prompt=prompt, check=f) for f in (key, in_a_helper, of_the_context, by_output)]
        suite.append(Case(id="lambda", prompt=prompt, check=lambda s: int(s.final_output)))
        suite.append(Case(id="long", prompt="head -c 100000 /dev/zero | tr '\\\\0' x", check=lambda s: int(s.final_output[:10])))
    """)

    done = project.run()

    assert set(done.codes.values()) == {"check-crash"}
    assert "answer = {'a': 1}" in done.message("key")
    assert "count" not in done.message("key")
    assert "text = '{\"a\": 1}'" in done.message("in_a_helper")
    assert "broken" in done.message("of_the_context")
    assert "ctx.final_output() = '{\"a\": 1}'" in done.message("by_output")
    assert "s.final_output = '{\"a\": 1}'" in done.message("lambda")
    assert "(100,000 characters)" in done.message("long")
    assert len(done.message("long")) < 2000


def test_what_is_surely_the_authors_mistake_is_the_suites_and_is_not_tried_again(project: Project) -> None:
    project.settings(SHELL)
    project.write("broken_helper.py", "def f(:\n")
    project.suite("""
        def name(session): assert finaloutput == "x"
        def imports(session): import no_such_module_of_ours
        def syntax(session): import broken_helper
        def argument(session): expect.output.contains(session)
        def matcher(session): expect.output.contains(session, 5)
        def attribute(session): expect.outputs.contains(session, "x")
        def field(session): assert session.final_outptu == "x"
        def swapped(session): expect.output.contains("x", session)
        suite = [Case(id=f.__name__, prompt="true", check=f, expected_fail=f is name)
                 for f in (name, imports, syntax, argument, matcher, attribute, field, swapped)]
    """)

    done = project.run("--retries", "2")

    assert set(done.codes.values()) == {"check-mistake"}, done.codes
    assert set(done.statuses.values()) == {"failed"}
    assert {len(trial["attempts"]) for trial in done.trials} == {1}
    assert {trial["failure"]["cause"] for trial in done.trials} == {"suite"}
    assert done.code == 1


def test_what_the_agents_own_code_raises_is_no_mistake_of_the_author(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        import ast, runpy
        def runs_it(session, ctx): runpy.run_path(str(ctx.workspace / "solution.py"))
        def parses_it(session, ctx): ast.parse(ctx.read("solution.py"))
        def imports_it(session, ctx):
            sys.path.insert(0, str(ctx.workspace))
            import solution
        def finds_no_text(session): expect.match(eval(session.final_output), "x")
        suite = [
            Case(id="name", prompt="echo 'print(undefined)' > solution.py", check=runs_it),
            Case(id="syntax", prompt="echo 'def f(:' > solution.py", check=parses_it),
            Case(id="import", prompt="true", check=imports_it),
            Case(id="none", prompt="echo None", check=finds_no_text),
        ]
    """)

    done = project.run("--retries", "1")

    assert set(done.codes.values()) == {"check-crash"}, done.codes
    assert {len(trial["attempts"]) for trial in done.trials} == {2}


def test_only_a_failed_expectation_can_be_expected(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        suite = [Case(id="crash", prompt="echo x", check=lambda s: int(s.final_output), expected_fail=True),
                 Case(id="assertion", prompt="echo x", check=no, expected_fail=True)]
    """)

    done = project.run()

    assert done.statuses == {"crash": "failed", "assertion": "expected-failed"}


def test_a_mistake_in_a_check_fails_its_case_and_is_named_apart_from_what_the_agent_did(project: Project) -> None:
    project.settings(SHELL)
    project.suite("""
        def mistaken(session): nobody_defined_this
        suite = [Case(id="a", prompt="true", check=mistaken), Case(id="b", prompt="true", check=no)]
    """)

    alone = project.run()
    compared = project.run("--arm", "old=env:X=1", "--arm", "new=env:X=2", "--trials", "2")
    gate = project.whet("gate")
    said = "4 trials failed by a mistake in a check, and not by the agent: a in new, a in old"

    assert (alone.code, alone.statuses) == (1, {"a": "failed", "b": "failed"})
    assert "2 failed; 1 trial failed by a mistake in a check, not by the agent" in alone.stdout
    assert compared.results["check_mistakes"] == 4
    assert said in compared.results["comparisons"][0]["notes"]
    assert said in gate.stdout
    assert project.whet("verify", "latest").code == 0
