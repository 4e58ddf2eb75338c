"""The contract of a sandbox, as promises that are tried with real processes."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio

from whet.errors import AgentNotFound, AgentNotStarted, SandboxError
from whet.linux import libc
from whet.sandbox.contract import Availability, Boundary, Command, Ended, Sandbox, Sink, Talk
from whet.sandbox.process.procfs import become_subreaper
from whet.testing.grader_and_format import ContractBroken, want

_PR_SET_CHILD_SUBREAPER = 36
# How long to wait for what should happen at once; only a sandbox that breaks its contract takes this long.
_PATIENCE_S = 20
_TOO_LONG = 200_000
_MUCH = 3_000_000


class SandboxClass(Protocol):
    """What an entry point of the group `whet.sandboxes` names."""

    name: str

    def __call__(self) -> Sandbox:
        """Make a sandbox."""

    def availability(self) -> Availability:
        """Return whether it can be used on this machine."""


def check_sandbox(sandbox_class: SandboxClass) -> None:
    """Try every promise of a sandbox, and raise `ContractBroken` for the first that it does not keep.

    Raises `SandboxError` if the sandbox says that it cannot be used on this machine.
    """
    for promise in PROMISES:
        check_promise(sandbox_class, promise)


Promise = Callable[[Sandbox, "Place"], None]
PROMISES: list[Promise] = []


def check_promise(sandbox_class: SandboxClass, promise: Promise) -> None:
    """Try one of `PROMISES` with a new sandbox, in a new folder."""
    state = sandbox_class.availability()
    want(isinstance(state, Availability), f"`availability` returns {state!r}, not an `Availability`")
    if not state.usable:
        raise SandboxError(f"{sandbox_class.name} cannot be used here: {state.reason}", hint=state.remedy or None)
    sentence = (promise.__doc__ or promise.__name__).rstrip(".")
    with _inherit_orphans(), tempfile.TemporaryDirectory(prefix="whet-check-") as folder:
        sandbox = sandbox_class()
        try:
            promise(sandbox, Place(Path(folder)))
        except ContractBroken as broken:
            raise ContractBroken(f"{sentence}: {broken}") from broken
        except Exception as error:
            raise ContractBroken(f"{sentence}: it raised {error!r}") from error
        finally:
            anyio.run(sandbox.close)


@contextmanager
def _inherit_orphans() -> Iterator[None]:
    """Become the parent of orphans, as `whet run` is."""
    become_subreaper()
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class Place:
    """A workspace, and what processes in it printed."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "work"
        self.workspace.mkdir(parents=True)
        self.out = bytearray()
        self.err = bytearray()

    def run(self, sandbox: Sandbox, *argv: str, **options: Any) -> Ended:
        """Run a command to its end; *options* are those of `start`."""
        return anyio.run(lambda: self.start(sandbox, *argv, **options))

    async def start(
        self, sandbox: Sandbox, *argv: str, stdin: bytes = b"", timeout_s: float = 60, out: Sink | None = None
    ) -> Ended:
        """Run a command to its end, inside of an event loop."""
        # A broken sandbox may never return, and its author should not wait for it.
        with anyio.move_on_after(timeout_s + _PATIENCE_S):
            return await sandbox.run(
                self._command(argv, stdin),
                Boundary(writable=(self.workspace,)),
                timeout_s=timeout_s,
                stdout=out or self.out.extend,
                stderr=self.err.extend,
            )
        raise ContractBroken(f"`run` did not return, with a time limit of {timeout_s:g} s")

    @asynccontextmanager
    async def open(self, sandbox: Sandbox, *argv: str, out: Sink | None = None) -> AsyncIterator[Talk]:
        """Open a command."""
        command, boundary = self._command(argv, b""), Boundary(writable=(self.workspace,))
        async with sandbox.open(command, boundary, stdout=out or self.out.extend, stderr=self.err.extend) as talk:
            yield talk

    def talk(self, sandbox: Sandbox, script: str, *said: bytes) -> list[bytes]:
        """Open a shell script, send each line after the answer to the last, and return the answers."""
        answers: list[bytes] = []

        async def work() -> None:
            event = anyio.Event()

            def out(chunk: bytes) -> None:
                nonlocal event
                self.out.extend(chunk)
                event.set()
                event = anyio.Event()

            async with self.open(sandbox, "sh", "-c", script, out=out) as talk:
                for line in said:
                    await talk.send(line)
                    with anyio.fail_after(_PATIENCE_S):
                        while self.out.count(b"\n") <= len(answers):
                            await event.wait()
                    answers.append(bytes(self.out).split(b"\n")[len(answers)])

        anyio.run(work)
        return answers

    def _command(self, argv: tuple[str, ...], stdin: bytes) -> Command:
        return Command(argv=argv, env={"PATH": os.environ["PATH"]}, cwd=self.workspace, stdin=stdin)


