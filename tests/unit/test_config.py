"""Settings: where they are found, which source wins, and what is said about those that are wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from whet.cli.callable import eval_command
from whet.cli.run import bench_command, run_command
from whet.errors import ConfigError
from whet.model.request import Settings
from whet.model.suite import BootstrapSpec, WorkspaceSpec
from whet.plan.settings.load import describe, entries, load_settings
from whet.plan.settings.table import GIVEN, SETTINGS, rows_in
from whet.reading.toml import is_project_root


def write(folder: Path, text: str, name: str = "whet.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(text)
    return file


def load(
    start: Path,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> Settings:
    return load_settings(start, flags=flags or {}, environ=environ or {}, config_file=config_file)


def problems(start: Path, **given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(start, **given)
    return caught.value.message.splitlines()


def test_without_any_file_everything_is_built_in(tmp_path: Path) -> None:
    settings = load(tmp_path / "suite.py")

    assert settings.file is None
    assert settings.output_dir == Path.cwd() / ".whet" / "runs"
    assert settings.max_parallel == min(8, len(os.sched_getaffinity(0)))
    assert (settings.trials, settings.retries, settings.max_steps) == (1, 0, None)
    assert (settings.timeout_s, settings.check_timeout_s) == (120.0, 30.0)
    assert settings.max_output_bytes == 64 * 1024 * 1024
    assert (settings.schedule, settings.sandbox, settings.reporters) == (None, "auto", ("terminal",))
    assert (settings.cwd, settings.workspace, settings.snapshots, settings.runners) == (None, None, None, ())
    assert set(settings.origins.values()) == {"built-in"}


def test_the_first_folder_upwards_that_has_settings_wins(tmp_path: Path) -> None:
    write(tmp_path, "[run]\ntrials = 9")
    near = write(tmp_path / "a", "[run]\nretries = 2")
    (tmp_path / "a" / "b").mkdir()

    settings = load(tmp_path / "a" / "b" / "suite.py")

    assert settings.file == near
    assert (settings.trials, settings.retries) == (1, 2)
    assert settings.origins["run.retries"] == "whet.toml"
    assert settings.output_dir == tmp_path / "a" / ".whet" / "runs"


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a path somebody else's: root gives it away; anybody else becomes another user for those who ask."""

    def give_away(path: Path) -> None:
        if os.getuid() == 0:
            os.chown(path, 65534, 65534, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    return give_away


@pytest.mark.parametrize(
    ("name", "text"), [("whet.toml", "[run]\ntrials = 9"), ("pyproject.toml", "[tool.whet.run]\ntrials = 9")]
)
def test_the_search_ends_at_settings_of_somebody_else_and_says_so(
    tmp_path: Path, stranger: Callable[[Path], None], name: str, text: str
) -> None:
    write(tmp_path, "[run]\ntrials = 8")
    foreign = write(tmp_path / "shared", text, name)
    (tmp_path / "shared/mine").mkdir()
    stranger(foreign)

    settings = load(tmp_path / "shared/mine/suite.py")

    assert (settings.file, settings.trials, settings.searched_to) == (None, 1, tmp_path / "shared")
    [notice] = settings.notices
    assert notice.startswith(f"{foreign} is not read: it belongs to ")
    assert notice.endswith("name it with --config if you trust it")


def test_settings_of_somebody_else_can_be_named(tmp_path: Path, stranger: Callable[[Path], None]) -> None:
    foreign = write(tmp_path, "[run]\ntrials = 9")
    stranger(foreign)

    settings = load(tmp_path, config_file=foreign)

    assert (settings.file, settings.trials, settings.notices) == (foreign, 9, ())


def test_a_link_of_somebody_else_leads_nowhere(tmp_path: Path, stranger: Callable[[Path], None]) -> None:
    own = write(tmp_path / "own", "[run]\ntrials = 9")
    link = tmp_path / "shared/whet.toml"
    link.parent.mkdir()
    link.symlink_to(own)
    stranger(link)

    settings = load(tmp_path / "shared")

    assert settings.file is None
    assert str(link) in settings.notices[0]


def test_a_pyproject_of_somebody_else_that_is_not_about_us_is_passed_over(
    tmp_path: Path, stranger: Callable[[Path], None]
) -> None:
    stranger(write(tmp_path / "a", "[project]\nname = 'other'", "pyproject.toml"))

    settings = load(tmp_path / "a")

    assert settings.notices == ()


@pytest.mark.parametrize("mark", ["folder", "file"])
def test_the_search_ends_at_the_root_of_the_project(tmp_path: Path, mark: str) -> None:
    write(tmp_path, "[run]\ntrials = 9")
    (tmp_path / "repo/bench").mkdir(parents=True)
    git = tmp_path / "repo/.git"
    git.mkdir() if mark == "folder" else git.write_text("gitdir: ../elsewhere")

    settings = load(tmp_path / "repo/bench/suite.py")

    assert (settings.file, settings.trials, settings.searched_to) == (None, 1, tmp_path / "repo")


def test_settings_in_the_root_of_the_project_are_found(tmp_path: Path) -> None:
    near = write(tmp_path / "repo", "[run]\ntrials = 9")
    (tmp_path / "repo/.git").mkdir()
    (tmp_path / "repo/bench").mkdir()

    settings = load(tmp_path / "repo/bench/suite.py")

    assert settings.file == near


def test_a_repository_of_somebody_else_is_no_root(tmp_path: Path, stranger: Callable[[Path], None]) -> None:
    (tmp_path / "shared/.git").mkdir(parents=True)
    stranger(tmp_path / "shared/.git")

    assert not is_project_root(tmp_path / "shared")


def test_a_pyproject_counts_only_with_a_table_of_ours(tmp_path: Path) -> None:
    write(tmp_path, "[tool.whet.run]\ntrials = 4", "pyproject.toml")
    write(tmp_path / "a", "[project]\nname = 'about-whet'", "pyproject.toml")
    write(tmp_path / "a" / "b", "this is = = no toml", "pyproject.toml")

    settings = load(tmp_path / "a" / "b")

    assert settings.file == tmp_path / "pyproject.toml"
    assert settings.trials == 4
    assert settings.origins["run.trials"] == "pyproject.toml [tool.whet]"


def test_two_settings_files_in_one_folder_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "")
    write(tmp_path, "[tool.whet]", "pyproject.toml")

    found = problems(tmp_path)

    assert found == [f"{tmp_path}: both whet.toml and [tool.whet] of pyproject.toml hold settings"]


