"""The filter of system calls for containers: that of the engine, and no setuid file.

What a container writes into a folder of this machine stays there with its mode. A setuid program would then run as the
owner for everybody who gets at it, and if whet runs as root, the owner is root.
"""

from __future__ import annotations

import errno
import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from whet.sandbox.bubblewrap.seccomp import AS_OWNER, MAKES_A_FILE, MODES, OPENED
from whet.sandbox.container.leftovers import handing_over
from whet.sandbox.engine import Engine

# Where podman finds its own filter; docker has it inside.
_PROFILES = ("/etc/containers/seccomp.json", "/usr/share/containers/seccomp.json")
# A filter cannot read the mode in it, which is in memory. If it does not exist, programs use `openat`.
_ABSENT = "openat2"


@contextmanager
def filter_options(engine: Engine) -> Iterator[tuple[str, ...]]:
    """Yield the options that give a container the filter; none if that of the engine is not known."""
    profile = _profile() if engine.is_podman else None
    if profile is None:
        yield ()
        return
    with handing_over() as folder:
        file = folder / "seccomp.json"
        file.write_bytes(profile)
        yield ("--security-opt", f"seccomp={file}")


def holds_modes(engine: Engine) -> bool:
    """Return whether the filter keeps a container from making setuid files."""
    return engine.is_podman and _profile() is not None


@lru_cache
def _profile() -> bytes | None:
    for place in _PROFILES:
        with suppress(OSError, ValueError):
            return json.dumps(_extended(json.loads(Path(place).read_bytes()))).encode()
    return None


def _extended(profile: dict[str, Any]) -> dict[str, Any]:
    """Return *profile* with conditions for the calls that set a mode; without one, a rule would outrank those with."""
    own = {*MODES, *OPENED, _ABSENT}
    others = [{**rule, "names": [name for name in rule["names"] if name not in own]} for rule in profile["syscalls"]]
    rules = [rule for rule in others if rule["names"]]
    for name, (_, mode) in MODES.items():
        rules += (*_by_mode([name], mode), *_refused([name], mode))
    for name, (_, flags) in OPENED.items():
        rules += [_rule([name], _masked(flags, MAKES_A_FILE, 0)), *_by_mode([name], flags + 1)]
    return {**profile, "syscalls": rules}


def _by_mode(names: list[str], mode: int) -> Iterator[dict[str, Any]]:
    yield _rule(names, _masked(mode, AS_OWNER, 0))


def _refused(names: list[str], mode: int) -> Iterator[dict[str, Any]]:
    """Yield rules that say so: a call without a rule looks as if the kernel did not have it."""
    for bits in (stat.S_ISUID, stat.S_ISGID, AS_OWNER):
        rule = _rule(names, _masked(mode, AS_OWNER, bits))
        yield {**rule, "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}


def _rule(names: list[str], condition: dict[str, Any]) -> dict[str, Any]:
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": [condition]}


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
