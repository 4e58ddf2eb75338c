"""Look at the folder of a skill: each function grades one thing that a good skill has."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_LEAST_DESCRIPTION = 20
_LEAST_WORDS = 5
_LEAST_PAGE = 80
_PAGES = ("README.md", "SKILL.md", "README.rst", "README.txt", "README")
_SKIPPED = {"node_modules", "__pycache__", ".git", ".venv", "venv"}


def manifest(_output: Any, _expected: Any, context: dict[str, Any]) -> dict[str, Any]:
    """The fields of skill.json that everything else needs."""
    document = _manifest(context)
    return _share(
        {
            "id of lower-case letters, digits, - and _": bool(re.fullmatch(r"[a-z0-9_-]+", _text(document, "id"))),
            "name": bool(_text(document, "name")),
            "version such as 1.0.0": bool(re.match(r"\d+\.\d+\.\d+", _text(document, "version"))),
            "entrypoint": bool(_text(document, "entrypoint")),
            "adapterType": _text(document, "adapterType") in {"subprocess", "http", "mcp"},
        }
    )


def description(_output: Any, _expected: Any, context: dict[str, Any]) -> dict[str, Any]:
    """A description by which people can choose the skill."""
    document = _manifest(context)
    text = _text(document, "description").strip()
    return _share(
        {
            f"at least {_LEAST_DESCRIPTION} characters": len(text) >= _LEAST_DESCRIPTION,
            f"at least {_LEAST_WORDS} words": len(text.split()) >= _LEAST_WORDS,
            "something else than the name": bool(text) and text.lower() != _text(document, "name").lower(),
        }
    )


def documentation(_output: Any, _expected: Any, context: dict[str, Any]) -> dict[str, Any]:
    """A page for people."""
    folder = _folder(context)
    pages = [folder / name for name in _PAGES if (folder / name).is_file()]
    text = "\n".join(page.read_text(encoding="utf-8", errors="replace") for page in pages)
    return _share(
        {
            f"one of {', '.join(_PAGES[:2])}": bool(pages),
            f"at least {_LEAST_PAGE} characters": len(text.strip()) >= _LEAST_PAGE,
            "an example": "```" in text or "\n    " in text,
        }
    )


def json_files(_output: Any, _expected: Any, context: dict[str, Any]) -> dict[str, Any]:
    """JSON that is JSON, and schemas that are objects with a type."""
    folder = _folder(context)
    files = [path for path in sorted(folder.rglob("*.json")) if not _SKIPPED & set(path.relative_to(folder).parts)]
    facts = {f"{path.relative_to(folder)} is JSON": _is_json(path) for path in files}
    document = _manifest(context)
    for name in ("inputSchema", "outputSchema"):
        facts[f"{name} describes an object"] = _describes_object(document.get(name))
    return _share(facts)


def entrypoint(_output: Any, _expected: Any, context: dict[str, Any]) -> dict[str, Any]:
    """The files that the entry point names lie in the folder; an address is one."""
    folder, document = _folder(context), _manifest(context)
    start = _text(document, "entrypoint")
    if start.startswith(("http://", "https://")):
        return _share({"an address with a host": bool(urlsplit(start).hostname)})
    try:
        words = shlex.split(start)
    except ValueError as error:
        return {"score": 0, "reason": f"the entry point is not a command line: {error}"}
    files = [word for word in words if re.search(r"\.\w+$", word) and not word.startswith("-")]
    facts = {f"{word} is a file of the skill": _inside(folder, word) for word in files}
    return _share({"a program": bool(words), **facts})


def _folder(context: dict[str, Any]) -> Path:
    return Path(context["skill"]["path"])


def _manifest(context: dict[str, Any]) -> dict[str, Any]:
    try:
        document = json.loads((_folder(context) / "skill.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _describes_object(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "object" and isinstance(schema.get("properties"), dict)


def _inside(folder: Path, word: str) -> bool:
    path = (folder / word).resolve()
    return path.is_file() and path.is_relative_to(folder.resolve())


def _share(facts: dict[str, bool]) -> dict[str, Any]:
    """The share of what holds, and the names of what does not."""
    missing = [name for name, holds in facts.items() if not holds]
    reason = f"missing: {'; '.join(missing)}" if missing else "all there"
    return {"passed": not missing, "score": (len(facts) - len(missing)) / len(facts), "reason": reason}
