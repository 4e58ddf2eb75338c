"""What a process that ended means for its run."""

from __future__ import annotations

from typing import Any

import msgspec

from whet.server.runs.folder import RunPlace
from whet.server.storage.runs import Ending, Outcome

# The exit codes of `whet run` that come with complete results.
_OUTCOMES: dict[int, Outcome] = {0: "passed", 1: "failed", 3: "errored"}
# Something must be corrected, or the record is lost: doing it again would end the same way.
_FINAL = (2, 4, 70, 74)
_LEFT_OUT = ("cases", "suite_path", "record")


def conclude(code: int, place: RunPlace, *, cancelled: bool) -> Ending | None:
    """How the run ended; none where it was cut short and can be gone on with."""
    summary = _summary(place)
    # First: a wish that came when all was done changes nothing.
    if code in _OUTCOMES and summary is not None and not summary.get("interrupted"):
        return Ending(status="completed", outcome=_OUTCOMES[code], summary=_encoded(summary))
    if cancelled:
        return Ending(status="cancelled", summary=_encoded(summary))
    if code in _FINAL:
        return Ending(status="failed", error=place.last_words() or f"whet ended with exit code {code}")
    return None


def given_up(code: int, place: RunPlace) -> Ending:
    """The end of a run whose process was cut short too often."""
    said = place.last_words()
    return Ending(
        status="failed", error=f"whet ended early, with exit code {code}, each time it was tried\n{said}".strip()
    )


def _summary(place: RunPlace) -> dict[str, Any] | None:
    """The head of the results: counts, usage, lift, and everything else but the cases."""
    path = place.results
    if path is None:
        return None
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    head = {name: value for name, value in found.items() if name not in _LEFT_OUT}
    # Lists show summaries too: what is told of each case stays in the results.
    return head | {"lift": [_without_cases(lift) for lift in head.get("lift", [])]}


def _without_cases(lift: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in lift.items() if name != "cases"}


def _encoded(summary: dict[str, Any] | None) -> bytes | None:
    return msgspec.json.encode(summary) if summary is not None else None
