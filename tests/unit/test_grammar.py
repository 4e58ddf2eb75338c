"""What you type: one name for one thing in every command, older names that still work, and units of times."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from whet.cli.grammar.application import application
from whet.cli.grammar.options import OTHER_NAMES, select_words
from whet.cli.grammar.quantities import TIME_METAVAR, Duration, Percent, Points, Share
from whet.cli.grammar.targets import Target, find_targets, read_target, usual_paths
from whet.cli.run import request_of, run_command
from whet.errors import UsageError
from whet.model.request import Selection

# Each line as it was typed before, or as the words of another tool have it, and as it is typed now.
TYPED_BEFORE = [
    ("run suite.py --runs 3", "run suite.py --trials 3"),
    ("test suite.py --trials 3", "run suite.py --trials 3"),
    ("run suite.py --timeout-ms 500", "run suite.py --timeout 500ms"),
    ("run suite.py --timeout-ms 120000", "run suite.py --timeout 2m"),
    ("run suite.py --variant a --variant b", "run suite.py --arm a --arm b"),
    ("run suite.py --concurrent 2", "run suite.py --max-parallel 2"),
    ("run suite.py -j 2", "run suite.py --max-parallel 2"),
    ("run suite.py --jobs 2", "run suite.py --max-parallel 2"),
    ("run suite.py --lf", "run suite.py --last-failed"),
    ("run suite.py --agent codex", "run suite.py --runner codex"),
    ("run suite.py -x -v", "run suite.py --stop-early --verbose"),
    ("run suite.py -xv", "run suite.py --stop-early --verbose"),
    (
        "bench s.json --concurrent 4 --output results.json --verbose",
        "bench s.json --max-parallel 4 --output results.json -v",
    ),
    ("bench s.json --runs 2 --timeout 180", "bench s.json --trials 2 --timeout 3m"),
    ("audit suite.py --timeout-ms 500", "audit suite.py --timeout 500ms"),
    ("run s.py --exitfirst", "run s.py -x"),
    ("run s.py --bail", "run s.py --stop-early"),
    ("explain folder --timeout-ms 500", "explain folder --timeout 500ms"),
    ("eval --skills ./skills/ --benchmark my-benchmark", "eval --skill ./skills/ --benchmark my-benchmark"),
    (
        "eval --skills ./skills/ --benchmark my-benchmark --benchmarks-dir ./my-benchmarks/",
        "callable eval --skill ./skills/ --benchmark my-benchmark --benchmarks-dir ./my-benchmarks/",
    ),
    ("eval s --runs 2 --concurrency 3 --timeout 500", "eval s --trials 2 --max-parallel 3 --timeout 500ms"),
    ("eval s --task a", "eval s --case a"),
    ("serve --max-time-limit-s 60", "serve --max-time-limit 1m"),
    ("eval s --min-completion 0.7", "eval s --min-completion 70%"),
    ("task --skill s --input {} --runs 2 --timeout 1000", "callable task --skill s --input {} --trials 2 --timeout 1s"),
    ("create --name n --output-dir d", "callable create --name n --skills-dir d"),
    ("find --query words", "callable find --query words"),
    ("select --from s --reports r", "callable select --from s --reports r"),
    ("keys create --org o", "service keys create --org o"),
    ("orgs quota o --runs 3", "service orgs quota o --runs 3"),
    ("suites run id --runs 3", "service suites run id --trials 3"),
    ("serve --port 1", "service serve --port 1"),
    ("gate --min-rate 80", "gate --min-rate 80%"),
    ("plan suite.py --effect 10", "plan suite.py"),
]


# A command keeps its help option for good, as its first context has it.
HELP = ["-h", "--help"]


def read(line: str) -> tuple[click.Command, dict[str, Any]]:
    """Return the command that *line* finds, and what it gets."""
    words = line.split()
    command: click.Command = application()
    while isinstance(command, click.Group):
        name = words.pop(0)
        member = command.get_command(click.Context(command), name)
        assert member is not None, name
        command = member
    return command, dict(command.make_context("whet", words, help_option_names=HELP).params)


@pytest.mark.parametrize(("before", "now"), TYPED_BEFORE)
def test_older_names_and_those_of_other_tools_mean_what_the_names_of_today_mean(before: str, now: str) -> None:
    assert read(before) == read(now)


def commands_below(group: click.Command, *names: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that somebody can type, by its whole name."""
    if not isinstance(group, click.Group):
        yield " ".join(names), group
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield from commands_below(command, *names, name)


