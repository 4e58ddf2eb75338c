"""Bench suites in a project: written, run, and their results read."""

from __future__ import annotations

import json
from typing import Any

from project import Outcome, Project

SPENDS = """echo '{"type": "usage", "input_tokens": 100, "output_tokens": 20, "cost_usd": %s}'"""


def case(ident: str, prompt: str, *expect: str, **fields: Any) -> dict[str, Any]:
    return {"id": ident, "prompt": prompt, "expect": list(expect) or ["file:made created"], **fields}


def write(project: Project, *cases: dict[str, Any], **fields: Any) -> None:
    project.write("bench/suite.json", json.dumps({"name": "s", "cases": cases, **fields}))


def run(project: Project, *args: str) -> tuple[Outcome, dict[str, Any]]:
    """How the command ended, and the results that it wrote."""
    ended = project.whet("bench", "bench/suite.json", "--output", "out.json", *args)
    path = project.root / "out.json"
    assert path.exists(), ended.stderr
    return ended, json.loads(path.read_bytes())


def by_id(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["id"]: entry for entry in results["cases"]}
