"""The part of a suite as a person types it."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from whet.model.suite import PARTS, Part


class PartName(click.ParamType[Part]):
    """A part of a suite, also in the words of other tools."""

    name = "part"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Part:
        """Return the part that *value* stands for."""
        # Imported here: --help does not need it.
        from whet.suites.split.fields import part_of

        part = part_of(value)
        if part is None:
            self.fail(f'"{value}" is none of {", ".join(PARTS)}', param, ctx)
        return part

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the parts that begin with what is typed so far."""
        del ctx, param
        return [CompletionItem(part) for part in PARTS if part.startswith(incomplete)]
