"""The prompts of a configuration: texts, and files with one or several of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.reading.fields import Fields
from whet.suites.other_tools.promptfoo.rows import prompts_in_csv
from whet.suites.other_tools.promptfoo.sources import FILE, Sources, UnreadSource
from whet.suites.other_tools.shared import ForeignDocument

_PATH = re.compile(r"[^\n{}]+\.(txt|md|j2|json|jsonl|yaml|yml|csv|py|js|cjs|mjs|ts)(:\w+)?")
_SEPARATOR = re.compile(r"^---[ \t]*$", re.MULTILINE)
_USUAL = "{{prompt}}"


class PromptTemplate(Struct, frozen=True):
    """A prompt with variables, and what tells it from the others."""

    label: str
    text: str


def prompts_of(document: ForeignDocument, sources: Sources) -> Iterator[PromptTemplate]:
    """Yield the prompts of *document*; one that cannot be read is lost with its cases."""
    labels: set[str] = set()
    number = 0
    for place, fields, text, label in _written_prompts(document.top):
        for prompt in _texts(document, sources, fields, place, text):
            number += 1
            name = label or str(number)
            if name in labels:
                # Several prompts may share a label, as those of one file do.
                name = f"{name} {number}"
            labels.add(name)
            yield PromptTemplate(name, prompt)


def _written_prompts(top: Fields) -> Iterator[tuple[str, Fields, str, str | None]]:
    """Yield each prompt as it is written: its place, the object around it, its text or file, and its label."""
    value = top.given("prompts")
    single_prompt = _USUAL if value is None else value
    items = value if isinstance(value, list) else [single_prompt]
    for index, item in enumerate(items):
        place = f"prompts[{index}]" if isinstance(value, list) else "prompts"
        if not isinstance(item, Mapping):
            text = top.text_at(place, item)
            if text is not None:
                yield place, top, text, None
            continue
        fields = top.object(place, item)
        if not item.keys() & {"raw", "id", "label", "file"}:
            # An older way to write it: labels by file.
            for path, label in item.items():
                yield path, fields, path, str(label)
            continue
        name = next((name for name in ("raw", "id", "file", "label") if fields.given(name) is not None), "raw")
        text = fields.text(name, required=True)
        if text is not None:
            yield name, fields, text, fields.text("label") or fields.text("id")


def _texts(document: ForeignDocument, sources: Sources, fields: Fields, place: str, text: str) -> Iterator[str]:
    if not text.startswith(FILE) and not _PATH.fullmatch(text.strip()):
        yield text
        return
    try:
        for path in sources.paths(text.strip()):
            yield from _prompts_in(path, sources.text(path))
    except UnreadSource as error:
        document.lose_case(fields, place, f"the cases with this prompt, because {error}")


def _prompts_in(path: Path, text: str) -> Iterator[str]:
    """Yield the prompts in a file: of a text they are separated by lines of three dashes."""
    parts: list[Any] = [text]
    if path.suffix == ".txt":
        parts = _SEPARATOR.split(text)
    elif path.suffix == ".jsonl":
        parts = text.splitlines()
    elif path.suffix == ".csv":
        parts = prompts_in_csv(text)
    for part in parts:
        if part.strip():
            yield part.strip()
