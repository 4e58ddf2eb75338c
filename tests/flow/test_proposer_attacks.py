"""A proposer, or an agent under test, that looks for held-out cases, and proposers that leave what is no skill."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from project import Project
from proposing import HELD_OUT_PROMPT, MARK, Workshop

pytestmark = pytest.mark.bubblewrap

# Tries each way that it knows to text that is nowhere in what it was given, and says where it met the mark.
SPY = """
import glob, json, os, pathlib, socket, subprocess, sys, urllib.request
prompt = sys.stdin.read()
first, second, third = WORDS
marks = [" ".join((first, second, third)).encode(), b"invite-the-" + b"harbour"]
suite, lock, root, home, port = PLACES
met, tried = [], []

def look(way, data):
    if any(mark in data for mark in marks):
        met.append(way)

def read(way, path):
    tried.append(way)
    try:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                look(f"{way} {path}", file.read(4_000_000))
    except (OSError, ValueError):
        pass

def run(way, *command):
    tried.append(way)
    try:
        done = subprocess.run(command, capture_output=True, timeout=20)
        look(way, done.stdout + done.stderr)
    except (OSError, subprocess.SubprocessError):
        pass

def below(way, folder):
    for place, _, names in os.walk(folder):
        for name in names:
            read(way, os.path.join(place, name))

for path in (suite, lock):
    read("path", path)
    read("through /proc/self/root", "/proc/self/root" + path)
    read("around", os.path.relpath(path))
    for number in ("1", str(os.getppid())):
        read("through a process", f"/proc/{number}/root{path}")
        read("through a process", f"/proc/{number}/cwd/{os.path.relpath(path, root)}")
    try:
        os.symlink(path, "skill/way-in.md")
        read("through a link", "skill/way-in.md")
        os.unlink("skill/way-in.md")
        os.link(path, "skill/way-in.md")
        read("through a hard link", "skill/way-in.md")
    except OSError:
        pass
    run("mounts", "unshare", "-rm", "cat", path)
    run("namespaces", "nsenter", "-t", "1", "-m", "cat", path)
    run("another user", "sudo", "-n", "cat", path)
look("environment", json.dumps(dict(os.environ)).encode())
for entry in glob.glob("/proc/[0-9]*") if FOLDERS else ():
    for name in ("environ", "cmdline", "maps", "mountinfo"):
        if name != "cmdline" or int(entry[6:]) not in (os.getpid(),):
            read("processes", f"{entry}/{name}")
    for descriptor in glob.glob(f"{entry}/fd/*"):
        if os.path.isfile(descriptor):
            read("descriptors", descriptor)
run("history", "git", "-C", root, "log", "-p", "--all")
read("history", os.path.join(root, ".git", "COMMIT_EDITMSG"))
for folder in (root, home, *FOLDERS):
    below("folders", folder)
for line in pathlib.Path("/proc/self/mountinfo").read_text().split() if FOLDERS else ():
    for piece in line.replace("=", ",").split(","):
        if piece.startswith("/") and os.path.isdir(piece):
            for up in range(8):
                read("above a mount", os.path.join(piece, *[".."] * up, os.path.relpath(suite, root)))
try:
    tried.append("network")
    look("network", urllib.request.urlopen(f"http://127.0.0.1:{port}/evals.json", timeout=5).read())
except OSError:
    pass
skill = pathlib.Path("skill/SKILL.md")
if skill.exists():
    skill.write_text(skill.read_text() + "\\nBe kind.\\n")
