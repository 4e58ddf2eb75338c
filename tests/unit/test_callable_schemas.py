"""The JSON Schemas of benchmarks and callable skills: they allow what whet takes, and know each field that it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from whet.callable import manifest
from whet.callable.manifest import find_skills
from whet.errors import SuiteError
from whet.model.callable import ADAPTERS, AUTHS, COMPARISONS, METHODS, SCORING_METHODS, SUBJECTS
from whet.reading.yaml import SUFFIXES, read_plain
from whet.suites import benchmark
from whet.suites.benchmark import BUILT_IN, read_benchmark

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = {
    name: json.loads((ROOT / "src" / "whet" / folder / f"{name}.schema.json").read_text())
    for name, folder in (("benchmark", "suites"), ("skill", "callable"), ("adapter", "callable"))
}
BENCHMARKS = [
    path for folder in (BUILT_IN, ROOT / "examples") for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES
]
SKILL = {"id": "s", "name": "S", "version": "1.0.0", "adapterType": "subprocess", "entrypoint": "python3 s.py"}
TASK = {"id": "t", "inputData": {}, "expectedOutput": {"type": "exact", "value": 1}}
BENCHMARK = {"id": "b", "name": "B", "version": "1", "domain": "general", "scoringMethod": "mean", "tasks": [TASK]}


def is_allowed(name: str, document: Any) -> bool:
    return jsonschema.Draft202012Validator(SCHEMAS[name]).is_valid(document)


def choices(name: str, *place: str) -> set[str]:
    part = SCHEMAS[name]
    for step in place:
        part = part[step]
    return set(part["enum"])


def test_each_schema_knows_the_fields_and_the_values_that_whet_reads() -> None:
    inner = SCHEMAS["benchmark"]["$defs"]

    assert set(SCHEMAS["benchmark"]["properties"]) == set(benchmark._KNOWN)
    assert set(inner["task"]["properties"]) == set(benchmark._TASK)
    assert set(inner["expectedOutput"]["properties"]) == set(benchmark._EXPECTED)
    assert set(inner["evaluator"]["properties"]) == set(benchmark._EVALUATOR)
    assert set(SCHEMAS["skill"]["properties"]) == set(manifest._MANIFEST_KEYS)
    assert set(SCHEMAS["adapter"]["properties"]) == set(manifest._CONFIG_KEYS)
    assert set(SCHEMAS["adapter"]["properties"]["request"]["properties"]) == set(manifest._REQUEST_KEYS)
    assert choices("benchmark", "properties", "scoringMethod") == set(SCORING_METHODS)
    assert choices("benchmark", "$defs", "evaluator", "properties", "compare") == set(COMPARISONS)
    assert choices("benchmark", "$defs", "evaluator", "properties", "subject") == set(SUBJECTS)
    assert choices("skill", "properties", "adapterType") == choices("adapter", "properties", "type") == set(ADAPTERS)
    assert choices("adapter", "properties", "authType") == set(AUTHS)
    assert choices("adapter", "properties", "request", "properties", "method") == set(METHODS)


def test_the_benchmarks_and_skills_that_we_ship_are_allowed() -> None:
    documents = [document for path in BENCHMARKS if isinstance(document := read_plain(path), dict)]
    benchmarks = [document for document in documents if {"tasks", "scoringMethod"} <= set(document)]
    skills = [json.loads(path.read_text()) for path in (ROOT / "examples").rglob("skill.json")]
    adapters = [json.loads(path.read_text()) for path in (ROOT / "examples").rglob("adapter.config.json")]

    assert min(len(benchmarks), len(skills), len(adapters)) >= 1
    assert [document for document in benchmarks if not is_allowed("benchmark", document)] == []
    assert [document for document in skills if not is_allowed("skill", document)] == []
    assert [document for document in adapters if not is_allowed("adapter", document)] == []


@pytest.mark.parametrize(
    "change",
    [
        *({"scoringMethod": "median"}, {"k": 0}, {"tasks": []}, {"maxLatencyMs": 0}, {"id": ""}),
        *({"tasks": [TASK | part]} for part in ({"weight": -1}, {"timeoutMs": 0}, {"inputData": 1}, {"tags": "a"})),
        *({"tasks": [TASK | {"evaluator": part}]} for part in ({"type": "best"}, {"threshold": 2}, {"compare": "x"})),
    ],
    ids=str,
)
def test_what_whet_refuses_in_a_benchmark_is_refused_by_the_schema(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / "good.json").write_text(json.dumps(BENCHMARK | {"$schema": "./benchmark.schema.json"}))
    (tmp_path / "bad.json").write_text(json.dumps(BENCHMARK | change))

    assert read_benchmark(tmp_path / "good.json").notes == ()
    assert is_allowed("benchmark", BENCHMARK)
    assert not is_allowed("benchmark", BENCHMARK | change)
    with pytest.raises(SuiteError):
        read_benchmark(tmp_path / "bad.json")


@pytest.mark.parametrize(
    "change",
    [{"id": "Upper"}, {"version": "1"}, {"adapterType": "ftp"}, {"entrypoint": ""}, {"tags": "a"}, {"inputSchema": []}],
    ids=str,
)
def test_what_whet_refuses_in_a_skill_is_refused_by_the_schema(tmp_path: Path, change: dict[str, Any]) -> None:
    file = tmp_path / "skill.json"

    file.write_text(json.dumps(SKILL | {"$schema": "./skill.schema.json"}))
    assert find_skills([file])[0].notes == ()
    assert is_allowed("skill", SKILL)
    assert not is_allowed("skill", SKILL | change)
    file.write_text(json.dumps(SKILL | change))
    with pytest.raises(SuiteError):
        find_skills([file])
