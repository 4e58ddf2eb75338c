"""`whet create`, `whet find` and `whet select`, as they are typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from evaluating import graded, graders_of

from whet import plugins
from whet.callable._summary import summarize
from whet.callable.clients.connect import connect
from whet.callable.manifest import read_skill
from whet.callable.report import reports_json
from whet.model.callable import CompletionReport, Sample
from whet.sandbox.contract import Sandbox
from whet.suites.benchmark import read_benchmark
from whet_process import type_whet


def whet(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return type_whet(*arguments, cwd=folder, NO_COLOR="1")


@pytest.mark.parametrize("template", ["python_script", "http_request", "mcp_tool"])
def test_a_new_skill_is_valid_and_has_a_valid_benchmark(tmp_path: Path, template: str) -> None:
    ended = whet(tmp_path, "create", "--name", "My Skill!", "--from-template", template)

    root = tmp_path / "skills" / "my_skill"
    loaded = read_skill(root / "skill.json")
    benchmark = read_benchmark(root / "tests" / "basic.eval.json")
    assert ended.returncode == 0, ended.stderr
    assert "skill.json" in ended.stdout
    assert (loaded.notes, benchmark.notes) == ((), ())
    assert (loaded.skill.name, loaded.skill.version) == ("My Skill!", "0.1.0")


@pytest.mark.parametrize("template", ["python_script", "mcp_tool"])
def test_a_new_skill_with_a_program_passes_its_own_benchmark(tmp_path: Path, template: str) -> None:
    whet(tmp_path, "create", "--name", 'a "quoted" name', "--from-template", template)
    root = next((tmp_path / "skills").iterdir())
    config = json.loads((root / "adapter.config.json").read_text())
    # The Python that runs the tests is the one that has the library.
    (root / "adapter.config.json").write_text(json.dumps({**config, "command": sys.executable, "args": ["skill.py"]}))
    skill = read_skill(root / "skill.json").skill
    benchmark = read_benchmark(root / "tests" / "basic.eval.json").benchmark
    task = benchmark.tasks[0]

    async def work() -> Any:
        sandbox: Sandbox = plugins.find("sandboxes", "local")()
        async with connect(skill, sandbox, os.environ) as client:
            reply = await client.call(task.input, timeout_s=30)
        return await graded(graders, task, skill, reply.output, sandbox)

    with graders_of(benchmark) as graders:
        assert anyio.run(work).passed


def test_a_skill_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    whet(tmp_path, "create", "--name", "one")

    ended = whet(tmp_path, "create", "--name", "one")

    assert ended.returncode == 2
    assert "already exists" in ended.stderr


def test_a_name_without_letters_is_refused(tmp_path: Path) -> None:
    assert whet(tmp_path, "create", "--name", "!!!").returncode == 2


def make(folder: Path, identifier: str, **about: Any) -> None:
    root = folder / "skills" / identifier
    root.mkdir(parents=True)
    plain = {
        "id": identifier,
        "name": identifier,
        "version": "1.0.0",
        "description": "",
        "adapterType": "subprocess",
        "entrypoint": "true",
    }
    (root / "skill.json").write_text(json.dumps({**plain, **about}))


def found(folder: Path, *arguments: str) -> list[str]:
    ended = whet(folder, "find", "--json", *arguments)
    assert ended.returncode == 0, ended.stderr
    return [row["id"] for row in json.loads(ended.stdout)["skills"]]


def test_skills_are_found_by_words_tags_kind_and_what_they_reached(tmp_path: Path) -> None:
    results = [{"benchmarkId": "b", "completionRate": 0.9, "compositeScore": 0.9, "timestamp": ""}]
    make(tmp_path, "tagged", tags=["Search", "web"])
    make(tmp_path, "told", description="can search", metadata={"benchmarkResults": results})
    make(tmp_path, "search")
    make(tmp_path, "remote", adapterType="http", entrypoint="http://localhost/")

    assert found(tmp_path, "-q", "SEARCH") == ["search", "told", "tagged"]
    assert found(tmp_path, "--tag", "web", "--tag", "Search") == ["tagged"]
    assert found(tmp_path, "--adapter", "http") == ["remote"]
    assert found(tmp_path, "--min-completion", "0.5") == ["told"]
    assert found(tmp_path)[0] == "told"
    assert len(found(tmp_path, "--limit", "2")) == 2


def test_what_is_found_is_a_table_for_people(tmp_path: Path) -> None:
    make(tmp_path, "search", tags=["web"])

    ended = whet(tmp_path, "find")

    assert ended.stdout.splitlines()[1].split() == ["search", "search", "1.0.0", "subprocess", "web"]
    assert ended.stdout.splitlines()[-1] == "1 found"
    assert whet(tmp_path, "find", "-q", "nowhere").stdout == "found no skill\n"


def report(skill: str, passed: int, latency_ms: float) -> CompletionReport:
    samples = [
        Sample(task=str(number), status="pass" if number < passed else "fail", score=1.0, latency_ms=latency_ms)
        for number in range(10)
    ]
    return CompletionReport(
        skill=skill,
        skill_version="1.0.0",
        benchmark="b",
        timestamp="",
        summary=summarize(samples),
        calls=tuple(samples),
    )


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    for name in ("good", "fair", "poor", "untold"):
        make(tmp_path, name, tags=[name])
    reports = [report("poor", 2, 10), report("good", 9, 3000), report("fair", 8, 10)]
    (tmp_path / "reports.json").write_bytes(reports_json(reports))
    return tmp_path


def chosen(folder: Path, *arguments: str) -> list[str]:
    ended = whet(folder, "select", "--from", "skills", "--reports", "reports.json", "--output", "out.json", *arguments)
    assert ended.returncode in {0, 1}, ended.stderr
    return [skill["id"] for skill in json.loads((folder / "out.json").read_text())]


def test_skills_are_chosen_by_their_reports(evaluated: Path) -> None:
    assert chosen(evaluated) == ["good", "fair", "poor"]
    assert chosen(evaluated, "--min-completion", "0.8") == ["good", "fair"]
    assert chosen(evaluated, "--top-k", "1") == ["good"]
    assert chosen(evaluated, "--min-completion", "1") == []


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({"filters": {"maxLatencyP95Ms": 100}}, ["fair", "poor"]),
        ({"sortBy": "latency", "order": "asc", "topK": 2}, ["fair", "poor"]),
        ({"filters": {"requiredTags": ["poor"], "adapterTypes": ["subprocess"]}}, ["poor"]),
        ({"filters": {"adapterTypes": ["http"]}}, []),
        ({"sortBy": "completionRate", "order": "asc"}, ["poor", "fair", "good"]),
    ],
)
def test_a_strategy_says_what_counts(evaluated: Path, strategy: dict[str, Any], expected: list[str]) -> None:
    (evaluated / "strategy.json").write_text(json.dumps(strategy))

    assert chosen(evaluated, "--strategy", "strategy.json") == expected


def test_a_strategy_may_be_toml_or_yaml_and_a_slip_in_it_is_an_error(evaluated: Path) -> None:
    (evaluated / "good.toml").write_text("topK = 1\n[filters]\nminCompletionRate = 0.5\n")
    (evaluated / "good.yaml").write_text("topK: 1\nfilters:\n  minCompletionRate: 0.5\n")
    (evaluated / "bad.toml").write_text("[filters]\nminCompletion = 0.5\n")

    bad = whet(evaluated, "select", "--from", "skills", "--reports", "reports.json", "--strategy", "bad.toml")

    assert chosen(evaluated, "--strategy", "good.toml") == ["good"]
    assert chosen(evaluated, "--strategy", "good.yaml") == ["good"]
    assert bad.returncode == 2
    assert "filters.minCompletion" in bad.stderr


def test_choosing_none_has_an_exit_code_of_its_own(evaluated: Path) -> None:
    arguments = ("select", "--from", "skills", "--reports", "reports.json", "--min-completion", "1")

    assert whet(evaluated, *arguments).returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("select", "--from", "skills", "--reports", "reports.json", "--output", "nowhere/chosen.json"),
        ("create", "--name", "another", "--output-dir", "reports.json"),
        ("create", "--name", "a" * 300),
    ],
)
def test_what_cannot_be_written_is_a_plain_error(evaluated: Path, arguments: tuple[str, ...]) -> None:
    ended = whet(evaluated, *arguments)

    assert ended.returncode == 2
    assert ended.stderr.startswith("error[usage]: ")
