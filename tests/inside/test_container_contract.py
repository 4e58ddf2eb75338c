"""The contract of a sandbox, held against containers, promise by promise."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from images import ENGINE, containers_left

from whet.sandbox.container.leftovers import this_process
from whet.sandbox.container.sandbox import ContainerSandbox, InImage
from whet.testing.sandbox import PROMISES, Place, Promise, check_promise

_RUN = f"contract-{os.getpid()}"


@pytest.fixture
def kind(image: str) -> type[ContainerSandbox]:
    """The sandbox in an image, as the contract makes it."""
    engine = shutil.which(ENGINE)
    assert engine is not None
    # The name of this process: the tests of another one may have containers at the same time.
    place = InImage(engine=engine, image=image, owner=this_process(), run=_RUN)

    class InTheImage(ContainerSandbox):
        def __init__(self) -> None:
            super().__init__(place)

    return InTheImage


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_containers_keep_the_promises_of_a_sandbox(kind: type[ContainerSandbox], promise: Promise) -> None:
    check_promise(kind, promise)

    assert containers_left(f"whet.run={_RUN}") == []


def test_a_program_cannot_pass_its_own_failure_for_one_of_the_engine(
    kind: type[ContainerSandbox], tmp_path: Path
) -> None:
    place = Place(tmp_path)

    for code in (125, 126, 127):
        ended = place.run(kind(), "sh", "-c", f"echo 'Error: runc: executable file not found' >&2; exit {code}")

        assert ended.exit_code == code
