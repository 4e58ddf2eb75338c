"""A seccomp filter for the system calls that programs inside bubblewrap do not need.

Most of these calls need rights that nothing inside has, so the filter is a second lock. For some it is the only one:
if whet runs as root, a program inside may do more than its rights suggest.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from functools import lru_cache

# The architecture as the kernel reports it to a filter; other machines have no filter.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# For each name, the number on x86_64 and on aarch64.
_REFUSED: dict[str, tuple[int, int | None]] = {
    # The kernel keeps keys for each user, across namespaces.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Calls that look into the kernel, or run in it.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    # Calls that replace or extend the kernel.
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    # Mounts and other views of files; a handle opens a file that no path reaches.
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    # Settings of the machine.
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
}
# A filter cannot read the flags of these, which are in memory. If they do not exist, programs use `clone` and `openat`.
_ABSENT: dict[str, tuple[int, int | None]] = {"clone3": (435, 435), "openat2": (437, 437)}
# Calls that set the mode of a file, and the argument with the mode. A setuid program would work outside the boundary
# too, and if whet runs as root, its owner is root.
MODES = {
    "chmod": ((90, None), 1),
    "fchmod": ((91, 52), 1),
    "fchmodat": ((268, 53), 2),
    "fchmodat2": ((452, 452), 2),
    "creat": ((85, None), 1),
    "mknod": ((133, None), 1),
    "mknodat": ((259, 33), 2),
}
# The same for calls whose mode counts only if the flags before it create a file.
OPENED = {"open": ((2, None), 1), "openat": ((257, 56), 2)}
MAKES_A_FILE = 0o100 | 0o20000000
AS_OWNER = 0o6000
_CLONE, _UNSHARE = (56, 220), (272, 97)
_IOCTL, _PERSONALITY, _SOCKET = (16, 29), (135, 92), (41, 198)
_NEW_NAMESPACES = 0x7E020000
_NEW_TIME = 0x80
# Typing into a terminal, and the menus of the Linux console.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# A debugger may switch off random addresses, and a program may say that it is one of 32 bits.
_HARMLESS_PERSONALITY, _ASK_PERSONALITY = 0x60008, 0xFFFFFFFF
# Reaches the host of a virtual machine from any network namespace.
_AF_VSOCK = 40
_X32 = 0x40000000

# Instructions of a classic filter: load a word; jump if it equals, is at least, or has a bit of a value; return.
_LOAD, _IS, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000

Instruction = tuple[int, int, int, int]


@lru_cache
def refused_calls() -> bytes | None:
    """Return the filter for bubblewrap; None if we do not know the calls of this architecture."""
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        return None
    return b"".join(struct.pack("HBBI", *instruction) for instruction in _filter(machine))


def as_file(data: bytes) -> int:
    """Return a descriptor from which *data* can be read once."""
    fd = os.memfd_create("filter")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _filter(machine: str) -> Iterator[Instruction]:
    column = list(_ARCHITECTURES).index(machine)
    yield _LOAD, 0, 0, _ARCHITECTURE
    # Programs of another architecture have other numbers, so we cannot tell what they ask for.
    yield _IS, 1, 0, _ARCHITECTURES[machine]
    yield _refuse(errno.ENOSYS)
    yield _LOAD, 0, 0, _NUMBER
    if machine == "x86_64":
        yield _AT_LEAST, 0, 1, _X32
        yield _refuse(errno.ENOSYS)
    for table, code in ((_REFUSED, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        for numbers in table.values():
            if (number := numbers[column]) is not None:
                yield _IS, 0, 1, number
                yield _refuse(code)
    for numbers, argument in MODES.values():
        if (number := numbers[column]) is not None:
            yield from _where(number, argument, [(_HAS, AS_OWNER)])
    for numbers, flags in OPENED.values():
        if (number := numbers[column]) is not None:
            yield from _where_made(number, flags)
    yield from _where(_CLONE[column], 0, [(_HAS, _NEW_NAMESPACES)])
    yield from _where(_UNSHARE[column], 0, [(_HAS, _NEW_NAMESPACES | _NEW_TIME)])
    yield from _where(_IOCTL[column], 1, [(_IS, _TIOCSTI), (_IS, _TIOCLINUX)])
    yield from _where(_SOCKET[column], 0, [(_IS, _AF_VSOCK)])
    yield _IS, 0, 4, _PERSONALITY[column]
    yield _LOAD, 0, 0, _argument(0)
    yield _IS, 2, 0, _ASK_PERSONALITY
    yield _HAS, 0, 1, 0xFFFFFFFF & ~_HARMLESS_PERSONALITY
    yield _refuse(errno.EPERM)
    yield _RETURN, 0, 0, _ALLOW


def _where(number: int, argument: int, tests: list[tuple[int, int]]) -> Iterator[Instruction]:
    """Refuse the call if one of the tests of its argument holds, and allow it otherwise."""
    yield _IS, 0, 2 + 2 * len(tests), number
    yield _LOAD, 0, 0, _argument(argument)
    for test, value in tests:
        yield test, 0, 1, value
        yield _refuse(errno.EPERM)
    yield _RETURN, 0, 0, _ALLOW


def _where_made(number: int, flags: int) -> Iterator[Instruction]:
    """Refuse to create a setuid or setgid file; the mode is the argument after the flags."""
    yield _IS, 0, 6, number
    yield _LOAD, 0, 0, _argument(flags)
    yield _HAS, 0, 3, MAKES_A_FILE
    yield _LOAD, 0, 0, _argument(flags + 1)
    yield _HAS, 0, 1, AS_OWNER
    yield _refuse(errno.EPERM)
    yield _RETURN, 0, 0, _ALLOW


def _refuse(code: int) -> Instruction:
    return _RETURN, 0, 0, _REFUSE | code


def _argument(index: int) -> int:
    """Return the offset of the lower half of an argument, which comes first on both architectures."""
    return _ARGUMENTS + 8 * index
