"""What leads on from a trial of a record of somebody else: no file of this machine, and no command of theirs."""

from __future__ import annotations

import shlex
from pathlib import Path

from msgspec.structs import replace

from whet.model.grade import Failure, Location
from whet.model.run import TrialKey, TrialResult
from whet.record.document import WrittenTrial, to_document
from whet.record.read.rows import RowKey
from whet.record.run_file import RunFile, TypedCommand
from whet.view._leads import commands_of, sources_of

KEY = RowKey("a; touch hacked", "$(reboot)", "default", 1)


def trial(file: str, line: int) -> WrittenTrial:
    place = Location(file=file, line=line)
    failure = Failure(phase="check", code="assertion", cause="agent", message="no", location=place)
    key = TrialKey(suite="s", case="c", runner="r", arm="default", number=1)
    result = TrialResult(
        key=key, status="failed", score=0.0, duration_s=0.5, started_at="t", artifact_dir="a/1", failure=failure
    )
    return to_document(result, WrittenTrial)


def test_only_the_suite_that_the_record_holds_is_shown(tmp_path: Path) -> None:
    other = tmp_path / "private.py"
    other.write_text("TOKEN = 'hidden'\n")
    text = "def check(session, ctx):\n    assert False\n"

    assert sources_of(trial(str(other), 1), "/suite.py", text) == ()
    assert sources_of(trial("/suite.py", 99), "/suite.py", text) == ()
    (shown,) = sources_of(trial("/suite.py", 2), "/suite.py", text)
    assert (shown.function, shown.first, shown.lines) == ("check", 1, tuple(text.splitlines()))


def test_every_word_of_a_command_is_quoted(tmp_path: Path) -> None:
    asked = RunFile(command="run", typed=TypedCommand(cwd=str(Path.cwd()), again=("my suite.py", "; rm -rf ~")))
    asked = replace(asked, selection=replace(asked.selection, runners=("$(reboot)",)))

    (shown,) = commands_of(KEY, trial("/suite.py", 1), asked, tmp_path)

    expected = ["whet", "run", "my suite.py", "; rm -rf ~", "--runner", "$(reboot)", "--case", "a; touch hacked"]
    assert shlex.split(shown.command) == expected
    assert "'; rm -rf ~'" in shown.command
