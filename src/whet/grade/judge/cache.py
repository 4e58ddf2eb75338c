"""Verdicts on disk, each under the hash of all that it depends on: the same question is paid for once."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet import wire
from whet.grade.judge.verdict import Vote


class VerdictCache:
    """A folder of small files; two processes may share one, and a file that cannot be read is none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def find(self, asked: Any) -> Vote | None:
        """The vote that was given to the same question before."""
        if self._folder is None:
            return None
        try:
            return replace(wire.decode(self._place(asked).read_bytes(), Vote), cached=True)
        except (OSError, wire.WireError):
            return None

    def keep(self, asked: Any, vote: Vote) -> None:
        """Keep a vote; it is there whole or not at all. A full disk is no reason to lose the verdict itself."""
        if self._folder is None:
            return
        place = self._place(asked)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            # Not a name that another process would choose.
            draft = place.with_name(f"{place.name}.{os.getpid()}.tmp")
            draft.write_bytes(wire.encode(vote))
            draft.replace(place)
        except OSError:
            return

    def _place(self, asked: Any) -> Path:
        assert self._folder is not None
        name = hashlib.sha256(wire.encode(asked)).hexdigest()
        return self._folder / name[:2] / f"{name}.json"
