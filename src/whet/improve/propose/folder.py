"""The folder that a proposer works in: the skill, practice cases, failures, successes, rules, and what was refused.

Cases have numbers here and no names: a candidate that names a case is refused, so nobody should be led there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from whet.improve.propose.evidence import CaseStory, TrialStory
from whet.improve.propose.refused import refused_text
from whet.improve.propose.rules import rules_text
from whet.improve.propose.subsets import shuffled, subset
from whet.improve.propose.task import SKILL_FOLDER, ProposalTask
from whet.improve.propose.versions import copy_skill
from whet.model.eval_cases import LlmRubric, TriggerQuery
from whet.model.suite import Case, Check
from whet.reading.text import middle, one_line
from whet.record.folder import write_atomically

_LONGEST_PROMPT, _LONGEST_CHECK = 20_000, 600
# If nothing has failed, this many successes show what the skill is for.
_SUCCESSES_ALONE = 8


def write_folders(task: ProposalTask, stories: Sequence[CaseStory], folders: Path) -> dict[str, Path]:
    """Write a folder for each candidate of *task* into *folders*; return them by the ids of the candidates.

    They are written once: a run that is resumed goes on with the same.
    """
    places = {candidate: folders / candidate for candidate in task.ids}
    for number, (candidate, folder) in enumerate(places.items()):
        if folder.exists():
            continue
        draft = folders / f".{candidate}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        _write(task, stories, number, draft)
        draft.rename(folder)
    return places


def _write(task: ProposalTask, stories: Sequence[CaseStory], place: int, folder: Path) -> None:
    copy_skill(task.skill, folder / SKILL_FOLDER)
    numbers = {story.case.id: number for number, story in enumerate(stories, 1)}
    failed = [story for story in stories if story.has_failed]
    failures = subset(failed, place, of=task.options.candidates, seed=task.seed + task.number)
    passed = [story for story in stories if story.trials and not story.has_failed]
    successes = shuffled(passed, task.seed + place)[: len(failures) or _SUCCESSES_ALONE]
    for name, told_stories, show in (
        ("cases", stories, _case_lines),
        ("failures", failures, _failure_lines),
        ("successes", successes, _success_lines),
    ):
        (folder / name).mkdir()
        for story in told_stories:
            _write_lines(folder / name / f"{numbers[story.case.id]:03d}.md", show(story))
    _write_lines(folder / "rules.md", (rules_text(task.options),))
    if refused := refused_text(task.earlier):
        _write_lines(folder / "refused.md", (refused,))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    write_atomically(path, ("\n".join(lines).rstrip() + "\n").encode("utf-8", "backslashreplace"))


def _case_lines(story: CaseStory) -> Iterator[str]:
    yield from _request_lines(story.case)
    yield from ("", "## What is checked", "")
    yield from (f"- {words}" for check in story.case.checks for words in check_words(check))


def _request_lines(case: Case) -> Iterator[str]:
    yield from ("## The task", "", middle(case.prompt, _LONGEST_PROMPT))
    for prompt in case.then:
        yield from ("", "After the answer, the person says:", "", middle(prompt, _LONGEST_PROMPT))
    if case.user is not None:
        yield from ("", f"The person goes on until this is reached: {middle(case.user.goal, _LONGEST_PROMPT)}")


def check_words(check: Check) -> Iterator[str]:
    """Yield what a check asks, in words."""
    asked = check.params.get("case")
    if isinstance(asked, TriggerQuery):
        wanted = "loads the skill" if asked.expectation == "should_trigger" else "does not load the skill"
        yield f"an agent with this description {wanted}"
    elif isinstance(asked, LlmRubric) and asked.rubric:
        yield from (middle(item.description, _LONGEST_CHECK) for item in asked.rubric)
    elif (function := check.params.get("function")) is not None:
        words = function.__doc__ or function.__name__.strip("_").replace("_", " ")
        yield one_line(words, _LONGEST_CHECK)
    else:
        yield one_line(check.label, _LONGEST_CHECK)


def _failure_lines(story: CaseStory) -> Iterator[str]:
    yield from _request_lines(story.case)
    failures, trials = len(story.failures), len(story.trials)
    yield from ("", "It failed." if trials == 1 else f"{failures} of {trials} attempts failed.")
    # What all attempts share is seen in one, and each more takes room.
    for trial in story.failures[:1]:
        yield from ("", "## What failed", "")
        for check, reason in trial.failed_checks:
            yield f"- {check}\n  Seen instead: {reason or 'it did not hold'}"
        if trial.failure is not None and not trial.failed_checks:
            yield f"- {trial.failure}"
        yield from _trial_lines(trial)
    yield from _opinion_lines(story.trials)


def _success_lines(story: CaseStory) -> Iterator[str]:
    yield from _request_lines(story.case)
    yield from ("", f"All of {len(story.trials)} attempts passed." if len(story.trials) > 1 else "It passed.")
    for trial in story.trials[:1]:
        yield from _trial_lines(trial)
    yield from _opinion_lines(story.trials)


def _trial_lines(trial: TrialStory) -> Iterator[str]:
    if trial.commands:
        yield from ("", "## Commands that the agent ran", "", *(f"- `{command}`" for command in trial.commands))
    if trial.files:
        yield from ("", "## Files that it wrote", "", *(f"- {path}" for path in trial.files))
    if trial.answer:
        yield from ("", "## Its last answer", "", trial.answer)


def _opinion_lines(trials: Iterable[TrialStory]) -> Iterator[str]:
    opinions = list(dict.fromkeys(opinion for trial in trials for opinion in trial.opinions))
    if opinions:
        yield from ("", "## What people say of it", "", *(f"- {opinion}" for opinion in opinions))
