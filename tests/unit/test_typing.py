"""An author's editor knows every group: what is right is accepted, and what is wrong is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from whet import expect

ROOT = Path(__file__).resolve().parents[2]
API = ROOT / "tests" / "typing" / "api.py"


def test_the_assertion_language_is_typed_as_its_authors_use_it(tmp_path: Path) -> None:
    # Nothing of the project's settings: an ignore that is not needed must be an error, in any settings.
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\n")

    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", f"--config-file={settings}", f"--cache-dir={tmp_path}", str(API)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr


GROUPS = ("skills", "commands", "file_reads", "tool_calls", "output", "files", "usage")


def _offered(group: str) -> set[str]:
    """What an editor offers after the name of a group and a dot."""
    return {name for name in dir(getattr(expect, group)) if not name.startswith("_")}


@pytest.mark.parametrize("group", GROUPS)
def test_every_method_of_a_group_is_among_what_is_checked(group: str) -> None:
    text = API.read_text()
    methods = {name for name in _offered(group) if callable(getattr(getattr(expect, group), name))}

    missing = {name for name in methods if not re.search(rf"\bexpect\.{group}\.{name}\(", text)}

    assert missing == set()


@pytest.mark.parametrize("group", ["commands", "file_reads"])
def test_an_editor_offers_nothing_but_methods(group: str) -> None:
    found = getattr(expect, group)

    assert [name for name in _offered(group) if not callable(getattr(found, name))] == []
