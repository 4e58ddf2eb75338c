"""whet tells you, with evidence, whether an agent skill, an agent or a prompt got better or worse."""

from __future__ import annotations

from importlib import import_module

from whet.version import __version__

# As in `typing`, which takes as long to import as Python to start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from whet.checks.context import CheckContext as CheckContext
    from whet.checks.context import Ran as Ran
    from whet.checks.expect import expect as expect
    from whet.checks.tools import Tool as Tool
    from whet.grade.evidence import load_report as load_report
    from whet.model.events import ToolCall as ToolCall
    from whet.model.grade import Changes as Changes
    from whet.model.grade import Failure as Failure
    from whet.model.grade import FailureClass as FailureClass
    from whet.model.grade import Grade as Grade
    from whet.model.run import TrialResult as TrialResult
    from whet.model.session import Session as Session
    from whet.model.session import Usage as Usage
    from whet.model.skills import SkillDetection as SkillDetection
    from whet.shell.match import command as command
    from whet.shell.parse import read_command as read_command
    from whet.suites.python.authoring import Bootstrap as Bootstrap
    from whet.suites.python.authoring import Case as Case
    from whet.suites.python.authoring import Turn as Turn
    from whet.suites.python.authoring import User as User
    from whet.suites.python.authoring import Workspace as Workspace
    from whet.suites.python.authoring import case as case

# Where each public name lives. They are found when they are used, so that `import whet` costs nothing.
_HOMES = {
    "Bootstrap": "suites.python.authoring",
    "Case": "suites.python.authoring",
    "Changes": "model.grade",
    "CheckContext": "checks.context",
    "Failure": "model.grade",
    "FailureClass": "model.grade",
    "Grade": "model.grade",
    "Ran": "checks.context",
    "Session": "model.session",
    "SkillDetection": "model.skills",
    "Tool": "checks.tools",
    "ToolCall": "model.events",
    "TrialResult": "model.run",
    "Turn": "suites.python.authoring",
    "Usage": "model.session",
    "User": "suites.python.authoring",
    "Workspace": "suites.python.authoring",
    "case": "suites.python.authoring",
    "command": "shell.match",
    "expect": "checks.expect",
    "load_report": "grade.evidence",
    "read_command": "shell.parse",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - every entry is a string


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'whet' has no attribute {name!r}")
    return getattr(import_module(f"whet.{home}"), name)
