"""The command line before any run: what it imports, what its help says, and how it reports errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from whet.cli import errors
from whet.cli.grammar.application import application
from whet.cli.grammar.commands import ALIASES, COMMANDS, FAMILIES, OLDER_FAMILIES, SECTIONS, Entry
from whet.cli.run import request_of, run_command
from whet.commit import commit_of_package
from whet.errors import Problem, StoreError, SuiteError
from whet.model.request import RunRequest, Selection
from whet.version import __version__

HEAVY = {"pydantic", "rich", "asyncio", "anyio", "msgspec", "importlib.metadata"}
# What only some suites, agents and settings need.
UNUSED_BY_A_SCRIPTED_PYTHON_SUITE = {
    "email",
    "genai_prices",
    "http",
    "httpcore2",
    "httpx2",
    "importlib.metadata",
    "jsonschema",
    "jsonschema_rs",
    "pydantic",
    "rich",
    "secrets",
    "sqlite3",
    "statistics",
    "tarfile",
    "whet.agents.claude_code",
    "whet.gateway.request_log",
    "whet.agents.programs",
    "whet.agents.replay.agent",
    "whet.grade.python._checker",
    "whet.grade.claims.grader",
    "whet.checks.expect",
    "whet.grade.judge.judge",
    "whet.grade.judge.client",
    "whet.grade.judge.rubrics",
    "whet.packages.fetch",
    "whet.workspace.mask_files",
    "whet.packages.unpack",
    "whet.workspace.watermark",
    "whet.plan.resume",
    "whet.shell.parse",
    "whet.record.read.run",
    "whet.record.verify.verify",
    "whet.run.other.batch",
    "whet.run.attempt._contamination",
    "whet.run.controls",
    "whet.run.attempt._conversation",
    "whet.run.readiness",
    "whet.service",
    "whet.suites.bench",
    "whet.suites.evals.format",
    "whet.suites.other_tools.shared",
    "yaml",
    "zipfile",
}
# Not main(), which ends the process before anything can be printed.
SHOW_MODULES = """
import sys
from whet.cli.main import run
sys.argv = ["whet", *sys.argv[1:]]
code = run()
print(*sys.modules, sep="\\n", file=sys.stderr)
sys.exit(code)
"""


def whet(*arguments: str | Path, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WHET_", "XDG_"))}
    return subprocess.run(
        [sys.executable, "-m", "whet", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=kept | {"HOME": "/nowhere"} | environ,
        timeout=300,
        check=False,
    )


def imported_by(*arguments: str, cwd: Path | None = None) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", SHOW_MODULES, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=cwd,
    )
    modules = set(done.stderr.split())
    assert "whet.cli.main" in modules
    return modules


def request_for(*arguments: str) -> RunRequest:
    context = run_command.make_context("run", list(arguments), help_option_names=["-h", "--help"])
    return request_of("run", dict(context.params))


def test_the_version_is_said_without_importing_click() -> None:
    modules = imported_by("--version")

    assert not modules & (HEAVY | {"click", "dataclasses"})


def test_the_help_is_printed_without_importing_a_command_or_anything_heavy() -> None:
    modules = imported_by("--help")

    assert not modules & (HEAVY | {f"whet.cli.{entry.home}" for entry in COMMANDS.values()})


def test_the_library_for_mcp_is_imported_only_to_serve() -> None:
    modules = imported_by("mcp", "--help")

    assert "whet.cli.mcp" in modules
    assert not {name for name in modules if name.startswith(("mcp", "whet.mcp_server", "pydantic"))}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Write a suite of one case for the scripted agent."""
    (tmp_path / "suite.py").write_text(
        "from whet import Case\n"
        "def holds(report, ctx):\n    assert ctx.final_output() == 'done'\n"
        "suite = [Case(id='one', prompt='Go.', check=holds)]\n"
    )
    (tmp_path / "steps.toml").write_text('[[steps]]\nsay = "done"\n')
    (tmp_path / "whet.toml").write_text('[runners.demo.agent]\ntype = "scripted"\nscript = "steps.toml"\n')

    return tmp_path


