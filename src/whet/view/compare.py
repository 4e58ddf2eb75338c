"""The document of two runs beside each other: what is decided, which cases moved, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import unified_diff
from itertools import islice

from msgspec import Struct

from whet.errors import WhetError
from whet.grade.comparison import MARGIN
from whet.model import wire
from whet.model.comparison import Comparison
from whet.model.grade import UNEXPECTED
from whet.record.inside import read_inside
from whet.record.kept_skills import read_kept_skills
from whet.record.recorded_run import read_trials
from whet.report.between_runs import compare_across
from whet.report.view_documents import CompareDocument, MovedCase, RunDocument
from whet.report.view_run import RunView

_MOST_CASES = 2000
_LARGEST_SESSION = 16 << 20
_BEFORE, _AFTER = "the run before", "the run after"
_OTHER_SUITE = "these are runs of two suites: only the cases that both have are compared"
_OTHER_CONTENT = "the suite has changed between the two runs: only the cases that both have are compared"


class _Session(Struct):
    prompt: str = ""


def compare_document(before: RunView, after: RunView) -> CompareDocument:
    """Return what two runs say beside each other."""
    a, b = before.document(), after.document()
    comparisons, refused = _compared(before, after)
    was, now = (_passed(document, arms) for document, arms in zip((a, b), _arms_in_common(a, b), strict=True))
    both = [case for case in now if case in was]
    return CompareDocument(
        a=a.run,
        b=b.run,
        comparisons=comparisons,
        refused=refused,
        newly_failing=tuple(case for case in both if was[case] and not now[case]),
        newly_passing=tuple(case for case in both if now[case] and not was[case]),
        moved=tuple(_moved(comparisons)),
        skill_diff=_skill_diff(before, after),
        prompt_diff=_prompt_diff(before, after),
        costs={
            "cost_usd": [a.run.cost_usd, b.run.cost_usd],
            "duration_s": [a.run.duration_s, b.run.duration_s],
            "amounts": [each for found in comparisons[:1] for each in found.amounts],
        },
        notes=tuple(dict.fromkeys((*_otherness(before, after), *_notes(comparisons)))),
    )


def _compared(before: RunView, after: RunView) -> tuple[tuple[Comparison, ...], str | None]:
    if before.run_dir == after.run_dir:
        return (), "it is one run: choose another one to compare it with"
    try:
        old, new = (
            replace(read_trials(view.run_dir).samples(), name=name)
            for view, name in ((before, _BEFORE), (after, _AFTER))
        )
        return compare_across(old, new, margin=MARGIN, shared=True).comparisons, None
    except WhetError as error:
        return (), error.message
    except OSError as error:
        return (), f"a run cannot be read: {error.strerror}"


def _otherness(before: RunView, after: RunView) -> Iterator[str]:
    """Yield that both did not run the same."""
    if before.asked.suite_digest != after.asked.suite_digest:
        yield _OTHER_CONTENT if before.asked.suite == after.asked.suite else _OTHER_SUITE


def _notes(comparisons: tuple[Comparison, ...]) -> Iterator[str]:
    for found in comparisons:
        yield from found.notes


def _arms_in_common(before: RunDocument, after: RunDocument) -> tuple[set[str], set[str]]:
    """Return the arms of each that the other has too; two runs of one arm each are compared whatever its name is."""
    old, new = ({each.arm for case in document.cases for each in case.executions} for document in (before, after))
    return (old, new) if len(old) == len(new) == 1 else (old & new, old & new)


def _passed(document: RunDocument, arms: set[str]) -> dict[str, bool]:
    """Return whether each case passed in *arms*; one of which nothing ended, or everything errored, says nothing."""
    executions = {case.id: [each for each in case.executions if each.arm in arms] for case in document.cases}
    return {
        case: all(each.passed for each in own)
        for case, own in executions.items()
        if case not in document.voided and any(each.trials for each in own)
        if all(each.passed for each in own) or any(each.status in UNEXPECTED for each in own)
    }


def _moved(comparisons: tuple[Comparison, ...]) -> Iterator[MovedCase]:
    for found in comparisons:
        for case in found.cases:
            if case.baseline is not None and case.candidate is not None and case.value:
                yield MovedCase(
                    case=case.case,
                    runner=found.runner,
                    arm=found.candidate.removeprefix(_AFTER).strip() or None,
                    before=case.baseline,
                    after=case.candidate,
                    may_be_chance=case.may_be_chance,
                )


def _skill_diff(before: RunView, after: RunView) -> str:
    """Return how the skills of their arms differ, file by file; without an arm that both have, those of the last."""
    old, new = (read_kept_skills(view.run_dir) for view in (before, after))
    if not old or not new:
        return ""
    pairs = [(arm, arm) for arm in new if arm in old] or [(list(old)[-1], list(new)[-1])]
    alone = len(pairs) == 1
    return "\n".join(filter(None, (_diff(old[was], new[arm], "" if alone else f"{arm}/") for was, arm in pairs)))


def _prompt_diff(before: RunView, after: RunView) -> str:
    """Return how the prompts of cases differ that both runs have."""
    old, new = (dict(islice(_prompts(view), _MOST_CASES)) for view in (before, after))
    shared = [case for case in old if case in new]
    return _diff({case: old[case] for case in shared}, {case: new[case] for case in shared})


def _prompts(view: RunView) -> Iterator[tuple[str, str]]:
    """Yield the prompt of each case, as the first of its trials has it."""
    seen: set[str] = set()
    for key, row in view.rows.rows.items():
        if key.case in seen or row.artifact_dir is None:
            continue
        found = read_inside(view.run_dir, f"{row.artifact_dir}/session.json", _LARGEST_SESSION)
        if found is None or found[1]:
            continue
        try:
            prompt = wire.decode(found[0], _Session).prompt
        except wire.WireError:
            continue
        seen.add(key.case)
        yield key.case, prompt


def _diff(old: Mapping[str, str], new: Mapping[str, str], above: str = "") -> str:
    """Return a unified diff of texts by name."""
    lines: list[str] = []
    for name in dict.fromkeys((*old, *new)):
        one, other = old.get(name, "").splitlines(), new.get(name, "").splitlines()
        lines += unified_diff(one, other, above + name, above + name, lineterm="")
    return "\n".join(lines)
