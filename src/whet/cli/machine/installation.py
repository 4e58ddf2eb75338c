"""Whether the clone that this whet was installed from has moved on since."""

from __future__ import annotations

from pathlib import Path

import whet
from whet.commit import commit_of_build, commit_of_clone
from whet.version import DISTRIBUTION


def describe_stale(package: Path = Path(whet.__file__).parent) -> str | None:
    """Return a sentence if the clone is at another commit than *package*; None if it is not, or nothing says so.

    Of a wheel, a source distribution and an index, nothing says where it comes from; an editable installation is its
    clone.
    """
    if (built := commit_of_build(package)) is None or (clone := _clone_of_installation()) is None:
        return None
    now = commit_of_clone(clone)
    if now is None or now == built:
        return None
    return f"it was installed from {clone}, which is at {now} by now: install it again from there"


def _clone_of_installation() -> Path | None:
    """Return the folder that pip, pipx or uv noted when they installed it."""
    # Not above: a clone says its version without them.
    import json
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        noted = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        origin = json.loads(noted or "{}")
        if "dir_info" not in origin:
            return None
        return Path(url2pathname(urlsplit(origin["url"]).path))
    except (metadata.PackageNotFoundError, OSError, ValueError, KeyError, TypeError):
        return None
