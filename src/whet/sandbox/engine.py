"""The command line of podman or docker: which one there is, whether it works here, and what it says."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from whet.errors import SandboxError, UsageError
from whet.sandbox.contract import Availability, Command, Ended
from whet.sandbox.process.run import run_process

ENGINES = ("podman", "docker")
# What says where an engine keeps its containers.
_WHERE = (
    r"HOME|TMPDIR|XDG_\w+|DOCKER_(?:HOST|CONTEXT|CONFIG|TLS_VERIFY|CERT_PATH)"
    r"|CONTAINER_(?:HOST|CONNECTION)|CONTAINERS_\w+|STORAGE_\w+"
)
OWNER_LABEL, IMAGE_LABEL, LEFT_LABEL = "whet.owner", "whet.image", "whet.left"
# Where the package catatonit is, which podman starts containers with.
INITS = tuple(f"/usr/{place}/catatonit" for place in ("bin", "libexec/podman", "lib/podman", "libexec/catatonit"))
_PATIENCE_S = 60.0
_MIGRATE = "podman system migrate"
_LONGEST_SAID = 2000
_INSTALL = "install podman (with uidmap and a runtime such as crun or runc) or docker"


class EngineAnswer(Struct, frozen=True):
    """What a call of the engine said, and how it ended."""

    code: int | None
    out: str
    err: str

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.code == 0

    @property
    def why(self) -> str:
        """The last line of what it complained about."""
        lines = [line for line in self.err.strip().splitlines() if line.strip()]
        return lines[-1][:_LONGEST_SAID] if lines else f"it ended with exit code {self.code}"


class Engine(Struct, frozen=True):
    """Podman, or docker: both take the same words."""

    program: str
    # Variables with which it is called, besides our own.
    env: tuple[tuple[str, str], ...] = ()

    @property
    def is_podman(self) -> bool:
        """Whether containers are processes of ours, and the user inside is the one outside."""
        return "docker" not in Path(self.program).name

    @property
    def is_rootless(self) -> bool:
        """Whether it is podman without root, which makes a user namespace and keeps a process for it."""
        return self.is_podman and os.geteuid() != 0

    @property
    def here(self) -> Engine:
        """Return the engine with those of our variables by which it finds the same containers again."""
        return Engine(
            self.program, tuple((name, value) for name, value in os.environ.items() if re.fullmatch(_WHERE, name))
        )

    @property
    def holds_limits(self) -> bool:
        """Whether containers are held to memory, processes and CPUs; without root only by newer control groups."""
        return not self.is_rootless or Path("/sys/fs/cgroup/cgroup.controllers").exists()

    @property
    def init(self) -> tuple[str, ...]:
        """The option for a first process that reaps others and lets signals through; docker brings its own."""
        return ("--init",) if not self.is_podman or any(Path(place).is_file() for place in INITS) else ()

    @property
    def as_owner(self) -> tuple[str, ...]:
        """What starts a program that may enter the containers of an ordinary user; root may do so anyway."""
        return () if os.geteuid() == 0 else (self.program, "unshare")

    def command(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Command:
        """Return a call with the environment of whet itself, where its settings are (`CONTAINERS_CONF`, `DOCKER_HOST`).

        The command is not confined: without root it changes users by a program that may, and must reach other
        containers.
        """
        return Command(
            argv=(self.program, *args),
            env={**os.environ, **dict(self.env), **(env or {})},
            cwd=Path("/"),
            stdin=stdin,
            confined=False,
        )

    async def call(self, *args: str, timeout_s: float = _PATIENCE_S, stdin: bytes = b"") -> EngineAnswer:
        """Call it and return what it said."""
        out, err = bytearray(), bytearray()
        ended: Ended = await run_process(
            self.command(*args, stdin=stdin), timeout_s=timeout_s, stdout=out.extend, stderr=err.extend
        )
        late = f"\nit was still running after {timeout_s:g} s" if ended.timed_out else ""
        return EngineAnswer(
            None if ended.timed_out else ended.exit_code,
            out.decode(errors="replace"),
            err.decode(errors="replace") + late,
        )

    async def remove(self, name: str) -> None:
        """Remove a container and everything that runs in it; raises if it is still there afterwards."""
        said = await self.call("rm", *self._wholly, name)
        if not said.ok and (await self.call("container", "inspect", name)).ok:
            raise SandboxError(f"container {name} could not be removed: {said.why}")

    async def state(self, name: str) -> Mapping[str, object]:
        """Return the state of a container as the engine has it; empty if there is none."""
        said = await self.call("container", "inspect", "--format", "{{json .State}}", name)
        try:
            facts = json.loads(said.out) if said.ok else {}
        except ValueError:
            facts = {}
        return facts if isinstance(facts, dict) else {}

    async def inspected(self, name: str, part: str, *options: str) -> str:
        """Return one part of what the engine knows of a container; empty if there is none."""
        said = await self.call("container", "inspect", *options, "--format", part, name)
        return said.out.strip() if said.ok and "<no value>" not in said.out else ""

    async def own_files(self, name: str) -> tuple[Path, ...]:
        """Return the files of its own that an engine shows in a container, which are in none of its layers."""
        said = await self.inspected(name, "{{.HostsPath}}\n{{.HostnamePath}}\n{{.ResolvConfPath}}")
        paths = [Path(line) for line in said.splitlines() if line.startswith("/")]
        return (*paths, *(path.with_name(".containerenv") for path in paths[:1] if self.is_podman))

    @property
    def _wholly(self) -> tuple[str, ...]:
        """The options that remove a container at once, with the volumes that its image asks for."""
        return ("--force", "--volumes", *(("--time", "0") if self.is_podman else ()))

    def ask(self, *args: str) -> EngineAnswer:
        """Call it before there is an event loop."""
        try:
            done = subprocess.run(
                (self.program, *args),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE_S,
                check=False,
                env={**os.environ, **dict(self.env)},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return EngineAnswer(None, "", str(error))
        return EngineAnswer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def owned(self, owner: str) -> list[str]:
        """Return the containers of *owner*, by their names."""
        said = self.ask("ps", "--all", "--format", "{{.Names}}", *_owned(owner))
        return said.out.split() if said.ok else []

    def remove_owned(self, owner: str) -> str | None:
        """Remove the containers of *owner*, and images of what its agents left; return why some are still there."""
        containers = ("ps", "--all", "--quiet", *_owned(owner))
        images = ("image", "ls", "--quiet", "--filter", f"label={LEFT_LABEL}={owner}")
        return self._remove_all(containers, ("rm", *self._wholly)) or self._remove_all(
            images, ("image", "rm", "--force")
        )

    def _remove_all(self, listing: tuple[str, ...], removing: tuple[str, ...]) -> str | None:
        for _ in range(2):
            listed = self.ask(*listing)
            if not listed.ok and _MIGRATE in listed.err:
                # Containers that podman thinks of as running, and whose processes are gone with the one of podman.
                self.ask("system", "migrate")
                listed = self.ask(*listing)
            if not listed.ok:
                return listed.why
            if not listed.out.split():
                return None
            said = self.ask(*removing, *dict.fromkeys(listed.out.split()))
        return said.why


def _owned(owner: str) -> tuple[str, ...]:
    """Return the filters for the containers of *owner*; by their names too: another image may have the label."""
    return ("--filter", f"label={OWNER_LABEL}={owner}", "--filter", "name=^whet-")


def find_engine(wanted: str | None) -> Engine:
    """Return the engine that the settings name, or the first that is installed; raises `UsageError` if none is."""
    names = (wanted,) if wanted else ENGINES
    for name in names:
        if program := shutil.which(name):
            return Engine(program)
    if wanted:
        raise UsageError(f"run.container: there is no program {wanted}", hint=_INSTALL)
    raise UsageError("neither podman nor docker is installed", hint=_INSTALL)


def engine_state(wanted: str | None = None) -> Availability:
    """Return whether the engine that is *wanted*, or else any, works here; if none does, why the first does not."""
    if wanted is None:
        states = [_state(name) for name in ENGINES if shutil.which(name)]
        if states:
            return next((state for state in states if state.usable), states[0])
    return _state(wanted)


def _state(wanted: str | None) -> Availability:
    try:
        engine = find_engine(wanted)
    except UsageError as error:
        return Availability(usable=False, reason=error.message, remedy=error.hint or "")
    said = _version(engine.program)
    if not said.ok:
        name = Path(engine.program).name
        return Availability(usable=False, reason=f"{name} does not answer: {said.why}", remedy=f"see `{name} info`")
    if engine.is_rootless and (lacking := _lacking_ids()) is not None:
        return lacking
    version = said.out.split()[-1] if said.out.split() else "of an unknown version"
    return Availability(usable=True, details={"program": engine.program, "version": version})


def unenforced_limits(wanted: str | None) -> str | None:
    """Return a note for people if the engine ignores limits, or None."""
    state = engine_state(wanted)
    if not state.usable or Engine(state.details["program"]).holds_limits:
        return None
    return "podman ignores limits of memory, processes and CPUs: without root it needs control groups of version 2"


def working_engine(wanted: str | None) -> Engine:
    """Return the engine to use; raises `UsageError` if there is none that works here."""
    state = engine_state(wanted)
    if not state.usable:
        raise UsageError(f"sandbox container: {state.reason}", hint=state.remedy or None)
    return Engine(state.details["program"])


@lru_cache
def _version(program: str) -> EngineAnswer:
    engine = Engine(program)
    # Anything else that podman is asked without root leaves a process behind.
    return engine.ask("--version") if engine.is_podman else engine.ask("version", "--format", "{{.Server.Version}}")


def _lacking_ids() -> Availability | None:
    """Return why podman cannot work without root: the users inside of containers have to be somebody outside."""
    if shutil.which("newuidmap") is None:
        return Availability(usable=False, reason="podman needs newuidmap for you", remedy="install uidmap")
    if any(line.split("#")[0].split(":")[0].strip() == "subid" for line in _lines("/etc/nsswitch.conf")):
        # Another program knows them.
        return None
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    for file in ("/etc/subuid", "/etc/subgid"):
        if not any(line.split(":")[0] in (name, str(os.getuid())) for line in _lines(file)):
            remedy = f"as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}"
            return Availability(usable=False, reason=f"{name} has no subordinate ids in {file}", remedy=remedy)
    return None


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except (OSError, ValueError):
        return []