def _alive(mark: str) -> list[int]:
    """Return the processes with *mark* among their arguments that are more than zombies."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if mark.encode() in (entry / "cmdline").read_bytes() and state != b"Z":
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids


def _nothing_left(mark: str) -> None:
    want(_alive(mark) == [], f"still running: {_alive(mark)}")


def _mark() -> str:
    return f"stray-{os.getpid()}-{time.monotonic_ns()}"


def _daemon(mark: str, before: str = "") -> str:
    """Return a script that leaves a process behind which left its session, and one without an environment."""
    # At most a minute, so that what a broken sandbox leaves behind ends by itself.
    stay = f"trap '' TERM HUP; sleep 60; : {mark}"
    return f'{before}(setsid sh -c "{stay}" &) ; (setsid env -i sh -c "{stay}" &) ; sleep 0.2; '


def _raises(kinds: type[Exception] | tuple[type[Exception], ...], word: str, call: Callable[[], object]) -> None:
    """Fail unless *call* raises one of *kinds*, with *word* in its message."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    names = " or ".join(kind.__name__ for kind in kinds)
    try:
        result = call()
    except kinds as error:
        want(word in str(error), f'the message of {names} does not have "{word}" in it: {error}')
    else:
        raise ContractBroken(f"no {names} was raised; the call returned {result!r}")


def _had_enough(chunk: bytes) -> None:
    raise LookupError(f"had enough after {len(chunk)}")


def _promise(promise: Promise) -> Promise:
    PROMISES.append(promise)
    return promise


@_promise
def has_a_name(sandbox: Sandbox, place: Place) -> None:
    """A sandbox has a name."""
    del place
    want(bool(sandbox.name), f"its name is {sandbox.name!r}")


@_promise
def tells_exit_code_and_output(sandbox: Sandbox, place: Place) -> None:
    """A process gets its input; its exit code and the output of both streams arrive."""
    result = place.run(sandbox, "sh", "-c", "cat; echo err >&2; exit 7", stdin=b"from stdin")
    facts = (result.exit_code, result.signal, result.timed_out)
    want(facts == (7, None, False), f"exit 7 is (exit_code, signal, timed_out) = {facts}")
    want(bytes(place.out) == b"from stdin", f"stdout is {bytes(place.out)!r}")
    want(bytes(place.err) == b"err\n", f"stderr is {bytes(place.err)!r}")
    want(result.duration_s >= 0, f"duration_s is {result.duration_s}")


@_promise
def gives_empty_input(sandbox: Sandbox, place: Place) -> None:
    """Without input, standard input is empty."""
    result = place.run(sandbox, "cat")
    want((result.exit_code, bytes(place.out)) == (0, b""), f"cat ended with {result.exit_code}: {bytes(place.out)!r}")


@_promise
def keeps_environment_and_folder(sandbox: Sandbox, place: Place) -> None:
    """A process has only its own environment, and works in its folder."""
    os.environ["WHET_TEST_OURS"] = "ours"
    try:
        place.run(sandbox, "sh", "-c", "pwd; env; echo x > made")
    finally:
        del os.environ["WHET_TEST_OURS"]
    want(str(place.workspace) in place.out.decode(), f"its folder is not {place.workspace}")
    want("WHET_TEST_OURS" not in place.out.decode(), "it sees a variable of whet's environment")
    want((place.workspace / "made").exists(), "what it writes to its folder is not there afterwards")


@_promise
def tells_a_signal(sandbox: Sandbox, place: Place) -> None:
    """The death of a process by a signal is neither an exit nor a timeout."""
    result = place.run(sandbox, "sh", "-c", "kill -KILL $$")
    want(not result.timed_out, "timed_out is true")
    # From a process namespace, the number comes back as an exit code, as from a shell.
    is_told = result.signal == signal.SIGKILL or result.exit_code == 128 + signal.SIGKILL
    want(is_told, f"exit_code is {result.exit_code}, signal is {result.signal}")


@_promise
def stops_at_the_time_limit(sandbox: Sandbox, place: Place) -> None:
    """A time limit stops a process that ignores SIGTERM."""
    result = place.run(sandbox, "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", timeout_s=0.3)
    want(result.timed_out, "timed_out is false")


@_promise
def finds_no_missing_program(sandbox: Sandbox, place: Place) -> None:
    """A missing program raises AgentNotFound, which names it."""
    for name in ("no-such-program", "./missing"):
        _raises(AgentNotFound, name, lambda name=name: place.run(sandbox, name))  # type: ignore[misc]