def test_a_scripted_case_of_a_python_suite_is_run_without_importing_what_others_need(project: Path) -> None:
    modules = imported_by("run", "suite.py", cwd=project)

    assert "whet.run.attempt.trial" in modules
    assert all(find_spec(name) for name in UNUSED_BY_A_SCRIPTED_PYTHON_SUITE if name.startswith("whet."))
    assert not modules & UNUSED_BY_A_SCRIPTED_PYTHON_SUITE


def test_the_fork_server_and_the_probe_start_before_the_suite_is_loaded(project: Path) -> None:
    noting = """
import sys
from whet.run import flow
def note(name, start):
    def noted(*args):
        print(name, file=sys.stderr)
        return start(*args)
    return noted
flow.supervisors.start = note("fork server", flow.supervisors.start)
flow.probe_early = note("probe", flow.probe_early)
flow.load_suite = note("suite", flow.load_suite)
from whet.cli.main import run
sys.argv = ["whet", "run", "suite.py"]
sys.exit(run())
"""

    done = subprocess.run(
        [sys.executable, "-c", noting], capture_output=True, text=True, timeout=300, check=True, cwd=project
    )

    assert done.stderr == "fork server\nprobe\nsuite\n"


def test_a_dry_run_starts_no_process(project: Path) -> None:
    code = "from whet.run import flow; flow.supervisors.start = flow.probe_early = None\n" + SHOW_MODULES

    done = subprocess.run(
        [sys.executable, "-c", code, "run", "suite.py", "--dry-run"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=project,
    )

    assert "one" in done.stdout


def test_the_version_names_the_commit_of_the_package() -> None:
    commit = commit_of_package() or "commit unknown"

    done = whet("--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"whet {__version__} ({commit})\n", "")


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",)])
def test_help_lists_every_command(arguments: tuple[str, ...]) -> None:
    done = whet(*arguments)

    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"\n{heading}:\n" in done.stdout for heading in SECTIONS)
    assert all(f"  {name} " in done.stdout and entry.help in done.stdout for name, entry in COMMANDS.items())


# Every way to a command, by what it finds: as the help lists it, in its family, without it, and by another word.
WAYS: dict[tuple[str, ...], Entry] = {
    **{(name,): entry for name, entry in COMMANDS.items()},
    **{(family, name): entry for family, members in FAMILIES.items() for name, entry in members.items()},
    **{(name,): entry for members in OLDER_FAMILIES.values() for name, entry in members.items()},
    **{(word,): COMMANDS[name] for word, name in ALIASES.items()},
}


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_the_help_says_of_a_command_what_the_command_says_of_itself(way: tuple[str, ...]) -> None:
    command: click.Command | None = application()

    for word in way:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)

    assert command is not None
    assert command.get_short_help_str(200) == WAYS[way].help
    assert CliRunner().invoke(application(), [*way, "-h"]).exit_code == 0


@pytest.mark.parametrize(
    ("members", "family"), [(tuple(FAMILIES["callable"]), "callable"), (tuple(FAMILIES["service"]), "service")]
)
def test_members_of_a_family_are_listed_in_its_help_and_not_in_that_of_whet(
    members: tuple[str, ...], family: str
) -> None:
    top_help = whet("--help").stdout
    family_help = whet(family, "--help").stdout

    assert all(f"  {name} " in family_help for name in members)
    assert [name for name in members if f"  {name} " in top_help] == [name for name in members if name in COMMANDS]


def test_a_group_without_a_command_prints_its_help_and_fails() -> None:
    done = whet("service")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: whet service ")


@pytest.mark.parametrize("arguments", [("help",), ("help", "run"), ("help", "service", "keys")])
def test_help_is_also_a_word(arguments: tuple[str, ...]) -> None:
    done = whet(*arguments)

    assert done.stdout == whet(*arguments[1:], "--help").stdout


