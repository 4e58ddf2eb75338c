"""What of the machine is shown inside bubblewrap, read-only, and without what only root may read."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from whet.ground.mounts import clone, private_mounts
from whet.ground.sandbox import is_there

_OTHERS_READ, _OTHERS_WRITE, _OTHERS_SEARCH = 0o004, 0o002, 0o001
# Tells the descriptions of all keys of the user, whoever asks.
_TELLS_OF_OTHERS = ("keys",)
# One folder for each network interface, which come and go; what is in them is nothing to anybody inside.
_FLEETING = re.compile(r"/proc/sys/net/[^/]+/(conf|neigh)$")


def closed_below(folder: str) -> Iterator[str]:
    """The outermost files and folders below *folder* that others may not read, and that might let us all the same."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if _is_closed(found) or _FLEETING.search(entry.path):
            yield entry.path
        elif stat.S_ISDIR(found.st_mode):
            yield from closed_below(entry.path)


def closed_in_proc() -> Iterator[tuple[str, str]]:
    """What of /proc, beside processes and `sys`, is nothing to see ("hide") or to write to ("hold")."""
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if entry.name.isdigit() or entry.is_symlink() or entry.name == "sys":
            continue
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if _holds_more_than_words(entry.path):
                yield entry.path, "hide"
        elif entry.name in _TELLS_OF_OTHERS or (_is_root() and not mode & _OTHERS_READ):
            yield entry.path, "hide"
        elif _writable(mode):
            yield entry.path, "hold"


def _holds_more_than_words(folder: str) -> bool:
    """Whether there is something to write to, or to keep from others, below *folder*."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                mode = Path(place, name).lstat().st_mode
            except OSError:
                continue
            if stat.S_ISREG(mode) and _writable(mode):
                return True
            if _is_root() and not stat.S_ISLNK(mode) and not mode & _OTHERS_READ:
                return True
    return False


def _is_closed(found: os.stat_result) -> bool:
    if stat.S_ISLNK(found.st_mode) or not (found.st_uid == os.getuid() or found.st_gid in _groups()):
        return False
    if stat.S_ISDIR(found.st_mode):
        return not found.st_mode & _OTHERS_SEARCH
    # What others may at least execute is a program, and stays one.
    return not found.st_mode & (_OTHERS_READ | _OTHERS_SEARCH)


def _writable(mode: int) -> bool:
    return bool(mode & (0o222 if _is_root() else _OTHERS_WRITE))


def _groups() -> set[int]:
    return {os.getgid(), *os.getgroups()}


def _is_root() -> bool:
    return os.getuid() == 0


_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/snap")
# Where /etc/resolv.conf points on many machines.
_IN_RUN = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/current-system")
_OWN_TEMPORARY = ("/tmp", "/var/tmp", "/run")  # noqa: S108 - these are the ones inside
# What runtimes ask for: how many CPUs there are, and what a control group allows. Each part costs every start a mount.
_IN_SYS = (
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
)
# Nothing of these is closed, and they come and go with every service and container.
_NEVER_CLOSED = ("/sys/fs/cgroup",)
# Seen by the network of whoever looks; in one of its own, other entries are there and nothing is a secret.
_NETWORK = "/proc/sys/net/"


@lru_cache
def system(*, network: bool) -> tuple[str, ...]:
    """The arguments of bubblewrap that show the system: the same to root as to anybody else."""
    # First what is many small mounts: bubblewrap looks at all that are there for each one that it makes.
    argv = ["--proc", "/proc", "--dev", "/dev"]
    for path, how in closed_in_proc():
        argv += hidden(path) if how == "hide" else ("--ro-bind", path, path)
    kept = [path for path in _closed("/proc/sys") if network or not path.startswith(_NETWORK)]
    argv += _covered("/proc/sys", kept)
    for folder in _OWN_TEMPORARY:
        argv += ["--tmpfs", folder]
    for folder in (*_FOLDERS, *_IN_RUN):
        argv += _link(folder) or shown(folder)
    for folder in _IN_SYS:
        if Path(folder).is_dir():
            argv += _covered(folder, () if folder in _NEVER_CLOSED else _closed(folder))
    return tuple(argv)


@lru_cache(maxsize=256)
def shown(folder: str) -> tuple[str, ...]:
    """The arguments that show *folder* without what only root may read in it; none where it is not there."""
    if not Path(folder).exists():
        return ()
    if Path(folder).is_symlink() and not Path(folder).is_dir():
        # A program looks for what it needs from where it really lies, which is shown as well.
        return ("--symlink", str(Path(folder).readlink()), folder)
    if os.getuid() != 0 or not Path(folder).is_dir() or _is_closed_whole(folder):
        return ("--ro-bind", folder, folder)
    private_mounts()
    try:
        # The kernel sees to it, for every file that there is and will be.
        return ("--ro-bind", str(clone(folder, strange=True)), folder)
    except OSError:
        return tuple(_covered(folder, _closed(folder)))


def _is_closed_whole(folder: str) -> bool:
    """Whether a folder of programs is root's own as it is: whoever puts such a one on PATH wants it to be used."""
    return not lies_in_system(Path(folder)) and not Path(folder).stat().st_mode & 0o001


