"""The contract of a sandbox, held against every one of ours."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from whet.errors import AgentNotFound, AgentNotStarted
from whet.ground.descent import become_subreaper
from whet.ground.sandbox import Availability, Boundary, Command, Ended, Sandbox, Sink
from whet.model import plugins

_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def sandbox(sandbox_name: str) -> Iterator[Sandbox]:
    # Whoever runs sandboxes is the heir of orphans, as the pipeline is; other tests want to see where theirs go.
    become_subreaper()
    made: Sandbox = plugins.find("sandboxes", sandbox_name)()
    yield made
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class Place:
    """A workspace, and what a process printed in it."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "work"
        self.workspace.mkdir()
        self.out = bytearray()
        self.err = bytearray()

    def command(self, *argv: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Command:
        return Command(argv=argv, env={"PATH": os.environ["PATH"], **(env or {})}, cwd=self.workspace, stdin=stdin)

    def run(
        self, sandbox: Sandbox, *argv: str, stdin: bytes = b"", timeout_s: float = 30, out: Sink | None = None
    ) -> Ended:
        async def work() -> Ended:
            return await sandbox.run(
                self.command(*argv, stdin=stdin),
                Boundary(writable=(self.workspace,)),
                timeout_s=timeout_s,
                stdout=out or self.out.extend,
                stderr=self.err.extend,
            )

        return anyio.run(work)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def alive(mark: str) -> list[int]:
    """Processes with *mark* among their arguments that are more than zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if mark.encode() in (entry / "cmdline").read_bytes() and state != b"Z":
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def daemon(mark: str, before: str = "") -> str:
    """A shell script that leaves a process behind which left its session, and one without an environment."""
    # A minute at most: what a failing test leaves behind ends by itself.
    stay = f"trap '' TERM HUP; sleep 60; : {mark}"
    return f'{before}(setsid sh -c "{stay}" &) ; (setsid env -i sh -c "{stay}" &) ; sleep 0.2; '


def test_a_sandbox_says_its_name_and_whether_it_can_be_used(sandbox_name: str) -> None:
    kind = plugins.find("sandboxes", sandbox_name)

    state = kind.availability()

    assert isinstance(state, Availability)
    assert state.usable
    assert kind.name == sandbox_name


def test_an_end_has_an_exit_code_and_the_output_of_both_streams(sandbox: Sandbox, place: Place) -> None:
    ended = place.run(sandbox, "sh", "-c", "cat; echo err >&2; exit 7", stdin=b"from stdin")

    assert (ended.exit_code, ended.signal, ended.timed_out) == (7, None, False)
    assert bytes(place.out) == b"from stdin"
    assert bytes(place.err) == b"err\n"
    assert ended.duration_s >= 0


def test_without_input_standard_input_is_empty(sandbox: Sandbox, place: Place) -> None:
    ended = place.run(sandbox, "cat")

    assert ended.exit_code == 0
    assert bytes(place.out) == b""


def test_a_process_has_its_own_environment_and_works_in_its_folder(sandbox: Sandbox, place: Place) -> None:
    os.environ["WHET_TEST_OURS"] = "ours"
    try:
        place.run(sandbox, "sh", "-c", "pwd; env; echo x > made")
    finally:
        del os.environ["WHET_TEST_OURS"]

    assert str(place.workspace) in place.out.decode()
    assert "WHET_TEST_OURS" not in place.out.decode()
    assert (place.workspace / "made").exists()


def test_a_death_by_signal_is_told_apart_from_an_exit_and_from_a_timeout(sandbox: Sandbox, place: Place) -> None:
    ended = place.run(sandbox, "sh", "-c", "kill -KILL $$")

    assert not ended.timed_out
    # Inside a namespace of its own, the number comes back as a shell would tell it.
    assert ended.signal == signal.SIGKILL or ended.exit_code == 128 + signal.SIGKILL


def test_a_time_limit_stops_a_process_that_ignores_being_asked(sandbox: Sandbox, place: Place) -> None:
    ended = place.run(sandbox, "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", timeout_s=0.3)

    assert ended.timed_out


def test_a_missing_program_is_not_found(sandbox: Sandbox, place: Place) -> None:
    with pytest.raises(AgentNotFound, match="no-such-program"):
        place.run(sandbox, "no-such-program")

    with pytest.raises(AgentNotFound, match="missing"):
        place.run(sandbox, "./missing")


def test_a_program_cannot_pass_its_own_failure_for_one_of_the_sandbox(sandbox: Sandbox, place: Place) -> None:
    ended = place.run(sandbox, "sh", "-c", "echo 'bwrap: execvp sh: No such file or directory' >&2; exit 1")

    assert ended.exit_code == 1


def test_a_program_that_may_not_be_executed_is_an_error_and_no_end(sandbox: Sandbox, place: Place) -> None:
    (place.workspace / "plain").write_text("text")

    with pytest.raises((AgentNotStarted, AgentNotFound), match="plain"):
        place.run(sandbox, "./plain")


def test_arguments_that_are_too_long_are_an_error_and_no_end(sandbox: Sandbox, place: Place) -> None:
    with pytest.raises(AgentNotStarted, match="too long"):
        place.run(sandbox, "echo", "x" * 200_000)


def test_a_sink_that_raises_ends_the_process_and_its_exception_arrives(sandbox: Sandbox, place: Place) -> None:
    def refuse(chunk: bytes) -> None:
        raise LookupError(f"had enough after {len(chunk)}")

    with pytest.raises(LookupError, match="had enough"):
        place.run(sandbox, "sh", "-c", f": refused-{os.getpid()}; while :; do echo x; done", out=refuse)

    assert alive(f"refused-{os.getpid()}") == []


def test_all_that_was_printed_arrives_before_the_end(sandbox: Sandbox, place: Place) -> None:
    place.run(sandbox, "sh", "-c", "head -c 3000000 /dev/zero; printf end")

    assert len(place.out) == 3_000_003
    assert place.out.endswith(b"end")


@pytest.mark.parametrize("ending", ["exit 0", "exit 3", "kill -KILL $$"])
def test_nothing_outlives_a_process_that_ends_by_itself(sandbox: Sandbox, place: Place, ending: str) -> None:
    mark = f"stray-{os.getpid()}-{time.monotonic_ns()}"

    place.run(sandbox, "sh", "-c", daemon(mark) + ending)

    assert alive(mark) == []


def test_nothing_outlives_a_time_limit(sandbox: Sandbox, place: Place) -> None:
    mark = f"stray-{os.getpid()}-{time.monotonic_ns()}"

    ended = place.run(sandbox, "sh", "-c", daemon(mark) + "sleep 600", timeout_s=1)

    assert ended.timed_out
    assert alive(mark) == []


def test_nothing_outlives_a_cancellation(sandbox: Sandbox, place: Place) -> None:
    mark = f"stray-{os.getpid()}-{time.monotonic_ns()}"
    script = daemon(mark, "trap '' TERM; ") + "echo ready; sleep 600"

    async def work() -> None:
        begun = anyio.Event()

        def out(chunk: bytes) -> None:
            begun.set()

        async def run() -> None:
            await sandbox.run(
                place.command("sh", "-c", script),
                Boundary(writable=(place.workspace,)),
                timeout_s=60,
                stdout=out,
                stderr=place.err.extend,
            )

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await begun.wait()
            group.cancel_scope.cancel()

    anyio.run(work)

    assert alive(mark) == []


def test_one_end_leaves_the_processes_of_others_alone(sandbox: Sandbox, tmp_path: Path) -> None:
    places = [Place(_made(tmp_path / name)) for name in ("one", "two")]
    codes: dict[str, int | None] = {}

    async def run(name: str, place: Place, script: str) -> None:
        ended = await sandbox.run(
            place.command("sh", "-c", script),
            Boundary(writable=(place.workspace,)),
            timeout_s=30,
            stdout=place.out.extend,
            stderr=place.err.extend,
        )
        codes[name] = ended.exit_code

    async def work() -> None:
        async with anyio.create_task_group() as group:
            # It works through a child that left its session, as agents' shell tools do.
            group.start_soon(run, "long", places[0], "setsid -w sh -c 'sleep 1; echo done'")
            group.start_soon(run, "short", places[1], "sleep 0.2; (setsid sleep 600 &); exit 0")

    anyio.run(work)

    assert codes == {"long": 0, "short": 0}
    assert bytes(places[0].out) == b"done\n"


def talk_with(sandbox: Sandbox, place: Place, script: str, *said: bytes, want: int = 1) -> list[bytes]:
    """Start a shell script, say each line after the answer to the last, and hand out the first *want* answers."""
    answers: list[bytes] = []

    async def work() -> None:
        event = anyio.Event()

        def out(chunk: bytes) -> None:
            nonlocal event
            place.out.extend(chunk)
            event.set()
            event = anyio.Event()

        async with sandbox.open(
            place.command("sh", "-c", script),
            Boundary(writable=(place.workspace,)),
            stdout=out,
            stderr=place.err.extend,
        ) as talk:
            for line in said:
                await talk.send(line)
                with anyio.fail_after(20):
                    while place.out.count(b"\n") <= len(answers):
                        await event.wait()
                answers.append(bytes(place.out).split(b"\n")[len(answers)])

    anyio.run(work)
    assert len(answers) >= want
    return answers


def test_an_open_process_answers_one_line_after_another(sandbox: Sandbox, place: Place) -> None:
    script = 'echo $$ > id; while read line; do echo "got $line"; done; echo end > ended'

    answers = talk_with(sandbox, place, script, b"one\n", b"two\n", want=2)

    assert answers == [b"got one", b"got two"]
    # It was let know that nothing more comes, and ended by itself.
    assert (place.workspace / "ended").exists()


def test_more_than_a_pipe_holds_can_be_sent_to_an_open_process(sandbox: Sandbox, place: Place) -> None:
    answers = talk_with(sandbox, place, "sleep 0.2; head -c 1000000 | wc -c; cat >/dev/null", b"x" * 999_999 + b"\n")

    assert answers == [b"1000000"]


def test_sending_to_an_open_process_that_has_ended_is_a_broken_pipe(sandbox: Sandbox, place: Place) -> None:
    async def work() -> None:
        async with sandbox.open(
            place.command("sh", "-c", "exit 3"),
            Boundary(writable=(place.workspace,)),
            stdout=place.out.extend,
            stderr=place.err.extend,
        ) as talk:
            await talk.over()
            await talk.send(b"anybody?\n")

    with pytest.raises(BrokenPipeError):
        anyio.run(work)


def test_sending_does_not_wait_for_one_that_died_while_its_child_holds_the_pipe(sandbox: Sandbox, place: Place) -> None:
    async def work() -> None:
        async with sandbox.open(
            place.command("sh", "-c", "sleep 60 & sleep 0.3; exit 3"),
            Boundary(writable=(place.workspace,)),
            stdout=place.out.extend,
            stderr=place.err.extend,
        ) as talk:
            with anyio.fail_after(20):
                await talk.send(b"x" * 4_000_000)

    with pytest.raises(BrokenPipeError):
        anyio.run(work)


def test_a_sink_that_raises_ends_an_open_process(sandbox: Sandbox, place: Place) -> None:
    def refuse(chunk: bytes) -> None:
        raise LookupError(f"had enough after {len(chunk)}")

    async def work() -> None:
        async with sandbox.open(
            place.command("sh", "-c", f": refused-{os.getpid()}; while :; do echo x; done"),
            Boundary(writable=(place.workspace,)),
            stdout=refuse,
            stderr=place.err.extend,
        ) as talk:
            await talk.over()

    with pytest.raises(LookupError, match="had enough"):
        anyio.run(work)

    assert alive(f"refused-{os.getpid()}") == []


@pytest.mark.parametrize("ending", ["cat", "trap '' TERM; sleep 600", "exit 3"])
def test_nothing_outlives_an_open_process(sandbox: Sandbox, place: Place, ending: str) -> None:
    mark = f"stray-{os.getpid()}-{time.monotonic_ns()}"

    talk_with(sandbox, place, daemon(mark) + f"echo ready; {ending}", b"hello\n")

    assert alive(mark) == []


def test_nothing_outlives_the_cancellation_of_an_open_process(sandbox: Sandbox, place: Place) -> None:
    mark = f"stray-{os.getpid()}-{time.monotonic_ns()}"

    async def work() -> None:
        with anyio.move_on_after(1):
            async with sandbox.open(
                place.command("sh", "-c", daemon(mark) + "cat"),
                Boundary(writable=(place.workspace,)),
                stdout=place.out.extend,
                stderr=place.err.extend,
            ) as talk:
                await talk.over()

    anyio.run(work)

    assert alive(mark) == []


def test_a_missing_program_cannot_be_opened(sandbox: Sandbox, place: Place) -> None:
    async def work() -> None:
        async with sandbox.open(
            place.command("no-such-program"),
            Boundary(writable=(place.workspace,)),
            stdout=place.out.extend,
            stderr=place.err.extend,
        ):
            pass

    with pytest.raises(AgentNotFound, match="no-such-program"):
        anyio.run(work)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_closing_twice_is_harmless(sandbox: Sandbox) -> None:
    anyio.run(sandbox.close)

    anyio.run(sandbox.close)


def test_the_last_words_of_a_program_that_does_not_wait_for_its_reader_arrive(sandbox: Sandbox, place: Place) -> None:
    # As Node programs do: they write what fits at once, and exit.
    script = "import os; os.set_blocking(1, False); os._exit(os.write(1, b'x' * 500_000) != 500_000)"

    ended = place.run(sandbox, "python3", "-c", script)

    assert (ended.exit_code, len(place.out)) == (0, 500_000)