def test_a_flag_beats_a_variable_beats_the_project_beats_the_user(tmp_path: Path) -> None:
    write(tmp_path / "home" / ".config" / "whet", "[run]\ntrials=5\nretries=5\nmax_steps=5\ntags=['u']", "config.toml")
    write(tmp_path / "project", "[run]\ntrials = 4\nretries = 4\nmax_steps = 4")
    environ = {"HOME": str(tmp_path / "home"), "WHET_TRIALS": "3", "WHET_RETRIES": "3"}

    settings = load(tmp_path / "project", flags={"trials": 2}, environ=environ)

    assert (settings.trials, settings.retries, settings.max_steps, settings.tags) == (2, 3, 4, ("u",))
    assert settings.origins["run.trials"] == "flag --trials"
    assert settings.origins["run.retries"] == "WHET_RETRIES"
    assert settings.origins["run.max_steps"] == "whet.toml"
    assert settings.origins["run.tags"] == "user file ~/.config/whet/config.toml"


def test_the_user_file_is_looked_for_where_xdg_says(tmp_path: Path) -> None:
    write(tmp_path / "xdg" / "whet", "[run]\ntrials = 7", "config.toml")

    settings = load(tmp_path, environ={"HOME": "/nowhere", "XDG_CONFIG_HOME": str(tmp_path / "xdg")})

    assert settings.trials == 7
    assert settings.origins["run.trials"] == f"user file {tmp_path}/xdg/whet/config.toml"


def test_a_named_file_ends_the_search(tmp_path: Path) -> None:
    write(tmp_path, "[run]\ntrials = 2")
    named = write(tmp_path / "elsewhere", "[run]\nretries = 1", "ci.toml")

    settings = load(tmp_path, config_file=named)

    assert (settings.file, settings.trials, settings.retries) == (named, 1, 1)
    assert settings.origins["run.retries"] == "ci.toml"


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    missing = tmp_path / "no.toml"

    found = problems(tmp_path, config_file=missing)

    assert found == [f"{missing}: no such file"]


