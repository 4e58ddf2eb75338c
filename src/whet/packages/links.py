"""Symbolic links of an archive, followed on paper before any of them is made."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from whet.errors import PackageError
from whet.packages.naming import LONGEST_PATH, shown

# As many as Linux follows before it gives up.
_MOST_FOLLOWED = 40
# Links that lead to one another can be made to take hours to follow.
_MOST_STEPS = 2_000_000


def check_links(links: Mapping[str, str]) -> None:
    """Refuse *links* (targets by path) if one of them is absolute or leads out, also by way of others."""
    steps = 0
    for path, target in links.items():
        if target.startswith("/"):
            raise PackageError(f"{shown(path)} is a link to an absolute path: {shown(target)}")
        if not target or "\0" in target or len(target.encode("utf-8", "surrogateescape")) > LONGEST_PATH:
            raise PackageError(f"{shown(path)} is a link to nothing that could be a path")
        steps += _follow(path, links)
        if steps > _MOST_STEPS:
            raise PackageError("the links of the archive lead to one another without end")


def _follow(path: str, links: Mapping[str, str]) -> int:
    """Walk from the root along *path*, as the kernel would; how many steps that took."""
    ahead = deque(path.split("/"))
    here: list[str] = []
    followed = steps = 0
    while ahead:
        steps += 1
        part = ahead.popleft()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                raise PackageError(f"{shown(path)} is a link that leads out of the archive: {shown(links[path])}")
            here.pop()
            continue
        here.append(part)
        target = links.get("/".join(here))
        if target is not None:
            followed += 1
            if followed > _MOST_FOLLOWED:
                raise PackageError(f"{shown(path)} is a link that leads to itself")
            here.pop()
            if target.startswith("/"):
                raise PackageError(f"{shown(path)} is a link that leads to an absolute path: {shown(target)}")
            ahead.extendleft(reversed(target.split("/")))
    return steps
