"""Keeping secrets out of a workspace that is kept: an agent may have written what it was given into any file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from whet.mask import Masker
from whet.workspace.tree import Descent, walk

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LARGEST = 64 * 1024 * 1024


def mask_files(masker: Masker, root: Path) -> None:
    """Replace secrets in every regular file below *root*, whatever it is called; very large ones are left out."""
    with Descent(root, force=True) as place:
        for step in walk(place):
            if step.kind == "item" and stat.S_ISREG(step.stat.st_mode) and step.stat.st_size <= _LARGEST:
                _mask_file(masker, step.name, place.fd)


def _mask_file(masker: Masker, name: str, folder: int) -> None:
    try:
        file = os.open(name, _FLAGS, dir_fd=folder)
    except OSError:
        # Unreadable to us as to the agent, or gone by now.
        return
    with os.fdopen(file, "r+b") as opened:
        data = opened.read()
        masked = masker.data(data)
        if masked != data:
            opened.seek(0)
            opened.write(masked)
            opened.truncate()