def test_a_named_pyproject_without_our_table_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, "[project]", "pyproject.toml")

    found = problems(tmp_path, config_file=file)

    assert found == [f"{file}: no [tool.whet] table"]


def test_the_smallest_ceiling_on_parallel_trials_holds(tmp_path: Path) -> None:
    write(tmp_path / "home" / ".config" / "whet", "[run]\nmax_parallel = 2", "config.toml")
    write(tmp_path / "project", "[run]\nmax_parallel = 6")
    environ = {"HOME": str(tmp_path / "home"), "WHET_MAX_PARALLEL": "4"}

    settings = load(tmp_path / "project", environ=environ)

    assert settings.max_parallel == 2
    assert settings.origins["run.max_parallel"] == "user file ~/.config/whet/config.toml"


def test_a_ceiling_that_is_typed_holds_even_where_files_say_less(tmp_path: Path) -> None:
    write(tmp_path, "[run]\nmax_parallel = 2")

    settings = load(tmp_path, flags={"max_parallel": 16}, environ={"WHET_MAX_PARALLEL": "4"})

    assert settings.max_parallel == 16
    assert settings.origins["run.max_parallel"] == "flag --max-parallel"


def test_variables_are_read_from_text(tmp_path: Path) -> None:
    environ = {
        "WHET_OUTPUT_DIR": str(tmp_path / "out"),
        "WHET_SCHEDULE": "serial",
        "WHET_MAX_PARALLEL": "3",
        "WHET_TRIALS": " 2 ",
        "WHET_MAX_STEPS": "9",
        "WHET_TAGS": "a, b,a",
        "WHET_REPORTERS": "terminal,junit=out.xml",
        "WHET_SANDBOX": "local",
        "WHET_TIMEOUT_MS": "1500",
        "WHET_CHECK_TIMEOUT_MS": "250",
        "WHET_RETRIES": "",
    }

    settings = load(tmp_path, environ=environ)

    assert (settings.output_dir, settings.schedule, settings.max_parallel) == (tmp_path / "out", "serial", 3)
    assert (settings.trials, settings.retries, settings.max_steps) == (2, 0, 9)
    assert (settings.tags, settings.reporters) == (("a", "b"), ("terminal", "junit=out.xml"))
    assert (settings.sandbox, settings.timeout_s, settings.check_timeout_s) == ("local", 1.5, 0.25)
    assert settings.origins["run.retries"] == "built-in"


def test_a_wrong_variable_is_called_by_its_name(tmp_path: Path) -> None:
    environ = {"WHET_TRIALS": "many", "WHET_TAGS": "a,,b", "WHET_SANDBOX": "docker", "WHET_RETRIES": "-1"}

    found = problems(tmp_path, environ=environ)

    assert found == [
        'WHET_TRIALS: must be an integer of at least 1 and at most 1,000,000, not "many"',
        "WHET_RETRIES: must be an integer of at least 0 and at most 1,000, not -1",
        "WHET_TAGS[1]: must not be empty",
        'WHET_SANDBOX: must be one of auto, bubblewrap, container, local, not "docker"',
    ]


