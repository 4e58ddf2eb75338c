"""The folder of a plug-in: its manifest, and the skills that it brings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.reading.documents import load_json
from whet.reading.files import read_file

CLAUDE_MANIFEST = ".claude-plugin/plugin.json"
MANIFESTS = (CLAUDE_MANIFEST, "plugin.json")
SKILL_MANIFEST = "SKILL.md"
_SKILLS = "skills"
_LARGEST = 1024 * 1024


class PluginManifest(Struct, frozen=True, kw_only=True):
    """What a plug-in says of itself; `values` is all of it."""

    path: Path
    name: str
    description: str = ""
    version: str | None = None
    values: dict[str, Any]


def plugin_manifest(folder: Path) -> PluginManifest | None:
    """Return the manifest of the plug-in in *folder*; None if there is none that has a name."""
    for relative_path in MANIFESTS:
        path = folder / relative_path
        # Not by `pathlib`, which fails at folders that we may not look into.
        if not os.path.isfile(path):
            continue
        try:
            values = load_json(read_file(path, _LARGEST).decode("utf-8-sig"))
        except (OSError, ValueError):
            continue
        if isinstance(values, dict) and isinstance(values.get("name"), str) and values["name"].strip():
            return PluginManifest(
                path=path,
                name=values["name"],
                description=_text(values.get("description")) or "",
                version=_text(values.get("version")),
                values=values,
            )
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def is_plugin(folder: Path) -> bool:
    """Return whether *folder* has the manifest of a plug-in."""
    return plugin_manifest(folder) is not None


def can_be_given(folder: Path) -> bool:
    """Return whether agents can be given *folder*: it is a skill, or a plug-in."""
    # Not by `pathlib`, as above.
    return os.path.isfile(folder / SKILL_MANIFEST) or is_plugin(folder)


def skills_of(folder: Path) -> tuple[Path, ...]:
    """Return the folders of the skills in *folder*: of a plug-in all that it brings, and otherwise itself."""
    if not is_plugin(folder):
        return (folder,)
    own = (folder,) if (folder / SKILL_MANIFEST).is_file() else ()
    manifests = sorted(folder.glob(f"{_SKILLS}/*/{SKILL_MANIFEST}"))
    return (*own, *(manifest.parent for manifest in manifests))


def skill_hint(name: str, place: str) -> str | None:
    """Return how an arm names the skill at *place*, if there is one."""
    return f"write it as --arm {name}=skill:{place}" if (Path(place) / SKILL_MANIFEST).is_file() else None
