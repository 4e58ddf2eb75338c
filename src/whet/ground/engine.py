"""The command line of podman or docker: which one there is, what it says, and what it left behind.

Every container has labels: the run and the attempt that it belongs to, and the whet that owns it. A whet that starts a
container leaves a mark for as long as it may have some. If it is killed, the next start of any run finds the mark of a
process that is gone, and removes what that had.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from whet.dataclass import dataclass
from whet.errors import SandboxError, UsageError
from whet.ground.sandbox import Availability, Command, Ended

ENGINES = ("podman", "docker")
OWNER_LABEL, IMAGE_LABEL, LEFT_LABEL = "whet.owner", "whet.image", "whet.left"
# Where the package catatonit is, which podman starts containers with.
INITS = tuple(f"/usr/{place}/catatonit" for place in ("bin", "libexec/podman", "lib/podman", "libexec/catatonit"))
_PATIENCE_S = 60.0
_PROBE_S = 30.0
_LONGEST_SAID = 2000
_INSTALL = "install podman (with uidmap and a runtime such as crun or runc) or docker"


@dataclass(frozen=True, slots=True)
class Said:
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


@dataclass(frozen=True, slots=True)
class Engine:
    """Podman, or docker: both take the same words."""

    program: str

    @property
    def is_podman(self) -> bool:
        """Whether containers are processes of ours, and the user inside is the one outside."""
        return "docker" not in Path(self.program).name

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

        It is not confined: without root it changes users by a program that may, and it must reach other containers.
        """
        return Command(
            argv=(self.program, *args),
            env={**os.environ, **(env or {})},
            cwd=Path("/"),
            stdin=stdin,
            confined=False,
        )

    async def call(self, *args: str, timeout_s: float = _PATIENCE_S, stdin: bytes = b"") -> Said:
        """Call it and return what it said."""
        # Only here: the event loop takes long to import, and most runs have no container.
        from whet.ground.process import run_process  # noqa: PLC0415

        out, err = bytearray(), bytearray()
        ended: Ended = await run_process(
            self.command(*args, stdin=stdin), timeout_s=timeout_s, stdout=out.extend, stderr=err.extend
        )
        late = f"\nit was still running after {timeout_s:g} s" if ended.timed_out else ""
        return Said(
            None if ended.timed_out else ended.exit_code,
            out.decode(errors="replace"),
            err.decode(errors="replace") + late,
        )

    async def remove(self, name: str) -> None:
        """Remove a container and everything that runs in it; raises if it is still there afterwards."""
        said = await self.call("rm", "--force", *self._at_once, name)
        if not said.ok and (await self.call("container", "inspect", name)).ok:
            raise SandboxError(f"container {name} could not be removed: {said.why}")

    async def state(self, name: str) -> Mapping[str, object]:
        """Return the state of a container as the engine has it; empty if there is none."""
        said = await self.call("container", "inspect", "--format", "{{json .State}}", name)
        try:
            found = json.loads(said.out) if said.ok else {}
        except ValueError:
            found = {}
        return found if isinstance(found, dict) else {}

    async def inspected(self, name: str, part: str, *options: str) -> str:
        """Return one part of what the engine knows of a container; empty if there is none."""
        said = await self.call("container", "inspect", *options, "--format", part, name)
        return said.out.strip() if said.ok and "<no value>" not in said.out else ""

    @property
    def _at_once(self) -> tuple[str, ...]:
        return ("--time", "0") if self.is_podman else ()

    def ask(self, *args: str) -> Said:
        """Call it before there is an event loop."""
        try:
            done = subprocess.run(
                (self.program, *args), stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Said(None, "", str(error))
        return Said(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def remove_owned(self, owner: str) -> str | None:
        """Remove the containers of *owner*, and images of what its agents left; return why some are still there."""
        containers = ("ps", "--all", "--quiet", "--filter", f"label={OWNER_LABEL}={owner}")
        images = ("image", "ls", "--quiet", "--filter", f"label={LEFT_LABEL}={owner}")
        return self._remove_all(containers, ("rm", "--force", *self._at_once)) or self._remove_all(
            images, ("image", "rm", "--force")
        )

    def _remove_all(self, listing: tuple[str, ...], removing: tuple[str, ...]) -> str | None:
        for _ in range(2):
            listed = self.ask(*listing)
            if not listed.ok:
                return listed.why
            if not listed.out.split():
                return None
            said = self.ask(*removing, *dict.fromkeys(listed.out.split()))
        return said.why


def find_engine(wanted: str | None) -> Engine:
    """Return the engine that the settings name, or the first that is installed; raises `UsageError` if none is."""
    names = (wanted,) if wanted else ENGINES
    for name in names:
        if found := shutil.which(name):
            return Engine(found)
    if wanted:
        raise UsageError(f"run.container: there is no program {wanted}", hint=_INSTALL)
    raise UsageError("neither podman nor docker is installed", hint=_INSTALL)


def engine_state(wanted: str | None = None) -> Availability:
    """Return whether there is an engine that answers."""
    try:
        engine = find_engine(wanted)
    except UsageError as error:
        return Availability(usable=False, reason=error.message, remedy=error.hint or "")
    said = _version(engine.program)
    if not said.ok:
        name = Path(engine.program).name
        return Availability(usable=False, reason=f"{name} does not answer: {said.why}", remedy=f"see `{name} info`")
    return Availability(usable=True, details={"program": engine.program, "version": said.out.strip()})


@lru_cache
def _version(program: str) -> Said:
    engine = Engine(program)
    part = "{{.Client.Version}}" if engine.is_podman else "{{.Server.Version}}"
    return engine.ask("version", "--format", part)


def own_state() -> Path:
    """Return where this user's whet keeps what is no record; it may not exist."""
    return Path(f"/var/tmp/whet-{os.getuid()}")  # noqa: S108 - `state_folder` checks that it is ours


def state_folder(part: str) -> Path:
    """Return the folder of this user for what must be found again after a kill, whatever HOME and TMPDIR say."""
    folder = own_state()
    with contextlib.suppress(FileExistsError), _writing(folder):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise SandboxError(f"{folder} is not a folder that only you can use", hint="remove it")
    return folder / part


def this_process() -> str:
    """Return a name for this process that no other process ever has."""
    return f"{os.getpid()}-{_began(os.getpid())}-{_boot()}"


def _began(pid: int) -> str | None:
    """Return when a process began; None if there is none."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if data[0] in (b"Z", b"X") else data[19].decode()


@lru_cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]


def _is_alive(owner: str) -> bool:
    pid, _, rest = owner.partition("-")
    return pid.isdigit() and f"{_began(int(pid))}-{_boot()}" == rest


class Mark:
    """The mark that this process may have containers, by which a later whet finds them."""

    def __init__(self, engine: Engine) -> None:
        self.owner = this_process()
        self._engine = engine
        self._file = state_folder("containers") / self.owner
        with _writing(self._file.parent):
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_text(engine.program)

    def close(self) -> None:
        """Remove what is left, and the mark if nothing is."""
        if self._file.exists() and self._engine.remove_owned(self.owner) is None:
            self._file.unlink(missing_ok=True)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise SandboxError(f"{folder} cannot be written: {error.strerror}") from error


def remove_abandoned() -> list[str]:
    """Remove the containers of every whet that was killed; return what could not be removed, as sentences."""
    try:
        notes = sorted(state_folder("containers").iterdir())
    except (OSError, SandboxError):
        return []
    return list(_swept(note for note in notes if not _is_alive(note.name)))


def _swept(notes: Iterable[Path]) -> Iterator[str]:
    for note in notes:
        try:
            program = note.read_text()
        except OSError:
            # Another whet was faster.
            continue
        problem = Engine(program).remove_owned(note.name) if shutil.which(program) else f"{program} is not there"
        if problem is None:
            note.unlink(missing_ok=True)
        else:
            yield f"containers of a whet that was killed could not be removed: {problem}"
