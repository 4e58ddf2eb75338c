"""`python docs/site/build.py [FOLDER]`: make the pages of this repository into a site, `site/` by default.

Beside each page lies its Markdown, `llms.txt` lists all pages for language models, and `schemas/` has the JSON Schemas.
A link that leads nowhere ends the build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GENERATOR = Path(sys.executable).with_name("zensical")
# The menu: what a section is called, and which pages it has, in the order in which they are best read.
SECTIONS = {
    "Start": (
        "README.md",
        "docs/how-to/try-a-skill.md",
        "docs/how-to/decide.md",
        "docs/tutorial.md",
        "docs/glossary.md",
    ),
    "How to": ("docs/how-to/*.md",),
    "Reference": ("docs/reference/*.md",),
    "Skill for agents": ("skills/whet/SKILL.md", "skills/whet/references/*.md"),
    "Examples": ("examples/README.md", "examples/**/README.md"),
    "Coming from": ("docs/coming-from/*.md",),
    "Design": ("docs/design/architecture.md", "docs/design/*.md"),
    "Project": ("CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md", "docs/index.md"),
}
_FENCE = re.compile(r"^(```[a-z]+) file=(\S+)$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!#|[a-z]+:)([^)#\s]+)(?:#[^)\s]*)?\)")
_LINK_TEXT = re.compile(r"\[([^]]+)\]\([^)]*\)")
_SENTENCE = re.compile(r".*?[.?](?= |$)|.*")
_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Page(NamedTuple):
    """A page: its path in the repository, its heading and the sentence below that."""

    path: Path
    title: str
    summary: str


def build(target: Path) -> None:
    """Build the site in *target*, which is replaced; raises SystemExit with what is wrong."""
    sections = {name: list(map(_read, paths)) for name, paths in _sections().items()}
    pages = [page.path for listed in sections.values() for page in listed]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        linked = _stage(pages, place / "pages")
        (place / "zensical.toml").write_text(_settings(sections), encoding="utf-8")
        _generate(place)
        for path in (*pages, *(path for path in linked if path.suffix == ".md")):
            _copy(path, place / "site")
        (place / "site" / "llms.txt").write_text(_llms_text(sections), encoding="utf-8")
        for schema in sorted((ROOT / "src/whet").rglob("*.schema.json")):
            _copy_schema(schema, place / "site" / "schemas")
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(place / "site", target)


def _sections() -> dict[str, list[Path]]:
    """Return the pages of each section; a page belongs to the first section that names it."""
    listed: set[Path] = set()
    sections = {}
    for name, patterns in SECTIONS.items():
        paths = dict.fromkeys(path for pattern in patterns for path in sorted(ROOT.glob(pattern)))
        sections[name] = [path.relative_to(ROOT) for path in paths if path not in listed]
        listed |= paths.keys()
    return sections


def _read(path: Path) -> Page:
    text = (ROOT / path).read_text(encoding="utf-8")
    heading = _HEADING.search(text)
    if heading is None:
        raise SystemExit(f"{path}: has no heading; begin it with `# TITLE`")
    paragraph = " ".join(text[heading.end() :].strip().partition("\n\n")[0].split())
    sentence = _SENTENCE.match(_LINK_TEXT.sub(r"\1", paragraph))
    assert sentence is not None
    return Page(path, heading[1].replace("`", ""), sentence[0])


def _stage(pages: list[Path], place: Path) -> list[Path]:
    """Copy the pages, and the files that they link to; return those files."""
    for page in pages:
        _copy(page, place)
        text = (place / page).read_text(encoding="utf-8")
        (place / page).write_text(_FENCE.sub(r'\1 title="\2"', text), encoding="utf-8")
    linked = sorted(set(_linked(pages)) - set(pages))
    for path in linked:
        _copy(path, place)
    return linked


def _linked(pages: list[Path]) -> Iterator[Path]:
    for page in pages:
        for link in _LINK.findall((ROOT / page).read_text(encoding="utf-8")):
            path = Path(os.path.normpath(page.parent / link))
            if (ROOT / path).is_file():
                yield path


def _copy(path: Path, place: Path) -> None:
    (place / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / path, place / path)


def _copy_schema(schema: Path, place: Path) -> None:
    """Copy a schema under the name and the number of its id: `urn:whet:suite:1` becomes `suite-1.json`."""
    text = schema.read_text(encoding="utf-8")
    name, number = json.loads(text)["$id"].removeprefix("urn:whet:").split(":")
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}-{number}.json").write_text(text, encoding="utf-8")


def _settings(sections: dict[str, list[Page]]) -> str:
    menu = [_entry(name, _list(map(_page_entry, listed))) for name, listed in sections.items()]
    added = f'[project]\ndocs_dir = "pages"\nsite_dir = "site"\nnav = {_list(menu)}'
    return (HERE / "zensical.toml").read_text(encoding="utf-8").replace("[project]", added, 1)


def _page_entry(page: Page) -> str:
    return _entry(page.title, json.dumps(str(page.path)))


def _entry(name: str, value: str) -> str:
    return f"{{ {json.dumps(name, ensure_ascii=False)} = {value} }}"


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(values)}]"


def _generate(place: Path) -> None:
    done = subprocess.run(
        [GENERATOR, "build", "--clean", "--strict"], cwd=place, capture_output=True, text=True, check=False
    )
    said = _COLOUR.sub("", done.stdout + done.stderr).partition("Traceback (most recent call last)")[0]
    if done.returncode != 0 or "Warning" in said:
        raise SystemExit(f"the site cannot be built:\n{said}")


def _llms_text(sections: dict[str, list[Page]]) -> str:
    """Return `llms.txt`: what this is, and each page as Markdown with what the reader gets."""
    start = next(page for page in sections["Start"] if page.path.name == "README.md")
    blocks = [f"# whet\n\n> {start.summary}"]
    for name, listed in sections.items():
        lines = [f"- [{page.title}]({page.path}): {page.summary}" for page in listed]
        blocks.append("\n".join([f"## {name}\n", *lines]))
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site").resolve())
