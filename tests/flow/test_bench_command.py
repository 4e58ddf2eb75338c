"""`whet bench` as its users know it: its options, its outcomes, and the results in their format."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from benching import SPENDS, by_id, case, run, write
from project import EVENTS, SHELL, Project, wait_for


def test_results_have_their_format_and_list_every_case(bench: Project) -> None:
    write(bench, case("good", f"touch made; {SPENDS % 1.25}"), case("bad", SPENDS % 0.5), case("mute", "touch made"))

    ended, results = run(bench)

    assert ended.code == 1
    assert {name: results[name] for name in ("suite", "passed", "failed", "total", "totalCost")} == {
        "suite": "s", "passed": 2, "failed": 1, "total": 3, "totalCost": 1.75,
    }  # fmt: skip
    assert results["unknownCosts"] == 1
    good = by_id(results)["good"]
    assert (good["pass"], good["cost"], good["status"]) == (True, 1.25, "passed")
    assert (good["tokens"]["input"], good["tokens"]["output"]) == (100, 20)
    assert 0 < good["duration"] < 60
    assert [entry["id"] for entry in results["cases"]] == ["good", "bad", "mute"]
    assert by_id(results)["bad"]["expectations"][0]["reason"] == "file:made created: made was not found"
    assert by_id(results)["mute"]["cost"] is None


@pytest.mark.parametrize("here", [".", "bench", ".."])
def test_without_a_repository_the_folder_of_the_settings_is_the_project_wherever_one_stands(
    project: Project, here: str
) -> None:
    project.settings(EVENTS)
    project.write("README.md", "# Old\n")
    write(project, {"id": "a", "prompt": "true", "expect": ["file:README.md exists"]})

    ended = project.whet("bench", str(project.root / "bench/suite.json"), cwd=project.root / here)

    assert ended.code == 0, ended.stdout
    assert "(the folder of whet.toml)" in ended.stdout


def test_a_cost_that_nobody_knows_is_not_zero_and_a_budget_without_it_is_said(bench: Project) -> None:
    write(bench, case("a", "touch made"), case("b", "touch made"), defaults={"budget": 1})

    ended, results = run(bench)

    assert ended.code == 0
    assert (results["totalCost"], results["unknownCosts"]) == (None, 2)
    assert by_id(results)["a"]["notes"] == ["the budget was not enforced: it is $1, and the cost is not known"]
    assert ended.stdout.count("the cost of a on sh is not known, so no budget was enforced (shown once)") == 1


def test_an_agent_that_overspends_is_stopped_and_what_it_spent_is_told(bench: Project) -> None:
    write(bench, case("over", f"touch made; {SPENDS % 2}; sleep 50; touch late", budget=1.5))

    ended, results = run(bench)

    over = by_id(results)["over"]
    assert ended.code == 1
    assert (over["status"], over["pass"], over["cost"], results["totalCost"]) == ("budget", False, 2, 2)
    assert [each["pass"] for each in over["expectations"]] == [True]
    assert over["error"] == "has spent $2 of a budget of $1.5"


def test_a_budget_that_is_just_spent_is_held(bench: Project) -> None:
    write(bench, case("even", f"touch made; {SPENDS % 0.1}; {SPENDS % 0.2}", budget=0.3))

    ended, results = run(bench)

    assert ended.code == 0
    assert by_id(results)["even"]["cost"] == pytest.approx(0.3)


def test_after_a_timeout_expectations_are_seen_and_the_case_does_not_pass(bench: Project) -> None:
    write(bench, case("slow", "touch made; sleep 50", timeout=0.5))

    ended, results = run(bench)

    slow = by_id(results)["slow"]
    assert ended.code == 1
    assert (slow["status"], slow["pass"]) == ("timeout", False)
    assert [each["pass"] for each in slow["expectations"]] == [True]


def test_no_case_is_started_once_enough_is_spent(bench: Project) -> None:
    write(bench, *(case(ident, f"touch made; {SPENDS % 1}") for ident in "abc"))

    ended, results = run(bench, "--max-cost", "2")

    assert [entry["status"] for entry in results["cases"]] == ["passed", "passed", "skipped"]
    assert (results["totalCost"], results["skipped"], results["total"]) == (2, 1, 3)
    assert "no more trials start" in ended.stdout
    assert ended.code != 0


@pytest.mark.parametrize(
    "cheat",
    [
        "echo exit 0 > test/t.sh",
        "rm -rf test; ln -s {outside} test",
        "rm test/t.sh; ln -s /bin/true test/t.sh",
        "rm -r test",
    ],
)
def test_an_agent_cannot_pass_by_changing_protected_tests(bench: Project, cheat: str) -> None:
    bench.write("test/t.sh", "exit 1\n")
    (bench.outside / "t.sh").write_text("exit 0\n")
    write(bench, case("cheats", cheat, "test:sh test/t.sh"), protect=["test/**"])

    ended, results = run(bench)

    expectation = by_id(results)["cheats"]["expectations"][0]
    assert (ended.code, expectation["pass"]) == (1, False)
    assert "ended with exit code 1" in expectation["reason"]
    assert "protected files were put back" in expectation["reason"]


def test_what_a_test_command_leaves_running_is_ended(bench: Project) -> None:
    leaves = "(MINE={token} setsid sleep 300 >/dev/null 2>&1 & echo $! > {outside}/pid); test -s {outside}/pid"
    write(bench, case("leaves", "true", f"test:{leaves}"))

    ended, _ = run(bench)

    assert (ended.code, (bench.outside / "pid").exists()) == (0, True)
    assert bench.left_after_a_while() == []


def test_a_case_that_holds_without_the_agent_is_marked_and_named(bench: Project) -> None:
    write(bench, case("empty", "true", "file:README.md exists"), case("real", "touch made"))

    ended, results = run(bench)

    assert [entry["vacuous"] for entry in results["cases"]] == [True, False]
    assert "Vacuous: every expectation held before the agent started\n  ~ empty on sh\n" in ended.stdout


def test_the_model_is_the_flags_then_the_cases_then_the_suites_then_the_runners(bench: Project) -> None:
    bench.settings(EVENTS + 'model = "of-runner"\n')
    cases = (case("own", "touch made", model="of-case"), case("other", "touch made"))

    write(bench, *cases)
    _, by_runner = run(bench)
    write(bench, *cases, model="of-suite")
    _, by_suite = run(bench)
    _, by_flag = run(bench, "--model", "of-flag")

    assert [entry["model"] for entry in by_runner["cases"]] == ["of-case", "of-runner"]
    assert [entry["model"] for entry in by_suite["cases"]] == ["of-case", "of-suite"]
    assert [entry["model"] for entry in by_flag["cases"]] == ["of-flag", "of-flag"]


def test_cases_run_one_at_a_time_unless_more_are_asked_for(bench: Project) -> None:
    both = "test -e {outside}/a -a -e {outside}/b && touch made"
    meets = f"touch {{outside}}/%s; for i in $(seq 40); do {both}; sleep 0.05; done; rm {{outside}}/%s"
    write(bench, *(case(ident, meets % (ident, ident)) for ident in "ab"))

    alone, _ = run(bench)
    together, results = run(bench, "--concurrent", "2")

    assert alone.code == 1
    assert (together.code, [entry["id"] for entry in results["cases"]]) == (0, ["a", "b"])


def test_several_runs_of_a_case_all_have_to_pass(bench: Project) -> None:
    write(bench, case("flips", "test -e {outside}/seen || touch made; touch {outside}/seen"))

    ended, results = run(bench, "--runs", "2")

    flips = by_id(results)["flips"]
    assert (ended.code, flips["pass"], flips["passRate"]) == (1, False, 0.5)
    assert flips["passAtK"] == {"1": 0.5, "2": 1.0}
    assert [each["pass"] for each in flips["runs"]] == [True, False]


def test_fail_fast_asks_nothing_after_what_does_not_hold(bench: Project) -> None:
    write(bench, case("a", "true", "no-file:x", "file:y exists", "file:z exists"))

    _, all_of_them = run(bench)
    _, fewer = run(bench, "--fail-fast")

    assert [each["pass"] for each in by_id(all_of_them)["a"]["expectations"]] == [True, False, False]
    assert [each["pass"] for each in by_id(fewer)["a"]["expectations"]] == [True, False]


def test_in_place_works_in_the_project_one_case_after_the_other(bench: Project) -> None:
    write(bench, case("first", "echo one >> log", "file:log created"), case("second", "echo two >> log", "diff:log"))

    ended, _ = run(bench, "--in-place", "--concurrent", "4")

    assert ended.code == 0
    assert (bench.root / "log").read_text() == "one\ntwo\n"


def test_a_copy_per_case_leaves_the_project_as_it_was(bench: Project) -> None:
    write(bench, case("edits", "echo new > README.md; rm -r bench", "diff:README.md", "no-file:bench/suite.json"))

    ended, _ = run(bench)

    assert ended.code == 0
    assert (bench.root / "README.md").read_text() == "# Old\n"


def test_verbose_shows_what_agents_say_and_quiet_does_not(bench: Project) -> None:
    bench.settings(SHELL)
    write(bench, case("talks", "touch made; echo all is well"))

    loud, _ = run(bench, "--verbose")
    quiet, _ = run(bench)

    assert "talks@sh │ all is well" in loud.stdout
    assert "all is well" not in quiet.stdout


def test_only_what_failed_is_run_again_as_the_last_line_says(bench: Project) -> None:
    write(bench, case("good", "touch made"), case("bad", "true"))

    first, _ = run(bench)
    _, again = run(bench, "--last-failed")
    _, named = run(bench, "--case", "good")

    assert "whet bench bench/suite.json --output out.json --last-failed" in first.stdout
    assert [entry["id"] for entry in again["cases"]] == ["bad"]
    assert [entry["id"] for entry in named["cases"]] == ["good"]


def test_a_run_that_was_killed_is_gone_on_with(bench: Project) -> None:
    write(
        bench,
        case("quick", "touch made"),
        case("slow", "touch {outside}/here; test -e {outside}/go || sleep 300; touch made"),
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", "bench", "bench/suite.json", "--output", "out.json"],
        cwd=bench.root, env=bench.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    wait_for(bench.outside / "here")
    process.kill()
    process.wait()
    (bench.outside / "go").touch()

    ended = bench.whet("bench", "--resume", "latest")

    results = json.loads((bench.root / "out.json").read_bytes())
    assert ended.code == 0, ended.stderr
    assert [(entry["id"], entry["pass"]) for entry in results["cases"]] == [("quick", True), ("slow", True)]


def test_secrets_in_the_variables_of_a_case_are_masked(bench: Project) -> None:
    bench.settings(SHELL)
    write(bench, case("tells", "touch made; echo $API_KEY", env={"API_KEY": "hunter2-hunter2"}))

    ended, _ = run(bench, "--verbose")

    assert ended.code == 0
    assert "hunter2" not in ended.stdout + ended.artifact("tells", "transcript.txt").read_text()


def test_a_secret_that_a_command_prints_is_masked_in_the_reason_too(bench: Project) -> None:
    bench.settings(SHELL)
    loud = "test:for i in $(seq 400); do echo $API_TOKEN; done; exit 1"
    write(bench, case("loud", "true", loud, env={"API_TOKEN": "s3cr3t-of-the-case"}))

    ended, results = run(bench)

    [expectation] = by_id(results)["loud"]["expectations"]
    assert expectation["reason"].endswith("\n  ***")
    assert "of-the-case" not in f"{expectation} {ended.stdout}"


def test_nothing_is_started_where_an_expectation_is_wrong(bench: Project) -> None:
    write(bench, case("a", "touch {outside}/ran", "file:a exist"))

    ended = bench.whet("bench", "bench/suite.json")

    assert ended.code == 2
    assert "a: cases[0].expect[0]" in ended.stderr
    assert not (bench.outside / "ran").exists()


def test_a_first_suite_says_which_command_runs_it_and_leaves_settings(project: Project) -> None:
    project.write("go.mod", "module m\n")

    ended = project.whet("init")

    assert ended.code == 0, ended.stderr
    assert "whet bench bench/suite.json" in ended.stdout
    assert 'type = "claude-code"' in (project.root / "whet.toml").read_text()
    assert project.whet("validate", "bench/suite.json").code == 0
    assert project.whet("config").code == 0


def test_strict_takes_warnings_for_errors_before_anything_is_started(bench: Project) -> None:
    write(bench, case("a", "touch made", expects=["file:a exists"]))

    strict = bench.whet("bench", "bench/suite.json", "--strict")
    patient = bench.whet("bench", "bench/suite.json")

    assert (strict.code, patient.code) == (2, 0)
    assert "expects" in strict.stderr
    assert not list(bench.root.glob(".whet/runs/*/trials/a/sh/default/2"))


def test_strict_does_not_pay_an_agent_for_a_vacuous_case(bench: Project) -> None:
    write(bench, case("idle", f"touch {bench.outside}/began", "file:README.md exists"), case("works", "touch made"))

    ended, results = run(bench, "--strict")

    assert ended.code == 3
    assert {entry["id"]: entry["status"] for entry in results["cases"]} == {"idle": "infra_error", "works": "passed"}
    assert by_id(results)["idle"]["error"].startswith("every expectation held before the agent began")
    assert not (bench.outside / "began").exists()


def test_a_command_of_an_expectation_has_a_limit_that_can_be_set(bench: Project) -> None:
    bench.settings(EVENTS + "[defaults]\ncommand_timeout_ms = 700\n")
    write(bench, case("waits", "true", "test:sleep 60"))

    ended, results = run(bench)

    assert ended.code == 1
    assert "0.7 s" in by_id(results)["waits"]["expectations"][0]["reason"]


def test_a_folder_that_was_added_to_is_not_new_when_regraded_either(bench: Project) -> None:
    bench.write("src/a.txt", "a\n")
    write(bench, case("adds", "echo b > src/b.txt", "file:src created", "diff:src", "file:src/b.txt created"))

    _, results = run(bench)
    again = bench.whet("regrade", "latest", "--reporter", "bench=again.json")

    before = [each["pass"] for each in by_id(results)["adds"]["expectations"]]
    entry = by_id(json.loads((bench.root / "again.json").read_bytes()))["adds"]
    assert before == [False, True, True]
    assert [each["pass"] for each in entry["expectations"]] == before, again.stderr


def test_results_are_written_for_what_ran_before_an_interruption(bench: Project) -> None:
    write(
        bench,
        case("quick", "touch made"),
        case("slow", f"touch {bench.outside}/began; sleep 600"),
        case("never", "true"),
    )

    whet = bench.start("bench/suite.json", "--output", "out.json", command="bench")
    wait_for(bench.outside / "began")
    whet.send_signal(signal.SIGINT)
    code = bench.outcome(whet).code

    results = json.loads((bench.root / "out.json").read_bytes())
    assert code == 130
    assert results["interrupted"] is True
    assert [entry["id"] for entry in results["cases"]] == ["quick", "slow", "never"]
    assert [entry["pass"] for entry in results["cases"]] == [True, False, False]
    assert results["cases"][2]["status"] == "skipped"


def test_parts_of_a_suite_together_are_all_of_it(bench: Project) -> None:
    write(bench, *(case(f"c{number}", "touch made") for number in range(5)))

    parts = [run(bench, "--shard", f"{part}/2")[1] for part in (1, 2)]

    assert sorted(entry["id"] for part in parts for entry in part["cases"]) == [f"c{number}" for number in range(5)]


def test_an_agent_that_never_stops_talking_is_cut_off_and_its_case_is_seen(bench: Project) -> None:
    bench.settings(SHELL + "[defaults]\nmax_output_bytes = 100000\n")
    write(bench, case("chatty", "touch made; yes chatter", timeout=60), case("next", "touch made"))

    ended, results = run(bench)

    chatty = by_id(results)["chatty"]
    assert ended.code == 1
    assert (chatty["pass"], chatty["status"]) == (False, "agent_error")
    assert [each["pass"] for each in chatty["expectations"]] == [True]
    assert by_id(results)["next"]["pass"] is True


def test_results_that_cannot_be_written_are_not_passed_over(bench: Project) -> None:
    write(bench, case("good", "touch made"))

    ended = bench.whet("bench", "bench/suite.json", "--output", "/dev/full")

    assert ended.code == 74
    assert 'reporter "bench" could not write /dev/full: No space left on device' in ended.stderr
    assert ended.results["counts"]["passed"] == 1


def test_a_temporary_folder_inside_of_the_project_is_said_before_anything_is_started(bench: Project) -> None:
    (bench.root / "tmp").mkdir()
    write(bench, case("good", "touch made"))

    ended = bench.whet("bench", "bench/suite.json", env={"TMPDIR": str(bench.root / "tmp")})

    assert ended.code == 2
    assert ended.stderr.count("error[") == 1
    assert "set TMPDIR to another folder" in ended.stderr
    assert not bench.output_dir.exists()


def test_a_dry_run_shows_how_every_expectation_was_read(bench: Project) -> None:
    write(bench, case("a", "true", "test:npm test  passes", "file:a b.md contains 'it\\'s'", budget=2))

    ended = bench.whet("bench", "bench/suite.json", "--dry-run")

    assert ended.stdout.splitlines()[3:] == [
        "a  sh  (command)  1 trial, 600 s, at most $2, isolated",
        '    {"test": "npm test", "passes": true}',
        '    {"file": "a b.md", "contains": "it\'s"}',
    ]


@pytest.mark.parametrize("seconds", ["inf", "nan", "1e400", "0"])
def test_a_time_limit_that_is_none_is_refused(bench: Project, seconds: str) -> None:
    done = bench.whet("bench", "bench/suite.json", "--timeout", seconds)

    assert done.code == 2
    assert "--timeout" in done.stderr
    assert "Traceback" not in done.stderr
