"""Callers that connect and do not send a request."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from serving import PATIENCE_S, wait_until

from whet.service.start import ImpatientProtocol

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Hasty(ImpatientProtocol):
    patience_s = 0.2


async def slow_app(scope: Any, receive: Any, send: Any) -> None:
    """Answers after the patience for a head has ended."""
    await asyncio.sleep(3 * Hasty.patience_s)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def port() -> Iterator[int]:
    config = uvicorn.Config(slow_app, port=0, http=Hasty, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: "], ids=["nothing", "half a head"])
def test_a_connection_without_a_whole_head_is_closed(port: int, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as caller:
        caller.sendall(said)

        assert caller.recv(100) == b""


def test_a_slow_answer_is_sent_and_a_slow_next_head_closes_the_connection(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as caller:
        caller.sendall(REQUEST)

        answer = caller.recv(1000)
        while not answer.endswith(b"ok"):
            answer += caller.recv(1000)
        caller.sendall(REQUEST[:10])

        assert answer.startswith(b"HTTP/1.1 200")
        assert caller.recv(100) == b""


def test_each_request_of_a_connection_has_the_whole_time(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as caller:
        answers = []
        for _ in range(3):
            caller.sendall(REQUEST[:10])
            caller.sendall(REQUEST[10:])
            answer = caller.recv(1000)
            while not answer.endswith(b"ok"):
                answer += caller.recv(1000)
            answers.append(answer[:12])

        assert answers == [b"HTTP/1.1 200"] * 3
