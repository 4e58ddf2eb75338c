"""What keeps a cluster from running trials is one error, before anything starts."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from loopback import LoopbackCluster, end, free_port, of_folder
from project import Project

import whet

PATIENCE_S = 300


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("ray://127.0.0.2:10001", "is the port of Ray Client"),
        ("127.0.0.2:6379", 'must be "ray", or "ray://HEAD:PORT"'),
        ("ray://[::1]:6379", "whet does not reach clusters by IPv6"),
        ("ray://127.0.0.2", 'must be "ray", or "ray://HEAD:PORT"'),
    ],
)
def test_an_address_that_is_none_of_a_cluster_is_refused(project: Project, on: str, said: str) -> None:
    ended = project.run("--on", on)

    assert ended.code == 2
    assert said in ended.stderr
    assert not project.output_dir.exists()


def test_a_head_that_does_not_answer_is_one_error(project: Project) -> None:
    ended = project.run("--on", f"ray://127.0.0.2:{free_port()}")

    assert ended.code == 2
    assert "Connection refused" in ended.stderr
    assert "start whet on a machine of the cluster" in ended.stderr
    assert not project.output_dir.exists()


def test_a_port_of_something_else_is_one_error(project: Project) -> None:
    with ThreadingHTTPServer(("127.0.0.2", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
        try:
            ended = project.run("--on", f"ray://127.0.0.2:{server.server_port}")
        finally:
            server.shutdown()

    assert ended.code == 2
    assert "error[usage]" in ended.stderr
    assert "nothing there answers as the head of a Ray cluster" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not project.output_dir.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_a_head_that_never_answers(project: Project, number: signal.Signals) -> None:
    with silent() as (port, asked):
        process = project.start("suite.py", "--on", f"ray://127.0.0.2:{port}")
        # The first connection only shows that something listens.
        assert asked.acquire(timeout=PATIENCE_S)
        assert asked.acquire(timeout=PATIENCE_S)
        process.send_signal(number)
        ended = project.outcome(process, within_s=PATIENCE_S)

    assert ended.code == 130, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "nothing there answers" not in ended.stderr
    assert not project.output_dir.exists()


@contextmanager
def silent() -> Iterator[tuple[int, threading.Semaphore]]:
    """Listen, take connections and never answer; the semaphore counts them."""
    asked, taken = threading.Semaphore(0), []
    with socket.create_server(("127.0.0.2", 0)) as server:

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return
                asked.release()

        thread = threading.Thread(target=take)
        thread.start()
        yield server.getsockname()[1], asked
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for each in taken:
        each.close()


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        (("--record-to", "tapes"), "", "cassettes are recorded on this machine: record without --on"),
        (("--cassette", "tapes", "--cassette-mode", "new"), "", "cassettes are recorded on this machine"),
        (("--cwd", "."), "", 'a shared workspace is on this machine: use workspace mode "isolated"'),
        ((), '[gateway]\ncache_dir = "kept"\n', "gateway.cache_dir is a folder of this machine: leave it out"),
    ],
)
def test_what_needs_this_machine_is_one_error_before_anything_starts(
    project: Project, words: tuple[str, ...], settings: str, said: str
) -> None:
    (project.root / "tapes").mkdir()
    project.suite(f"suite = [Case(id='a', prompt='touch {project.outside}/began', check=ok)]")
    # Controls are the first that a run starts.
    project.settings(f'[run]\ncontrols = true\n{settings}[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n')

    ended = project.run("--on", "ray://127.0.0.2:6379", *words)

    assert ended.code == 2
    assert f"--on ray://127.0.0.2:6379: {said}" in ended.stderr
    assert ended.stderr.count("error[") == 1
    assert not project.output_dir.exists()
    assert list(project.outside.iterdir()) == []


def test_a_node_with_another_whet_or_without_the_sandbox_is_one_error(
    three_nodes: LoopbackCluster, project: Project, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(Path(whet.__file__).parent, other / "whet")
    (other / "whet/version.py").write_text('__version__ = "9.9.9"\n')
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "sh").symlink_to("/bin/sh")
    strange = three_nodes.add(env={"PYTHONPATH": str(other)})
    poor = three_nodes.add(env={"PATH": str(bare)})
    project.write("whet.toml", (project.root / "whet.toml").read_text().replace("./agent.sh", "dirname"))
    try:
        ended = project.outcome(project.start("suite.py", "--on", three_nodes.on), within_s=PATIENCE_S)
        # Before these nodes are killed, and cannot tidy up any more.
        left = three_nodes.left()
    finally:
        three_nodes.kill(strange)
        three_nodes.kill(poor)

    assert ended.code == 2
    assert f"node {strange} has whet 9.9.9, and this machine has {whet.__version__}" in ended.stderr
    assert f"node {poor} lacks dirname" in ended.stderr
    assert not project.output_dir.exists()
    assert left == []


def test_a_machine_that_is_no_node_of_the_cluster_is_one_error(project: Project) -> None:
    cluster = LoopbackCluster(nodes=1)
    try:
        # The head still answers, and nothing of the cluster could run anything here.
        for pid in of_folder("/raylet/raylet", cluster.folder):
            end(pid)
        ended = project.run("--on", cluster.on)
    finally:
        cluster.close()

    assert ended.code == 2
    assert "this machine is no node of that cluster" in ended.stderr
    assert "start whet on a machine of the cluster" in ended.stderr
    assert not project.output_dir.exists()


def test_the_head_may_be_named_by_any_address_of_its_machine(three_nodes: LoopbackCluster, project: Project) -> None:
    ended = project.run("--on", three_nodes.on.replace("127.0.0.2", "127.0.0.99"), "--case", "c1")

    assert ended.code == 0, ended.stderr


def test_ray_does_not_keep_the_signal_to_end_for_itself(three_nodes: LoopbackCluster) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CONNECTED, three_nodes.on],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert ended.stdout == "interrupted\n", ended.stderr


CONNECTED = """
import os, signal, sys
from whet.cluster._nodes import connect

signal.signal(signal.SIGTERM, signal.default_int_handler)
connect(sys.argv[1])
try:
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_run_on_this_machine_does_not_import_ray(project: Project) -> None:
    project.suite("suite = [Case(id='a', prompt='true', check=ok)]")
    project.settings('[runners.sh.agent]\ntype = "command"\ncommand = "sh"\n')
    project.starter = (sys.executable, "-X", "importtime", "-c", _AS_MODULE)

    ended = project.whet("run", "suite.py")

    assert ended.code == 0, ended.stderr
    assert " ray" not in ended.stderr
    assert "anyio" in ended.stderr


# `Project.whet` adds the words that start whet as a module.
_AS_MODULE = "import runpy, sys; sys.argv = ['whet', *sys.argv[4:]]; runpy.run_module('whet', run_name='__main__')"
