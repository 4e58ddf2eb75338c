"""whet tells you, with evidence, whether an agent skill, an agent or a prompt got better or worse."""

from __future__ import annotations

from importlib import import_module

from whet.version import __version__

# As in `typing`, which takes as long to import as Python to start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from whet.grade.context import CheckContext as CheckContext
    from whet.grade.context import Ran as Ran
    from whet.grade.evidence import load_report as load_report
    from whet.grade.expect.expect import expect as expect
    from whet.grade.expect.tools import Tool as Tool
    from whet.model.grade import Changes as Changes
    from whet.model.grade import Failure as Failure
    from whet.model.grade import FailureClass as FailureClass
    from whet.model.grade import Grade as Grade
    from whet.model.run import TrialResult as TrialResult
    from whet.model.seen import ToolCall as ToolCall
    from whet.model.session import Session as Session
    from whet.model.session import Usage as Usage
    from whet.model.skills import SkillDetection as SkillDetection
    from whet.reading.shell_commands import read_command as read_command
    from whet.reading.shell_matching import command as command
    from whet.suites.authoring import Bootstrap as Bootstrap
    from whet.suites.authoring import Case as Case
    from whet.suites.authoring import Turn as Turn
    from whet.suites.authoring import User as User
    from whet.suites.authoring import Workspace as Workspace
    from whet.suites.authoring import case as case

# Where each public name lives. They are found when they are used, so that `import whet` costs nothing.
_HOMES = {
    "Bootstrap": "suites.authoring",
    "Case": "suites.authoring",
    "Changes": "model.grade",
    "CheckContext": "grade.context",
    "Failure": "model.grade",
    "FailureClass": "model.grade",
    "Grade": "model.grade",
    "Ran": "grade.context",
    "Session": "model.session",
    "SkillDetection": "model.skills",
    "Tool": "grade.expect.tools",
    "ToolCall": "model.seen",
    "TrialResult": "model.run",
    "Turn": "suites.authoring",
    "Usage": "model.session",
    "User": "suites.authoring",
    "Workspace": "suites.authoring",
    "case": "suites.authoring",
    "command": "reading.shell_matching",
    "expect": "grade.expect.expect",
    "load_report": "grade.evidence",
    "read_command": "reading.shell_commands",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - every entry is a string


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'whet' has no attribute {name!r}")
    return getattr(import_module(f"whet.{home}"), name)
