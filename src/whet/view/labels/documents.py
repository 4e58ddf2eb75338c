"""The documents of the queue: none of them names an arm, a runner, a model or a verdict before there is a label."""

from __future__ import annotations

from msgspec import Struct

from whet.decide.judging.units import LabelWord
from whet.view.documents import ShownChanges, ViewDocument


class LabelQueueDocument(ViewDocument, kw_only=True):
    """What is left to label, in an order that says nothing.

    `drawn` counts all that were drawn, or what is left for a second person, and `names` are of what is left. `policy`
    says what counts as true, if the author of the suite wrote that down.
    """

    suite: str
    by: str
    # For a second opinion, on what somebody else has labelled.
    second: bool
    drawn: int
    names: tuple[str, ...]
    policy: str | None
    # Where the labels are kept.
    place: str


class LabelItemDocument(ViewDocument, kw_only=True):
    """A statement on an answer, with what the agent was asked and what it changed."""

    name: str
    statement: str
    prompt: str | None
    turns: tuple[str, ...]
    answer: str
    changes: ShownChanges | None
    diff: str
    diff_cut: bool
    # Why the answer cannot be shown, if it is not in the record any more.
    problem: str | None


class JudgeReasonDocument(ViewDocument, kw_only=True):
    """What the judge said, for somebody who has said something too."""

    verdict: str
    rating: float
    threshold: float
    reason: str


class SentLabel(Struct, forbid_unknown_fields=True):
    """A label as it is sent."""

    label: LabelWord
    by: str
    note: str = ""


class KeptLabel(Struct):
    """A label that was kept; one that was made after the judge's reason was shown does not count."""

    id: str
    counts: bool