def test_a_wrong_flag_is_called_as_it_was_typed(tmp_path: Path) -> None:
    found = problems(tmp_path, flags={"trials": 0, "reporters": ("",)})

    assert found == [
        "--trials: must be an integer of at least 1 and at most 1,000,000, not 0",
        "--reporter[0]: must not be empty",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("run.max_paralel = 1", 'run.max_paralel: is not a known field (did you mean "max_parallel"?)'),
        ("run.maxParallel = 1", 'run.maxParallel: is not a known field (did you mean "max_parallel"?)'),
        ("run.timeout_ms = 1", 'run.timeout_ms: is not a known field (did you mean "defaults.timeout_ms"?)'),
        ("trials = 1", 'trials: is not a known field (did you mean "run.trials"?)'),
        ("runner.x = 1", 'runner: is not a known field (did you mean "runners"?)'),
        ("zzz = 1", f"zzz: is not a known field (known: {', '.join(SETTINGS)})"),
        ("run = 1", "run: must be a table, not 1"),
        ('run.trials = "many"', 'run.trials: must be an integer of at least 1 and at most 1,000,000, not "many"'),
        ('run.trials = "1"', 'run.trials: must be an integer of at least 1 and at most 1,000,000, not "1"'),
        ("run.trials = true", "run.trials: must be an integer of at least 1 and at most 1,000,000, not true"),
        ("run.trials = 1.0", "run.trials: must be an integer of at least 1 and at most 1,000,000, not 1.0"),
        ("run.trials = 0", "run.trials: must be an integer of at least 1 and at most 1,000,000, not 0"),
        ("run.retries = -1", "run.retries: must be an integer of at least 0 and at most 1,000, not -1"),
        ("run.max_steps = []", "run.max_steps: must be an integer of at least 1, not an empty list"),
        ("run.tags = 'a'", 'run.tags: must be a list of strings, not "a" (put it into a list)'),
        ("run.tags = ['a', 3]", "run.tags[1]: must be a string, not 3"),
        ("run.cwd = ' '", "run.cwd: must not be empty"),
        (
            'run.cwd = "a\\u0000b"',
            "run.cwd: holds a character that no program can be given (NUL or half a surrogate pair)",
        ),
        (
            "run.schedule = 'paralel'",
            (
                "run.schedule: must be one of serial, parallel, isolated-by-runner, "
                'not "paralel" (did you mean "parallel"?)'
            ),
        ),
        ("run.sandbox = {}", "run.sandbox: must be one of auto, bubblewrap, container, local, not a table"),
        ("gateway.faults.cut = 1.5", "gateway.faults.cut: must be a number of at least 0 and at most 1, not 1.5"),
        (
            "gateway.faults = { cut = 0.6, hang = 0.6, seed = 7 }",
            "gateway.faults: the shares must be at most 1 together, not 1.2",
        ),
        (
            "runners.a.agent = { type = 'command', faults = { slow = 1, hang = 0.5 } }",
            "runners.a.agent.faults: the shares must be at most 1 together, not 1.5",
        ),
        ("defaults.timeout_ms = 0", "defaults.timeout_ms: must be an integer of at least 1, not 0"),
        ("run.workspace = {}", 'run.workspace.mode: is missing ("shared" or "isolated")'),
        ("run.workspace.mode = 'none'", 'run.workspace.mode: must be one of shared, isolated, not "none"'),
        (
            "run.workspace = {mode = 'isolated', cwd = 'x'}",
            'run.workspace.cwd: cannot be used with run.workspace.mode "isolated" (whet.toml)',
        ),
        (
            "run = {cwd = 'x', workspace = {mode = 'isolated'}}",
            'run.cwd: cannot be used with run.workspace.mode "isolated" (whet.toml)',
        ),
        (
            "run.workspace = {mode = 'isolated', bootstrap = {args = ['x']}}",
            "run.workspace.bootstrap.command: is missing (the program that prepares a workspace)",
        ),
        (
            "snapshots.tolerance.percent = -1",
            "snapshots.tolerance.percent: must be a number of at least 0, not -1",
        ),
        (
            "snapshots.tolerance.absolute = inf",
            "snapshots.tolerance.absolute: must be a number of at least 0, not inf",
        ),
        ("run.max_cost_usd = 1" + "0" * 400, "run.max_cost_usd: is too large a number"),
        (
            "snapshots = {paht = 'x', tolerance = {percent = 5}}",
            'snapshots.paht: is not a known field (did you mean "path"?)',
        ),
        ("[snapshots]", "snapshots.tolerance: is missing (give absolute, percent or both)"),
        ("[snapshots.tolerance]", "snapshots.tolerance: is missing (give absolute, percent or both)"),
        ('snapshots.metric = "cost_usd"', "snapshots.tolerance: is missing (give absolute, percent or both)"),
        ("[runners.x]", 'runners.x.agent: is missing (a table with at least a type, such as "command")'),
        ("[runners.x.agent]", 'runners.x.agent.type: is missing (the name of an agent, such as "command")'),
        ("runners.x.agent = 'codex'", 'runners.x.agent: must be a table, not "codex"'),
        ("runners.x.agent.type = ''", "runners.x.agent.type: must not be empty"),
        (
            "runners.x.agent = {type = 'c', output = 'json'}",
            'runners.x.agent.output: must be one of text, events, not "json"',
        ),
        (
            "runners.x.agent = {type = 'c', network = 1}",
            "runners.x.agent.network: must be one of none, model, full, not 1",
        ),
        ("runners.x.agent = {type = 'c', env = {A = 1}}", "runners.x.agent.env.A: must be a string, not 1"),
        ("runners.x.agent = {type = 'c', env = {A_KEY = 1}}", "runners.x.agent.env.A_KEY: must be a string, not ***"),
        (
            "runners.x.agent = {type = 'c', env = {'A=B' = 'x'}}",
            'runners.x.agent.env."A=B": is not the name of a variable',
        ),
        (
            "runners.x.agent = {type = 'c', pass_env = ['A=B']}",
            "runners.x.agent.pass_env[0]: is not the name of a variable",
        ),
        (
            "runners.x = {agent.type = 'c', skills = 3}",
            "runners.x.skills: must be a list of strings, not 3",
        ),
        ('judge.temperature = "hot"', 'judge.temperature: must be a number of at least 0, not "hot" (or "default")'),
        ("packages.s3.secret_variable = 3", "packages.s3.secret_variable: must be a string, not ***"),
        (
            f"run.max_steps = {2**53 + 1}",
            f"run.max_steps: must be an integer of at least 1 and at most 2**53, not {2**53 + 1}",
        ),
        (
            "runners.x = {agent.type = 'c', model = 'm'}",
            'runners.x.model: is not a known field (did you mean "agent.model"?)',
        ),
    ],
)
def test_a_wrong_setting_is_named_by_file_and_dotted_path(tmp_path: Path, text: str, line: str) -> None:
    write(tmp_path, text)

    found = problems(tmp_path)

    assert found == [f"whet.toml: {line}"]


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a b", "ä", "a\n", "x" * 129])
def test_a_runner_id_that_is_no_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    quoted = '"' + name.replace("\n", "\\n") + '"'
    write(tmp_path, f"runners.{quoted}.agent.type = 'command'")

    found = problems(tmp_path)

    key = name if name == "x" * 129 else quoted
    assert found == [
        (
            f'whet.toml: runners.{key}: a runner id is a folder name: letters, digits, ".", "_" and "-", '
            "not starting with a dot"
        )
    ]


