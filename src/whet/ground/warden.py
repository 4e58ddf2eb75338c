"""The program above each command: it starts one at a time, and ends all of its descendants.

A warden is a subreaper, so everything that a command starts stays below it, and a warden without a child has no
descendant. It ends all of them when the command ends, when its owner asks for it, and when its owner ends; the owner is
whet or a process in which a check runs. It has its own session and ignores signals that ask programs to end, because it
must end last.

Wardens are forked from a nursery, which is this module started once: a fork takes a millisecond, a start thirty.
It is started with `python -I -S` and imports only the standard library and `descent`, so that both stay small.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import marshal
import math
import os
import select
import signal
import socket
import stat
import struct
import warnings  # noqa: F401 - os.get_exec_path imports it, which a fork should not have to
from array import array

from whet.ground.descent import become_subreaper, descendants, end_descendants, libc, reap, signal_all, wake_with_parent

# As in `typing`, which takes as long to import as Python to start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_PR_SET_NO_NEW_PRIVS = 38
_KEYCTL_JOIN_SESSION_KEYRING = 1
# Unlike newer system calls, it has a different number on each architecture.
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}


class _Ruleset(ctypes.Structure):
    """The part of `struct landlock_ruleset_attr` that has the scopes."""

    _fields_ = (("access_fs", ctypes.c_uint64), ("access_net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


def scope() -> int | None:
    """Create the Landlock rules for commands and return their file descriptor; None if the kernel has no Landlock."""
    asked = _Ruleset(0, 0, _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS)
    made = libc.syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(asked), ctypes.sizeof(asked), 0)
    if made < 0:
        return None
    os.set_inheritable(made, False)
    return int(made)


def confine(rules: int | None, program: str) -> None:
    """Put this process, and everything it starts, into its own Landlock domain and keyring, if the kernel can."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        libc.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None, 0, 0, 0)
    if rules is None or libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0) == 0 or ctypes.get_errno() != errno.EPERM:
        return
    # An ordinary user must give up new privileges first. Programs that change the user, such as `sudo` or a setuid
    # bubblewrap, would not work after that.
    if not os.stat(program).st_mode & (stat.S_ISUID | stat.S_ISGID):  # noqa: PTH116 - pathlib takes long to load
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0)


