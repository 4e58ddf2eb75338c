"""Unpacking: what a program unpacks for itself is made once for a run, and attempts are only shown it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from whet import plugins
from whet.agents.contract import AgentCommand, Unpacking
from whet.run.scratch import UnpackedPrograms

PROGRAM = """#!/bin/sh
echo "$*" >> {log}
env > {log}.env
[ -n "$PKG" ] && mkdir -p $PKG/v1 && echo data > $PKG/v1/big && exit {code}
"""


def asked(folder: Path, *, code: int = 0, **env: str) -> AgentCommand:
    program = folder / "program"
    program.write_text(PROGRAM.format(log=folder / "log", code=code))
    program.chmod(0o755)
    return AgentCommand(
        argv=(str(program), "--task"),
        env={"PATH": "/usr/bin:/bin", "SECRET": "hush", **env},
        unpacking=Unpacking("PKG", (str(program), "--version")),
    )


def give(folder: Path, *wanted: AgentCommand) -> list[AgentCommand]:
    (folder / "scratch").mkdir(exist_ok=True)
    given: list[AgentCommand] = []

    async def one(unpacked: UnpackedPrograms, command: AgentCommand) -> None:
        given.append(await unpacked.given_to(command))

    async def at_once() -> None:
        unpacked = UnpackedPrograms(folder / "scratch", plugins.find("sandboxes", "local")())
        async with anyio.create_task_group() as group:
            for command in wanted:
                group.start_soon(one, unpacked, command)

    anyio.run(at_once)
    return given


def test_attempts_at_the_same_time_share_what_was_unpacked_once(tmp_path: Path) -> None:
    given = give(tmp_path, *[asked(tmp_path)] * 4)

    (folder,) = {command.env["PKG"] for command in given}
    assert (Path(folder) / "v1" / "big").read_text() == "data\n"
    assert all(command.readable == (Path(folder),) for command in given)
    assert (tmp_path / "log").read_text() == "--version\n"


def test_it_is_made_without_what_only_an_attempt_should_know(tmp_path: Path) -> None:
    give(tmp_path, asked(tmp_path))

    assert "hush" not in (tmp_path / "log.env").read_text()


def test_a_folder_that_the_runner_names_is_taken_as_it_is(tmp_path: Path) -> None:
    wanted = asked(tmp_path, PKG="/mine")

    given = give(tmp_path, wanted)

    assert given == [wanted]
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("code", [1, 127])
def test_a_program_that_cannot_do_so_is_left_to_the_attempt(tmp_path: Path, code: int) -> None:
    wanted = asked(tmp_path, code=code)

    assert give(tmp_path, wanted, wanted) == [wanted, wanted]


def test_a_program_that_is_not_there_is_the_trouble_of_the_attempt(tmp_path: Path) -> None:
    wanted = AgentCommand(argv=("no-such",), env={}, unpacking=Unpacking("PKG", ("no-such", "--version")))

    assert give(tmp_path, wanted) == [wanted]
