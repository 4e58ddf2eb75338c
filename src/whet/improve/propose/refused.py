"""What earlier rounds tried, for the proposers of the next: the change, its practice score, and what came of it.

Of held-out cases there is the verdict and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whet.reading.text import middle, percent
from whet.record.improve.document import CandidateRecord, RoundRecord

_LONGEST_DIFF, _LONGEST_CHANGES = 3_000, 1_500
_MOST = 24
_VERDICTS = {
    "better": "on other cases it was better, and something else spoke against it",
    "worse": "on other cases it was worse",
}
_NOT_SHOWN = "on other cases it was not shown to be better"


def refused_text(rounds: Sequence[RoundRecord]) -> str:
    """Return what was tried in *rounds* and not accepted, the newest first; nothing if nothing was."""
    tries = [
        (last, candidate)
        for last in reversed(rounds)
        for candidate in last.candidates
        if candidate.id != last.accepted and candidate.fate not in ("same", "dud")
    ]
    if not tries:
        return ""
    lines = ["# Tried before, and not accepted"]
    for number, (last, candidate) in enumerate(tries[:_MOST], 1):
        lines += ["", f"## {number}", "", *_lines(last, candidate)]
    return "\n".join(lines)


def _lines(last: RoundRecord, candidate: CandidateRecord) -> Iterator[str]:
    # What a lint says in full names cases, also held-out ones: only what may be told is told.
    for words in dict.fromkeys(finding.told for finding in candidate.lint):
        yield f"Refused before anything ran: {words}."
    if candidate.practice is not None:
        before = "" if last.current is None else f", and {percent(last.current.score)} without the change"
        yield f"Practice score: {percent(candidate.practice.score)}{before}."
    if last.confirm is not None and candidate.id == last.chosen:
        yield f"It was the best of its round, and {_VERDICTS.get(last.confirm.verdict, _NOT_SHOWN)}."
    # A change that was refused for a leak may repeat text of a held-out case.
    if candidate.lint:
        return
    if candidate.changes:
        yield from ("", "Its author said:", "", middle(candidate.changes, _LONGEST_CHANGES))
    if candidate.diff:
        yield from ("", "```diff", middle(candidate.diff, _LONGEST_DIFF).rstrip("\n").replace("```", "` ` `"), "```")
