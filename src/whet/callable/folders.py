"""Folders of callable skills: search them, select the ones that did well, create a new one from a template."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from whet.callable.manifest import CONFIG, LONGEST_ID, MANIFEST, VERSION
from whet.errors import Problem, SuiteError, UsageError
from whet.model.callable import ADAPTERS, Adapter, CallableSkill, CompletionReport
from whet.reading.fields import Fields, Findings
from whet.reading.yaml import read_object

if TYPE_CHECKING:
    from whet.callable.openapi import Operation

SortBy = Literal["compositeScore", "completionRate", "latency", "tokenCost"]
_ORDERS = ("desc", "asc")
_NAME, _DESCRIPTION, _TAG = 3, 2, 1


def search(
    skills: Iterable[CallableSkill],
    *,
    query: str = "",
    tags: Sequence[str] = (),
    adapter: Adapter | None = None,
    min_completion: float | None = None,
) -> list[CallableSkill]:
    """Return the skills that match, the best first: by where the query occurs, or without one by earlier results."""
    fitting = [
        skill
        for skill in skills
        if set(tags) <= set(skill.tags)
        and (adapter is None or skill.adapter == adapter)
        and (min_completion is None or best_before(skill) >= min_completion)
    ]
    if not query:
        return sorted(fitting, key=best_before, reverse=True)
    points = {skill.id: _points(skill, query.casefold()) for skill in fitting}
    matches = [skill for skill in fitting if points[skill.id]]
    return sorted(matches, key=lambda skill: points[skill.id], reverse=True)


def best_before(skill: CallableSkill) -> float:
    """Return the best completion rate in the skill's own manifest."""
    past_results = skill.metadata.get("benchmarkResults")
    results = past_results if isinstance(past_results, list) else []
    rates = [item.get("completionRate") for item in results if isinstance(item, Mapping)]
    return max((float(rate) for rate in rates if isinstance(rate, int | float)), default=0.0)


def _points(skill: CallableSkill, query: str) -> int:
    return (
        _NAME * (query in skill.name.casefold())
        + _DESCRIPTION * (query in skill.description.casefold())
        + _TAG * any(query in tag.casefold() for tag in skill.tags)
    )


class Strategy(Struct, frozen=True, kw_only=True):
    """Which skills are good enough, and in which order; a skill at a bound is good enough."""

    min_completion: float | None = None
    max_errors: float | None = None
    max_p95_ms: float | None = None
    adapters: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    sort_by: SortBy = "compositeScore"
    descending: bool = True
    top: int | None = None


def read_strategy(file: Path) -> Strategy:
    """Read a strategy in JSON, YAML or TOML; raises `SuiteError`, also for an unknown key: it may be mistyped."""
    try:
        document = tomllib.loads(file.read_text("utf-8")) if file.suffix == ".toml" else read_object(file)
    except (OSError, ValueError) as error:
        raise SuiteError([Problem(file=str(file), message=str(error))]) from error
    findings = Findings(str(file))
    strategy = _strategy(Fields(document, findings))
    if findings.problems or findings.warnings:
        raise SuiteError([*findings.problems, *findings.warnings])
    return strategy


def _strategy(fields: Fields) -> Strategy:
    fields.warn_of_unknown(("filters", "sortBy", "order", "topK"))
    filters = fields.table("filters")
    filters.warn_of_unknown(("minCompletionRate", "maxErrorRate", "maxLatencyP95Ms", "adapterTypes", "requiredTags"))
    adapters = filters.texts("adapterTypes")
    for name in adapters:
        if name not in ADAPTERS:
            filters.problem("adapterTypes", f'has "{name}", which is not one of {", ".join(ADAPTERS)}')
    top = fields.number("topK", least=0)
    return Strategy(
        min_completion=filters.number("minCompletionRate", least=0, most=1.0),
        max_errors=filters.number("maxErrorRate", least=0, most=1.0),
        max_p95_ms=filters.number("maxLatencyP95Ms", above=0),
        adapters=adapters,
        tags=filters.texts("requiredTags"),
        sort_by=fields.choice("sortBy", get_args(SortBy)) or "compositeScore",
        descending=fields.choice("order", _ORDERS) != "asc",
        top=int(top) if top else None,
    )


def select(
    skills: Iterable[CallableSkill], reports: Iterable[CompletionReport], strategy: Strategy
) -> list[tuple[CallableSkill, CompletionReport]]:
    """Return the skills with a report that are good enough, the best first, and equals by their ids."""
    by_skill: dict[str, CompletionReport] = {}
    for report in reports:
        if report.skill in by_skill and report.arm is not None:
            raise UsageError(
                f"skill {report.skill} has a report for each of several arms",
                hint="keep the report of one arm; whet compare says which arm is better",
            )
        by_skill[report.skill] = report
    pairs = [(skill, by_skill[skill.id]) for skill in skills if skill.id in by_skill]
    candidates = [(skill, report) for skill, report in pairs if _fits(skill, report, strategy)]
    return sorted(candidates, key=lambda pair: (*_rank(pair[1], strategy), pair[0].id))[: strategy.top]


