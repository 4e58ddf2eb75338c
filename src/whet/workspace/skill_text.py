"""What a skill says of itself at the beginning of its SKILL.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from whet.model.suite import MadeSkill

MANIFEST = "SKILL.md"
_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---\s*(?:\r?\n|\Z)", re.DOTALL)
_LARGEST = 1024 * 1024


def described(folder: Path) -> MadeSkill:
    """The name and description of the skill in *folder*; its folder names one that has no name."""
    front = _front_matter(folder / MANIFEST)
    return MadeSkill(name=str(front.get("name") or folder.name), description=str(front.get("description") or ""))


def _front_matter(manifest: Path) -> dict[str, Any]:
    """The YAML before the text; nothing where there is none that can be read."""
    import yaml  # noqa: PLC0415 - only suites for a skill need it

    with manifest.open("rb") as file:
        text = file.read(_LARGEST).decode("utf-8-sig", "replace")
    found = _FRONT.match(text)
    try:
        told = yaml.safe_load(found[1]) if found else None
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


_HOLDERS = (".agents", ".claude", ".codex", ".copilot", ".cursor", ".gemini", ".github", ".opencode")


def skills_in(workspace: Path) -> tuple[str, ...]:
    """The folders of skills that agents find in *workspace*, such as `.agents/skills/tidy-up`."""
    found = (path for holder in _HOLDERS for path in sorted((workspace / holder).glob(f"skill*/*/{MANIFEST}")))
    return tuple(str(path.parent.relative_to(workspace)) for path in found)
