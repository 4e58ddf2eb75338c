"""A new skill from a template: a folder that can be evaluated as it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

from whet.errors import UsageError
from whet.skills.read import CONFIG, LONGEST_ID, MANIFEST

Template = Literal["python_script", "http_request", "mcp_tool"]
TEMPLATES: tuple[Template, ...] = ("python_script", "http_request", "mcp_tool")
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
    """Make the folder of a new skill below *folder*; one that is there is left alone."""
    identifier = re.sub(r"[^a-z0-9_-]+", "_", name.strip().lower()).strip("_")
    if not identifier:
        raise UsageError(f'"{name}" has no letter or digit that an id could be made of')
    if len(identifier) > LONGEST_ID:
        raise UsageError(f"a name of {len(identifier)} characters is too long", hint=f"at most {LONGEST_ID}")
    root = folder / identifier
    if root.exists():
        raise UsageError(f"{root} is already there", hint="choose another name, or another --output-dir")
    try:
        _write(root, _files(name.strip(), identifier, template, description))
    except OSError as error:
        raise UsageError(f"{root} cannot be made: {error.strerror}", hint="choose another --output-dir") from error
    return root


def _write(root: Path, files: dict[str, Any]) -> None:
    (root / "tests").mkdir(parents=True)
    for place, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        (root / place).write_text(text, encoding="utf-8")


def _files(name: str, identifier: str, template: Template, description: str) -> dict[str, Any]:
    adapter, entrypoint, config = _HOW[template]
    about = description or f"{name}: says back what it was asked, until somebody teaches it more."
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
        "tests/basic.eval.json": _benchmark(name, identifier),
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
        f"Evaluate it with the benchmark beside it:\n\n"
        f"```sh\nwhet eval --skills {identifier} --benchmark {identifier}/tests/basic.eval.json\n```\n"
    )


def _benchmark(name: str, identifier: str) -> dict[str, Any]:
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
                "inputData": {"query": "hello"},
                "expectedOutput": {"type": "contains", "keywords": ["hello"]},
                "evaluator": {"type": "contains", "caseSensitive": False},
                "timeoutMs": 30000,
                "tags": ["basic"],
            }
        ],
    }