def _fits(skill: CallableSkill, report: CompletionReport, strategy: Strategy) -> bool:
    summary = report.summary
    completion = summary.completion.value if summary.completion else 0.0
    errors = summary.error_rate.value if summary.error_rate else 1.0
    p95_ms = summary.latency.p95_ms if summary.latency else inf
    return (
        (strategy.min_completion is None or completion >= strategy.min_completion)
        and (strategy.max_errors is None or errors <= strategy.max_errors)
        and (strategy.max_p95_ms is None or p95_ms <= strategy.max_p95_ms)
        and (not strategy.adapters or skill.adapter in strategy.adapters)
        and set(strategy.tags) <= set(skill.tags)
    )


def _rank(report: CompletionReport, strategy: Strategy) -> tuple[bool, float]:
    """Return what to sort by; a report without the figure comes last."""
    summary = report.summary
    figures: dict[SortBy, float | None] = {
        "compositeScore": summary.composite,
        "completionRate": summary.completion.value if summary.completion else None,
        "latency": summary.latency.p95_ms if summary.latency else None,
        "tokenCost": report.usage.cost_usd,
    }
    figure = figures[strategy.sort_by]
    return figure is None, (figure or 0.0) * (-1 if strategy.descending else 1)


Template = Literal["python_script", "http_request", "mcp_tool"]
TEMPLATES: tuple[Template, ...] = get_args(Template)
_PROGRAM = "skill.py"
_SCRIPT = '''"""The skill {id}: answers JSON-RPC 2.0 requests on standard input, one on each line."""

import json
import sys


def invoke(params):
    """What the skill does: replace this by your own."""
    return {{"result": f"You asked: {{params['query']}}"}}


def answer(line):
    number = None
    try:
        request = json.loads(line)
        number = request.get("id")
        if request["method"] == "healthcheck":
            return {{"id": number, "result": {{"status": "ok"}}}}
        if request["method"] != "invoke":
            return {{"id": number, "error": {{"code": -32601, "message": f"no method {{request['method']}}"}}}}
        return {{"id": number, "result": invoke(request.get("params") or {{}})}}
    except json.JSONDecodeError as error:
        return {{"id": None, "error": {{"code": -32700, "message": str(error)}}}}
    except Exception as error:
        return {{"id": number, "error": {{"code": -32000, "message": f"{{type(error).__name__}}: {{error}}"}}}}


for line in sys.stdin:
    if line.strip():
        print(json.dumps({{"jsonrpc": "2.0", **answer(line)}}), flush=True)
'''
_SERVER = '''"""The skill {id}: a tool of an MCP server over its standard streams; needs `pip install mcp`."""

from mcp.server.mcpserver import MCPServer

server = MCPServer({name!r})


@server.tool(name={id!r})
def invoke(query: str) -> dict[str, str]:
    """What the skill does: replace this by your own."""
    return {{"result": f"You asked: {{query}}"}}


server.run("stdio")
'''
_HOW: dict[Template, tuple[str, str, dict[str, Any]]] = {
    "python_script": (
        "subprocess",
        f"python3 {_PROGRAM}",
        {"type": "subprocess", "command": "python3", "args": [_PROGRAM], "timeoutMs": 30000, "keepAlive": True},
    ),
    "http_request": (
        "http",
        "http://localhost:3000/invoke",
        {"type": "http", "baseUrl": "http://localhost:3000", "authType": "none", "timeoutMs": 15000, "retries": 1},
    ),
    "mcp_tool": ("mcp", f"python3 {_PROGRAM}", {"type": "mcp", "timeoutMs": 30000}),
}


def create_skill(name: str, template: Template, folder: Path, description: str = "") -> Path:
    """Make the folder of a new skill below *folder*; raises if it is already there."""
    identifier = _identifier(name)
    (root,) = _write_all(folder, {identifier: _files(name.strip(), identifier, template, description)})
    return root


def create_from_openapi(name: str, operations: Sequence[Operation], folder: Path) -> list[Path]:
    """Make the folder of a skill for each of the *operations*: all of them, or none if one cannot be made."""
    alone = len(operations) == 1
    secret = re.sub(r"\W+", "_", _identifier(name).upper().replace("-", "_")) + "_TOKEN"
    files: dict[str, dict[str, Any]] = {}
    for operation in operations:
        title = name.strip() if alone else f"{name.strip()} {operation.id}"
        identifier = _identifier(title)
        if identifier in files:
            raise UsageError(
                f'{operation.label}: its skill would be called "{identifier}", as another',
                hint="choose with --operation",
            )
        files[identifier] = _files_for(operation, title, identifier, secret)
    return _write_all(folder, files)


