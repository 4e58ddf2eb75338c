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
from msgspec import Struct

from whet.errors import PackageError, UsageError
from whet.packages.fetch import fetch
from whet.packages.settings import PackageSettings, printable_ref
from whet.packages.unpack import unpack
from whet.sandbox.container.leftovers import state_folder
from whet.workspace.walk import is_inside

# A path has lost one of the two slashes.
_REMOTE = re.compile(r"(?P<git>git\+)?(?P<scheme>https?|file|ssh):/+(?P<rest>.+)", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_GIT_S = 600
# Nothing of a repository runs, git asks for no password, and no other program is started.
_SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "core.symlinks=true")


class TasksRef(Struct, frozen=True):
    """Where tasks are: a repository at a branch, tag or commit, or an archive; and the folder inside of it."""

    url: str
    is_git: bool
    ref: str = "HEAD"
    inner: str = "."

    @classmethod
    def of(cls, text: str) -> TasksRef | None:
        """Return what *text* names, which may have been taken for a path; None if it is one."""
        hit = _REMOTE.fullmatch(text)
        if hit is None or (hit["scheme"] == "file" and not hit["git"]):
            return None
        location, _, inner = hit["rest"].partition("#")
        slashes = "///" if hit["scheme"] == "file" else "://"
        prefix = f"{hit['scheme']}:{slashes}" if slashes == "///" else f"{hit['scheme']}{slashes}"
        if not hit["git"]:
            return cls(url=prefix + location, is_git=False, inner=inner or ".")
        # The last "@" after the last slash of the host: an address may have a user in it.
        place, at, ref = location.rpartition("@")
        if not at or "/" not in place:
            place, ref = location, "HEAD"
        return cls(url=prefix + place, is_git=True, ref=ref or "HEAD", inner=inner or ".")


def local_paths(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return *paths* with what they name elsewhere fetched into the cache."""
    refs = [(path, TasksRef.of(str(path))) for path in paths]
    return tuple(path if ref is None else fetch_tasks(ref) for path, ref in refs)


def fetch_tasks(ref: TasksRef) -> Path:
    """Return the folder of the tasks at *ref*, from the cache if that content was fetched before."""
    try:
        root = _from_git(ref) if ref.is_git else anyio.run(_from_archive, ref)
    except PackageError as error:
        raise UsageError(f"{printable_ref(ref.url)}: {error.message}", hint=error.hint) from error
    place = root / ref.inner
    if not is_inside(place, root) or not place.is_dir():
        raise UsageError(f"{printable_ref(ref.url)} has no folder {ref.inner}")
    return place


def _cache() -> Path:
    folder = state_folder("tasks")
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def _growing(place: Path) -> Iterator[Path]:
    """Yield a folder that becomes *place* when it is complete."""
    with tempfile.TemporaryDirectory(prefix=".growing-", dir=place.parent) as name:
        draft = Path(name, "whole")
        yield draft
        try:
            draft.rename(place)
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
        with _growing(place) as draft:
            _git("init", "--quiet", str(draft))
            _git("-C", str(draft), "fetch", "--quiet", "--depth", "1", "--", ref.url, commit)
            _git("-C", str(draft), "checkout", "--quiet", "--detach", "FETCH_HEAD")
            shutil.rmtree(draft / ".git")
    return place


def _resolve(ref: TasksRef) -> str:
    """Return the commit that a branch or a tag names; of an annotated tag, what it points to."""
    lines = [line.split("\t") for line in _git("ls-remote", "--", ref.url, ref.ref, f"{ref.ref}^{{}}").splitlines()]
    commits = {name: commit for commit, name in lines}
    for name in (f"refs/tags/{ref.ref}^{{}}", f"refs/heads/{ref.ref}", f"refs/tags/{ref.ref}", ref.ref):
        if name in commits:
            return commits[name]
    raise PackageError(f"it has no branch, tag or commit {ref.ref}")


def _git(*args: str) -> str:
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    program = shutil.which("git")
    if program is None:
        raise PackageError("git is not installed")
    try:
        process = subprocess.run(
            (program, *_SAFE, *args), capture_output=True, text=True, env=env, timeout=_GIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PackageError(f"git was still running after {_GIT_S} s") from error
    if process.returncode != 0:
        raise PackageError(f"git: {(process.stderr.strip().splitlines() or ['it failed'])[-1]}")
    return process.stdout


async def _from_archive(ref: TasksRef) -> Path:
    settings = PackageSettings()
    with tempfile.TemporaryDirectory(prefix="whet-tasks-") as name:
        archive = await fetch(ref.url, Path(name, "archive"), settings, os.environ)
        place = _cache() / f"sha256-{archive.digest}"
        if not place.is_dir():
            with _growing(place) as draft:
                unpack(archive.path, draft, settings.limits)
    return place


def cached_tasks() -> list[Path]:
    """Return what was fetched and is kept."""
    return sorted(_cache().iterdir())
