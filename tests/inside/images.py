"""Containers for tests: settings with which podman works here, and small images made of this machine's own files."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from whet.sandbox.container.host_programs import libraries_of
from whet.sandbox.container.leftovers import Mark
from whet.sandbox.engine import Engine

# The same tests with docker: `ENGINE_OF_TESTS=docker`, and a daemon that `DOCKER_HOST` names.
ENGINE = os.environ.get("ENGINE_OF_TESTS", "podman")
# As tests on machines with hybrid control groups and few rights need it; elsewhere it does no harm.
_CONF = """\
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "none"
"""
_STORAGE = """\
[storage]
driver = "vfs"
rootless_storage_path = "PLACE"
runroot = "PLACE-running"
"""
_PYTHON = Path("/usr/bin/python3")
_PACKAGES = ("collections", "encodings", "importlib", "json", "re", "lib-dynload")


def why_not() -> str | None:
    """Why there are no containers here, or None."""
    for program in (ENGINE, "runc", "busybox"):
        if shutil.which(program) is None:
            return f"{program} is not installed (podman, buildah, runc and busybox-static)"
    return None


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """A function that calls podman, with settings that work here; whet in tests gets the same."""
    conf = tmp_path_factory.mktemp("podman") / "containers.conf"
    conf.write_text(_CONF)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(conf))
        patch.setenv("BUILDAH_ISOLATION", "chroot")
        if os.geteuid() != 0:
            # Below the home of a user, of which each test has its own.
            storage = conf.with_name("storage.conf")
            place = f"/var/tmp/whet-tests-{os.getuid()}"
            storage.write_text(_STORAGE.replace("PLACE", place))
            patch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
        yield call_podman


def call_podman(*args: str, stdin: bytes | None = None) -> str:
    """Call podman and return what it printed; raises with its words if it fails."""
    # Without root, podman leaves a process behind; whet's mark ends it.
    with Mark(Engine(ENGINE)) if os.geteuid() != 0 else nullcontext():
        done = subprocess.run((ENGINE, *args), input=stdin, capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{ENGINE} {' '.join(args)}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode().strip()


def containers_left(label: str, show: str = "{{.ID}}") -> list[str]:
    """The containers with *label*, running or not."""
    return call_podman("ps", "--all", "--filter", f"label={label}", "--format", show).splitlines()


@pytest.fixture(scope="session")
def small_image(podman: Callable[..., str]) -> str:
    """An image with busybox and nothing else."""
    return _imported("small", _busybox(), podman)


@pytest.fixture(scope="session")
def image(podman: Callable[..., str]) -> str:
    """An image with busybox, bash if this machine has it, a C library and Python."""
    return _imported("python", [*_busybox(), *_python()], podman)


def _imported(name: str, files: list[tuple[str, Path]], podman: Callable[..., str]) -> str:
    """Import *files* as an image, unless an earlier session did."""
    told = hashlib.sha256(repr([(inside, path.stat().st_size) for inside, path in files]).encode()).hexdigest()[:12]
    image = f"localhost/whet-tests-{name}:{told}"
    # Workers of one session start at the same time.
    with Path(f"/var/tmp/whet-tests-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if image not in podman("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split():
            podman("import", "-", image, stdin=_tar(files))
    return image


def _tar(files: list[tuple[str, Path]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for folder in ("tmp", "root", "etc", "app", "var/tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder.endswith("tmp") else 0o755
            archive.addfile(entry)
        users = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
        entry = tarfile.TarInfo("etc/passwd")
        entry.size = len(users)
        archive.addfile(entry, io.BytesIO(users))
        others = {Path(inside).name for inside, _ in files}
        for name in (name for name in _applets() if name not in others):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        for inside, path in files:
            archive.add(path.resolve(), inside.lstrip("/"))
    return packed.getvalue()


def _applets() -> list[str]:
    listed = subprocess.run(("busybox", "--list"), capture_output=True, text=True, check=True).stdout.split()
    return [name for name in listed if name != "busybox"]


def _busybox() -> list[tuple[str, Path]]:
    found = shutil.which("busybox")
    assert found is not None
    return [("bin/busybox", Path(found))]


def _python() -> list[tuple[str, Path]]:
    program = _PYTHON.resolve()
    library = Path("/usr/lib") / program.name
    files = [("usr/bin/python3", program), *((str(path), path) for path in sorted(library.glob("*.py")))]
    for package in _PACKAGES:
        files += [(str(path), path) for path in sorted((library / package).rglob("*")) if path.suffix in {".py", ".so"}]
    files += [(str(path.parent / name), path) for name, path in libraries_of(program)]
    # The shell of busybox takes its own programs before others, and its setsid cannot wait.
    others = {"/bin/sh": "/bin/dash", "/usr/bin/bash": "/bin/bash", "/usr/bin/setsid": "/usr/bin/setsid"}
    for inside, path in ((inside, Path(path)) for inside, path in others.items()):
        files += [(inside, path), *((str(at.parent / name), at) for name, at in libraries_of(path))]
    return list(dict(files).items())
