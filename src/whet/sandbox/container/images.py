"""Images of containers: by name, or built from a folder with a Dockerfile once by its content; and their removal."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
from msgspec import Struct, field

from whet.errors import ImageError, ImageMissing
from whet.model.task import ImageSpec, is_image_name
from whet.sandbox.container.leftovers import handing_over, state_folder
from whet.sandbox.engine import IMAGE_LABEL, Engine, EngineAnswer
from whet.sandbox.process.run import run_process

_TAG = "localhost/whet"
_HASH_SHOWN = 24
_LOG_END = 1200
_DOCKERFILE = "Dockerfile"
_PULL_S = 3600.0


class Images(Struct):
    """The images of one run; trials that need the same image wait for one build.

    `keep` puts the log of a build into the record, under the name of the image.
    """

    engine: Engine
    keep: Callable[[str, str], None] = lambda _, __: None
    _locks: defaultdict[ImageSpec, anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))
    _ready: dict[ImageSpec, str] = field(default_factory=dict)
    _wrong: dict[ImageSpec, ImageError] = field(default_factory=dict)

    async def prepare(self, spec: ImageSpec) -> str:
        """Return the name of the image of *spec*, after building or fetching it the first time."""
        async with self._locks[spec]:
            if spec in self._wrong:
                raise self._wrong[spec]
            if spec not in self._ready:
                try:
                    self._ready[spec] = await self._made(spec)
                except ImageError as error:
                    self._wrong[spec] = error
                    raise
            return self._ready[spec]

    async def _made(self, spec: ImageSpec) -> str:
        if spec.folder is not None:
            base = await self._built(spec.folder, spec.build_timeout_s)
        else:
            base = await self._named(spec)
        return base if spec.install is None else await self._derived(base, spec)

    async def _named(self, spec: ImageSpec) -> str:
        """Return the image by its name, and pull it if it is not here."""
        name = spec.name or ""
        if not is_image_name(name):
            raise ImageMissing(f"{name!r} is not the name of an image")
        if (await self._call("image", "inspect", name)).ok:
            return name
        said = await self._call("pull", "--quiet", name, timeout_s=_PULL_S)
        if not said.ok:
            raise ImageMissing(f"image {name} is not here, and cannot be pulled: {said.why}")
        return name

    async def _built(self, folder: Path, timeout_s: float) -> str:
        digest = await anyio.to_thread.run_sync(_hash_of, folder)
        return await self._build(digest, folder, f"{folder}/{_DOCKERFILE}", timeout_s)

    async def _derived(self, base: str, spec: ImageSpec) -> str:
        """Return the image with what `install` adds, for the base as it is now."""
        assert spec.install is not None
        answer = await self._call("image", "inspect", "--format", "{{.Id}}", base)
        recipe = f"FROM {base}\nUSER 0\nRUN {spec.install}\n".replace("\r", "")
        digest = hashlib.sha256(f"{answer.out.strip()}\0{recipe}".encode()).hexdigest()
        with _context(recipe) as folder:
            return await self._build(digest, folder, f"{folder}/{_DOCKERFILE}", spec.build_timeout_s)

    async def _build(self, digest: str, folder: Path, recipe: str, timeout_s: float) -> str:
        tag = f"{_TAG}:{digest[:_HASH_SHOWN]}"
        async with _alone(digest):
            if (await self._call("image", "inspect", tag)).ok:
                return tag
            log = bytearray()
            command = self.engine.command(
                *("build", "--tag", tag, "--label", f"{IMAGE_LABEL}={digest}", "--file", recipe, *self._own_options),
                str(folder),
            )
            ended = await run_process(command, timeout_s=timeout_s, stdout=log.extend, stderr=log.extend)
        text = log.decode(errors="replace")
        self.keep(digest[:_HASH_SHOWN], text)
        if ended.timed_out:
            raise ImageError(f"the image was still being built after {timeout_s:g} s", hint=_end(text))
        if ended.exit_code != 0:
            raise ImageError(f"the image cannot be built from {recipe}", hint=_end(text))
        return tag

    @property
    def _own_options(self) -> tuple[str, ...]:
        """The options of this engine: podman may have no network but ours, and docker keeps steps that fail."""
        return ("--network", "host") if self.engine.is_podman else ("--force-rm",)

    async def _call(self, *args: str, timeout_s: float = 120.0) -> EngineAnswer:
        return await self.engine.call(*args, timeout_s=timeout_s)


def _end(text: str) -> str:
    return text.strip()[-_LOG_END:]


@asynccontextmanager
async def _alone(digest: str) -> AsyncIterator[None]:
    """Keep another whet from building the same image meanwhile."""
    folder = state_folder("images")
    folder.mkdir(exist_ok=True)
    with (folder / digest[:_HASH_SHOWN]).open("w") as file:
        await anyio.to_thread.run_sync(fcntl.flock, file, fcntl.LOCK_EX, abandon_on_cancel=True)
        yield


@contextmanager
def _context(recipe: str) -> Iterator[Path]:
    with handing_over() as folder:
        (folder / _DOCKERFILE).write_text(recipe)
        yield folder


def _hash_of(folder: Path) -> str:
    if not (folder / _DOCKERFILE).is_file():
        raise ImageError(f"{folder} has no {_DOCKERFILE}")
    return content_hash(folder)


def content_hash(folder: Path) -> str:
    """Return a hash of what is in *folder*: paths, kinds, rights to execute, contents and targets of links."""
    whole = hashlib.sha256()
    for path in _sorted(folder):
        status = path.lstat()
        whole.update(f"{path.relative_to(folder)}\0{stat.S_IFMT(status.st_mode)}\0{status.st_mode & 0o111}\0".encode())
        if stat.S_ISLNK(status.st_mode):
            whole.update(os.fsencode(path.readlink()))
        elif stat.S_ISREG(status.st_mode):
            with path.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _sorted(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(place, name) for name in sorted((*folders, *names)))


def built_images(engine: Engine) -> list[str]:
    """Return the images that whet has built, by their names."""
    said = engine.ask("image", "ls", "--filter", f"label={IMAGE_LABEL}", "--format", "{{.Repository}}:{{.Tag}}")
    return [name for name in dict.fromkeys(said.out.split()) if name.startswith(f"{_TAG}:")] if said.ok else []


def remove_images(engine: Engine, names: list[str]) -> list[str]:
    """Remove images, and return why some are left: by force, containers that run would go with them."""
    said = [(name, engine.ask("image", "rm", name)) for name in names]
    return [f"{name}: {_in_use(answer.err) or answer.why}" for name, answer in said if not answer.ok]


def _in_use(said: str) -> str | None:
    """Return words for an image that a container holds: engines advise to remove it by force."""
    held = any(words in said for words in ("in use by a container", "used by", "is using"))
    return "in use by a run, or by another container; clean again when that has ended" if held else None
