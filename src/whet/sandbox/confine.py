"""What the kernel can keep a command from, whatever its sandbox: signals and traces to others, and the user's keys.

A Landlock domain that handles no files, but is scoped, lets a command signal, trace and reach by abstract sockets only
what it started itself; mounts stay possible, so bubblewrap works below it. Where the kernel knows less (before Linux
6.12, or without Landlock), the command runs without it.

Only the standard library: a warden imports this.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Mapping

from whet.sandbox.descent import libc

_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_PR_SET_NO_NEW_PRIVS = 38
_KEYCTL_JOIN_SESSION_KEYRING = 1
# It has another number on each architecture, unlike system calls that are newer.
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}


class _Ruleset(ctypes.Structure):
    """`struct landlock_ruleset_attr`, as far as scopes are in it."""

    _fields_ = (("access_fs", ctypes.c_uint64), ("access_net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


def scope() -> int | None:
    """The rules of a domain, as a file descriptor that each command can be held to; None where there are none."""
    asked = _Ruleset(0, 0, _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS)
    made = libc.syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(asked), ctypes.sizeof(asked), 0)
    if made < 0:
        return None
    os.set_inheritable(made, False)
    return int(made)


def confine(rules: int | None, program: bytes, env: Mapping[bytes, bytes]) -> None:
    """Hold this process, and all that it starts, to a domain and a keyring of its own; as far as the kernel can."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None, 0, 0, 0)
    if rules is None or libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0) == 0 or ctypes.get_errno() != errno.EPERM:
        return
    # Only root may hold itself without this promise. A program that is meant to be another user, such as `sudo` or
    # a bubblewrap that was installed so, could not work after it.
    if not _changes_user(program, env):
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0)


def _changes_user(program: bytes, env: Mapping[bytes, bytes]) -> bool:
    """Whether *program* runs as its owner, whoever starts it."""
    folders = [b""] if b"/" in program else env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    for folder in folders:
        try:
            return bool(os.stat(os.path.join(folder, program)).st_mode & (stat.S_ISUID | stat.S_ISGID))  # noqa: PTH116, PTH118
        except OSError:
            continue
    return False
