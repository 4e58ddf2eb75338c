"""The service runs the trials of its runs on a cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from loopback import LoopbackCluster

sys.path.append(str(Path(__file__).resolve().parents[1] / "server"))

from running import CONFIG, create_suite, start_run, wait_for_run
from serving import Server


def test_a_run_of_the_service_runs_on_the_nodes(three_nodes: LoopbackCluster, tmp_path: Path) -> None:
    config, seen = tmp_path / "whet.toml", tmp_path / "seen"
    config.write_text(CONFIG)
    seen.mkdir()
    server = Server(
        database=f"sqlite:///{tmp_path}/whet.db",
        data_dir=tmp_path / "data",
        options=("--config", str(config), "--sandbox", "local", "--on", three_nodes.on),
    ).start()
    try:
        with server.client(server.key("acme")) as client:
            suite = create_suite(client, [f"echo {n} $PWD > {seen}/{n}; echo done" for n in range(6)])
            run = wait_for_run(client, start_run(client, suite))
    finally:
        server.stop()

    lines = [line for path in (tmp_path / "data").rglob("journal.jsonl") for line in path.read_text().splitlines()]
    journals = [(json.loads(line)["failure"] or {}).get("message") for line in lines][:1]
    assert (run["status"], run["outcome"]) == ("completed", "passed"), journals
    # The scratch folders of attempts are those of nodes.
    places = {note.read_text().split()[1] for note in seen.iterdir()}
    assert places
    assert all(place.startswith(str(three_nodes.folder)) for place in places)
    assert three_nodes.left() == []


def test_a_service_is_not_started_with_an_address_that_is_none(tmp_path: Path) -> None:
    server = Server(database=f"sqlite:///{tmp_path}/whet.db", data_dir=tmp_path / "data")

    said = server.fails("serve", "--sandbox", "local", "--data-dir", str(tmp_path), "--on", "ray://127.0.0.2:10001")

    assert "is the port of Ray Client" in said
