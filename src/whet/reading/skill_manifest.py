"""The text of a SKILL.md, which strangers write: read within bounds, and taken apart."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from whet.reading.documents import DocumentError, Node, Repeat
from whet.reading.files import read_start
from whet.reading.front_matter import parse_front_matter, split_front_matter
from whet.reading.yaml import read_yaml

# More than any model is given of one.
LARGEST = 1024 * 1024
_NODES = 10_000


class SkillText(Struct, frozen=True, kw_only=True):
    """A manifest in parts: its front matter with its lines, None without any, and what follows from `body_line` on.

    `trouble` says why the front matter cannot be read; then there is none.
    """

    text: str
    front: Node | None
    body: str
    body_line: int = 1
    trouble: DocumentError | None = None
    # Keys that come twice: some parsers refuse them, and others take the last one.
    repeats: tuple[Repeat, ...] = ()


def manifest_text(manifest: Path) -> str:
    """Return the text of *manifest*, with U+FFFD for what is no text; raises `OSError`."""
    data = read_start(manifest, LARGEST)
    text = data.decode("utf-8-sig", "replace")
    # The last character may have been cut in two.
    return text if len(data) < LARGEST else text.removesuffix("\ufffd")


def take_apart(text: str) -> SkillText:
    """Return the parts of *text*."""
    try:
        yaml, body = split_front_matter(text)
        if yaml is None:
            return SkillText(text=text, front=None, body=text)
        body_line = text[: len(text) - len(body)].count("\n") + 1
        parse_front_matter(yaml)
    except DocumentError as error:
        return SkillText(text=text, front=None, body=text, trouble=error)
    front = read_yaml(yaml, number_keys=True, most_nodes=_NODES)
    return SkillText(text=text, front=front.root, body=body, body_line=body_line, repeats=front.repeats)
