"""Choose what of the machine is visible inside bubblewrap: the system and installed programs, read-only.

Files that only root may read are hidden, even if whet runs as root.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

from whet.sandbox.bubblewrap._stage import clone, snapshot
from whet.sandbox.contract import is_there

_OTHERS_READ, _OTHERS_WRITE, _OTHERS_SEARCH = 0o004, 0o002, 0o001
# Lists the descriptions of all keys of the user.
_LISTS_KEYS = ("keys",)
# One folder for each network interface, which come and go; programs inside do not need them.
_FLEETING = re.compile(r"/proc/sys/net/[^/]+/(conf|neigh)$")

_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/snap")
_BELOW = tuple(f"{folder}/" for folder in _FOLDERS)
# Targets of /etc/resolv.conf on many machines.
_IN_RUN = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/current-system")
_OWN_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - paths inside the sandbox
# What runtimes read: the number of CPUs, and the limits of a control group. Each entry costs every start a mount.
_IN_SYS = (
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
)
# Control groups have nothing to hide, and change with every service and container.
_NEVER_CLOSED = ("/sys/fs/cgroup",)
# Depends on the network namespace: a private one has other entries, and nothing to hide.
_NETWORK = "/proc/sys/net/"
# Another value each time that it is read: programs take their identifiers from there.
_LIVE_SETTINGS = "/proc/sys/kernel/random"

_NODE_PACKAGES = "node_modules"
# A folder with one of these is a project, whatever else is in it.
_PROJECT_FILES = (".git", "whet.toml", "pyproject.toml")
# What version managers keep beside their `shims`; most of them are a clone of a repository.
_MANAGED = ("versions", "installs")
_MOST_LINKS = 40
_PAGE = 4096


@lru_cache
def system(*, network: bool) -> tuple[str, ...]:
    """Return the arguments of bubblewrap that show the system, the same for root as for any user."""
    # The many small mounts first: for each mount, bubblewrap reads all that exist.
    argv = ["--proc", "/proc", "--dev", "/dev"]
    for path, how in closed_in_proc():
        argv += hidden(path) if how == "hide" else ("--ro-bind", path, path)
    argv += ["--dir", "/run"]
    for folder in (*_FOLDERS, *_IN_RUN):
        argv += _link(folder) or shown(folder)
    for folder in _IN_SYS:
        if Path(folder).is_dir():
            argv += _covered(folder, () if folder in _NEVER_CLOSED else _closed(folder))
    argv += _kernel_settings(network=network)
    return tuple(argv)


def temporary(size_mb: int) -> Iterator[str]:
    """Yield the arguments for folders in memory that everybody inside may write to, with a size each."""
    for folder in _OWN_TEMPORARY:
        yield from ("--perms", "1777", "--size", str(size_mb * 1024 * 1024), "--tmpfs", folder)


# Comes last, when everything has its place: the rest of the root is in memory too, and bubblewrap gives it no size.
READ_ONLY = ("--remount-ro", "/dev", "--remount-ro", "/")


@lru_cache(maxsize=256)
def shown(folder: str) -> tuple[str, ...]:
    """Return the arguments that show *folder* without files that only root may read; none if it does not exist."""
    if not Path(folder).exists():
        return ()
    if Path(folder).is_symlink() and not Path(folder).is_dir():
        # A program looks for its files next to the target of the link, which is shown as well.
        return ("--symlink", str(Path(folder).readlink()), folder)
    if not _is_root() or not Path(folder).is_dir() or _is_for_root(folder):
        return ("--ro-bind", folder, folder)
    try:
        # The kernel enforces it for every file, also for new ones.
        return ("--ro-bind", str(clone(folder, ownerless=True)), folder)
    except OSError:
        return _covered(folder, _closed(folder))


def _is_for_root(folder: str) -> bool:
    """Return whether a folder of programs is for root only: if it is on PATH, it is meant to be used."""
    return not is_in_system(Path(folder)) and not Path(folder).stat().st_mode & 0o001


def is_in_system(path: Path) -> bool:
    """Return whether *path* is shown with the system anyway."""
    # As text: `Path` takes a hundred times as long, and each start asks for each folder on PATH.
    return f"{path}/".startswith(_BELOW)


def _closed(folder: str) -> list[str]:
    return list(closed_below(folder)) if _is_root() else []


def _covered(folder: str, closed: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments that show *folder* without the *closed* paths in it.

    If we may mount, we cover them once, so that bubblewrap needs one mount and not one for each path.
    """
    if closed:
        with suppress(OSError):
            return ("--ro-bind", str(clone(folder, covers=closed)), folder)
    return ("--ro-bind", folder, folder, *chain.from_iterable(map(hidden, closed)))


