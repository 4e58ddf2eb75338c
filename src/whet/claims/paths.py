"""Paths of claims: relative to the workspace, without a way out of it."""

from __future__ import annotations

from whet.claims.base import ClaimError, check_text


def clean_path(written: str) -> str:
    """The path without `.`, `..` and doubled slashes; a slash at the end stays, for it asks for a folder."""
    if not written.strip():
        raise ClaimError("the path is missing")
    check_text(written, "path")
    if written.startswith("/"):
        raise ClaimError(f"{written} is an absolute path", hint="write it relative to the project, such as src/a.ts")
    if written == "~" or written.startswith("~/"):
        raise ClaimError(f"{written} lies in a home", hint="write it relative to the project, such as src/a.ts")
    parts: list[str] = []
    for part in written.split("/"):
        if part == "..":
            if not parts:
                raise ClaimError(f"{written} leads out of the workspace", hint="name something inside of the project")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    folder = written.endswith(("/", "/.", "/..")) and parts
    return ("/".join(parts) or ".") + ("/" if folder else "")


def path_warnings(path: str) -> tuple[str, ...]:
    """What looks as if it were meant otherwise."""
    if "*" in path:
        return (f'"*" in {path} stands for itself: paths of expectations are no patterns',)
    return ()