def test_runner_ids_that_differ_by_case_only_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "runners.Main.agent.type = 'command'\nrunners.main.agent.type = 'command'")

    found = problems(tmp_path)

    assert found == ['whet.toml: runners.main: differs from runner "Main" by case only']


def test_all_problems_of_all_sources_are_told_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, "[run]\ntrials = 0\nbogus = 1\n[runners.x.agent]\nmodel = 1")

    with pytest.raises(ConfigError) as caught:
        load(tmp_path, flags={"retries": -1}, environ={"WHET_MAX_STEPS": "0"})

    assert caught.value.message.splitlines() == [
        "--retries: must be an integer of at least 0 and at most 1,000, not -1",
        "WHET_MAX_STEPS: must be an integer of at least 1, not 0",
        (
            "whet.toml: run.bogus: is not a known field (known: cwd, output_dir, schedule, max_parallel, trials, "
            "retries, max_steps, max_cost_usd, tags, workspace, reporters, sandbox, container, image, install, "
            "keep_warm, keep_services, mounts, allow_env, check_network, record_to, cassette, cassette_mode, "
            "cassette_speed, on, run_to_end, controls, vary)"
        ),
        "whet.toml: run.trials: must be an integer of at least 1 and at most 1,000,000, not 0",
        "whet.toml: runners.x.agent.model: must be a string, not 1",
        'whet.toml: runners.x.agent.type: is missing (the name of an agent, such as "command")',
    ]
    assert caught.value.hint == f"see {file}"


def test_broken_toml_is_told_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, "[run]\ntrials = 1\nretries 2\n")

    found = problems(tmp_path)

    assert found == ["whet.toml: line 3: expected '=' after a key in a key/value pair"]


def test_toml_that_ends_too_early_is_told_with_its_last_line(tmp_path: Path) -> None:
    write(tmp_path, '[run]\ntags = ["a",\n')

    found = problems(tmp_path)

    assert found == ["whet.toml: line 2: invalid value"]


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "whet.toml").write_bytes(b"[run]\n# \xff\n")

    found = problems(tmp_path)

    assert found == [f"{tmp_path}/whet.toml: is not UTF-8 text (byte 8)"]


