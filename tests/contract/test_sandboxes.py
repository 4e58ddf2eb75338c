"""The contract of a sandbox, held against every one of ours, promise by promise; and what only ours must do."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet import plugins
from whet.testing.sandbox import PROMISES, Place, Promise, check_promise


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_a_sandbox_of_ours_keeps_its_promises(sandbox_name: str, promise: Promise) -> None:
    check_promise(plugins.find("sandboxes", sandbox_name), promise)


def test_a_sandbox_of_ours_has_the_name_that_it_is_found_by(sandbox_name: str) -> None:
    kind = plugins.find("sandboxes", sandbox_name)

    assert kind.availability().usable
    assert kind.name == sandbox_name


def test_a_program_cannot_pass_its_own_failure_for_one_of_the_sandbox(sandbox_name: str, tmp_path: Path) -> None:
    sandbox, place = plugins.find("sandboxes", sandbox_name)(), Place(tmp_path)

    ended = place.run(sandbox, "sh", "-c", "echo 'bwrap: execvp sh: No such file or directory' >&2; exit 1")

    assert ended.exit_code == 1