@pytest.mark.parametrize("word", ["version", "-V"])
def test_the_version_is_found_by_other_words_too(word: str) -> None:
    done = whet(word)

    assert done.stdout == whet("--version").stdout


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("check", "type: whet validate"),
        ("show", "type: whet view"),
        ("xyzzy", 'see "whet --help"'),
        ("creat", 'did you mean "create"?'),
        ("suite.py", "whet run suite.py"),
        ("shout", "whet eval shout"),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_what_to_type(tmp_path: Path, word: str, hint: str) -> None:
    (tmp_path / "suite.py").touch()
    (tmp_path / "shout").mkdir()
    (tmp_path / "shout" / "skill.json").touch()

    done = whet(word, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (2, f'error[name]: no command is called "{word}"\n  {hint}\n')


def test_an_unknown_command_is_answered_with_the_nearest() -> None:
    done = whet("rnu")

    assert done.returncode == 2
    assert done.stderr == 'error[name]: no command is called "rnu"\n  did you mean "run"?\n'


def test_an_unknown_option_is_answered_with_the_nearest() -> None:
    done = whet("run", "--trails", "3")

    assert done.returncode == 2
    assert done.stderr.lower().startswith("error[usage]: no such option")
    assert done.stderr.endswith('\n  did you mean "--trials"?\n')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("run",),
            (
                "error[usage]: no suite was given\n"
                '  name its file, such as "whet run suite.py"; or write a first one: whet init\n'
            ),
        ),
        (("run", "no.py"), "error[usage]: no.py: no such file or folder\n"),
        (("config", "no"), "error[usage]: no: no such file or folder\n"),
        (
            ("run", ".", "--shard", "6/5"),
            'error[usage]: a shard is written as 2/5, the second of five, not "6/5"\n',
        ),
        (("run", ".", "--tag", "a,,b"), 'error[usage]: "a,,b" has an empty name in it\n  write names like "a,b"\n'),
        (
            ("run", ".", "--trials", "many"),
            ("error[usage]: invalid value for '--trials': 'many' is not a whole number\n  see \"whet run --help\"\n"),
        ),
    ],
)
def test_what_was_typed_wrongly_is_told_without_a_traceback(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = whet(*arguments, cwd=tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_every_option_of_run_reaches_the_request(tmp_path: Path) -> None:
    suite = tmp_path / "suite.py"
    suite.touch()
    typed = (
        "--config c.toml --cwd w --output-dir o --schedule serial --max-parallel 2 --trials 3 --retries 0 "
        "--max-steps 4 --timeout-ms 5 --case a,b --case c --tag t --runner r --shard 2/5 --last-failed --dry-run "
        "--reporter terminal --reporter junit=out.xml --sandbox local --resume latest"
    )

    request = request_for(str(suite), *typed.split())

    assert request == RunRequest(
        suite=suite,
        flags={
            "cwd": Path("w"),
            "output_dir": Path("o"),
            "schedule": "serial",
            "max_parallel": 2,
            "trials": 3,
            "retries": 0,
            "max_steps": 4,
            "timeout_ms": 5,
            "reporters": ("terminal", "junit=out.xml"),
            "sandbox": "local",
        },
        config_file=Path("c.toml"),
        selection=Selection(cases=("a", "b", "c"), tags=("t",), runners=("r",), shard=(2, 5)),
        last_failed=True,
        dry_run=True,
        resume="latest",
    )


def test_options_that_were_not_typed_override_nothing(tmp_path: Path) -> None:
    request = request_for(str(tmp_path))

    assert (dict(request.flags), request.selection) == ({}, Selection())


def test_a_run_can_be_resumed_without_naming_the_suite() -> None:
    request = request_for("--resume", "latest")

    assert (request.suite, request.resume) == (None, "latest")


def test_settings_are_shown_aligned_with_their_origins(tmp_path: Path) -> None:
    (tmp_path / "whet.toml").write_text("[run]\ntrials = 3\n[runners.x.agent]\ntype = 'command'\n")

    done = whet("config", tmp_path, WHET_RETRIES="2")

    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[:2] == [f"settings file: {tmp_path}/whet.toml", ""]
    assert [line.split() for line in lines if line.startswith(("run.trials", "run.retries", "runners"))] == [
        ["run.trials", "3", "whet.toml"],
        ["run.retries", "2", "WHET_RETRIES"],
        ["runners.x.agent.type", "command", "whet.toml"],
    ]
    columns = {line.index("whet.toml") for line in lines[2:] if line.endswith("whet.toml")}
    assert len(columns) == 1


def test_settings_are_shown_as_json(tmp_path: Path) -> None:
    (tmp_path / "whet.toml").write_text("[run]\ntrials = 3\n")

    shown = json.loads(whet("config", "--json", cwd=tmp_path).stdout)

    assert shown["file"] == str(tmp_path / "whet.toml")
    assert shown["settings"]["run.trials"] == {"value": 3, "origin": "whet.toml"}
    assert shown["settings"]["run.max_steps"] == {"value": None, "origin": "built-in"}


def test_each_wrong_setting_has_a_line_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "whet.toml").write_text("[run]\ntrials = 0\nmax_paralel = 1\n")

    done = whet("config", tmp_path)

    assert done.returncode == 2
    assert done.stderr == (
        'error[config]: whet.toml: run.max_paralel: is not a known field (did you mean "max_parallel"?)\n'
        "error[config]: whet.toml: run.trials: must be an integer of at least 1 and at most 1,000,000, not 0\n"
        f"  see {tmp_path}/whet.toml\n"
    )


def test_a_schema_that_does_not_exist_is_refused_with_the_ones_that_do() -> None:
    done = whet("schema", "reslts")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        'error[usage]: invalid value for \'[NAME]\': no schema is called "reslts"; did you mean "results"?'
    )


