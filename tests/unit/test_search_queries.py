"""Searching sessions: what fits a term, in whatever way an agent writes its events, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.errors import UsageError
from whet.record.read.rows import RowKey, TrialRow
from whet.record.read.search import MOST_EVENTS, Query, Term, read_query, search

EVENTS = [
    {"type": "message", "role": "assistant", "text": "I will look at the Größe of it first."},
    {"type": "tool_call", "tool": "Bash", "id": "1", "args": {"command": "python -m unittest"}},
    {"type": "command", "command": "python -m UnitTest -v", "exit_code": 0},
    {"type": "tool_result", "id": "1", "output": 'File "a.py", line 3\n\tpath C:\\temp not found'},
    {"type": "file_read", "path": "src/CHANGELOG.md"},
    {"type": "file_edit", "path": "docs/notes.md"},
    {"type": "skill_signal", "skill": "plugin:release-notes", "loaded": True},
    {"type": "skill_signal", "skill": "absent", "loaded": False},
    {"type": "final_output", "text": "Done: 日本語."},
]


def record(tmp_path: Path, data: bytes, name: str = "events.jsonl") -> TrialRow:
    folder = tmp_path / "trials" / "a" / "1"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(data)
    return TrialRow(key=RowKey("a", "sh", "new", 1), status="passed", artifact_dir="trials/a/1")


def hits(tmp_path: Path, query: str, *, ascii_only: bool = False, spaced: bool = True):
    separators = (", ", ": ") if spaced else (",", ":")
    lines = [json.dumps(event, ensure_ascii=ascii_only, separators=separators) for event in EVENTS]
    row = record(tmp_path, ("\n".join(lines) + "\n").encode())
    [trial] = search(tmp_path, [row], read_query(query))
    return trial.found


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("spaced", [True, False])
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("tool:Bash", 1),
        ("tool:b*h", 1),
        ("cmd:unittest", 2),
        ("CMD:UNITTEST", 2),
        ('cmd:"unittest -v"', 2),
        ("file:changelog.md", 4),
        ("file:notes", 5),
        ("skill:release-notes", 6),
        ("skill:plugin:release-notes", 6),
        ('text:"not found"', 3),
        ("text:C:\\temp", 3),
        ("text:größe", 0),
        ("GRÖSSE", None),
        ("日本語", 8),
        ("unittest", 1),
        ("notes.md tool:Bash", 5),
        ('"look at the"', 0),
    ],
)
def test_a_term_is_found_where_it_is(tmp_path, query, first, ascii_only, spaced):
    found = hits(tmp_path, query, ascii_only=ascii_only, spaced=spaced)

    assert (found and found.first) == first


@pytest.mark.parametrize(
    "query",
    [
        "tool:Bas",
        "skill:absent",
        "skill:notes",
        "cmd:changelog",
        "file:unittest",
        "text:tool_call",
        "nowhere",
        "role",
        "notes.md nowhere",
    ],
)
def test_nothing_else_is_found(tmp_path, query):
    assert hits(tmp_path, query) is None


def test_what_is_shown_is_one_harmless_line(tmp_path):
    evil = "x\x1b[2J\x1b]0;t\x07\r\nneedle\u202e" + "y" * 1000
    row = record(tmp_path, json.dumps({"type": "message", "role": "assistant", "text": evil}).encode())

    [trial] = search(tmp_path, [row], read_query("needle"))

    assert trial.found is not None
    assert trial.found.excerpt.isprintable()
    assert len(trial.found.excerpt) <= 200


def test_very_many_events_are_counted_up_to_a_bound(tmp_path):
    line = json.dumps({"type": "command", "command": "make"}).encode() + b"\n"
    row = record(tmp_path, line * 1000)

    [trial] = search(tmp_path, [row], read_query("cmd:make"))

    assert trial.found is not None
    assert trial.found.events == MOST_EVENTS


def test_an_agent_that_tells_no_events_is_searched_by_its_words(tmp_path):
    row = record(tmp_path, "First\nthe Größe of it".encode(), "transcript.txt")

    found = [next(search(tmp_path, [row], read_query(query))).found for query in ("größe", "text:größe", "cmd:größe")]

    assert [each is not None for each in found] == [True, True, False]


@pytest.mark.parametrize(
    "data", [b"", b"not json needle", b'{"type": "needle"}', b"\xff\xfeneedle\n{", b'["needle"]\n[]']
)
def test_a_broken_file_is_no_match_and_no_error(tmp_path, data):
    [trial] = search(tmp_path, [record(tmp_path, data)], read_query("needle"))

    assert trial.found is None


def test_no_link_of_a_record_is_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"type": "command", "command": "needle"}))
    row = record(tmp_path, b"")
    events = tmp_path / "trials/a/1/events.jsonl"
    events.unlink()
    events.symlink_to(secret)

    assert [trial.found for trial in search(tmp_path, [row], read_query("needle"))] in ([], [None])


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("tool:Bash", (Term("bash", "tool"),)),
        ('text:"a b" c', (Term("a b", "text"), Term("c"))),
        ("http://x/y", (Term("http://x/y"),)),
        ("suite.py::case", (Term("suite.py::case"),)),
    ],
)
def test_a_query_is_read_as_it_is_meant(text, terms):
    assert read_query(text) == Query(terms)


@pytest.mark.parametrize("text", ["", "  ", '""', "toool:x", 'nokind:"a b"', " ".join("abcdefghi")])
def test_a_query_that_cannot_be_meant_is_refused(text):
    with pytest.raises(UsageError):
        read_query(text)