COMMANDS = dict(commands_below(application()))
OPTIONS = [
    (name, option)
    for name, command in COMMANDS.items()
    for option in command.params
    if isinstance(option, click.Option)
]
# What every command calls the thing that its code has under this name.
ONE_NAME = {
    "trials": "--trials",
    "max_parallel": "--max-parallel",
    "timeout_ms": "--timeout",
    "output_dir": "--output-dir",
    "max_cost_usd": "--max-cost",
    "max_cost": "--max-cost",
    "cases": "--case",
    "tags": "--tag",
    "runners": "--runner",
    "config_file": "--config",
    "margin": "--margin",
    "effect": "--effect",
}
# Commands with settings that neither read nor write a run, or whose runs are those of the service.
WITHOUT_RUNS = {"serve", "service serve", "doctor", "config"}


def test_one_thing_has_one_name_in_every_command() -> None:
    named = [(name, option.name, option.opts[-1]) for name, option in OPTIONS if option.name in ONE_NAME]

    assert [row for row in named if row[2] != ONE_NAME[str(row[1])]] == []
    assert {shown for _, _, shown in named} == set(ONE_NAME.values())


def test_other_names_are_shown_by_no_command() -> None:
    others = {word for words in OTHER_NAMES.values() for word in words} - set(OTHER_NAMES)
    shown = {(name, word) for name, option in OPTIONS for word in option.opts if word in others}

    # The quota of runs is no number of trials, and every other command has runs in its output folder.
    assert {(name, word) for name, word in shown if word != "--output-dir"} == {("service orgs quota", "--runs")}


def test_every_command_that_has_to_do_with_runs_takes_the_folder_of_runs() -> None:
    with_settings = {name for name, option in OPTIONS if option.name == "config_file"}
    with_folder = {name for name, option in OPTIONS if option.opts == ["--output-dir"]}

    assert with_settings - with_folder == WITHOUT_RUNS


def test_every_time_is_typed_with_a_unit_and_its_help_says_that_of_a_bare_number() -> None:
    times = [(name, option) for name, option in OPTIONS if isinstance(option.type, Duration)]
    units = {"ms": "bare number is ms", "s": "bare number is seconds", "days": "bare number is days"}

    assert {name for name, _ in times} >= {"run", "bench", "audit", "eval", "callable task", "explain", "mcp", "serve"}
    assert [name for name, option in OPTIONS if option.opts[-1].endswith(("-s", "-ms", "-sec", "-minutes"))] == []
    for name, option in times:
        assert isinstance(option.type, Duration)
        assert option.metavar == TIME_METAVAR, name
        assert units[option.type.unit] in str(option.help), (name, option.help)


def test_run_and_bench_have_the_same_options() -> None:
    run, bench = (application().get_command(click.Context(application()), name) for name in ("run", "bench"))

    assert run is not None
    assert bench is not None
    assert [parameter.opts for parameter in run.params] == [parameter.opts for parameter in bench.params]


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("2m", 120_000),
        ("2min", 120_000),
        ("1.5s", 1_500),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("2D", 172_800_000),
        ("0.1ms", None),
        ("0s", None),
        ("-1s", None),
        ("30x", None),
        ("s", None),
        ("", None),
        ("nan", None),
        ("99999d", None),
    ],
)
def test_a_time_has_a_unit(text: str, time_ms: int | None) -> None:
    if time_ms is None:
        with pytest.raises(click.BadParameter):
            Duration("ms").convert(text, None, None)
    else:
        assert Duration("ms").convert(text, None, None) == time_ms