def raising(error: BaseException) -> Any:
    def action() -> int:
        raise error

    return action


def test_each_problem_of_a_suite_has_a_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    found = SuiteError(
        [
            Problem("s.py", "is missing", case="a", field="prompt"),
            Problem("s.py", "unknown field", case="b", field="tag", hint='did you mean "tags"?'),
        ]
    )

    code = errors.guard(raising(found))

    assert code == 2
    assert capsys.readouterr().err == (
        'error[suite]: s.py: a: prompt: is missing\nerror[suite]: s.py: b: tag: unknown field\n  did you mean "tags"?\n'
    )


def test_what_a_suite_says_never_changes_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    found = SuiteError([Problem("a\33[31mb.json", 'has "\7\u202e\u00e9"', field="\33]0;t\7", hint="\33[2J\nsecond")])

    errors.guard(raising(found))

    assert capsys.readouterr().err == (
        'error[suite]: a\\x1b[31mb.json: \\x1b]0;t\\x07: has "\\x07\\u202e\u00e9"\n  \\x1b[2J\n  second\n'
    )


def test_a_record_that_cannot_be_read_is_told_with_every_line_of_its_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = errors.guard(raising(StoreError("no run is called x", hint="first\nsecond")))

    assert code == 2
    assert capsys.readouterr().err == "error[store]: no run is called x\n  first\n  second\n"


def test_an_interrupt_before_anything_runs_has_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    code = errors.guard(raising(KeyboardInterrupt()))

    assert code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_unforeseen_error_keeps_its_traceback_and_asks_for_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    code = errors.guard(raising(ZeroDivisionError("oh")))

    printed = capsys.readouterr().err
    assert code == 70
    assert printed.startswith("Traceback (most recent call last):\n")
    assert printed.endswith(
        "ZeroDivisionError: oh\nerror[internal]: this is a bug in whet: please report it with the lines above\n"
    )


def test_a_broken_pipe_to_somebody_else_is_not_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    code = errors.guard(raising(BrokenPipeError()))

    assert code == 70
    assert "BrokenPipeError" in capsys.readouterr().err


def test_a_reader_who_goes_away_is_left_in_silence(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)

    done = subprocess.run(
        [sys.executable, "-m", "whet", "config"], stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, check=False
    )
    os.close(writing)

    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("tty", "environ", "coloured"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colour_is_for_terminals_whose_owner_wants_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tty: bool,
    environ: dict[str, str],
    coloured: bool,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: tty)

    errors.guard(raising(StoreError("gone")))

    assert ("\033[1;31merror[store]\033[0m: gone" in capsys.readouterr().err) is coloured
