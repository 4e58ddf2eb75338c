"""Say what differs between two arms or two runs: files with their diffs, and values before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from whet.reading.text import count, one_line
from whet.record.contents.keep import SKILL_PART, ArmContents, Contents, Files, read_contents
from whet.record.run_file import RunFile

Kind = Literal["skill", "prompt", "value", "file", "checks", "setting"]
_SHOWN, _LONGEST_VALUE, _LONGEST_NAME = 4, 40, 60
_LINES_SHOWN, _LONGEST_LINE = 8, 160
# A longer text is compared line by line in any order, without a diff.
_MOST_LINES = 5_000
# Where results are kept, and who is told of them, changes none.
_IDLE_SETTINGS = ("arms.", "output_dir", "reporters", "run.output_dir", "run.reporters", "view.")


class ContentDifference(Struct, frozen=True, kw_only=True):
    """A file, prompt or value that is not the same in both; `before` or `after` is null where it is not there.

    A file has the lines that were `added` and `removed`, and a unified diff if its text was kept. `arm` is set if only
    one of several arms has the difference.
    """

    kind: Kind
    name: str
    before: str | None = None
    after: str | None = None
    added: int = 0
    removed: int = 0
    diff: str = ""
    arm: str | None = None

    @property
    def text(self) -> str:
        """The difference in a few words."""
        where = f" ({one_line(self.arm, _LONGEST_VALUE)})" if self.arm else ""
        return f"{one_line(self.name, _LONGEST_NAME)} {self._change()}{where}"

    def _change(self) -> str:
        if self.before is None:
            return "added"
        if self.after is None:
            return "removed"
        if self.kind in {"value", "setting"}:
            return f"{_short(self.before)} -> {_short(self.after)}"
        return f"+{self.added} -{self.removed}" if self.added or self.removed else "changed"


def difference_line(differences: Sequence[ContentDifference]) -> str:
    """Return what differs in one line, such as "SKILL.md +5 -8, model small -> large"; empty if nothing does."""
    texts = [difference.text for difference in differences[:_SHOWN]]
    if len(differences) > _SHOWN:
        texts.append(f"{len(differences) - _SHOWN} more")
    return ", ".join(texts)


def changed_lines(differences: Sequence[ContentDifference]) -> list[str]:
    """Return the lines of texts that were removed ("- ...") and added ("+ ..."), the first of many.

    A file that only one side has is named, and its lines are not told.
    """
    lines = [
        f"{line[0]} {one_line(line[1:], _LONGEST_LINE)}"
        for difference in differences
        if difference.before is not None and difference.after is not None
        for line in difference.diff.split("\n")[2:]
        if line[:1] in ("+", "-") and line[1:].strip()
    ]
    rest = len(lines) - _LINES_SHOWN
    return lines if rest <= 0 else [*lines[:_LINES_SHOWN], f"{count(rest, 'more line')}: see whet view"]


def differences_of_arms(run_dir: Path, run_file: RunFile, before: str, after: str) -> tuple[ContentDifference, ...]:
    """Return what differs between two arms of a run."""
    contents = read_contents(run_dir)
    return tuple(_of_arms(_Side(contents, run_file, before), _Side(contents, run_file, after)))


def differences_of_runs(
    before: tuple[Path, RunFile], after: tuple[Path, RunFile], arms: Sequence[tuple[str, str]]
) -> tuple[ContentDifference, ...]:
    """Return what differs between two runs: pairs of their *arms*, what all arms begin with, prompts and settings."""
    old, new = read_contents(before[0]), read_contents(after[0])
    of_arms = [
        replace(difference, arm=new_arm)
        for old_arm, new_arm in arms
        for difference in _of_arms(_Side(old, before[1], old_arm), _Side(new, after[1], new_arm))
    ]
    shared = (*_other_parts(old, old.shared, new, new.shared, kind="file"), *_other_prompts(old, new))
    checks = _other_checks(before[1], after[1], {difference.name for difference in shared})
    return (*_merge_arms(of_arms, len(arms)), *shared, *checks, *_other_settings(before[1], after[1]))


class _Side(Struct, frozen=True):
    """An arm of a run."""

    contents: Contents
    run_file: RunFile
    name: str

    @property
    def arm(self) -> ArmContents:
        return self.contents.arms.get(self.name) or ArmContents()

    @property
    def facts(self) -> dict[str, str]:
        return self.run_file.arm_facts.get(self.name, {})


def _merge_arms(differences: Sequence[ContentDifference], arms: int) -> Iterator[ContentDifference]:
    """Yield each difference once, without its arm if all arms have it."""
    numbers = Counter(replace(difference, arm=None) for difference in differences)
    yield from (difference for difference, number in numbers.items() if number == arms)
    yield from (difference for difference in differences if numbers[replace(difference, arm=None)] < arms)


def _of_arms(before: _Side, after: _Side) -> Iterator[ContentDifference]:
    """Yield what differs between two arms; without texts, what run.json says."""
    if before.contents.arms and after.contents.arms:
        yield from _other_parts(before.contents, before.arm.parts, after.contents, after.arm.parts, kind="skill")
        yield from _other_values(before.arm.values, after.arm.values)
    else:
        yield from _other_facts(before.facts, after.facts)


def _other_values(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[ContentDifference]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield ContentDifference(kind="value", name=name, before=before.get(name), after=after.get(name))


def _other_facts(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[ContentDifference]:
    """Yield what differs as far as run.json says it, which has digests in place of texts."""
    for difference in _other_values(before, after):
        is_skill = difference.name == "skill" or difference.name.startswith("skill ")
        old, new = (None if text == "none" else text for text in (difference.before, difference.after))
        yield replace(difference, kind="skill" if is_skill else "value", before=old, after=new)


def _other_parts(
    old: Contents, before: Mapping[str, Files], new: Contents, after: Mapping[str, Files], *, kind: Kind
) -> Iterator[ContentDifference]:
    """Yield the files that differ, part by part; a part that only one has is one difference."""
    for part in dict.fromkeys((*before, *after)):
        if part in before and part in after:
            for difference in _other_files(old, before[part], new, after[part], kind=_kind_of(part, kind)):
                is_plain = part in (SKILL_PART, "prompt", "suite", "template")
                yield difference if is_plain else replace(difference, name=f"{part}/{difference.name}")
        else:
            yield _whole_part(part, old, before.get(part), new, after.get(part), _kind_of(part, kind))


def _kind_of(part: str, kind: Kind) -> Kind:
    return "prompt" if part == "prompt" else kind


def _whole_part(
    part: str, old: Contents, before: Files | None, new: Contents, after: Files | None, kind: Kind
) -> ContentDifference:
    """Return a part that only one has as one difference, with the texts of all its files."""
    files = tuple(_other_files(old, before or {}, new, after or {}, kind=kind))
    size = count(len(files), "file")
    return ContentDifference(
        kind=kind,
        name=part,
        before=None if before is None else size,
        after=None if after is None else size,
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
        diff="\n".join(file.diff for file in files if file.diff),
    )


def _other_files(
    old: Contents, before: Files, new: Contents, after: Files, *, kind: Kind
) -> Iterator[ContentDifference]:
    for path in dict.fromkeys((*before, *after)):
        if before.get(path) != after.get(path):
            yield _other_text(
                kind, path, before.get(path), old.texts.get(before.get(path, "")), after.get(path),
                new.texts.get(after.get(path, "")),
            )  # fmt: skip


def _other_text(
    kind: Kind, name: str, before: str | None, old: str | None, after: str | None, new: str | None
) -> ContentDifference:
    """Return how a text differs; *before* and *after* are its digests, and its texts are None if they are not kept."""
    difference = ContentDifference(kind=kind, name=name, before=before, after=after)
    if (before is not None and old is None) or (after is not None and new is None):
        return difference
    old_lines, new_lines = (old or "").splitlines(), (new or "").splitlines()
    if max(len(old_lines), len(new_lines)) > _MOST_LINES:
        added, removed = Counter(new_lines) - Counter(old_lines), Counter(old_lines) - Counter(new_lines)
        return replace(difference, added=added.total(), removed=removed.total())
    places = ("/dev/null" if before is None else f"a/{name}", "/dev/null" if after is None else f"b/{name}")
    lines = list(unified_diff(old_lines, new_lines, *places, lineterm=""))
    return replace(
        difference,
        added=sum(line.startswith("+") for line in lines[2:]),
        removed=sum(line.startswith("-") for line in lines[2:]),
        diff="\n".join(lines),
    )


def _other_prompts(old: Contents, new: Contents) -> Iterator[ContentDifference]:
    """Yield the cases of both that ask something else."""
    both = {case: digest for case, digest in old.prompts.items() if case in new.prompts}
    now = {case: new.prompts[case] for case in both}
    for difference in _other_files(old, both, new, now, kind="prompt"):
        yield replace(difference, name=f"prompt of {difference.name}")


def _other_checks(before: RunFile, after: RunFile, told: set[str]) -> Iterator[ContentDifference]:
    """Yield the cases that check something else; *told* are the differences that say so already."""
    for case, digest in before.case_digests.items():
        if after.case_digests.get(case, digest) != digest and f"prompt of {case}" not in told:
            yield ContentDifference(
                kind="checks", name=f"checks of {case}", before=digest, after=after.case_digests[case]
            )


def _other_settings(before: RunFile, after: RunFile) -> Iterator[ContentDifference]:
    old, new = (
        {row.key: row.value for row in run.settings if not row.key.startswith(_IDLE_SETTINGS)}
        for run in (before, after)
    )
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name):
            yield ContentDifference(kind="setting", name=name, before=old.get(name), after=new.get(name))
    if before.whet_version != after.whet_version:
        yield ContentDifference(kind="setting", name="whet", before=before.whet_version, after=after.whet_version)


def _short(text: str) -> str:
    return one_line(text, _LONGEST_VALUE) or "-"
