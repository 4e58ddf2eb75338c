"""Tasks from repositories and archives: fetched once by their content, and run like those of a folder."""

from __future__ import annotations

import http.server
import re
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from project import Project
from tasks import AGENT, write_task

from whet.packages.registries import TasksRef


@pytest.fixture
def tasks(project: Project) -> Project:
    """A project whose sandbox is left to the tasks."""
    project.sandbox = "auto"
    project.settings(AGENT)
    return project


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that a server on this machine serves, and its address."""
    folder = tmp_path / "web"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(
        ("git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", "-C", str(folder), *args),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_tasks_of_a_repository_run_at_a_tag_a_branch_and_a_commit(tasks: Project, image: str) -> None:
    repository = tasks.outside / "repository"
    write_task(repository / "sets/small/one", image)
    git(tasks.outside, "init", "--quiet", "--initial-branch", "main", str(repository))
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "first")
    git(repository, "tag", "-a", "v1", "-m", "v1")
    commit = git(repository, "rev-parse", "HEAD")
    (repository / "sets/small/one/instruction.md").write_text("echo wrong > answer.txt")
    git(repository, "commit", "--quiet", "-am", "second")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")

    seen = [tasks.whet("run", f"git+file://{repository}@{ref}#sets/small").statuses for ref in ("v1", "main", commit)]
    missing = tasks.whet("run", f"git+file://{repository}@nowhere#sets/small")
    elsewhere = tasks.whet("run", f"git+file://{repository}@v1#../..")

    assert seen == [{"one": "passed"}, {"one": "failed"}, {"one": "passed"}]
    assert (missing.code, elsewhere.code) == (2, 2)
    assert "no branch, tag or commit nowhere" in missing.stderr


def test_tasks_of_an_archive_run_and_clean_removes_what_was_fetched(
    tasks: Project, image: str, web: tuple[Path, str], cleaning: None
) -> None:
    folder, address = web
    write_task(tasks.outside / "packed/one", image)
    with tarfile.open(folder / "tasks.tar.gz", "w:gz") as archive:
        archive.add(tasks.outside / "packed", "packed")

    ended = tasks.whet("run", f"{address}/tasks.tar.gz#packed")
    foretold = tasks.whet("clean", "--images", "--dry-run")
    cleaned = tasks.whet("clean", "--images")

    assert re.search(r"^tasks      /var/tmp/whet-0/tasks/sha256-\w+  \d+\.\d MB$", foretold.stdout, re.MULTILINE)
    assert ended.statuses == {"one": "passed"}, ended.stderr
    assert "of fetched tasks" in cleaned.stdout
    assert list(Path("/var/tmp/whet-0/tasks").glob("sha256-*")) == []


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("git+https:/h.example/r.git@v2#a/b", ("https://h.example/r.git", True, "v2", "a/b")),
        ("git+ssh://git@h.example/r", ("ssh://git@h.example/r", True, "HEAD", ".")),
        ("git+file:///srv/r", ("file:///srv/r", True, "HEAD", ".")),
        ("https://h.example/t.zip#x", ("https://h.example/t.zip", False, "HEAD", "x")),
    ],
)
def test_an_address_is_understood_also_if_it_was_taken_for_a_path(text: str, meant: tuple[object, ...]) -> None:
    found = TasksRef.of(str(Path(text)))

    assert found is not None
    assert (found.url, found.is_git, found.ref, found.inner) == meant


TAKES = """\
[environment]
env = { TAKEN = "${MY_SECRET}", USUAL = "${NOT_SET:-usual}" }
"""


def test_fetched_tasks_take_no_variable_that_nobody_allowed(tasks: Project, web: tuple[Path, str], image: str) -> None:
    folder, url = web
    write_task(tasks.outside / "sets/one", image, task_DOT_toml=TAKES, instruction_DOT_md="echo $TAKEN > answer.txt")
    with tarfile.open(folder / "tasks.tar.gz", "w:gz") as archive:
        archive.add(tasks.outside / "sets", "sets")
    ref, env = f"{url}/tasks.tar.gz#sets", {"MY_SECRET": "right", "WHET_ALLOW_PRIVATE_ADDRESSES": "true"}

    refused = tasks.whet("run", ref, env=env)
    audited = tasks.whet("audit", ref, env=env)
    allowed = tasks.whet("run", ref, "--allow-env", "MY_SECRET", env=env)

    for ended in (refused, audited):
        assert ended.code == 2, ended.stdout
        assert "MY_SECRET of your environment is asked for by one" in ended.stderr
        assert "--allow-env MY_SECRET" in ended.stderr
    assert allowed.statuses == {"one": "passed"}, allowed.stderr
    assert "tasks are given variables of your environment: MY_SECRET" in allowed.stdout + allowed.stderr


def test_the_variables_that_a_task_of_yours_takes_are_named(tasks: Project, image: str) -> None:
    write_task(tasks.root / "tasks/one", image, task_DOT_toml=TAKES, instruction_DOT_md="echo $TAKEN > answer.txt")

    ended = tasks.whet("run", "tasks", env={"MY_SECRET": "right"})

    assert ended.statuses == {"one": "passed"}, ended.stderr
    assert "tasks are given variables of your environment: MY_SECRET" in ended.stdout + ended.stderr