@_promise
def opens_no_missing_program(sandbox: Sandbox, place: Place) -> None:
    """A missing program cannot be opened: AgentNotFound names it."""

    async def work() -> None:
        async with place.open(sandbox, "no-such-program"):
            pass

    _raises(AgentNotFound, "no-such-program", lambda: anyio.run(work))


@_promise
def starts_only_programs(sandbox: Sandbox, place: Place) -> None:
    """A file that may not be executed raises AgentNotStarted or AgentNotFound."""
    (place.workspace / "plain").write_text("text")
    _raises((AgentNotStarted, AgentNotFound), "plain", lambda: place.run(sandbox, "./plain"))


@_promise
def refuses_long_arguments(sandbox: Sandbox, place: Place) -> None:
    """Arguments that are too long raise AgentNotStarted."""
    _raises(AgentNotStarted, "too long", lambda: place.run(sandbox, "echo", "x" * _TOO_LONG))


@_promise
def gives_all_output(sandbox: Sandbox, place: Place) -> None:
    """All that a process printed arrives before its end."""
    place.run(sandbox, "sh", "-c", f"head -c {_MUCH} /dev/zero; printf end")
    want(len(place.out) == _MUCH + len("end"), f"of {_MUCH + len('end')} bytes, {len(place.out)} arrived")
    want(place.out.endswith(b"end"), f"the last bytes are {bytes(place.out[-10:])!r}")


@_promise
def gives_last_words(sandbox: Sandbox, place: Place) -> None:
    """All that a process printed arrives also if it does not wait for its reader, as Node programs do."""
    script = "import os; os.set_blocking(1, False); os._exit(os.write(1, b'x' * 500_000) != 500_000)"
    result = place.run(sandbox, "python3", "-c", script)
    facts = (result.exit_code, len(place.out))
    want(facts == (0, 500_000), f"(exit_code, bytes) = {facts}, not (0, 500000)")


@_promise
def ends_with_its_sink(sandbox: Sandbox, place: Place) -> None:
    """A sink that raises ends the process, and its exception arrives."""
    mark = _mark()
    script = f": {mark}; while :; do echo x; done"
    _raises(LookupError, "had enough", lambda: place.run(sandbox, "sh", "-c", script, out=_had_enough))
    _nothing_left(mark)


@_promise
def ends_what_a_process_left(sandbox: Sandbox, place: Place) -> None:
    """Nothing outlives a process that ends by itself."""
    for ending in ("exit 0", "exit 3", "kill -KILL $$"):
        mark = _mark()
        place.run(sandbox, "sh", "-c", _daemon(mark) + ending)
        _nothing_left(mark)


@_promise
def ends_all_at_the_time_limit(sandbox: Sandbox, place: Place) -> None:
    """Nothing outlives a time limit."""
    mark = _mark()
    result = place.run(sandbox, "sh", "-c", _daemon(mark) + "sleep 600", timeout_s=1)
    want(result.timed_out, "timed_out is false")
    _nothing_left(mark)


@_promise
def ends_all_when_cancelled(sandbox: Sandbox, place: Place) -> None:
    """Nothing outlives a cancellation."""
    mark = _mark()
    script = _daemon(mark, "trap '' TERM; ") + "echo ready; sleep 600"

    async def work() -> None:
        start = anyio.Event()

        async def run() -> None:
            await place.start(sandbox, "sh", "-c", script, out=lambda _: start.set())

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await start.wait()
            group.cancel_scope.cancel()

    anyio.run(work)
    _nothing_left(mark)


@_promise
def leaves_others_alone(sandbox: Sandbox, place: Place) -> None:
    """The end of one process leaves the processes of others alone."""
    codes: dict[str, int | None] = {}
    places = {name: Place(place.workspace / name) for name in ("long", "short")}
    scripts = {
        # The command works through a child that left its session, as agents' shell tools do.
        "long": "setsid -w sh -c 'sleep 1; echo done'",
        "short": "sleep 0.2; (setsid sleep 600 &); exit 0",
    }

    async def run(name: str) -> None:
        result = await places[name].start(sandbox, "sh", "-c", scripts[name])
        codes[name] = result.exit_code

    async def work() -> None:
        async with anyio.create_task_group() as group:
            for name in places:
                group.start_soon(run, name)

    anyio.run(work)
    want(codes == {"long": 0, "short": 0}, f"the exit codes are {codes}")
    want(bytes(places["long"].out) == b"done\n", f"the longer one printed {bytes(places['long'].out)!r}")


@_promise
def answers_line_by_line(sandbox: Sandbox, place: Place) -> None:
    """An open process answers one line after another, and ends by itself when its input is closed."""
    script = 'while read line; do echo "got $line"; done; echo end > ended'
    answers = place.talk(sandbox, script, b"one\n", b"two\n")
    want(answers == [b"got one", b"got two"], f"the answers are {answers}")
    want((place.workspace / "ended").exists(), "it was ended before it could end by itself")


