"""The calls of the kernel that nothing inside bubblewrap has any business with, as a seccomp filter.

Most of them need rights that nothing inside has. The filter is the second lock on those doors, and the only one on
some: root outside may ask for more than its rights inside tell.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from functools import lru_cache

# The architecture as the kernel tells it to a filter; other machines have no filter.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# By name: the number on x86_64 and on aarch64.
_REFUSED = {
    # Keys are kept by user, and are not divided by namespaces.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # What looks into the kernel, or runs in it.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "syslog": (103, 116),
    "lookup_dcookie": (212, 18),
    # What replaces or extends it.
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    # Mounts and other views of files; a handle opens what no path leads to.
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
    # What belongs to the machine.
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
# What gives a file its mode, and which argument that is: a program that runs as its owner would outlive the boundary,
# and as root's agent its owner is root.
_MODES = {
    "chmod": ((90, None), 1),
    "fchmod": ((91, 52), 1),
    "fchmodat": ((268, 53), 2),
    "fchmodat2": ((452, 452), 2),
    "creat": ((85, None), 1),
    "mknod": ((133, None), 1),
    "mknodat": ((259, 33), 2),
}
# The same where it counts only if the flags before it say that a file is made.
_OPENED = {"open": ((2, None), 1), "openat": ((257, 56), 2)}
_OPENAT2 = (437, 437)
_MAKES_A_FILE = 0o100 | 0o20000000
_AS_OWNER = 0o6000
_CLONE, _CLONE3, _UNSHARE = (56, 220), (435, 435), (272, 97)
_IOCTL, _PERSONALITY, _SOCKET = (16, 29), (135, 92), (41, 198)
_NEW_NAMESPACES = 0x7E020000
_NEW_TIME = 0x80
# Typing into a terminal, and the menus of the Linux console.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# A debugger may switch off random addresses, and a program may say that it is one of 32 bits.
_HARMLESS_PERSONALITY, _ASK_PERSONALITY = 0x60008, 0xFFFFFFFF
# Talks to the host of a virtual machine, whatever the network namespace says.
_AF_VSOCK = 40
_X32 = 0x40000000

# Instructions of a classic filter: load a word, jump if it is, is at least or has a bit of, return.
_LOAD, _IS, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000

Instruction = tuple[int, int, int, int]


@lru_cache
def refused_calls() -> bytes | None:
    """The filter as bubblewrap takes it; none where this machine's calls are not known to us."""
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        return None
    return b"".join(struct.pack("HBBI", *each) for each in _filter(machine))


def as_file(data: bytes) -> int:
    """A descriptor that *data* can be read from, once."""
    fd = os.memfd_create("filter")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _filter(machine: str) -> Iterator[Instruction]:
    column = list(_ARCHITECTURES).index(machine)
    yield _LOAD, 0, 0, _ARCHITECTURE
    # Programs of another architecture have other numbers: there is no telling what they ask for.
    yield _IS, 1, 0, _ARCHITECTURES[machine]
    yield _refuse(errno.ENOSYS)
    yield _LOAD, 0, 0, _NUMBER
    if machine == "x86_64":
        yield _AT_LEAST, 0, 1, _X32
        yield _refuse(errno.ENOSYS)
    for numbers in _REFUSED.values():
        number = numbers[column]
        if number is not None:
            yield _IS, 0, 1, number
            yield _refuse(errno.EPERM)
    # Its flags lie in memory, where a filter cannot look. Programs go on with `clone` where it is not there.
    yield _IS, 0, 1, _CLONE3[column]
    yield _refuse(errno.ENOSYS)
    # The same goes for what this one is asked for, and for `openat`.
    yield _IS, 0, 1, _OPENAT2[column]
    yield _refuse(errno.ENOSYS)
    for numbers, argument in _MODES.values():
        if (number := numbers[column]) is not None:
            yield from _where(number, argument, [(_HAS, _AS_OWNER)])
    for numbers, flags in _OPENED.values():
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
    """Refuse the call where one of the tests of its argument holds; nothing else is decided about it then."""
    yield _IS, 0, 2 + 2 * len(tests), number
    yield _LOAD, 0, 0, _argument(argument)
    for test, value in tests:
        yield test, 0, 1, value
        yield _refuse(errno.EPERM)
    yield _RETURN, 0, 0, _ALLOW


def _where_made(number: int, flags: int) -> Iterator[Instruction]:
    """Refuse to make a file with a mode that lets it run as its owner; the mode follows the flags."""
    yield _IS, 0, 6, number
    yield _LOAD, 0, 0, _argument(flags)
    yield _HAS, 0, 3, _MAKES_A_FILE
    yield _LOAD, 0, 0, _argument(flags + 1)
    yield _HAS, 0, 1, _AS_OWNER
    yield _refuse(errno.EPERM)
    yield _RETURN, 0, 0, _ALLOW


def _refuse(code: int) -> Instruction:
    return _RETURN, 0, 0, _REFUSE | code


def _argument(index: int) -> int:
    """Where the lower half of an argument lies; both architectures have it first."""
    return _ARGUMENTS + 8 * index
