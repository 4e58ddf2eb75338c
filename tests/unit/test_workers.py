"""Workers: whoever hangs or dies in one takes nothing else along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import anyio
import pytest

from whet.sandbox.process.workers import PrintedOutput, WorkerDied, WorkerHung, Workers


def serve(request: bytes, printed: PrintedOutput) -> bytes:  # noqa: C901, PLR0911 - a table of tricks
    """What the tests ask of a worker."""
    match request.split(b" "):
        case [b"echo", *words]:
            return b" ".join(words)
        case [b"big"]:
            return b"x" * 5_000_000
        case [b"pid"]:
            return str(os.getpid()).encode()
        case [b"print"]:
            print("by python")
            subprocess.run(["echo", "by a child"], check=True)
            return printed.text().encode()
        case [b"flood"]:
            os.write(1, b"y" * 1_000_000)
            return printed.text().encode()
        case [b"hang"]:
            time.sleep(600)
        case [b"close"]:
            os.closerange(3, 1000)
            time.sleep(600)
        case [b"exit"]:
            os._exit(0)
        case [b"kill"]:
            os.kill(os.getpid(), signal.SIGKILL)
        case [b"raise"]:
            raise RuntimeError("not caught by whoever serves")
        case [b"fork"]:
            os.fork()
            return b"forked"
    return b""


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers.fork(serve)
    yield made
    made.close()


def ask(workers: Workers, *requests: bytes, timeout_s: float = 20) -> list[object]:
    """The answers to *requests*, one after the other; an error is an answer too."""

    async def work() -> list[object]:
        answers: list[object] = []
        for request in requests:
            try:
                answers.append(await workers.call(request, timeout_s=timeout_s))
            except (WorkerDied, WorkerHung) as error:
                answers.append(type(error))
        return answers

    return anyio.run(work)


def test_requests_are_answered_by_another_process_which_is_kept(workers: Workers) -> None:
    first, second, word = ask(workers, b"pid", b"pid", b"echo hello world")

    assert first == second != str(os.getpid()).encode()
    assert word == b"hello world"


def test_large_requests_and_answers_arrive_whole(workers: Workers) -> None:
    large = b"echo " + b"z" * 3_000_000

    assert ask(workers, b"big", large) == [b"x" * 5_000_000, large[5:]]


def test_as_many_calls_run_at_once_as_are_made(workers: Workers) -> None:
    found: set[bytes] = set()

    async def call() -> None:
        found.add(await workers.call(b"pid", timeout_s=20))

    async def work() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(call)

    anyio.run(work)

    assert len(found) == 4


def test_what_is_printed_is_collected_for_its_own_call_only(workers: Workers) -> None:
    first, second, flood = ask(workers, b"print", b"print", b"flood")

    assert first == second == b"by python\nby a child\n"
    assert isinstance(flood, bytes)
    assert flood.endswith(b"(1000000 bytes in all)\n")


@pytest.mark.parametrize("request_", [b"exit", b"kill", b"close"])
def test_a_worker_that_dies_is_told_and_replaced(workers: Workers, request_: bytes) -> None:
    assert ask(workers, request_, b"echo next") == [WorkerDied, b"next"]


def test_a_worker_that_hangs_is_killed_and_replaced(workers: Workers) -> None:
    pid, hung, after = ask(workers, b"pid", b"hang", b"pid", timeout_s=1)

    assert hung is WorkerHung
    assert isinstance(after, bytes)
    assert after != pid


def test_closing_ends_them_all(workers: Workers) -> None:
    (pid,) = ask(workers, b"pid")
    assert isinstance(pid, bytes)

    workers.close()

    deadline = time.monotonic() + 300
    while _runs(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(int(pid))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_exception_of_whoever_serves_ends_the_worker_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    mark = tmp_path_factory.mktemp("unwound") / "mark"
    # In a child of ours: what escapes would unwind the stack of whoever forked the workers, which is this test.
    program = (
        "import anyio, pathlib\n"
        "from whet.sandbox.process.workers import Workers\n"
        "def serve(request, printed): raise RuntimeError('escaped')\n"
        "try:\n"
        "    workers = Workers.fork(serve)\n"
        "    anyio.run(lambda: workers.call(b'x', timeout_s=5))\n"
        "except BaseException as error:\n"
        f"    with open({str(mark)!r}, 'a') as file: file.write(type(error).__name__ + ' ')\n"
    )

    subprocess.run([sys.executable, "-c", program], check=False, timeout=300, capture_output=True)

    assert mark.read_text() == "WorkerDied "


def test_a_call_that_forks_answers_once(workers: Workers) -> None:
    answers = ask(workers, b"fork", b"echo one", b"echo two", b"echo three")

    assert answers == [b"forked", b"one", b"two", b"three"]


def test_a_worker_that_was_made_before_the_run_answers_in_it(workers: Workers) -> None:
    """What is asked before a run, such as versions of agents, has an event loop of its own."""

    async def something_else() -> None:
        workers.warm_up()

    anyio.run(something_else)

    assert ask(workers, b"echo hello", b"echo again") == [b"hello", b"again"]
