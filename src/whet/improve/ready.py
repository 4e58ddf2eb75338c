"""Look before anything is spent: whether the cases can decide, and what keeps them from it."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from pathlib import Path

from msgspec import Struct

from whet import exit_codes
from whet.decide.improve.accept import LEAST_HELD_OUT
from whet.decide.improve.reach import effect_in_reach
from whet.errors import UsageError
from whet.improve.contract import EndedEarly
from whet.improve.runs import RunsOfPhases, keep_handlers
from whet.model.request import RunRequest, Selection
from whet.model.run import Plan
from whet.model.suite import PARTS, Suite
from whet.reading.plugin_folder import skills_of
from whet.reading.text import count, listed, points
from whet.record.improve.document import ImproveOptions
from whet.report.audit import Audit
from whet.run.other.audit import audit_suite
from whet.suites.skills.rules import check_skill


class PartsOfSuite(Struct, frozen=True, kw_only=True):
    """The cases of each part that count."""

    practice: tuple[str, ...]
    held_out: tuple[str, ...]
    sealed: tuple[str, ...]


def parts_of_suite(suite: Suite) -> PartsOfSuite:
    """Return the cases of each part that have a weight."""
    practice, held_out, sealed = (
        tuple(case.id for case in suite.cases if case.split == part and case.weight > 0) for part in PARTS
    )
    return PartsOfSuite(practice=practice, held_out=held_out, sealed=sealed)


def refuse_few_cases(parts: PartsOfSuite, suite: Suite) -> None:
    """Refuse a suite that holds out too little to decide, or leaves nothing to practise on."""
    missing = LEAST_HELD_OUT - len(parts.held_out)
    if missing > 0:
        raise UsageError(
            f"{suite.name} holds out {count(len(parts.held_out), 'case')}, and fewer than {LEAST_HELD_OUT} cannot "
            "decide: not even votes that all go one way are beyond chance",
            hint=f"write {count(2 * missing, 'more case')}, half of which will be held out; 20 held out are good",
        )
    if not parts.practice:
        raise UsageError(
            f"{suite.name} has no practice case, so nothing could be tried", hint="leave `split` out of some cases"
        )


def refuse_unknown_tags(options: ImproveOptions, suite: Suite) -> None:
    """Refuse a tag of --no-regression that no held-out case has."""
    tags = {tag for case in suite.cases if case.split == PARTS[1] for tag in case.tags}
    unknown_tags = [tag for tag in options.no_regression if tag not in tags]
    if unknown_tags:
        known = f"they have {listed(sorted(tags))}" if tags else "they have no tags"
        raise UsageError(f'no held-out case has the tag "{unknown_tags[0]}" (--no-regression)', hint=known)


def refuse_self_judge(plan: Plan, options: ImproveOptions) -> None:
    """Refuse a judge that is the model under test: the loop would learn to please it."""
    messages = [warning.message for warning in plan.warnings if warning.code == "judge-self"]
    if messages and not options.allow_self_judge:
        raise EndedEarly(
            "refused", messages[0], "choose another judge in [judge] of the settings, or say --allow-self-judge"
        )


def readiness_warnings(
    skill: Path, suite: Suite, parts: PartsOfSuite, options: ImproveOptions, error: float
) -> Iterator[str]:
    """Yield what the reader of the result has to know."""
    reach = effect_in_reach(len(parts.held_out), options.max_rounds, error, options.accept)
    if reach > options.effect and options.goal == "better":
        yield (
            f"{count(len(parts.held_out), 'held-out case')} find {ceil(100 * reach)} points or more in 80 % of runs, "
            f"and you look for {points(options.effect, sign=False)}: add cases, or look for more (--effect)"
        )
    if edited := [case.id for case in suite.cases if case.edited]:
        yield f"edited since they were held out: {listed(edited)}"
    for folder in skills_of(skill):
        yield from map(str, check_skill(folder).of_level("error"))


def audit_cases(common: RunsOfPhases, parts: PartsOfSuite) -> tuple[str, ...]:
    """Let controls go through all cases; refuse held-out ones that decide nothing, and return warnings."""
    request = RunRequest(
        suite=common.suite,
        flags={**common.flags, "output_dir": common.folder.path, "reporters": ()},
        config_file=common.config_file,
        selection=Selection(),
        last_failed=False,
        dry_run=False,
        resume=None,
        command="audit",
    )
    with keep_handlers():
        outcome = audit_suite(request)
    if outcome.report is None:
        assert outcome.code == exit_codes.INTERRUPTED
        raise EndedEarly("interrupted", "interrupted while whet looked at the cases")
    return tuple(_audit_warnings(outcome.report, parts))


def _audit_warnings(audit: Audit, parts: PartsOfSuite) -> Iterator[str]:
    for cases, words, what_to_do in (
        (audit.vacuous, "passes without any work", "so it cannot tell good from bad"),
        (audit.broken, "fails with its own solution", "so nothing can pass it"),
    ):
        decisive = [case for case in cases if case in parts.held_out]
        if decisive:
            raise EndedEarly(
                "refused",
                f"{listed(decisive)} {'are' if len(decisive) > 1 else 'is'} held out and {words}, {what_to_do}",
                f"whet audit {audit.suite.source} says more; correct the case, or leave it out",
            )
        if cases:
            yield f"{listed(cases)} {words}, {what_to_do}"
    if audit.errored:
        yield f"whet could not audit {listed(audit.errored)}"