print(json.dumps({"met": sorted(set(met)), "tried": sorted(set(tried))}))
"""


class SuiteHandler(BaseHTTPRequestHandler):
    """Answers with the suite, whatever is asked."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(HELD_OUT_PROMPT.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server of this machine that has the suite, as a project may have one."""
    with HTTPServer(("127.0.0.1", 0), SuiteHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()
        thread.join()


# Where a program looks that is in a sandbox; this machine has much there that is nobody's business.
FOLDERS = ("/root", "/home", "/tmp", "/var/tmp", "/dev/shm", "/run", "/srv", "/mnt")


def spy(workshop: Workshop, port: int, folders: tuple[str, ...] = FOLDERS) -> str:
    """The program, with the places that a proposer could know from elsewhere."""
    root = workshop.project.root
    lock = workshop.suite.parent / "split.lock.json"
    places = (str(workshop.suite), str(lock), str(root), str(root.parent / "home"), port)
    words = {"WORDS": tuple(MARK.split()), "PLACES": places, "FOLDERS": folders}
    program = SPY
    for name, value in words.items():
        program = program.replace(name, repr(value))
    return program


@pytest.fixture
def workshop(project: Project) -> Workshop:
    """A workshop with a lock, a history, and sessions in the home of its user, all of which tell held-out cases."""
    workshop = Workshop(project)
    history = project.root.parent / "home" / ".claude" / "history.jsonl"
    history.parent.mkdir(parents=True)
    history.write_text(json.dumps({"display": HELD_OUT_PROMPT}))
    workshop.settle("print(1)")
    split = project.whet("split", "greet")
    assert split.code == 0, split.stderr
    assert (workshop.suite.parent / "split.lock.json").exists()
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", HELD_OUT_PROMPT)):
        subprocess.run(
            ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", *command), cwd=project.root, check=True
        )
    return workshop


def test_a_proposer_that_looks_for_held_out_cases_meets_none_and_the_record_shows_that_it_looked(
    workshop: Workshop, port: int
) -> None:
    workshop.settle(spy(workshop, port))
    practice = workshop.practise()

    proposed = workshop.propose(
        evidence=[practice.folder], candidates=1, env={"HELD_OUT": HELD_OUT_PROMPT, "MY_SECRET_KEY": HELD_OUT_PROMPT}
    )

    assert proposed.code == 0, proposed.stderr
    (record,) = proposed.records
    assert record.fate == "proposed"
    finding = json.loads(record.changes)
    assert finding["met"] == []
    assert {"path", "history", "processes", "folders", "network", "through a link"} <= set(finding["tried"])
    session = proposed.place / "candidates" / "r1c1" / "session"
    kept_text = "".join(path.read_text() for path in session.iterdir() if path.name.startswith("transcript"))
    assert "through a link" in kept_text
    shown_text = "".join(path.read_text() for path in proposed.shown("r1c1").rglob("*") if path.is_file())
    assert MARK not in shown_text
    assert "invite-the-harbour" not in shown_text


def test_the_spy_finds_them_where_nothing_hides_them(workshop: Workshop, port: int) -> None:
    """So that the test above can fail."""
    program = spy(workshop, port, ())

    done = subprocess.run(
        ["python3", "-c", program], input="", capture_output=True, text=True, check=True, cwd=workshop.project.root
    )

    ways = {way.split(" /")[0] for way in json.loads(done.stdout)["met"]}
    assert {"path", "folders", "network", "history"} <= ways


def test_an_agent_under_test_does_not_get_the_lock_of_the_split(workshop: Workshop, port: int) -> None:
    workshop.settle("print(1)", agent=spy(workshop, port), more="network = false\n")
    settings = (workshop.project.root / "whet.toml").read_text()
    settings = settings.replace("[runners.proposer.agent]", "network = false\n\n[runners.proposer.agent]")
    workshop.project.settings(settings)

    done = workshop.practise()

    outputs = [json.loads(trial["final_output"] or "{}") for trial in done.trials]
    assert len(outputs) == 5
    assert [output["met"] for output in outputs] == [[]] * 5


LEAVES = {
    "a script": ("pathlib.Path('skill/run.sh').write_text('#!/bin/sh')", "scripts"),
    "an address": ("add('See https://example.com/answers.')", "scripts"),
    "another name": ("text(lambda old: old.replace('name: greet', 'name: other'))", "shape"),
    "a link out": ("os.symlink('/etc/hostname', 'skill/answers.md')", "shape"),
    "a link to the suite": ("os.symlink(suite, 'skill/answers.md')", "shape"),
    "a manifest that is a link": ("os.unlink('skill/SKILL.md'); os.symlink(suite, 'skill/SKILL.md')", "shape"),
    "a folder that is a link": ("os.symlink('/etc', 'skill/more')", "shape"),
    "a pipe": ("os.mkfifo('skill/pipe'); add('More.')", None),
    "a huge file": ("add('x ' * 20_000_000)", None),
    "a huge file with a hole": ("open('skill/big.md', 'wb').truncate(10 ** 12)", None),
    "a suite": ("os.mkdir('skill/evals'); pathlib.Path('skill/evals/evals.json').write_text('{}')", "shape"),
    "settings": ("pathlib.Path('skill/whet.toml').write_text('')", "shape"),
    "text of a case": ("add('Kindly invite the harbour office to the picnic that takes place.')", "leak"),
    "no manifest": ("os.unlink('skill/SKILL.md')", "shape"),
    "no folder": ("shutil.rmtree('skill')", None),
    "a link in the place of the folder": ("shutil.rmtree('skill'); os.symlink('/etc', 'skill')", None),
    "a file in the place of the folder": ("shutil.rmtree('skill'); open('skill', 'w').write('x')", None),
    "a secret": ("add(os.environ.get('LENT_TOKEN', 'none at all'))", "secrets"),
    "ten thousand folders": ("deep()", None),
    "names that are no paths": ("[open('skill/' + name, 'w').close() for name in ('a\\\\b', ' ', 'n\\\\nn')]", "part"),
}
LEAVING = """
import os, pathlib, shutil, sys
suite = SUITE
def text(change):
    path = pathlib.Path("skill/SKILL.md")
    path.write_text(change(path.read_text()))
def add(more):
    text(lambda old: old + more)
def deep():
    place = "skill"
    for _ in range(10_000):
        os.mkdir("x"); os.chdir("x")
LEAVE
"""


@pytest.mark.parametrize("name", LEAVES)
def test_what_is_no_skill_is_refused_or_a_dud_and_nothing_else_changes(workshop: Workshop, name: str) -> None:
    action, rule = LEAVES[name]
    program = LEAVING.replace("SUITE", repr(str(workshop.suite))).replace("LEAVE", action)
    workshop.settle(program, more='env = { LENT_TOKEN = "t0ken-of-this-machine" }\n')
    before = {path: path.read_bytes() for path in workshop.skill.rglob("*") if path.is_file()}

    proposed = workshop.propose(candidates=1, lint=True)

    assert proposed.code == 0, proposed.stderr
    (record,) = proposed.records
    assert record.fate in ("refused", "dud"), record
    if rule is not None:
        assert rule in {finding.rule for finding in record.lint}
    assert {path: path.read_bytes() for path in workshop.skill.rglob("*") if path.is_file()} == before
    below = proposed.place / "candidates" / "r1c1" / "skill"
    assert not [path for path in below.rglob("*") if path.is_symlink()]
    assert sum(path.stat().st_size for path in below.rglob("*") if path.is_file()) < 64 * 1024**2
    assert "t0ken-of-this-machine" not in "".join(
        path.read_text(errors="replace") for path in proposed.place.rglob("*") if path.is_file()
    )
