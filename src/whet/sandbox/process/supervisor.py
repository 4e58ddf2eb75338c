"""The program above each command: it starts one at a time, and ends all of its descendants.

A supervisor is a subreaper, so everything that a command starts stays below it, and a supervisor without a child has no
descendant. It ends all of them when the command ends, when its owner asks for it, and when its owner ends; the owner is
whet or a process in which a check runs. It has its own session and ignores signals that ask programs to end, because it
must end last.

A supervisor never forks for a command: copying a Python process takes three times as long as starting a small program.
Instead a thread confines itself, which its process does not notice, starts the command and waits for its end. A command
may find that thread and kill its supervisor with it, so there is a watchdog above each supervisor, which then ends what
is left.

Supervisors are forks of a fork server, which is this module started once: a fork takes a millisecond, a start thirty.
It is started with `python -I -S` and imports only the standard library and `procfs`, so that both stay small.
"""

from __future__ import annotations

import _thread
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

from whet.linux import libc
from whet.sandbox.process.procfs import (
    become_subreaper,
    descendants,
    end_descendants,
    reap,
    signal_all,
    stay_unread,
    wake_with_parent,
)

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


_KEYCTL_HERE = _KEYCTL.get(os.uname().machine)


def confine(rules: int | None, program: str) -> None:
    """Put this thread, and everything it starts, into its own Landlock domain and keyring, if the kernel can."""
    if _KEYCTL_HERE is not None:
        libc.syscall(_KEYCTL_HERE, _KEYCTL_JOIN_SESSION_KEYRING, None, 0, 0, 0)
    if rules is None or libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0) == 0 or ctypes.get_errno() != errno.EPERM:
        return
    # An ordinary user must give up new privileges first. Programs that change the user, such as `sudo` or a setuid
    # bubblewrap, would not work after that.
    if not os.stat(program).st_mode & (stat.S_ISUID | stat.S_ISGID):
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0)


