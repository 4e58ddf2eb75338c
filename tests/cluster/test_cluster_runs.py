"""A run on three nodes of a real Ray cluster is the same run as here."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from loopback import LoopbackCluster, bearing
from project import Outcome, Project, wait_for

PATIENCE_S = 300
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_TIMES = re.compile(r"(_s|_at|duration|time|^chain$|^run$|^files$)")
_PLACES = re.compile(r"/tmp/[^ '\"]*whet-[a-z0-9_]{8}/w\d+|/tmp/wr-[^ '\"]*")


def on(cluster: LoopbackCluster, project: Project, *more: str, env: dict[str, str] | None = None) -> Outcome:
    """Run the suite of *project* on the cluster."""
    process = project.start("suite.py", "--on", cluster.on, *more, env=env)
    return project.outcome(process, within_s=PATIENCE_S)


def timeless(value: Any) -> Any:
    """Return *value* without times, and without the folders of attempts."""
    match value:
        case dict():
            return {name: timeless(item) for name, item in value.items() if not _TIMES.search(name)}
        case list():
            return [timeless(item) for item in value]
        case str():
            return _PLACES.sub("PLACE", value)
        case _:
            return value


def lines(folder: Path) -> list[Any]:
    """Return what the journal says of each trial, in the order of their names."""
    found = [timeless(json.loads(line)) for line in (folder / "journal.jsonl").read_bytes().splitlines()]
    return sorted(found, key=json.dumps)


def listed(folder: Path) -> set[tuple[str, int]]:
    """Return every path of trials and workspaces, with its mode."""
    paths = [path for part in ("trials", "workspaces") for path in (folder / part).rglob("*")]
    return {(str(path.relative_to(folder)), path.lstat().st_mode) for path in paths}


def test_a_run_on_three_nodes_leaves_the_record_of_the_same_run_here(
    three_nodes: LoopbackCluster, project: Project
) -> None:
    here = project.outcome(project.start("suite.py", "--trials", "2"), within_s=PATIENCE_S)
    first = here.folder
    for note in project.outside.iterdir():
        note.unlink()

    there = on(three_nodes, project, "--trials", "2")

    assert (here.code, there.code) == (1, 1), there.stderr
    assert len(lines(there.folder)) == 40
    # Ray notices only after a while that a node was killed by a test before.
    assert re.search(rf"^  cluster +{re.escape(three_nodes.on)}, \d nodes$", there.stdout, re.MULTILINE)
    assert "cluster" not in here.stdout
    assert lines(first) == lines(there.folder)
    assert listed(first) == listed(there.folder)
    grades = [folder / "trials/c7/sh/default/1/1/grades.json" for folder in (first, there.folder)]
    assert timeless(json.loads(grades[0].read_bytes())) == timeless(json.loads(grades[1].read_bytes()))
    # The agents of each trial ran once, and on all nodes: each has a folder of its own.
    scratch = [note.name.split(".")[0] for note in project.outside.iterdir()]
    assert len(scratch) == 40
    assert len(set(scratch)) == 3
    assert project.whet("verify", "latest").code == 0


def test_evals_of_a_skill_run_as_here(three_nodes: LoopbackCluster, tmp_path: Path) -> None:
    project = Project(tmp_path / "evals")
    shutil.copytree(EXAMPLES / "evals", project.root, dirs_exist_ok=True)
    words = (".", "--skill", "release-notes")

    here = project.outcome(project.start(*words), within_s=PATIENCE_S)
    first = here.folder
    there = project.outcome(project.start(*words, "--on", three_nodes.on), within_s=PATIENCE_S)

    assert (here.code, there.code) == (0, 0), there.stdout + there.stderr
    # One of the cases asks whether the skill is chosen among others, which whet keeps beside its records.
    assert len(lines(there.folder)) == 5
    assert lines(first) == lines(there.folder)


def test_bench_runs_on_a_cluster_too(three_nodes: LoopbackCluster, project: Project) -> None:
    case = '{"id": "a", "prompt": "hello", "expect": ["file:said contains \'hello\'"]}'
    project.write("bench.json", f'{{"name": "b", "cases": [{case}]}}')
    (project.root / "suite.py").unlink()

    process = project.start("bench.json", "--on", three_nodes.on, "--runs", "1", command="bench")
    ended = project.outcome(process, within_s=PATIENCE_S)

    assert ended.code == 0, ended.stdout + ended.stderr
    assert len(list(project.outside.iterdir())) == 1


def test_places_of_nodes_are_for_one_user_alone_and_neither_they_nor_keys_are_left(
    three_nodes: LoopbackCluster, project: Project
) -> None:
    key = project.env["MY_KEY"]

    process = project.start("suite.py", "--on", three_nodes.on, "--trials", "1")
    wait_for(project.outside, pattern="*")
    modes = {path.name: path.stat().st_mode & 0o077 for path in three_nodes.folder.glob("whet-*")}
    ended = project.outcome(process, within_s=PATIENCE_S)

    assert ended.code == 1, ended.stderr
    assert modes
    assert set(modes.values()) == {0}
    assert three_nodes.left() == []
    assert project.left_after_a_while() == []
    holding = [
        str(path)
        for place in (three_nodes.folder, project.root, Path("/dev/shm"))
        for path in place.rglob("*")
        # What we may not read, others have made.
        if path.is_file() and os.access(path, os.R_OK) and key.encode() in path.read_bytes()
    ]
    assert holding == []


def test_records_in_the_folder_of_the_suite_stay_here(three_nodes: LoopbackCluster, project: Project) -> None:
    words = ("--trials", "1", "--case", "c1")
    earlier = project.run(*words, "--output-dir", "records")

    ended = on(three_nodes, project, *words)

    assert (earlier.code, ended.code) == (0, 0), ended.stderr
    assert list(project.root.glob("records/*/journal.jsonl"))
    carried = {path.name for path in three_nodes.folder.glob("whet-*/archives/**/*")}
    assert "agent.sh" in carried
    assert not carried & {"journal.jsonl", "run.json", "trials"}


def test_what_a_trial_needs_decides_where_it_runs(three_nodes: LoopbackCluster, project: Project) -> None:
    project.write(
        "whet.toml",
        (project.root / "whet.toml").read_text()
        + '[resources."*"]\ncpus = 0.5\n[resources."c1*"]\ncustom = {docker = 1}\n',
    )
    without = on(three_nodes, project, "--trials", "1")
    special = three_nodes.add(resources='{"docker": 1}')
    try:
        found = on(three_nodes, project, "--trials", "1", "--case", "c1*")
    finally:
        three_nodes.kill(special)

    assert without.code == 2
    assert "c1 on sh and 10 more: no node has CPU 0.5, docker 1" in without.stderr
    assert without.stderr.count("no node has") == 1
    assert "nothing" not in without.stdout
    assert found.code == 0, found.stderr
    scratch = {note.name.split(".")[0] for note in project.outside.iterdir()}
    assert len(scratch) == 1


@pytest.mark.usefixtures("three_nodes")
def test_a_cluster_of_this_machine_is_started_and_ended_with_the_run(project: Project) -> None:
    # Those of others, as the three nodes of the tests, are not taken.
    with tempfile.TemporaryDirectory(prefix="wr-") as folder:
        environ = {"TMPDIR": folder, "RAY_TMPDIR": folder}
        process = project.start("suite.py", "--on", "ray", "--trials", "1", env=environ)
        ended = project.outcome(process, within_s=PATIENCE_S)
        left, started = bearing(folder), [path.name for path in Path(folder).glob("ray/session_2*")]

    assert ended.code == 1, ended.stderr
    assert len(lines(ended.folder)) == 20
    assert len(started) == 1
    # Ray finds the nodes of other tests, if these are up.
    assert re.search(r"^  cluster +ray://127\.0\.0\.\d+:\d+, \d+ nodes?$", ended.stdout, re.MULTILINE)
    assert left == []