def _identifier(name: str) -> str:
    """Return the id that a name makes; raises `UsageError` if it makes none."""
    identifier = re.sub(r"[^a-z0-9_-]+", "_", name.strip().lower()).strip("_")
    if not identifier:
        raise UsageError(f'"{name}" has no letter or digit for an id')
    if len(identifier) > LONGEST_ID:
        raise UsageError(f"a name of {len(identifier)} characters is too long", hint=f"at most {LONGEST_ID}")
    return identifier


def _write_all(folder: Path, skills: Mapping[str, dict[str, Any]]) -> list[Path]:
    """Make a folder for each of *skills*; if one of them is there or cannot be made, none is."""
    roots = [folder / identifier for identifier in skills]
    for root in roots:
        if root.exists():
            raise UsageError(f"{root} already exists", hint="choose another name, or another --skills-dir")
    new_folders: list[Path] = []
    try:
        for root, files in zip(roots, skills.values(), strict=True):
            new_folders.append(root)
            _write(root, files)
    except OSError as error:
        for root in new_folders:
            shutil.rmtree(root, ignore_errors=True)
        raise UsageError(
            f"{new_folders[-1]} cannot be made: {error.strerror}", hint="choose another --skills-dir"
        ) from error
    return roots


def _write(root: Path, files: dict[str, Any]) -> None:
    (root / "tests").mkdir(parents=True)
    for place, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        (root / place).write_text(text, encoding="utf-8")


def _files_for(operation: Operation, title: str, identifier: str, secret: str) -> dict[str, Any]:
    """Return the files of a skill that calls *operation*; the secret is a variable that you set."""
    request = operation.request
    places = {"path": request.path, "query": request.query, "header": request.header, "body": request.body}
    login = {} if operation.auth == "none" else {"authType": operation.auth, "authTokenEnvKey": secret}
    return {
        MANIFEST: {
            "id": identifier,
            "name": title,
            "version": operation.version if VERSION.fullmatch(operation.version) else "0.1.0",
            "description": operation.about,
            "tags": list(operation.tags),
            "adapterType": "http",
            "entrypoint": operation.path,
            "inputSchema": operation.input,
            "outputSchema": operation.output,
            "metadata": {"openapi": operation.label},
        },
        CONFIG: {
            "type": "http",
            "baseUrl": operation.base,
            **login,
            "request": {"method": request.method, **{place: names for place, names in places.items() if names}},
            "timeoutMs": 15000,
        },
        "README.md": _readme(title, operation.about, identifier),
        "tests/basic.eval.json": _benchmark(
            title, identifier, operation.example, {"type": "json_schema", "schema": operation.output}
        ),
    }


def _files(name: str, identifier: str, template: Template, description: str) -> dict[str, Any]:
    adapter, entrypoint, config = _HOW[template]
    about = description or f"{name}: repeats what it was asked, until you write more of it."
    files: dict[str, Any] = {
        MANIFEST: {
            "id": identifier,
            "name": name,
            "version": "0.1.0",
            "description": about,
            "tags": [],
            "adapterType": adapter,
            "entrypoint": entrypoint,
            "inputSchema": _schema("query"),
            "outputSchema": _schema("result"),
            "metadata": {"author": "", "license": "MIT"},
        },
        CONFIG: config,
        "README.md": _readme(name, about, identifier),
        "tests/basic.eval.json": _benchmark(
            name, identifier, {"query": "hello"}, {"type": "contains", "keywords": ["hello"]}
        ),
    }
    if template == "python_script":
        files[_PROGRAM] = _SCRIPT.format(id=identifier)
    elif template == "mcp_tool":
        files[_PROGRAM] = _SERVER.format(name=name, id=identifier)
    return files


def _schema(field: str) -> dict[str, Any]:
    return {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}


def _readme(name: str, about: str, identifier: str) -> str:
    return (
        f"# {name}\n\n{about}\n\n"
        f"Evaluate it with its own benchmark:\n\n"
        f"```sh\nwhet eval {identifier} --benchmark {identifier}/tests/basic.eval.json\n```\n"
    )


def _benchmark(name: str, identifier: str, arguments: Any, expectation: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"{identifier}-basic",
        "name": f"{name}, basic",
        "version": "0.1.0",
        "domain": "general",
        "scoringMethod": "mean",
        "tasks": [
            {
                "id": "basic_001",
                "description": "Answers what it was asked about.",
                "inputData": arguments,
                "expectedOutput": expectation,
                "timeoutMs": 30000,
                "tags": ["basic"],
            }
        ],
    }
