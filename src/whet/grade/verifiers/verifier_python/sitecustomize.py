"""Lets the Python of a verifier find the modules of the workspace last, after its own and the installed ones.

Python looks into the folder of a script, or into the current one, before anywhere else, and an agent may have left a
`unittest.py` there. `PYTHONSAFEPATH` takes that folder away; here it comes back, at the end. Runs in any Python from
3.11 on that a verifier starts, so it needs nothing of whet.
"""

from __future__ import annotations

import os
import sys


def _append_usual_folder() -> None:
    first = sys.argv[0] if sys.argv else ""
    is_script = first not in ("", "-", "-c", "-m")
    try:
        folder = os.path.dirname(os.path.realpath(first)) if is_script else os.getcwd()  # noqa: PTH109, PTH120
    except OSError:
        # Somebody removed the current folder.
        return
    if folder not in sys.path:
        sys.path.append(folder)


def _make_way() -> None:
    """Let go of our own folder, and run the module of this name that would have been found without us."""
    our_folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [path for path in sys.path if path != our_folder]
    ours = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")
    except ImportError:
        # Python looks for the module that it has just imported, and complains if there is none.
        sys.modules["sitecustomize"] = ours


_make_way()
# Python would import a module of this name next, and the agent may have left one.
sys.modules["usercustomize"] = type(sys)("usercustomize")
if getattr(sys.flags, "safe_path", False):
    _append_usual_folder()
