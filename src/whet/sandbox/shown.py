"""What of the machine is shown inside bubblewrap, read-only, and without what only root may read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from whet.sandbox.closed import closed_below, closed_in_proc
from whet.sandbox.mounts import clone, private_mounts

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
        argv += _hidden(path) if how == "hide" else ("--ro-bind", path, path)
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
                yield from _hidden(path)
        else:
            yield from ("--ro-bind", str(ready), folder)
        return
    yield from ("--ro-bind", folder, folder)


def _hidden(path: str) -> tuple[str, ...]:
    """A folder is seen empty, and so is a file."""
    return ("--tmpfs", path) if Path(path).is_dir() else ("--ro-bind", os.devnull, path)


def _link(folder: str) -> tuple[str, ...]:
    """`/bin` is a link on most machines, and stays one."""
    path = Path(folder)
    if not path.is_symlink() or not any(path.resolve().is_relative_to(other) for other in ("/usr", "/nix")):
        return ()
    return ("--symlink", str(path.readlink()), folder)
