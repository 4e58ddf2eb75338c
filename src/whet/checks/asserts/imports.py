"""Where each suite finds its own helpers: suites of one run may have helpers of the same name in folders of their own.

Python knows a module by its name alone. So a process is at home with one suite at a time: its folders are on the path
and its modules are imported, and those of other suites are set aside until somebody enters their home again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

_INSTALLED = "site-packages"
PACKAGE = "__init__.py"


class _Home(NamedTuple):
    path: list[str]
    modules: dict[str, ModuleType]


class _ImportState:
    current: Path | None = None
    # The path before the first suite was loaded.
    outside: tuple[str, ...] = ()
    homes: dict[Path, _Home] = {}  # noqa: RUF012 - one for the process


def top_of(path: Path) -> Path:
    """Return the folder that the suite's imports start from: its own, or that of the topmost package around it."""
    top = path.parent
    while (top / PACKAGE).is_file() and (top.parent / PACKAGE).is_file():
        top = top.parent
    return top


def home_of(path: Path) -> Path:
    """Return the folder in which Python looks for the modules of the suite at *path*: around its package, if any."""
    return top_of(path).parent if (path.parent / PACKAGE).is_file() else path.parent


def enter(folder: Path) -> None:
    """Let imports find what belongs to the suites in *folder*, also those of a check while it runs."""
    if folder == _ImportState.current:
        return
    if _ImportState.current is None:
        _ImportState.outside = tuple(sys.path)
    else:
        _ImportState.homes[_ImportState.current] = _Home(list(sys.path), _remove_modules(_ImportState.current))
    path, modules = _ImportState.homes.pop(folder, (_ImportState.outside, {}))
    sys.path[:] = path
    sys.modules.update(modules)
    _ImportState.current = folder


def _remove_modules(folder: Path) -> dict[str, ModuleType]:
    """Take the modules that were imported from *folder* out of the imported ones, and return them."""
    beginning = f"{folder}/"
    modules = {name: module for name, module in sys.modules.items() if _is_from(module, beginning)}
    for name in modules:
        del sys.modules[name]
    return modules


def _is_from(module: ModuleType, beginning: str) -> bool:
    file = getattr(module, "__file__", None)
    # A folder without `__init__.py` is a package without a file.
    places = [file] if isinstance(file, str) else list(getattr(module, "__path__", ()))
    return any(isinstance(place, str) and place.startswith(beginning) and _INSTALLED not in place for place in places)
