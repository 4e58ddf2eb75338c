"""The chain of the steps of improve.json: each has a digest of what it added, and a hash of the step before it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from whet.model import codec
from whet.record.improve.document import ImproveDocument, ImproveStep, RoundRecord


def chained(document: ImproveDocument, step: ImproveStep) -> ImproveDocument:
    """Return *document*, which has what *step* added, with the step at the end of its chain."""
    before = _head_link(document)
    if document.steps:
        before = document.steps[-1].chain
    step = replace(step, digest=_digest(_part_of(document, step)), chain="")
    return replace(document, steps=(*document.steps, replace(step, chain=_link(before, step))))


def chain_problems(document: ImproveDocument) -> Iterator[str]:
    """Yield where the steps of *document*, or what they added, are not as they were written."""
    before = _head_link(document)
    for number, step in enumerate(document.steps, start=1):
        name = f"step {number} ({step.phase}{f' of round {step.round}' if step.round else ''})"
        if step.chain != _link(before, replace(step, chain="")):
            yield f"{name} has changed, or what was asked has: it does not fit the hash of the chain"
        if step.digest != _digest(_part_of(document, step)):
            yield f"what {name} added has changed: it does not fit its digest"
        before = step.chain


def _head_link(document: ImproveDocument) -> str:
    """Return what the chain begins with: what was asked."""
    head = replace(
        document,
        ended_at=None,
        warnings=(),
        split=None,
        baseline=None,
        phase=None,
        rounds=(),
        sealed=None,
        outcome=None,
        reason=None,
        hint=None,
        error_spent=0.0,
        cost_usd=0.0,
        steps=(),
        # More money may be given later.
        options=replace(document.options, max_cost_usd=None),
    )
    return _digest(head)


def _part_of(document: ImproveDocument, step: ImproveStep) -> Any:
    """Return what the phase of *step* adds to a document, and nothing that a later one changes."""
    record = next((item for item in document.rounds if item.number == step.round), None)
    if record is not None:
        return _part_of_round(record, step)
    parts: dict[str, Any] = {
        "split": document.split,
        "eval_current": document.baseline,
        "sealed": document.sealed,
        "done": (document.outcome, document.reason, document.error_spent, document.cost_usd, document.ended_at),
    }
    return parts.get(step.phase)


def _part_of_round(record: RoundRecord, step: ImproveStep) -> Any:
    candidates = record.candidates
    parts: dict[str, Any] = {
        "generating": (record.start, [(item.id, item.digest, item.diff, item.changes) for item in candidates]),
        "linting": [(item.id, item.token_growth, item.lint, item.reason) for item in candidates],
        "racing": (record.current, record.chosen, [(item.id, item.practice) for item in candidates]),
        "confirming": (record.step, record.error, record.confirm, record.accepted, [item.fate for item in candidates]),
    }
    return parts.get(step.phase)


def _link(before: str, step: ImproveStep) -> str:
    return hashlib.sha256(before.encode() + b"\n" + codec.encode(step)).hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(codec.encode(value)).hexdigest()