@pytest.mark.parametrize(("unit", "time_ms"), [("ms", 30), ("s", 30_000), ("days", 2_592_000_000)])
def test_a_bare_number_has_the_unit_of_its_command(unit: Any, time_ms: int) -> None:
    assert Duration(unit).convert("30", None, None) == time_ms


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run --timeout 30", "note: --timeout 30 is 30 ms; write 30ms to be clear\n"),
        ("bench --timeout 30", "note: --timeout 30 is 30 s; write 30s to be clear\n"),
        ("run --timeout 30s", ""),
        ("run --timeout-ms 30", ""),
    ],
)
def test_a_bare_number_is_said_in_its_unit_unless_the_name_says_it(
    capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    whole = application()

    with whole.make_context("whet", line.split()) as context:
        name, command, words = whole.resolve_command(context, line.split())
        assert command is not None
        command.make_context(name, words, parent=context)

    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("kind", "text", "value"), [(Share(), "70%", 0.7), (Share(), "0.7", 0.7), (Percent(0, 100), "80%", 80)]
)
def test_a_share_is_typed_with_or_without_its_sign(kind: click.ParamType[Any], text: str, value: float) -> None:
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize(
    ("kind", "text"), [(Share(), "70"), (Share(), "101%"), (Percent(0, 100), "101"), (Points(0, 100), "x")]
)
def test_a_share_or_points_beyond_their_range_are_refused(kind: click.ParamType[Any], text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


def test_points_below_one_are_noted_because_they_were_meant_as_a_share(capsys: pytest.CaptureFixture[str]) -> None:
    _, options = read("report diff a b --margin 0.05")

    assert options["margin"] == 0.05
    assert "note: --margin 0.05 is less than one point of 100" in capsys.readouterr().err


def test_words_that_select_are_taken_away_by_any_of_their_names() -> None:
    words = ["suite.py", "-k", "a", "-kb", "--lf", "-xv", "--task=c", "--runs", "2", "--timeout", "3s"]

    remaining = list(
        select_words(words, run_command, lambda name: name in ("trials", "timeout_ms", "verbose"), with_arguments=True)
    )

    assert remaining == ["suite.py", "-v", "--runs", "2", "--timeout", "3s"]


def request_for(*words: str) -> Any:
    return request_of("run", dict(run_command.make_context("run", list(words), help_option_names=HELP).params))


def test_k_selects_by_a_part_of_the_id_whatever_is_in_it() -> None:
    request = request_for("suite.py", "-k", "login", "-k", "a[1]", "--case", "exact")

    assert request.selection.cases == ("exact", "*login*", "*a[[]1]*")


def test_an_expression_of_k_is_answered_with_what_to_type() -> None:
    with pytest.raises(UsageError, match="a part of the id") as error:
        request_for("suite.py", "-k", "login or logout")

    assert error.value.hint == "for one or the other: -k ONE -k OTHER"


@pytest.mark.parametrize("more", [("--until-decided",), ("--arm", "old=env:A=1", "--arm", "new=env:A=2")])
def test_x_is_refused_where_failures_are_what_is_measured(more: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="a comparison counts failures"):
        request_for("suite.py", "-x", *more)


SUITE = "from whet import Case\nsuite = [Case(id='one', prompt='Go.', check=lambda: None)]\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with two suites, and go there."""
    (tmp_path / "suite.py").write_text(SUITE)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "other.py").write_text(SUITE)
    monkeypatch.chdir(tmp_path)

    return tmp_path


def no_runs() -> Path:
    return Path("nowhere")


@pytest.mark.parametrize(
    ("typed", "target"),
    [
        ("suite.py", Target(path=Path("suite.py"))),
        ("suite.py::one", Target(path=Path("suite.py"), case="one")),
        ("more::a/b@c", Target(path=Path("more"), case="a/b@c")),
        ("suite.py::a@demo/new", Target(path=Path("suite.py"), case="a", runner="demo")),
        ("suite.py::a@b@demo/new#12", Target(path=Path("suite.py"), case="a@b", runner="demo")),
    ],
)
def test_a_path_may_name_a_case_or_a_trial(project: Path, typed: str, target: Target) -> None:
    assert read_target(Path(typed), no_runs) == target


@pytest.mark.parametrize("typed", ["::one", "suite.py::", "gone::one"])
def test_half_a_name_or_an_unknown_one_is_refused_with_what_to_write(project: Path, typed: str) -> None:
    with pytest.raises(UsageError) as error:
        read_target(Path(typed), no_runs)

    assert "suite.py::my-case" in str(error.value.hint)


def test_each_suite_is_run_with_the_cases_that_were_named_of_it(project: Path) -> None:
    typed = ["suite.py::one", "more/other.py", "suite.py::two"]

    suites, _ = find_targets([read_target(Path(text), no_runs) for text in typed])

    assert [(str(suite.path), selection.cases) for suite, selection in suites] == [
        ("suite.py", ("one", "two")),
        ("more/other.py", ()),
    ]


def test_a_suite_that_was_also_named_as_a_whole_is_run_as_a_whole(project: Path) -> None:
    suites, _ = find_targets([Target(path=Path("suite.py"), case="one"), Target(path=Path("suite.py"))])

    assert [selection for _, selection in suites] == [Selection()]


def test_without_a_path_the_only_suite_is_meant(project: Path) -> None:
    (project / "more" / "other.py").unlink()

    assert usual_paths() == (Path("suite.py"),)


def test_without_a_path_the_skill_whose_folder_you_are_in_is_meant(project: Path) -> None:
    (project / "SKILL.md").touch()

    assert usual_paths() == (Path(),)


def test_of_several_suites_none_is_guessed(project: Path) -> None:
    with pytest.raises(UsageError, match=r"there are 2 here: suite\.py, more/other\.py") as error:
        usual_paths()

    assert error.value.hint == 'name one, or all of them with "."'