def _kernel_settings(*, network: bool) -> tuple[str, ...]:
    """Return the arguments that show `/proc/sys` read-only, because a namespace may change some of its own settings.

    For root without what only root may read: as plain files, if we may mount. Two dozen of its files would have to be
    covered, and each cover costs every start.
    """
    closed = _closed("/proc/sys")
    if closed:
        with suppress(OSError):
            return ("--ro-bind", str(snapshot("/proc/sys", without=closed, live=_LIVE_SETTINGS)), "/proc/sys")
    return _covered("/proc/sys", [path for path in closed if network or not path.startswith(_NETWORK)])


def hidden(path: str) -> tuple[str, ...]:
    """Return the arguments that make a folder or a file look empty."""
    if not Path(path).is_dir():
        return ("--ro-bind", os.devnull, path)
    # Not read-only: the workspace may be below it, and needs a place. Folders take no room.
    return ("--size", str(_PAGE), "--tmpfs", path)


def _link(folder: str) -> tuple[str, ...]:
    """Return the arguments that keep a link, as `/bin` is on most machines; none if it is not one."""
    path = Path(folder)
    if not path.is_symlink() or not any(path.resolve().is_relative_to(other) for other in ("/usr", "/nix")):
        return ()
    return ("--symlink", str(path.readlink()), folder)


