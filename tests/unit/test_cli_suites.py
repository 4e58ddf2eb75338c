"""`whet validate`, `whet init` and `whet schema bench`, as they are typed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from whet.suites.format import load_suite
from whet_process import type_whet

GOOD = '{"name": "s", "cases": [{"id": "a", "prompt": "p", "expect": ["test:true"]}]}'
WARNED = GOOD.replace('"name"', '"nmae": 1, "name"')


def whet(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return type_whet(*arguments, cwd=folder)


def test_suites_of_every_format_are_validated_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(GOOD)
    (tmp_path / "c.py").write_text("from whet import Case\nsuite = [Case(id='a', prompt='p', check=print)]\n")

    ended = whet(tmp_path, "validate", "a.json", "b.yaml", "c.py")

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        f"{name}: 1 case with 1 check, no problems" for name in ("a.json", "b.yaml", "c.py")
    ]


def test_problems_of_all_suites_are_told_and_the_good_ones_too(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(GOOD)
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "bad.py").write_text("suite = 3\n")

    ended = whet(tmp_path, "validate", "bad.json", "good.json", "bad.py", "none.json", "whet.txt")

    assert ended.returncode == 2
    assert "good.json" in ended.stdout
    assert ended.stderr.count("error[suite]") == 5
    assert "none.json: there is no such file" in ended.stderr


def test_a_warning_is_an_error_only_if_somebody_is_strict(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(WARNED)

    lax = whet(tmp_path, "validate", "a.json")
    strict = whet(tmp_path, "validate", "--strict", "a.json")

    assert (lax.returncode, strict.returncode) == (0, 2)
    assert "warning: " in lax.stderr
    assert 'did you mean "name"?' in lax.stderr
    assert "error[suite]: " in strict.stderr
    assert strict.stdout == ""


@pytest.mark.parametrize("option", [[], ["--yaml"]])
@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"package.json": '{"scripts": {"test": "jest"}}'}, "npm test"),
        ({"package.json": '{"scripts": {"test": "jest"}}', "pnpm-lock.yaml": ""}, "pnpm test"),
        (
            {"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\""}}', "go.mod": ""},
            "go test ./...",
        ),
        ({"package.json": "no json", "Cargo.toml": ""}, "cargo test"),
        ({"pyproject.toml": "[tool.pytest.ini_options]"}, "python3 -m pytest"),
        ({"pyproject.toml": "[project]", "uv.lock": ""}, "uv run python -m unittest"),
        ({"go.mod": "module x"}, "go test ./..."),
        ({"README.md": ""}, None),
    ],
)
def test_a_first_suite_has_the_test_command_of_its_project_and_is_a_good_one(
    tmp_path: Path, files: dict[str, str], command: str | None, option: list[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for folder in ("tests", ".git"):
        (tmp_path / folder).mkdir()

    ended = whet(tmp_path, "init", *option)

    assert ended.returncode == 0, ended.stderr
    suite = load_suite(tmp_path / "bench" / ("suite.yaml" if option else "suite.json"))
    assert suite.warnings == ()
    assert suite.cases[0].protect[0] == "tests/**"
    commands = [check.label for check in suite.cases[0].checks if check.label.startswith("test:")]
    assert commands == ([f"test:{command} passes"] if command else [])
    assert "whet validate" in ended.stdout


def test_a_first_suite_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/suite.json").write_text("mine")

    ended = whet(tmp_path, "init")

    assert ended.returncode == 2
    assert (tmp_path / "bench/suite.json").read_text() == "mine"


def test_the_schema_of_bench_suites_can_be_printed(tmp_path: Path) -> None:
    ended = whet(tmp_path, "schema", "bench")

    assert json.loads(ended.stdout)["title"] == "whet bench suite"
