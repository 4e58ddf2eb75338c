"""Whether what a check raised is surely its author's mistake: then no other answer of the agent could change it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType

from whet.expectations.face import Expect
from whet.grade.context import CheckContext
from whet.grade.forgotten import NeverAwaited
from whet.grade.recorded import RecordedContext
from whet.grade.shell import Ran
from whet.model.changes import Changes
from whet.model.session import Session, Usage

# Whether a file is the author's, and not one that the agent wrote.
IsOwn = Callable[[str], bool]

_PACKAGE = Path(__file__).parents[1]
# What refuses arguments on purpose; a refusal of what was observed has a class of its own.
_REFUSING = (
    str(_PACKAGE / "expectations"),
    str(_PACKAGE / "shell"),
    str(_PACKAGE / "grade" / "checker.py"),
    str(_PACKAGE / "grade" / "context.py"),
    str(_PACKAGE / "grade" / "shell.py"),
)
# As Python says that a function was called with other arguments than it takes.
_WRONG_CALL = re.compile(r"([\w.]+)\(\) (?:missing|got|takes) ")
_HANDED = (Session, CheckContext, RecordedContext, Changes, Usage, Ran)
# By these a check may import what the agent wrote.
_OTHER_IMPORTS = ("sys.path", "importlib", "runpy")


def is_mistake(error: BaseException, is_own: IsOwn) -> bool:
    """Whether *error* is surely the author's doing; in doubt it is not."""
    # By its type: to ask the exception itself would be to run code of whoever wrote it.
    judge = _JUDGES.get(type(error))
    return judge is not None and judge(error, is_own)


def _is_own_name(error: BaseException, is_own: IsOwn) -> bool:
    return is_own(_innermost(error))


def _is_own_syntax(error: BaseException, is_own: IsOwn) -> bool:
    assert isinstance(error, SyntaxError)
    return error.filename is not None and is_own(error.filename)


def _is_own_attribute(error: BaseException, is_own: IsOwn) -> bool:
    assert isinstance(error, AttributeError)
    return is_own(_innermost(error)) and _is_ours(error.obj)


def _is_misuse(error: BaseException, is_own: IsOwn) -> bool:
    last = _innermost(error)
    return last.startswith(_REFUSING) or (is_own(last) and _is_wrong_call(str(error)))


def _is_own_import(error: BaseException, is_own: IsOwn) -> bool:
    frames = [frame for frame in _files(error) if not frame.startswith("<frozen importlib")]
    if not frames or not is_own(frames[-1]):
        return False
    try:
        source = Path(frames[-1]).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return not any(word in source for word in _OTHER_IMPORTS)


def _is_ours(value: object) -> bool:
    """Whether it is the same thing in every trial, such as `expect`; an event, say, is not."""
    if isinstance(value, ModuleType):
        return value.__name__.split(".")[0] == "whet"
    return isinstance(value, _HANDED) or type(value).__module__.startswith("whet.expectations")


def _is_wrong_call(message: str) -> bool:
    found = _WRONG_CALL.match(message)
    return found is not None and found[1].split(".")[0] in _api()


def _api() -> frozenset[str]:
    """The names of the classes whose methods a check calls."""
    groups = [type(value) for value in vars(Expect()).values()]
    kinds = (*_HANDED, *(kind for group in groups for kind in group.__mro__), *Expect.__mro__)
    return frozenset(kind.__name__ for kind in kinds if kind.__module__.split(".")[0] == "whet")


def _innermost(error: BaseException) -> str:
    files = _files(error)
    return files[-1] if files else ""


def _files(error: BaseException) -> list[str]:
    return [frame.filename for frame in traceback.extract_tb(traceback_of(error))]


def traceback_of(error: BaseException) -> TracebackType | None:
    """Where it was raised, without asking the author's class."""
    found: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return found


_JUDGES: dict[type[BaseException], Callable[[BaseException, IsOwn], bool]] = {
    NeverAwaited: lambda _, __: True,
    NameError: _is_own_name,
    UnboundLocalError: _is_own_name,
    SyntaxError: _is_own_syntax,
    IndentationError: _is_own_syntax,
    TabError: _is_own_syntax,
    ImportError: _is_own_import,
    ModuleNotFoundError: _is_own_import,
    AttributeError: _is_own_attribute,
    TypeError: _is_misuse,
    ValueError: _is_misuse,
}