# Messages from whet: start this command; ask it to end; end it and everything that it started.
RUN, ASK, END = b"r", b"a", b"e"
# Messages from a warden: it runs; why it could not be started; how it ended; nothing is left; what is left.
STARTED, REFUSED, EXITED, CLEAR, LEFT = b"s", b"f", b"x", b"c", b"l"
CODE = struct.Struct("!i")
# The step at which starting a command failed.
IN_FOLDER, AS_PROGRAM = "folder", "program"
MOST_FDS = 64
PATIENCE_S = 10.0
_ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Python changes the handling of these; a program expects the defaults.
_CHANGED_BY_US = (*_ASKED_TO_END, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


def be_nursery(channel: int, whet: int) -> NoReturn:
    """Fork a warden for every socket that arrives, until whet ends or closes the connection."""
    for number in _ASKED_TO_END:
        signal.signal(number, signal.SIG_IGN)
    # We do not wait for wardens, so let the kernel reap them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    wake_with_parent()
    rules = scope()
    sock = socket.socket(fileno=channel)
    sock.set_inheritable(False)
    watched = os.pidfd_open(whet)
    if os.getppid() != whet:
        os._exit(0)
    poll = select.poll()
    for fd in (channel, watched):
        poll.register(fd, select.POLLIN)
    # Collecting garbage in a fork would only copy memory pages.
    gc.disable()
    while True:
        if watched in (fd for fd, _ in poll.poll()):
            os._exit(0)
        data, fds = receive(sock, 1, 3)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            try:
                sock.close()
                _Warden(socket.socket(fileno=fds[0]), fds[1], rules).watch()
            finally:
                # After any exception: do not continue as a second nursery, and leave no process behind.
                end_descendants(math.inf)
                os._exit(1)
        for fd in fds:
            os.close(fd)


def receive(sock: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """Receive a message and its file descriptors, with close-on-exec set; `socket.recv_fds` cannot set it."""
    room = socket.CMSG_LEN(most * array("i").itemsize)
    data, extra, _, _ = sock.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    fds = array("i")
    for _, _, packed in extra:
        fds.frombytes(packed[: len(packed) - len(packed) % fds.itemsize])
    return data, list(fds)


class _Warden:
    """One warden, for one command after another; *owner* is a pidfd of the process that it works for."""

    def __init__(self, talk: socket.socket, owner: int, rules: int | None) -> None:
        self._talk = talk
        self._owner = owner
        self._rules = rules
        self._command = 0
        # A pipe for errors at the start; the kernel closes it once the command has become its program.
        self._start: int | None = None
        self._poll = select.poll()
        self._wake = self._woken_by_children()
        for watched in (talk.fileno(), owner, self._wake):
            self._poll.register(watched, select.POLLIN)

    def _woken_by_children(self) -> int:
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        return read

    def watch(self) -> NoReturn:
        """Obey messages and watch children, until our owner ends."""
        os.setsid()
        become_subreaper()
        wake_with_parent()
        self._say(CODE.pack(os.getpid()))
        while True:
            ready = [fd for fd, _ in self._poll.poll()]
            if self._owner in ready:
                self._leave()
            if self._start in ready:
                self._see_start()
            if self._wake in ready:
                self._see_ends()
            if self._talk.fileno() in ready:
                self._obey()

    def _obey(self) -> None:
        try:
            data, fds = receive(self._talk, 16, MOST_FDS)
        except OSError:
            # Our owner closed its end before it read everything that we sent.
            self._leave()
        match data:
            case b"r":
                self._run(fds)
            case b"a":
                signal_all(descendants(os.getpid()), signal.SIGTERM)
            case b"e":
                self._end()
            case _:
                self._leave()

    def _leave(self) -> NoReturn:
        """End everything below us, and ourselves: our owner is gone."""
        end_descendants(math.inf)
        os._exit(0)

    def _run(self, fds: list[int]) -> None:
        self._start, report = os.pipe2(os.O_CLOEXEC)
        self._poll.register(self._start, select.POLLIN)
        self._command = os.fork()
        if self._command == 0:
            _become(fds, report, self._rules)
        for fd in (report, *fds):
            os.close(fd)

    def _see_start(self) -> None:
        """Report that the command has become its program, or why not."""
        if self._start is None:
            return
        said = os.read(self._start, 65536)
        self._poll.unregister(self._start)
        os.close(self._start)
        self._start = None
        if said:
            # The end of this process is not the end of a command.
            self._command = 0
            end_descendants(PATIENCE_S)
        self._say(REFUSED + said if said else STARTED)

    def _see_ends(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        statuses: dict[int, int] = {}
        left = reap(statuses.__setitem__)
        if self._command not in statuses:
            return
        exited = _exited(statuses[self._command])
        # If the command could not be started, this was its end, and the pipe has the reason.
        self._see_start()
        if self._command:
            self._command = 0
            self._say(exited + (b"" if left else CLEAR))
            if left:
                self._say_left(end_descendants(PATIENCE_S))

    def _end(self) -> None:
        """End everything that the command started; if it ended before, that is already reported."""
        if not self._command:
            return
        statuses: dict[int, int] = {}
        left = end_descendants(PATIENCE_S, statuses.__setitem__)
        status = statuses.get(self._command)
        self._see_start()
        if self._command:
            self._command = 0
            if status is not None:
                self._say(_exited(status))
            self._say_left(left)

    def _say_left(self, left: list[int]) -> None:
        self._say(LEFT + marshal.dumps(left) if left else CLEAR)

    def _say(self, word: bytes) -> None:
        try:
            self._talk.send(word)
        except OSError:
            self._leave()


def _exited(status: int) -> bytes:
    """Return the message that the command has ended with this *status* of `waitpid`."""
    return EXITED + CODE.pack(os.waitstatus_to_exitcode(status))


def _become(fds: list[int], report: int, rules: int | None) -> NoReturn:
    """In the fork: become the command that the first of *fds* contains, with the others as its own, or report why."""
    step = AS_PROGRAM
    try:
        for number in _CHANGED_BY_US:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        argv, env, cwd, numbers, confined = marshal.loads(os.pread(fds[0], os.fstat(fds[0]).st_size, 0))  # noqa: S302 - of whet's own making
        report = _take_places(fds[1:], numbers, report)
        step = IN_FOLDER
        os.chdir(cwd)
        step = AS_PROGRAM
        program = _program(argv[0], env)
        if confined:
            confine(rules, program)
        os.execve(program, argv, env)  # noqa: S606 - no shell is wanted
    except BaseException as error:  # noqa: BLE001 - report any error; nothing else can be done in the fork
        why = error.errno if isinstance(error, OSError) else None
        os.write(report, marshal.dumps((step, why, str(error))))
    finally:
        os._exit(127)


def _program(given: bytes, env: dict[bytes, bytes]) -> str:
    """Return the path of the program; skip folders on PATH that do not exist or that we may not read."""
    name = os.fsdecode(given)
    if "/" in name:
        return name
    closed = False
    for folder in os.fsdecode(env.get(b"PATH", os.fsencode(os.defpath))).split(":"):
        place = f"{folder}/{name}"
        if os.path.isfile(place):  # noqa: PTH113 - pathlib takes longer to load than all of this
            if os.access(place, os.X_OK):
                return place
            closed = True
    raise OSError(errno.EACCES if closed else errno.ENOENT, "cannot be started", name)


def _take_places(fds: list[int], numbers: tuple[int, ...], report: int) -> int:
    """Give each of *fds* its number; move *report* out of the way and return its new number."""
    above = max(numbers) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in (*fds, report)]
    for fd, number in zip(moved, numbers, strict=False):
        os.dup2(fd, number)
    return moved[-1]
