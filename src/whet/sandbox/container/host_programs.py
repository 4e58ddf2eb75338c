"""Carry a program of this machine into a container: the package around it, its Node, and libraries that are missing."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import anyio.to_thread
from msgspec import Struct

from whet.errors import AgentNotFound
from whet.sandbox.container.leftovers import this_process
from whet.sandbox.contract import Command, InImage, find_program
from whet.sandbox.engine import OWNER_LABEL, Engine, EngineAnswer

# Where the program, and the Node that it needs, are inside.
PLACE = Path("/opt/whet")
_PACKAGES = "node_modules"
_SHEBANG = 256
_ELF = b"\x7fELF"
_LDD_S = 10


class CarriedCommand(Struct, frozen=True, kw_only=True):
    """A command as a container starts it, and what is mounted for it: (path inside, path of this machine)."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    mounts: tuple[tuple[Path, Path], ...] = ()


async def carry(command: Command, place: InImage) -> CarriedCommand:
    """Return *command* for a container: with its program mounted, if that is of this machine."""
    if command.argv[0] == sys.executable:
        # Python is that of the image: ours may be anywhere, and its libraries with it.
        return CarriedCommand(argv=("python3", *command.argv[1:]), env=command.env)
    return await anyio.to_thread.run_sync(_carried, command, place)


def _carried(command: Command, place: InImage) -> CarriedCommand:
    engine, program = Engine(place.engine), _of_host(command, place)
    if program is None:
        return CarriedCommand(argv=command.argv, env=command.env)
    carried = brought(Path(program), command.env, engine, place.image)
    there = carried.packages | carried.libraries
    return CarriedCommand(argv=(*carried.start, *command.argv[1:]), env=command.env, mounts=tuple(there.items()))


class HostProgram(Struct, frozen=True):
    """What a program of this machine takes to run in an image: by path inside, what is mounted there."""

    start: tuple[str, ...]
    packages: dict[Path, Path]
    libraries: dict[Path, Path]


def brought(host_path: Path, env: Mapping[str, str], engine: Engine, image: str) -> HostProgram:
    """Return what to mount so that the program at *host_path* runs in containers of *image*."""
    program = host_path.resolve()
    folder, inside = _whole(program)
    packages = {inside: folder}
    start: tuple[str, ...] = (str(inside if folder == program else inside / program.relative_to(folder)),)
    binary = program
    if (node := _node(program, env)) is not None:
        place = PLACE / "node" / "bin" / "node"
        packages[place] = binary = node
        start = (str(place), *start)
    return HostProgram(start, packages, missing_libraries(binary, engine, image))


def _of_host(command: Command, place: InImage) -> str | None:
    """Return the program of this machine to mount; None if it is the image's."""
    name = command.argv[0]
    if not command.of_host or (place.installs and "/" not in name and has_program(place.engine, place.image, name)):
        return None
    try:
        return find_program(command)
    except AgentNotFound:
        if "/" in name:
            raise
        return None


def _whole(program: Path) -> tuple[Path, Path]:
    """Return what belongs to *program*, and where it is inside: the packages around it, or only itself."""
    if _PACKAGES in program.parts:
        folder = Path(*program.parts[: program.parts.index(_PACKAGES) + 1])
        return folder, PLACE / "agent" / _PACKAGES
    return program, PLACE / "agent" / program.name


def _node(program: Path, env: Mapping[str, str]) -> Path | None:
    """Return the Node of this machine, if *program* is a script for it."""
    with program.open("rb") as file:
        first = file.read(_SHEBANG).split(b"\n")[0]
    if not first.startswith(b"#!") or b"node" not in first:
        return None
    node_path = shutil.which("node", path=env.get("PATH", os.defpath))
    return Path(node_path).resolve() if node_path else None


def missing_libraries(binary: Path, engine: Engine, image: str) -> dict[Path, Path]:
    """Return the libraries that *binary* needs and *image* lacks, by where they go inside."""
    needed = dict(libraries_of(binary))
    if not needed:
        return {}
    loader, libc = _first(needed, "ld-linux"), _first(needed, "libc.so.6")
    asked = (loader, *(place for path in needed.values() for place in _places(path)))
    there = _held(engine.program, image, tuple(dict.fromkeys(str(path) for path in asked if path)))
    if loader is not None and str(loader) not in there:
        return {Path(_usual(name, path)): path for name, path in needed.items()}
    home = next((place.parent for place in _places(libc) if str(place) in there), None) if libc else None
    return {
        (home or path.parent) / name: path
        for name, path in needed.items()
        if not any(str(place) in there for place in _places(path))
    }


@lru_cache
def libraries_of(binary: Path) -> tuple[tuple[str, Path], ...]:
    """Return the shared libraries of a program and its loader, by name; none of a static one, or of a script."""
    with binary.open("rb") as file:
        if file.read(4) != _ELF:
            return ()
    try:
        said = subprocess.run(
            (shutil.which("ldd") or "/usr/bin/ldd", str(binary)),
            capture_output=True,
            text=True,
            timeout=_LDD_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(_listed(said.stdout))


def _listed(text: str) -> Iterator[tuple[str, Path]]:
    for line in text.splitlines():
        words = line.split()
        if "=>" in words and len(words) > 2 and words[2].startswith("/"):  # noqa: PLR2004 - name => path
            yield words[0], Path(words[2])
        elif words and words[0].startswith("/"):
            yield Path(words[0]).name, Path(words[0])


def _first(needed: Mapping[str, Path], word: str) -> Path | None:
    return next((path for name, path in needed.items() if name.startswith(word)), None)


def _usual(name: str, path: Path) -> str:
    """Return where the loader looks for a library: the loader itself must be at the place that programs name."""
    return str(path) if name.startswith("ld-") else str(path.parent / name)


def _places(path: Path) -> tuple[Path, ...]:
    """Return where an image may have the library that this machine has at *path*."""
    triplet = path.parent.name
    folders = (path.parent, *(Path(top) / triplet for top in ("/lib", "/usr/lib")), *map(Path, _LIBRARIES))
    return tuple(dict.fromkeys(folder / path.name for folder in folders))


_LIBRARIES = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")


@lru_cache
def _held(program: str, image: str, paths: tuple[str, ...]) -> frozenset[str]:
    """Return which of *paths* the image has; none if it has no shell to ask."""
    script = 'for path in "$@"; do [ -e "$path" ] && echo "$path"; done; :'
    return frozenset(ask_image(Engine(program), image, script, *paths).out.split("\n"))


@lru_cache
def has_program(program: str, image: str, name: str) -> bool:
    """Return whether the image has a program of that *name*."""
    return ask_image(Engine(program), image, 'command -v "$1"', name).ok


def ask_image(engine: Engine, image: str, script: str, *args: str) -> EngineAnswer:
    """Return what a line of shell says in a container of *image*."""
    name = f"whet-{secrets.token_hex(8)}"
    said = engine.ask(
        *("run", "--rm", "--pull", "never", "--name", name, "--label", f"{OWNER_LABEL}={this_process()}"),
        *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--entrypoint", "/bin/sh", image, "-c", script, "sh", *args),
    )
    if said.code is None:
        # The container took too long: the shell of an image may be anything.
        engine.ask("rm", "--force", "--volumes", name)
    return said