# Messages from whet: start this command; ask it to end; end it and everything that it started.
RUN, ASK, END = b"r", b"a", b"e"
# Messages from a supervisor: it runs; why it could not be started; how it ended; nothing is left; what is left.
STARTED, REFUSED, EXITED, CLEAR, LEFT = b"s", b"f", b"x", b"c", b"l"
CODE = struct.Struct("!i")
# The first message: the ids of the supervisor and of its watchdog.
IDS = struct.Struct("!ii")
# The step at which starting a command failed.
IN_FOLDER, AS_PROGRAM = "folder", "program"
MOST_FDS = 64
PATIENCE_S = 10.0
_ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Python changes the handling of these; a program expects the defaults.
_CHANGED_BY_US = (*_ASKED_TO_END, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


def serve_forks(channel: int, whet: int) -> NoReturn:
    """Fork a supervisor for every socket that arrives, until whet ends or closes the connection."""
    for number in _ASKED_TO_END:
        signal.signal(number, signal.SIG_IGN)
    # We do not wait for supervisors, so let the kernel reap them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    wake_with_parent()
    stay_unread()
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
                _watchdog(fds)
                _Supervisor(socket.socket(fileno=fds[0]), fds[1], rules).watch()
            finally:
                # After any exception: do not continue as a second fork server, and leave no process behind.
                end_descendants(math.inf)
                os._exit(1)
        for fd in fds:
            os.close(fd)


def _watchdog(fds: list[int]) -> None:
    """Fork the supervisor and return in it; in the parent, end all descendants when it or its owner ends."""
    talk, owner, *_ = fds
    os.setsid()
    become_subreaper()
    wake_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    supervisor = os.fork()
    if supervisor == 0:
        return
    os.close(talk)
    ends = select.poll()
    for watched in (owner, os.pidfd_open(supervisor)):
        ends.register(watched, select.POLLIN)
    ends.poll()
    end_descendants(math.inf)
    os._exit(0)


def receive(sock: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """Receive a message and its file descriptors, with close-on-exec set; `socket.recv_fds` cannot set it."""
    room = socket.CMSG_LEN(most * array("i").itemsize)
    data, extra, _, _ = sock.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    fds = array("i")
    for _, _, packed in extra:
        fds.frombytes(packed[: len(packed) - len(packed) % fds.itemsize])
    return data, list(fds)


class _Supervisor:
    """One supervisor, for one command after another; *owner* is a pidfd of the process that it works for."""

    def __init__(self, talk: socket.socket, owner: int, rules: int | None) -> None:
        self._talk = talk
        self._owner = owner
        self._watchdog = os.pidfd_open(os.getppid())
        self._rules = rules
        self._command = 0
        # The thread that started the command ends when it is released.
        self._over = _thread.allocate_lock()
        self._poll = select.poll()
        self._wake = self._woken_by_children()
        for watched in (talk.fileno(), owner, self._watchdog, self._wake):
            self._poll.register(watched, select.POLLIN)

    def _woken_by_children(self) -> int:
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        return read

    def watch(self) -> NoReturn:
        """Obey messages and watch children, until our owner or our watchdog ends."""
        os.setsid()
        become_subreaper()
        wake_with_parent()
        self._say(IDS.pack(os.getpid(), os.getppid()))
        while True:
            ready = [fd for fd, _ in self._poll.poll()]
            if self._owner in ready or self._watchdog in ready:
                self._leave()
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
        """Start the command that the first of *fds* contains, with the others as its own; report that, or why not."""
        step = AS_PROGRAM
        try:
            argv, env, cwd, numbers, confined = marshal.loads(os.pread(fds[0], os.fstat(fds[0]).st_size, 0))  # noqa: S302 - of whet's own making
            step = IN_FOLDER
            os.chdir(cwd)
            step = AS_PROGRAM
            start = _Start(_program(argv[0], env), argv, env, _places(fds, numbers))
            if confined:
                self._over = _thread.allocate_lock()
                self._command = start.apart(self._rules, self._over)
            else:
                self._command = start()
            said = STARTED
        except BaseException as error:  # noqa: BLE001 - report any error
            why = error.errno if isinstance(error, OSError) else None
            said = REFUSED + marshal.dumps((step, why, str(error)))
        # Not a folder that somebody will remove or unmount.
        os.chdir("/")
        for fd in fds:
            os.close(fd)
        self._say(said)

    def _see_ends(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        statuses: dict[int, int] = {}
        left = reap(statuses.__setitem__)
        if self._command not in statuses:
            return
        self._say(_exited(statuses[self._command]) + (b"" if left else CLEAR))
        self._is_over()
        if left:
            self._say_left(end_descendants(PATIENCE_S))

    def _end(self) -> None:
        """End everything that the command started; if it ended before, that is already reported."""
        if not self._command:
            return
        statuses: dict[int, int] = {}
        left = end_descendants(PATIENCE_S, statuses.__setitem__)
        status = statuses.get(self._command)
        self._is_over()
        if status is not None:
            self._say(_exited(status))
        self._say_left(left)

    def _is_over(self) -> None:
        self._command = 0
        if self._over.locked():
            self._over.release()

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


class _Start:
    """Starts a program in the current folder, with *places*: descriptors and the numbers that they have there."""

    def __init__(
        self, program: str, argv: tuple[bytes, ...], env: dict[bytes, bytes], places: list[tuple[int, int]]
    ) -> None:
        self._program = program
        self._argv = argv
        self._env = env
        self._actions = [(os.POSIX_SPAWN_DUP2, fd, number) for fd, number in places]
        self._pid = 0
        self._trouble: BaseException | None = None

    def __call__(self) -> int:
        """Start it, and return its process id."""
        return os.posix_spawn(
            self._program,
            self._argv,
            self._env,
            file_actions=self._actions,
            setsid=True,
            setsigdef=_CHANGED_BY_US,
            setsigmask=(),
        )

    def apart(self, rules: int | None, over: _thread.LockType) -> int:
        """Do the same in a thread that is confined first and that lives until *over* is released."""
        done = _thread.allocate_lock()
        done.acquire()
        over.acquire()
        _thread.start_new_thread(self._in_thread, (rules, done, over))
        done.acquire()
        if self._trouble is not None:
            over.release()
            raise self._trouble
        return self._pid

    def _in_thread(self, rules: int | None, done: _thread.LockType, over: _thread.LockType) -> None:
        try:
            confine(rules, self._program)
            self._pid = self()
        except BaseException as error:  # noqa: BLE001 - for the thread that asked
            self._trouble = error
        done.release()
        # The kernel kills programs that ask for it, as bubblewrap does, with the thread that started them.
        over.acquire()


def _program(program: bytes, env: dict[bytes, bytes]) -> str:
    """Return the path of the program; skip folders on PATH that do not exist or that we may not read."""
    name = os.fsdecode(program)
    if "/" in name:
        return name
    closed = False
    for folder in os.fsdecode(env.get(b"PATH", os.fsencode(os.defpath))).split(":"):
        place = f"{folder}/{name}"
        if os.path.isfile(place):
            if os.access(place, os.X_OK):
                return place
            closed = True
    raise OSError(errno.EACCES if closed else errno.ENOENT, "cannot be started", name)


def _places(fds: list[int], numbers: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return each of *fds* but the first with its number; moves, in *fds*, those in the way of another."""
    above = max(numbers) + 1
    for place, fd in enumerate(fds[1:], 1):
        if fd < above:
            fds[place] = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above)
            os.close(fd)
    return list(zip(fds[1:], numbers, strict=True))