def lies_in_system(path: Path) -> bool:
    """Whether *path* is shown with the system anyway."""
    return any(path.is_relative_to(folder) for folder in _FOLDERS)


def _closed(folder: str) -> list[str]:
    return list(closed_below(folder)) if os.getuid() == 0 else []


def _covered(folder: str, closed: Iterable[str]) -> Iterator[str]:
    """Show *folder*, and nothing at the places in it that are *closed*.

    Made ready once where we may mount, so that bubblewrap has one mount to make and not one for each of them.
    """
    places = list(closed)
    if places:
        private_mounts()
        try:
            ready = clone(folder, covers=places)
        except OSError:
            yield from ("--ro-bind", folder, folder)
            for path in places:
                yield from hidden(path)
        else:
            yield from ("--ro-bind", str(ready), folder)
        return
    yield from ("--ro-bind", folder, folder)


def hidden(path: str) -> tuple[str, ...]:
    """A folder is seen empty, and so is a file."""
    return ("--tmpfs", path) if Path(path).is_dir() else ("--ro-bind", os.devnull, path)


def _link(folder: str) -> tuple[str, ...]:
    """`/bin` is a link on most machines, and stays one."""
    path = Path(folder)
    if not path.is_symlink() or not any(path.resolve().is_relative_to(other) for other in ("/usr", "/nix")):
        return ()
    return ("--symlink", str(path.readlink()), folder)


_PACKAGES = "node_modules"
# A folder that holds one of these is somebody's work, whatever else lies in it.
_OF_PROJECTS = (".git", "whet.toml", "pyproject.toml")
_MOST_LINKS = 40


@lru_cache(maxsize=64)
def toolchains(path: str, program: str) -> tuple[Path, ...]:
    """Programs installed outside the system: what stands on PATH, the program itself and the running Python."""
    wanted = {Path(sys.prefix), Path(sys.base_prefix)}
    home = os.environ.get("HOME")
    for entry in path.split(os.pathsep):
        # A PATH may name folders that are not ours to look into.
        if Path(entry).is_absolute() and entry != home and os.access(entry, os.X_OK):
            wanted.update(_installation(Path(entry)))
    for place in _hops(Path(program)):
        # The program alone: its folder may be anybody's home.
        wanted.update(folder for folder in _installation(place.parent) if folder != place.parent)
        wanted.add(place)
    wanted.update(_linked_package(Path(program)))
    return tuple(_uncovered(wanted))


def _hops(program: Path) -> Iterator[Path]:
    """The program, every link on the way, and what is at the end of it."""
    place = program
    for _ in range(_MOST_LINKS):
        yield place
        if not place.is_symlink():
            break
        place = Path(os.path.normpath(place.parent / place.readlink()))
    yield program.resolve()


def _installation(folder: Path) -> Iterator[Path]:
    """A folder of programs, and the installation around it where it looks like one.

    `~/.pyenv/shims` is nothing without `~/.pyenv`, and `node/v20/bin` needs `node/v20/lib`; but `~/.cargo` also holds
    credentials and `~/.local` anything at all, so those show their `bin` and their packages only.
    """
    yield folder
    yield from _packages_around(folder)
    whole = folder.parent
    if folder.name == "shims" and not _holds_home(whole):
        yield whole
    elif folder.name == "bin" and (whole / "lib").is_dir():
        if not _is_personal(whole):
            yield whole
        elif (whole / "lib" / _PACKAGES).is_dir():
            yield whole / "lib" / _PACKAGES


def _holds_home(folder: Path) -> bool:
    home = Path(os.environ.get("HOME") or "/nonexistent")
    return any(each.is_relative_to(folder) for each in (home, home.resolve()))


def _is_personal(folder: Path) -> bool:
    """Whether more lies there than an installation: the home or what holds it, or somebody's work."""
    return _holds_home(folder) or folder.name == ".local" or any((folder / name).exists() for name in _OF_PROJECTS)


def _packages_around(folder: Path) -> Iterator[Path]:
    """The outermost `node_modules`: a package finds others beside it, and beside whatever it lies in."""
    if _PACKAGES in folder.parts:
        yield Path(*folder.parts[: folder.parts.index(_PACKAGES) + 1])


def _linked_package(program: Path) -> Iterator[Path]:
    """The package of a program that `node_modules` only links to, as those of the project itself."""
    found = program.resolve()
    if _PACKAGES in found.parts or not any(_PACKAGES in place.parts for place in _hops(program)):
        return
    yield from [folder for folder in found.parents if (folder / "package.json").is_file()][:1]


def _uncovered(paths: Iterable[Path]) -> Iterator[Path]:
    """Those that are there and not below another one, or below the system."""
    covered: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if path == Path("/") or lies_in_system(path) or not is_there(path):
            continue
        if not any(path.is_relative_to(other) for other in covered):
            covered.append(path)
            yield path
