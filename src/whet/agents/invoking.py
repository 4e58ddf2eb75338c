"""Skills that a prompt itself invokes: the program then puts them before the model, without a call of any tool."""

from __future__ import annotations

import re
from collections.abc import Collection

from whet.model.session import SkillSignal

# As the programs read them. `/usr/bin` is a path, and so is `/usr`, unless a skill is called so.
_AT_THE_START = re.compile(r"/([\w:-]+)(?=\s|\Z)", re.ASCII)
# `$HOME` is a variable, unless a skill is called so; `${x}` always is.
_ANYWHERE = re.compile(r"\$([\w:-]+)", re.ASCII)


def slash_invoked(prompt: str, skills: Collection[str]) -> list[SkillSignal]:
    """The one of *skills* that a prompt such as `/release-notes for 2.0` begins with."""
    found = _AT_THE_START.match(prompt)
    return [SkillSignal(skill=found[1], signal=f"prompt:/{found[1]}")] if found and found[1] in skills else []


def dollar_invoked(prompt: str, skills: Collection[str]) -> list[SkillSignal]:
    """Those of *skills* that a prompt such as `write $release-notes for 2.0` names, each once."""
    named = dict.fromkeys(found[1] for found in _ANYWHERE.finditer(prompt))
    return [SkillSignal(skill=name, signal=f"prompt:${name}") for name in named if name in skills]
