"""What a check leaves in its process: a worker that shows any is not used for another check.

A fresh process for every check would need no such look, and costs 2 ms: more than everything else that whet does for a
trial together. A look costs a twentieth of that.
"""

from __future__ import annotations

import builtins
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

_LIMITS = (
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_AS,
    resource.RLIMIT_CPU,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_NPROC,
)
_CONTAINERS = (list, dict, set, bytearray)


def watch(folder: Path) -> Callable[[], bool]:
    """Look at the process now; what is given tells later whether it is still the same."""
    modules = _modules(folder)
    before = _look(modules)
    return lambda: _look(modules) == before


def _modules(folder: Path) -> list[ModuleType]:
    """The author's own modules, and those that they can reach by a name of theirs."""
    own = [module for module in list(sys.modules.values()) if _lies_in(module, folder)]
    reached = [value for module in own for value in vars(module).values() if isinstance(value, ModuleType)]
    return list({id(module): module for module in (builtins, *own, *reached)}.values())


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).is_relative_to(folder) and "site-packages" not in file


def _look(modules: list[ModuleType]) -> tuple[Any, ...]:
    mask = os.umask(0)
    os.umask(mask)
    return (
        mask,
        _cwd(),
        dict(os.environ),
        threading.active_count(),
        signal.getitimer(signal.ITIMER_REAL),
        tuple(signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)),
        tuple(resource.getrlimit(limit) for limit in _LIMITS),
        list(sys.path),
        [{name: _shape(value) for name, value in vars(module).items()} for module in modules],
    )


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a text is all that is compared
    except OSError:
        return ""


def _shape(value: Any) -> tuple[int, int]:
    """Which object it is and, for what can grow, how large."""
    return id(value), len(value) if type(value) in _CONTAINERS else 0
