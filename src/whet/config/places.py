"""Where relative paths in settings lead: from the folder of whoever names them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from whet.config.schema import Rule, Value


@dataclass(frozen=True, slots=True)
class Base:
    """The folder that relative paths start from, and what `~` stands for."""

    folder: Path
    home: Path | None

    def settle(self, value: Value, rule: Rule) -> Value:
        """*value* with its paths absolute and its lists as tuples, as *rule* asks."""
        if rule.many:
            return tuple(self._settle_one(item, rule) for item in value)
        return self._settle_one(value, rule)

    def path(self, text: str) -> Path:
        """The absolute path that *text* names; links are kept, since people know their folders by them."""
        return Path(os.path.abspath(self.folder / self._expand(text)))  # noqa: PTH100 - resolve() follows links

    def _settle_one(self, value: Value, rule: Rule) -> Value:
        match rule.place:
            case "path":
                return self.path(value)
            case "program" | "word" if value in {".", ".."} or value.startswith(("./", "../")):
                return str(self.path(value))
            case "program":
                # No shell will expand it later; in arguments "~" may be meant for the program.
                return str(self._expand(value))
            case _:
                return value

    def _expand(self, text: str) -> str:
        if self.home is not None and (text == "~" or text.startswith("~/")):
            return str(self.home) + text[1:]
        return text