@_promise
def sends_more_than_a_pipe_holds(sandbox: Sandbox, place: Place) -> None:
    """More than a pipe holds can be sent to an open process."""
    script = "sleep 0.2; head -c 1000000 | wc -c; cat >/dev/null"
    answers = place.talk(sandbox, script, b"x" * 999_999 + b"\n")
    want(answers == [b"1000000"], f"of 1000000 bytes it read {answers}")


@_promise
def cannot_send_to_the_dead(sandbox: Sandbox, place: Place) -> None:
    """Sending to an open process that has ended raises BrokenPipeError."""

    async def over(talk: Talk) -> None:
        await talk.over()
        await talk.send(b"anybody?\n")

    _raises(BrokenPipeError, "", lambda: anyio.run(_open, sandbox, place, "exit 3", over))


@_promise
def does_not_wait_for_the_dead(sandbox: Sandbox, place: Place) -> None:
    """Sending does not wait for an open process that died while its child holds the pipe."""

    async def send(talk: Talk) -> None:
        with anyio.fail_after(_PATIENCE_S):
            await talk.send(b"x" * 4_000_000)

    script = "sleep 60 & sleep 0.3; exit 3"
    _raises(BrokenPipeError, "", lambda: anyio.run(_open, sandbox, place, script, send))


@_promise
def ends_an_open_process_with_its_sink(sandbox: Sandbox, place: Place) -> None:
    """A sink that raises ends an open process."""
    mark = _mark()

    async def work() -> None:
        script = f": {mark}; while :; do echo x; done"
        async with place.open(sandbox, "sh", "-c", script, out=_had_enough) as talk:
            await talk.over()

    _raises(LookupError, "had enough", lambda: anyio.run(work))
    _nothing_left(mark)


@_promise
def tells_how_an_open_process_ended(sandbox: Sandbox, place: Place) -> None:
    """After its context, an open process says how it ended."""

    async def work() -> Ended | None:
        async with place.open(sandbox, "sh", "-c", "exit 3") as talk:
            await talk.over()
        return talk.ended

    result = anyio.run(work)
    want(result is not None and result.exit_code == 3, f"it ended with exit code 3, and `ended` says {result}")  # noqa: PLR2004


@_promise
def ends_what_an_open_process_left(sandbox: Sandbox, place: Place) -> None:
    """Nothing outlives an open process."""
    for number, ending in enumerate(("cat", "trap '' TERM; sleep 600", "exit 3")):
        mark = _mark()
        inner_place = Place(place.workspace / str(number))
        inner_place.talk(sandbox, _daemon(mark) + f"echo ready; {ending}", b"hello\n")
        _nothing_left(mark)


@_promise
def stops_all_of_an_open_process_while_it_is_paused(sandbox: Sandbox, place: Place) -> None:
    """While it is paused, neither an open process nor what it started does anything; both go on afterwards."""
    count = "while :; do echo >> $0; sleep 0.01; done"
    children = "".join(f"{how} sh -c '{count}' {name} & " for how, name in (("", "beside"), ("setsid", "away")))
    files = [place.workspace / name for name in ("beside", "away")]

    def sizes() -> list[int]:
        return [file.stat().st_size if file.exists() else 0 for file in files]

    async def grown(before: list[int]) -> None:
        with anyio.fail_after(_PATIENCE_S):
            while not all(now > then for now, then in zip(sizes(), before, strict=True)):  # noqa: ASYNC110 - a file says nothing
                await anyio.sleep(0.01)

    async def work() -> None:
        async with place.open(sandbox, "sh", "-c", f"{children} cat > heard") as talk:
            await grown([0, 0])
            async with talk.paused():
                before = sizes()
                await anyio.sleep(0.3)
                want(sizes() == before, "what it started went on while it was paused")
            await grown(sizes())

    anyio.run(work)


@_promise
def ends_an_open_process_when_cancelled(sandbox: Sandbox, place: Place) -> None:
    """Nothing outlives the cancellation of an open process."""
    mark = _mark()

    async def work() -> None:
        with anyio.move_on_after(1):
            await _open(sandbox, place, _daemon(mark) + "cat", lambda talk: talk.over())

    anyio.run(work)
    _nothing_left(mark)


@_promise
def closes_twice(sandbox: Sandbox, place: Place) -> None:
    """Closing twice is harmless."""
    del place
    anyio.run(sandbox.close)
    anyio.run(sandbox.close)


async def _open(sandbox: Sandbox, place: Place, script: str, work: Callable[[Talk], Awaitable[None]]) -> None:
    async with place.open(sandbox, "sh", "-c", script) as talk:
        await work(talk)
