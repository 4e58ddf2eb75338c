"""whet tells you, with evidence, whether an agent skill, an agent or a prompt got better or worse."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whet.version import __version__

if TYPE_CHECKING:
    from whet.expectations.face import expect as expect
    from whet.expectations.tools import Tool as Tool
    from whet.formats.authoring import Bootstrap as Bootstrap
    from whet.formats.authoring import Case as Case
    from whet.formats.authoring import Workspace as Workspace
    from whet.formats.authoring import case as case
    from whet.grade.context import CheckContext as CheckContext
    from whet.grade.report import load_report as load_report
    from whet.grade.shell import Ran as Ran
    from whet.model.changes import Changes as Changes
    from whet.model.grade import Failure as Failure
    from whet.model.grade import FailureClass as FailureClass
    from whet.model.grade import Grade as Grade
    from whet.model.run import TrialResult as TrialResult
    from whet.model.session import Session as Session
    from whet.model.session import SkillDetection as SkillDetection
    from whet.model.session import ToolCall as ToolCall
    from whet.model.session import Usage as Usage
    from whet.shell import command as command
    from whet.shell import read_command as read_command

# Where each public name lives. They are found when they are used, so that `import whet` costs nothing.
_HOMES = {
    "Bootstrap": "formats.authoring",
    "Case": "formats.authoring",
    "Changes": "model.changes",
    "CheckContext": "grade.context",
    "Failure": "model.grade",
    "FailureClass": "model.grade",
    "Grade": "model.grade",
    "Ran": "grade.shell",
    "Session": "model.session",
    "SkillDetection": "model.session",
    "Tool": "expectations.tools",
    "ToolCall": "model.session",
    "TrialResult": "model.run",
    "Usage": "model.session",
    "Workspace": "formats.authoring",
    "case": "formats.authoring",
    "command": "shell",
    "expect": "expectations.face",
    "load_report": "grade.report",
    "read_command": "shell",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - every entry is a string


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'whet' has no attribute {name!r}")
    return getattr(import_module(f"whet.{home}"), name)