def test_a_home_alone_is_a_folder_too(tmp_path: Path) -> None:
    write(tmp_path, '[run]\ncwd = "~"\nmounts = ["~other"]\n')

    settings = load(tmp_path, environ={"HOME": "/home/me"})

    assert (settings.cwd, settings.mounts) == (Path("/home/me"), (tmp_path / "~other",))


def test_relative_paths_lead_from_the_file_that_names_them(tmp_path: Path) -> None:
    text = """
    [run]
    cwd = "work"
    output_dir = "../out"
    mounts = ["tools", "/opt", "~/data"]
    [run.workspace]
    mode = "shared"
    cwd = "."
    template_dir = "template"
    bootstrap = {command = "./setup.sh", args = ["./seed", "plain", "-x"], timeout_ms = 500, env = {A = "./b"}}
    [snapshots]
    path = "snap.json"
    tolerance = {percent = 5}
    """
    write(tmp_path / "project", text)

    settings = load(tmp_path / "project", environ={"HOME": "/home/me"})

    project = tmp_path / "project"
    assert (settings.cwd, settings.output_dir) == (project / "work", tmp_path / "out")
    assert settings.mounts == (project / "tools", Path("/opt"), Path("/home/me/data"))
    assert settings.workspace == WorkspaceSpec(
        mode="shared",
        cwd=project,
        template_dir=project / "template",
        bootstrap=BootstrapSpec(
            command=f"{project}/setup.sh", args=(f"{project}/seed", "plain", "-x"), timeout_s=0.5, env={"A": "./b"}
        ),
    )
    assert settings.snapshots == {"path": project / "snap.json", "tolerance": {"percent": 5}}


def test_paths_in_flags_and_variables_lead_from_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "project", "")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    settings = load(Path("../project/suite.py"), flags={"cwd": Path("w")}, environ={"WHET_OUTPUT_DIR": "o"})

    assert settings.file == tmp_path / "project" / "whet.toml"
    assert (settings.cwd, settings.output_dir) == (tmp_path / "here" / "w", tmp_path / "here" / "o")


def test_runners_keep_their_declared_order_and_their_options(tmp_path: Path) -> None:
    text = """
    [runners."gpt-4.1".agent]
    type = "command"
    model = "m"
    command = "~/bin/agent"
    args = ["./run.py", "..", "{prompt}", "~/x", ""]
    env = {A = "1"}
    pass_env = ["KEY"]
    output = "events"
    mounts = ["data"]
    network = false
    options = {deep = {list = [1]}}
    [runners.another.agent]
    type = "scripted"
    script = "steps.toml"
    """
    write(tmp_path, text)

    settings = load(tmp_path, environ={"HOME": "/home/me"})

    first, second = settings.runners
    assert (first.id, first.agent, first.model) == ("gpt-4.1", "command", "m")
    assert first.options == {
        "command": "/home/me/bin/agent",
        "args": (f"{tmp_path}/run.py", str(tmp_path.parent), "{prompt}", "~/x", ""),
        "env": {"A": "1"},
        "pass_env": ("KEY",),
        "output": "events",
        "mounts": (f"{tmp_path}/data",),
        "network": False,
        "options": {"deep": {"list": [1]}},
    }
    assert (second.id, second.model, second.options) == ("another", None, {"script": f"{tmp_path}/steps.toml"})
    assert settings.origins['runners."gpt-4.1".agent.env.A'] == "whet.toml"


def test_runners_of_user_and_project_merge_by_id_and_key(tmp_path: Path) -> None:
    user = "[runners.own.agent]\ntype='b'\n[runners.main.agent]\nmodel='u'\nenv={A='u', B='u'}"
    write(tmp_path / "home" / ".config" / "whet", user, "config.toml")
    write(tmp_path / "project", "[runners.main.agent]\ntype='a'\nenv={A='p'}")

    settings = load(tmp_path / "project", environ={"HOME": str(tmp_path / "home")})

    main, own = settings.runners
    assert (main.id, main.agent, main.model) == ("main", "a", "u")
    assert main.options == {"env": {"A": "p", "B": "u"}}
    assert (own.id, own.agent) == ("own", "b")


