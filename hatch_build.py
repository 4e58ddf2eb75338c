"""Writes into wheels and source distributions which commit they are of, and a README that an index can show."""

from __future__ import annotations

import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# `[text](place)` and `![text](place)`, where the place is not an address of its own.
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?![a-z]+:)(?P<place>[^)\s]+)\)")
_FILE_OF_FENCE = re.compile(r"^(```[a-z]+) file=\S+$", re.MULTILINE)
_WITHOUT_ADDRESS = "\n\nThe pages that this text names are in the source distribution, in `docs/`.\n"


def readme_for_index(text: str, source: str | None) -> str:
    """Return the README as an index can show it: links lead to the repository *source*, or nowhere if that is None."""

    def replace_link(link: re.Match[str]) -> str:
        if source is None:
            return "" if link["picture"] else link["text"]
        place = f"README.md{link['place']}" if link["place"].startswith("#") else link["place"]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({source.rstrip('/')}/{kind}/HEAD/{place})"

    text = _FILE_OF_FENCE.sub(r"\1", _LINK.sub(replace_link, text))
    return text if source is not None else text.rstrip() + _WITHOUT_ADDRESS


class ReadmeHook(MetadataHookInterface):
    """Says the README with links that work outside of the repository, whose address is `Source` in `project.urls`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme_for_index(text, source)}


class CommitHook(BuildHookInterface):
    """Adds `commit.txt` to the package."""

    PLUGIN_NAME = "custom"
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the commit of the clone, or pass on the one that a source distribution names."""
        package = Path(self.root) / "src" / "whet"
        module = runpy.run_path(str(package / "commit.py"))
        # An editable installation is a clone, whose commit changes.
        if version == "editable" or module["commit_of_build"](package) is not None:
            return
        commit = module["commit_of_clone"](Path(self.root))
        if commit is None:
            return
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / module["BUILT"]
        file.write_text(f"{commit}\n", encoding="ascii")
        place = "whet" if self.target_name == "wheel" else "src/whet"
        build_data["force_include"][str(file)] = f"{place}/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the file, which is in the artefact now."""
        if self._folder is not None:
            self._folder.cleanup()
