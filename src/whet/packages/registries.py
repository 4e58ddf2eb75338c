"""Tasks from elsewhere: a commit of a repository, or an archive, kept by its content for later runs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio

from whet.dataclass import dataclass
from whet.errors import PackageError, UsageError
from whet.ground.marks import state_folder
from whet.ground.package_settings import PackageSettings, shown_ref
from whet.ground.tree import is_inside

# A path has lost one of the two slashes.
_REMOTE = re.compile(r"(?P<git>git\+)?(?P<scheme>https?|file|ssh):/+(?P<rest>.+)", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_GIT_S = 600
# Nothing of a repository runs, git asks for no password, and no other program is started.
_SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "core.symlinks=true")


@dataclass(frozen=True, slots=True)
class TasksRef:
    """Where tasks are: a repository at a branch, tag or commit, or an archive; and the folder inside of it."""

    url: str
    is_git: bool
    ref: str = "HEAD"
    inner: str = "."

    @classmethod
    def of(cls, text: str) -> TasksRef | None:
        """Return what *text* names, which may have been taken for a path; None if it is one."""
        found = _REMOTE.fullmatch(text)
        if found is None or (found["scheme"] == "file" and not found["git"]):
            return None
        rest, _, inner = found["rest"].partition("#")
        slashes = "///" if found["scheme"] == "file" else "://"
        prefix = f"{found['scheme']}:{slashes}" if slashes == "///" else f"{found['scheme']}{slashes}"
        if not found["git"]:
            return cls(url=prefix + rest, is_git=False, inner=inner or ".")
        # The last "@" after the last slash of the host: an address may have a user in it.
        place, at, ref = rest.rpartition("@")
        if not at or "/" not in place:
            place, ref = rest, "HEAD"
        return cls(url=prefix + place, is_git=True, ref=ref or "HEAD", inner=inner or ".")


def local_paths(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return *paths* with what they name elsewhere fetched into the cache."""
    found = [(path, TasksRef.of(str(path))) for path in paths]
    return tuple(path if ref is None else fetch_tasks(ref) for path, ref in found)


def fetch_tasks(ref: TasksRef) -> Path:
    """Return the folder of the tasks at *ref*, from the cache if that content was fetched before."""
    try:
        whole = _from_git(ref) if ref.is_git else anyio.run(_from_archive, ref)
    except PackageError as error:
        raise UsageError(f"{shown_ref(ref.url)}: {error.message}", hint=error.hint) from error
    place = whole / ref.inner
    if not is_inside(place, whole) or not place.is_dir():
        raise UsageError(f"{shown_ref(ref.url)} has no folder {ref.inner}")
    return place


def _cache() -> Path:
    folder = state_folder("tasks")
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def _growing(place: Path) -> Iterator[Path]:
    """Yield a folder that becomes *place* when it is complete."""
    with tempfile.TemporaryDirectory(prefix=".growing-", dir=place.parent) as name:
        growing = Path(name, "whole")
        yield growing
        try:
            growing.rename(place)
        except OSError:
            # Another whet was faster.
            if not place.is_dir():
                raise


def _from_git(ref: TasksRef) -> Path:
    if ref.ref.startswith("-") or ref.url.startswith("-"):
        raise PackageError(f"{ref.ref} is no branch, tag or commit")
    commit = ref.ref if _COMMIT.fullmatch(ref.ref) else _resolve(ref)
    place = _cache() / f"git-{hashlib.sha256(ref.url.encode()).hexdigest()[:12]}-{commit}"
    if not place.is_dir():
        with _growing(place) as growing:
            _git("init", "--quiet", str(growing))
            _git("-C", str(growing), "fetch", "--quiet", "--depth", "1", "--", ref.url, commit)
            _git("-C", str(growing), "checkout", "--quiet", "--detach", "FETCH_HEAD")
            shutil.rmtree(growing / ".git")
    return place


def _resolve(ref: TasksRef) -> str:
    """Return the commit that a branch or a tag names; of an annotated tag, what it points to."""
    lines = [line.split("\t") for line in _git("ls-remote", "--", ref.url, ref.ref, f"{ref.ref}^{{}}").splitlines()]
    found = {name: commit for commit, name in lines}
    for name in (f"refs/tags/{ref.ref}^{{}}", f"refs/heads/{ref.ref}", f"refs/tags/{ref.ref}", ref.ref):
        if name in found:
            return found[name]
    raise PackageError(f"it has no branch, tag or commit {ref.ref}")


def _git(*args: str) -> str:
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    program = shutil.which("git")
    if program is None:
        raise PackageError("git is not installed")
    try:
        done = subprocess.run(
            (program, *_SAFE, *args), capture_output=True, text=True, env=env, timeout=_GIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PackageError(f"git was still running after {_GIT_S} s") from error
    if done.returncode != 0:
        raise PackageError(f"git: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}")
    return done.stdout


async def _from_archive(ref: TasksRef) -> Path:
    # Only here: the HTTP library and the readers of archives take long to import.
    from whet.ground.fetching import fetch  # noqa: PLC0415
    from whet.ground.unpacking import unpack  # noqa: PLC0415

    settings = PackageSettings()
    with tempfile.TemporaryDirectory(prefix="whet-tasks-") as name:
        fetched = await fetch(ref.url, Path(name, "archive"), settings, os.environ)
        place = _cache() / f"sha256-{fetched.digest}"
        if not place.is_dir():
            with _growing(place) as growing:
                unpack(fetched.path, growing, settings.limits)
    return place


def cached_tasks() -> list[Path]:
    """Return what was fetched and is kept."""
    return sorted(_cache().iterdir())
