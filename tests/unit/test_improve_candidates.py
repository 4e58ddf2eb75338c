"""Which of several candidates with the same content stands for them."""

from __future__ import annotations

from whet.improve.propose.collect import _mark_same
from whet.record.improve.document import CandidateRecord


def test_a_candidate_that_left_a_link_does_not_stand_in_for_a_clean_one_of_the_same_content() -> None:
    by_digest: dict[str, str] = {"start": ""}
    records = [
        CandidateRecord(id="r1c1", digest="same", fate="refused"),
        CandidateRecord(id="r1c2", digest="same", fate="proposed"),
        CandidateRecord(id="r1c3", digest="same", fate="proposed"),
        CandidateRecord(id="r1c4", digest="start", fate="proposed"),
    ]

    fates = [_mark_same(record, by_digest).fate for record in records]

    assert fates == ["refused", "proposed", "same", "dud"]
