"""The schema of whet.toml, with which editors complete it, allows what whet reads and nothing else."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from whet.errors import ConfigError
from whet.plan.settings.load import load_settings
from whet.suites.format import load_suite
from whet_process import type_whet

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "src/whet/plan/settings/settings.schema.json").read_text())
_BLOCK = re.compile(r"^```toml(?P<mark>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def _documented() -> list[str]:
    """The settings on all pages: the blocks of the page about settings, and the files called whet.toml."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [(page.name, block) for page in pages for block in _BLOCK.finditer(page.read_text())]
    texts = [
        block["text"]
        for name, block in blocks
        if "=whet.toml" in block["mark"] or (name == "settings.md" and not block["mark"])
    ]
    return [text for text in texts if "[tool.whet" not in text]


def _problems(settings: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(settings)]


def test_it_is_a_schema_with_an_id_that_names_its_version() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    assert SCHEMA["$id"] == "urn:whet:settings:1"


def test_the_settings_on_all_pages_are_allowed() -> None:
    texts = _documented()

    problems = [(problem, text) for text in texts for problem in _problems(tomllib.loads(text))]

    assert problems == []
    assert len(texts) > 30


@pytest.mark.parametrize(
    "text",
    [
        "[run]\ntrails = 3",
        "[run]\ntrials = 0",
        "[run]\ntrials = '3'",
        "[run]\nschedule = 'sometimes'",
        "[run]\ntags = 'smoke'",
        "[defaults]\nmax_memory_mb = 8",
        "[judge]\nerror = 51",
        "[judge]\ntemperature = 'hot'",
        "[runners.a.agent]\ntype = ''",
        "[runners.a.agent]\ntype = 'command'\nnetwork = 'some'",
        "[runners.a]\nagnet = {}",
    ],
)
def test_what_whet_refuses_is_refused_by_the_schema_too(tmp_path: Path, text: str) -> None:
    (tmp_path / "whet.toml").write_text(text)
    (tmp_path / ".git").mkdir()

    with pytest.raises(ConfigError):
        load_settings(tmp_path, flags={}, environ={})

    assert _problems(tomllib.loads(text))


def test_a_sentence_stands_at_each_key() -> None:
    keys = [key for key in _keys(SCHEMA) if "description" not in key and key.get("type") != "object"]

    assert keys == []


def _keys(schema: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [*schema.get("properties", {}).values()]
    if isinstance(more := schema.get("additionalProperties"), dict):
        inner.append(more)
    return [*inner, *(key for part in inner for key in _keys(part))]


@pytest.mark.parametrize("name", ["adapter", "bench", "benchmark", "results", "settings", "skill", "suite"])
def test_whet_prints_each_schema_with_an_id_that_names_it(name: str) -> None:
    schema = json.loads(type_whet("schema", name).stdout)

    assert re.fullmatch(f"urn:whet:{name}:[1-9]", schema["$id"])


def test_settings_may_name_their_schema(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "whet.toml").write_text('"$schema" = "./settings.schema.json"\n[run]\ntrials = 3\n')

    settings = load_settings(tmp_path, flags={}, environ={})

    assert settings.trials == 3


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("bench.json", {"name": "b", "cases": [{"id": "a", "prompt": "p", "expect": ["file:a.txt exists"]}]}),
        (
            "suite.json",
            {
                "name": "s",
                "source_kind": "manual",
                "verifier_kind": "deterministic",
                "cases_json": [{"id": "a", "case_kind": "exact_match", "instruction": "p", "expected": "x"}],
            },
        ),
        ("evals/evals.json", {"skill_name": "s", "evals": [{"id": 1, "prompt": "p", "expectations": ["It answers."]}]}),
    ],
)
def test_suites_may_name_their_schema(tmp_path: Path, name: str, document: dict[str, Any]) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"$schema": "./suite.schema.json", **document}))

    suite = load_suite(file)

    assert len(suite.cases) == 1
