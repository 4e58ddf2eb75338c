"""Escape other people's text for Markdown, HTML and XML, and write tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

from msgspec import Struct

from whet.reading.text import clean, one_line

# Text and prose are other people's, and escaped. Numbers and words are ours; numbers are aligned to the right.
Kind = Literal["text", "prose", "number", "word"]
_SPECIAL = re.compile(r"[\\`*\[\]|~$]|^#|(?<!\w)_|_(?!\w)")
# The only characters that XML 1.0 forbids and that `clean` leaves in.
_FORBIDDEN = re.compile("[\ufffe\uffff]")


class Table(Struct, frozen=True):
    """Headings with the kind of their columns, and rows of text that is not escaped yet."""

    columns: Sequence[tuple[str, Kind]]
    rows: Sequence[Sequence[str]]


def cell(text: str) -> str:
    """Escape *text* for one line of Markdown, such as a heading or a cell of a table."""
    return _SPECIAL.sub(lambda match: "\\" + match[0], escape(one_line(text, 300), quote=False))


def code(text: str) -> str:
    """Return *text* as a Markdown code span that it cannot end."""
    ticks = "`" * (_longest_ticks(text) + 1)
    blank = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{blank}{text}{blank}{ticks}"


def fence(lines: Sequence[str], language: str = "text") -> str:
    """Return *lines* as a Markdown code block that they cannot end."""
    body = "\n".join(lines)
    ticks = "`" * max(3, _longest_ticks(body) + 1)
    return f"{ticks}{language}\n{body}\n{ticks}\n\n"


def _longest_ticks(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def markdown_table(table: Table) -> list[str]:
    """Return the lines of *table* in Markdown."""
    kinds = [kind for _, kind in table.columns]
    heading = _markdown_row(cell(name) for name, _ in table.columns)
    ruler = "|".join("---:" if kind == "number" else "---" for kind in kinds)
    return [heading, f"|{ruler}|", *(_markdown_row(map(_markdown_cell, row, kinds)) for row in table.rows)]


def _markdown_row(cells: Iterable[str]) -> str:
    return "|" + "".join(f" {text} |" if text else " |" for text in cells)


def _markdown_cell(text: str, kind: Kind) -> str:
    return cell(text) if kind in ("text", "prose") else text


def escape_markup(text: str) -> str:
    """Escape *text* for the content of an HTML or XML element."""
    return escape(_FORBIDDEN.sub("", clean(text)), quote=False)


def attribute(text: str) -> str:
    """Return *text* as a quoted XML attribute."""
    return '"' + escape(_FORBIDDEN.sub("", one_line(text, 1000))) + '"'