def test_runners_that_share_only_an_id_are_not_mixed(tmp_path: Path) -> None:
    write(tmp_path / "home" / ".config" / "whet", "[runners.main.agent]\ntype='b'\nmodel='u'", "config.toml")
    write(tmp_path / "project", "[runners.main.agent]\ntype='a'")

    settings = load(tmp_path / "project", environ={"HOME": str(tmp_path / "home")})

    assert [(runner.id, runner.agent, runner.model) for runner in settings.runners] == [("main", "a", None)]


def test_a_typed_folder_and_isolated_workspaces_do_not_go_together(tmp_path: Path) -> None:
    write(tmp_path, "run.workspace.mode = 'isolated'")

    found = problems(tmp_path, flags={"cwd": tmp_path})

    assert found == ['--cwd: cannot be used with run.workspace.mode "isolated" (whet.toml)']


def test_every_effective_value_is_described_with_its_origin(tmp_path: Path) -> None:
    write(tmp_path, "[run]\ntrials = 3\nworkspace = {mode = 'isolated'}\n[runners.x.agent]\ntype = 'command'")

    described = {key: (value, origin) for key, value, origin in describe(load(tmp_path, flags={"tags": ["a", "b"]}))}

    assert described["run.trials"] == ("3", "whet.toml")
    assert described["run.tags"] == ("a, b", "flag --tag")
    assert described["run.max_steps"] == ("unlimited", "built-in")
    assert described["run.schedule"] == ("parallel (serial in a shared workspace)", "built-in")
    assert described["run.workspace.mode"] == ("isolated", "whet.toml")
    assert described["defaults.timeout_ms"] == ("120000", "built-in")
    assert described["runners.x.agent.type"] == ("command", "whet.toml")


def test_skills_of_runners_and_the_judge_are_described_and_snapshots_only_where_they_apply(tmp_path: Path) -> None:
    text = """
    [snapshots]
    path = "snap.json"
    tolerance = {percent = 5}
    [judge]
    temperature = "default"
    [runners.x]
    skills = ["a"]
    agent = {type = "command"}
    """
    write(tmp_path, text)

    settings = load(tmp_path)

    described = {key: value for key, value, _ in entries(settings)}
    assert described["runners.x.skills"] == [f"{tmp_path}/a"]
    assert (described["judge.temperature"], described["snapshots.path"]) == ("default", f"{tmp_path}/snap.json")
    assert "snapshots.path" not in {key for key, *_ in entries(replace(settings, snapshots=None))}


def test_secrets_are_never_described(tmp_path: Path) -> None:
    text = """
    [run.workspace]
    mode = "isolated"
    bootstrap = {command = "x", env = {DB_PASSWORD = "hush-1"}}
    [runners.x.agent]
    type = "command"
    env = {OPENAI_API_KEY = "hush-2", github_token = "hush-3", HARMLESS = "shown"}
    options = {nested = {client_secret = "hush-4"}}
    """
    write(tmp_path, text)

    settings = load(tmp_path)

    assert "hush" not in str(describe(settings)) + str(entries(settings))
    assert ("runners.x.agent.env.OPENAI_API_KEY", "***", "whet.toml") in describe(settings)
    assert ("runners.x.agent.env.HARMLESS", "shown", "whet.toml") in describe(settings)


def test_every_flag_of_the_table_is_an_option_of_some_command() -> None:
    commands = (run_command, bench_command, eval_command)
    options = {name for command in commands for option in command.params for name in option.opts}

    assert {row.flag.name for _, row in GIVEN.values() if row.flag is not None} - options == set()


def test_a_name_that_a_flag_or_a_variable_sets_is_in_one_section_only() -> None:
    named = [name for section in SETTINGS for name, row in rows_in(section) if row.variable or row.flag]

    assert sorted(named) == sorted(GIVEN)


def test_a_flag_that_is_named_like_a_secret_is_shown_where_it_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, environ={"WHET_ALLOW_PRIVATE_ADDRESSES": "yes"})

    assert 'WHET_ALLOW_PRIVATE_ADDRESSES: must be true or false, not "yes"' in str(caught.value)
