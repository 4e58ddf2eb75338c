"""What the system refuses to do with a path becomes one error that a user can act on."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from whet.errors import PathRefused
from whet.reading.paths import refusal


def test_a_refused_path_below_folders_that_are_not_there_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "runs"

    refused = refusal(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)))

    assert isinstance(refused, PathRefused)
    assert refused.message.startswith(f"{path}: cannot be ")
    assert refused.hint