@lru_cache(maxsize=64)
def toolchains(path: str, program: str, apart: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Return the folders of programs outside the system: those on PATH, the program itself and the running Python.

    None that holds what must stay *apart*: what belongs to a program is a guess.
    """
    python = {Path(sys.prefix), Path(sys.base_prefix)}
    wanted: set[Path] = set()
    home = os.environ.get("HOME")
    for entry in path.split(os.pathsep):
        # A PATH may name folders that we may not read.
        if Path(entry).is_absolute() and entry != home and os.access(entry, os.X_OK):
            wanted.update(_installation(Path(entry)))
    for place in _hops(Path(program)):
        # Only the program: its folder may be a home.
        wanted.update(folder for folder in _installation(place.parent) if folder != place.parent)
        wanted.add(place)
    wanted.update(_linked_package(Path(program)))
    wanted = {folder for folder in wanted if not any(place_apart.is_relative_to(folder) for place_apart in apart)}
    return tuple(_uncovered(python | wanted))


def _hops(program: Path) -> Iterator[Path]:
    """Yield the program, every link on the way, and the final target."""
    place = program
    for _ in range(_MOST_LINKS):
        yield place
        if not place.is_symlink():
            break
        place = Path(os.path.normpath(place.parent / place.readlink()))
    yield program.resolve()


def _installation(folder: Path) -> Iterator[Path]:
    """Yield a folder of programs, and the installation around it if it looks like one.

    `~/.pyenv/shims` needs `~/.pyenv`, and `node/v20/bin` needs `node/v20/lib`. But `~/.cargo` also has credentials and
    `~/.local` can have anything, so only their `bin` and their packages are shown.
    """
    yield folder
    yield from _packages_around(folder)
    whole = folder.parent
    if folder.name == "shims" and _manages_versions(whole):
        yield whole
    elif folder.name == "bin" and (whole / "lib").is_dir():
        if not _is_personal(whole):
            yield whole
        elif (whole / "lib" / _NODE_PACKAGES).is_dir():
            yield whole / "lib" / _NODE_PACKAGES


def _manages_versions(folder: Path) -> bool:
    """Return whether *folder* is that of a version manager, and not a project that has `shims` of its own."""
    if _contains_home(folder) or any((folder / name).exists() for name in _PROJECT_FILES if name != ".git"):
        return False
    return any((folder / name).is_dir() for name in _MANAGED)


def _contains_home(folder: Path) -> bool:
    home = Path(os.environ.get("HOME") or "/nonexistent")
    return any(place.is_relative_to(folder) for place in (home, home.resolve()))


def _is_personal(folder: Path) -> bool:
    """Return whether a folder has more than an installation: a home or a folder above it, or a project."""
    return _contains_home(folder) or folder.name == ".local" or any((folder / name).exists() for name in _PROJECT_FILES)


def _packages_around(folder: Path) -> Iterator[Path]:
    """Yield the outermost `node_modules`: a package finds others next to it and next to the folders above."""
    if _NODE_PACKAGES in folder.parts:
        yield Path(*folder.parts[: folder.parts.index(_NODE_PACKAGES) + 1])


def _linked_package(program: Path) -> Iterator[Path]:
    """Yield the package of a program to which `node_modules` only links, unless it is a project of its own."""
    target = program.resolve()
    if _NODE_PACKAGES in target.parts or not any(_NODE_PACKAGES in place.parts for place in _hops(program)):
        return
    packages = (folder for folder in target.parents if (folder / "package.json").is_file())
    yield from (folder for folder in islice(packages, 1) if not _is_personal(folder))


def _uncovered(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths that exist and are not below another one or in the system."""
    covered: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if path == Path("/") or is_in_system(path) or not is_there(path):
            continue
        if not any(path.is_relative_to(other) for other in covered):
            covered.append(path)
            yield path


def closed_below(folder: str) -> Iterator[str]:
    """Yield the outermost files and folders below *folder* that others may not read, but we could."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if _is_closed(status) or _FLEETING.search(entry.path):
            yield entry.path
        elif stat.S_ISDIR(status.st_mode):
            yield from closed_below(entry.path)


def closed_in_proc() -> Iterator[tuple[str, str]]:
    """Yield what to hide ("hide") or make read-only ("hold") in /proc, besides processes and `sys`."""
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if entry.name.isdigit() or entry.is_symlink() or entry.name == "sys":
            continue
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if _has_more_than_text(entry.path):
                yield entry.path, "hide"
        elif entry.name in _LISTS_KEYS or (_is_root() and not mode & _OTHERS_READ):
            yield entry.path, "hide"
        elif _writable(mode):
            yield entry.path, "hold"


def _has_more_than_text(folder: str) -> bool:
    """Return whether there is a file below *folder* that is writable, or that others may not read."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                mode = os.lstat(f"{place}/{name}").st_mode
            except OSError:
                continue
            if stat.S_ISREG(mode) and _writable(mode):
                return True
            if _is_root() and not stat.S_ISLNK(mode) and not mode & _OTHERS_READ:
                return True
    return False


def _is_closed(status: os.stat_result) -> bool:
    if stat.S_ISLNK(status.st_mode) or not (status.st_uid == _user() or status.st_gid in _groups()):
        return False
    if stat.S_ISDIR(status.st_mode):
        return not status.st_mode & _OTHERS_SEARCH
    # A file that others may execute is a program, and stays visible.
    return not status.st_mode & (_OTHERS_READ | _OTHERS_SEARCH)


def _writable(mode: int) -> bool:
    return bool(mode & (0o222 if _is_root() else _OTHERS_WRITE))


@lru_cache
def _user() -> int:
    return os.getuid()


@lru_cache
def _groups() -> set[int]:
    return {os.getgid(), *os.getgroups()}


@lru_cache
def _is_root() -> bool:
    return os.getuid() == 0
