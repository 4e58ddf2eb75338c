"""Selection: which cases and runners a run takes, and what it would do."""

# ruff: noqa: E501 - suites and scripts stand here as their authors would write them

from __future__ import annotations

from collections import Counter

import pytest
from project import SHELL, Project

TWO = """
[runners.one.agent]
type = "command"
command = "true"
[runners.two.agent]
type = "command"
command = "true"
"""
SUITE = """
    suite = [Case(id="b", prompt="x", tags=["smoke", "auth"], check=ok), Case(id="a", prompt="x", tags=["smoke"], check=ok),
             Case(id="c", prompt="x", tags=["slow"], check=ok), Case(id="d", prompt="x", check=ok)]
"""


@pytest.fixture
def matrix(project: Project) -> Project:
    project.settings(TWO)
    project.suite(SUITE)
    return project


def planned(project: Project, *args: str) -> list[tuple[str, str]]:
    """The executions that a dry run tells of."""
    done = project.run("--dry-run", *args)
    assert done.code == 0, done.stderr
    return [(line.split()[0], line.split()[1]) for line in done.stdout.splitlines()[3:]]


@pytest.mark.parametrize(
    ("args", "cases"),
    [
        (["--case", "d,b"], "bd"),
        (["--case", "d", "--case", "b"], "bd"),
        (["--tag", "smoke"], "ba"),
        (["--tag", "slow,auth"], "bc"),
        (["--tag", "slow", "--tag", "auth"], "bc"),
        (["--tag", "smoke", "--case", "a,c"], "a"),
        ([], "bacd"),
    ],
)
def test_cases_are_selected_in_declared_order(matrix: Project, args: list[str], cases: str) -> None:
    assert planned(matrix, *args, "--runner", "two") == [(case, "two") for case in cases]


def test_a_run_does_what_the_dry_run_told_and_the_dry_run_does_nothing(matrix: Project) -> None:
    told = planned(matrix, "--tag", "smoke")
    untouched = not matrix.output_dir.exists()

    done = matrix.run("--tag", "smoke")

    assert untouched
    assert [(trial["case"], trial["runner"]) for trial in done.trials] == told


@pytest.mark.parametrize("count", [2, 3])
def test_shards_are_a_partition(matrix: Project, count: int) -> None:
    parts = [planned(matrix, "--shard", f"{number}/{count}") for number in range(1, count + 1)]

    assert Counter(item for part in parts for item in part) == Counter(planned(matrix))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--case", "aa"], 'no case is called "aa"'),
        (["--tag", "smok"], 'did you mean "smoke"?'),
        (["--runner", "three"], "no runner"),
        (["--tag", "slow", "--case", "a"], "nothing is selected"),
        (["--shard", "9/9"], "is empty"),
        (["--shard", "0/3"], "shard"),
        (["--shard", "x"], "shard"),
        (["--last-failed"], "has not been run"),
        (["--trials", "0"], "trials"),
        (["--nonsense"], "no such option"),
    ],
)
def test_selecting_nothing_or_nonsense_is_a_usage_error_that_leaves_no_trace(
    matrix: Project, args: list[str], said: str
) -> None:
    done = matrix.run(*args)

    assert done.code == 2
    assert said in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert not matrix.output_dir.exists()


def test_tags_of_the_settings_select_and_typed_ones_replace_them(matrix: Project) -> None:
    matrix.settings(TWO + '[run]\ntags = ["slow"]\n')

    by_settings = planned(matrix, "--runner", "one")
    by_flag = planned(matrix, "--runner", "one", "--tag", "auth")

    assert by_settings == [("c", "one")]
    assert by_flag == [("b", "one")]


def test_last_failed_takes_what_did_not_go_as_expected_the_last_time(project: Project) -> None:
    project.settings(TWO.replace('command = "true"', 'command = "sh"'))
    project.suite("""
        suite = [Case(id="fails", prompt="test -e {outside}/mended", check=ok), Case(id="passes", prompt="true", check=ok),
                 Case(id="only-two", prompt="test $WHET_RUNNER_ID = one", check=ok),
                 Case(id="known", prompt="true", check=no, expected_fail=True),
                 Case(id="errs", prompt="true", check=lambda: os._exit(0))]
    """)
    project.run()

    told = planned(project, "--last-failed")
    (project.outside / "mended").touch()
    done = project.run("--last-failed")

    assert told == [
        ("fails", "one"), ("fails", "two"), ("only-two", "two"), ("errs", "one"), ("errs", "two"),
    ]  # fmt: skip
    assert [(trial["case"], trial["runner"]) for trial in done.trials] == told
    assert done.statuses["fails"] == "passed"


def test_after_a_good_run_last_failed_says_that_nothing_failed(project: Project) -> None:
    project.settings(TWO)
    project.suite('suite = [Case(id="a", prompt="x", check=ok)]')
    project.run()

    done = project.run("--last-failed")

    assert done.code == 2
    assert "nothing failed" in done.stderr


def test_last_failed_takes_what_other_tags_than_those_of_the_settings_chose(project: Project) -> None:
    project.settings(SHELL + '[run]\ntags = ["smoke"]\n')
    project.suite("""
        suite = [
            Case(id="a", prompt="true", check=ok, tags=["smoke"]),
            Case(id="b", prompt="true", check=no, tags=["auth"]),
        ]
    """)
    first = project.run("--tag", "auth")
    hint = first.stdout.partition("To run only what did not go as expected: ")[2].partition("\n")[0].split()

    again = project.whet(*hint[1:])

    assert (again.code, again.statuses) == (1, {"b": "failed"}), again.stderr


def test_an_arm_that_nobody_defined_is_refused_with_how_to_define_one(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')

    done = project.run("--arm", "old", "--arm", "new")

    assert done.code == 2
    assert 'known: "default"; define one like --arm old=skill:./v2' in done.stderr


def test_a_suite_that_is_not_there_is_refused_with_the_nearest_name(project: Project) -> None:
    project.settings(SHELL)
    project.suite('suite = [Case(id="a", prompt="true", check=ok)]')

    done = project.whet("run", "suit.py")

    assert (done.code, 'did you mean "suite.py"?' in done.stderr) == (2, True), done.stderr


def test_a_number_that_is_none_is_called_that(project: Project) -> None:
    done = project.whet("run", "suite.py", "--trials", "abc")

    assert done.code == 2
    assert "'abc' is not a whole number" in done.stderr, done.stderr
