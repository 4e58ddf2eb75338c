"""Paths as they are typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class FilePath(click.Path):
    """A path; an empty one, such as an unset variable leaves, is a mistake and not the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """*value* as a path."""
        if not str(value).strip():
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


FILE = FilePath()
