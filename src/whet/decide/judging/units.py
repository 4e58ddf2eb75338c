"""What is judged and what is labelled: statements on trials, labels of people on them, and which belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field

LabelWord = Literal["true", "false", "unsure"]
VerdictWord = Literal["pass", "fail"]
LABEL_FORMAT: Literal["whet/label/1"] = "whet/label/1"


class UnitKey(NamedTuple):
    """Where a judged statement is, in its run and in every record that is made of it: regraded, merged or resumed."""

    case: str
    runner: str
    arm: str
    trial: int
    check: str
    # Of a rubric with several items.
    item: str


# The run of a unit, and where it is there.
Place: TypeAlias = tuple[str, UnitKey]


class JudgedUnit(Struct, frozen=True, kw_only=True):
    """A statement on a trial, as a judge decided it.

    `rating` is the mean of the votes, from 0 to 10, and `passed` the verdict. `judge` are the facts that `judge_id` is
    made of. The answer itself is in the record, in `artifact_dir` below the folder of the run.
    """

    run: str
    suite: str
    key: UnitKey
    attempt: int
    statement: str
    passed: bool
    rating: float
    threshold: float
    ratings: tuple[float, ...]
    reason: str
    flags: tuple[str, ...]
    statement_id: str
    answer_id: str
    judge_id: str
    judge: Mapping[str, Any]
    artifact_dir: str
    # The weight of its case.
    weight: float = 1.0

    @property
    def place(self) -> Place:
        """What no other unit has."""
        return self.run, self.key

    @property
    def verdict(self) -> VerdictWord:
        """The verdict of the judge as a word."""
        return "pass" if self.passed else "fail"


class Label(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person says of a statement on an answer: one line of `labels.jsonl`, in the order of its fields.

    `size` is how many units the stratum had when it was drawn, and `draw` its place in the order. `policy` identifies
    the text that says what counts as true. A label that was changed after the judge's reason was shown does not count.
    """

    schema: Literal["whet/label/1"]
    at: str
    by: str
    label: LabelWord
    note: str | None = None
    after_reveal: bool = False
    suite: str = ""
    case: str = ""
    runner: str = ""
    arm: str = ""
    trial: int = 0
    attempt: int = 0
    run: str = ""
    check: str = ""
    item: str = ""
    statement_id: str
    answer_id: str
    judge_id: str = ""
    judge: Mapping[str, Any] = field(default_factory=dict)
    judge_verdict: VerdictWord | None = None
    judge_rating: float | None = None
    stratum: str = ""
    size: int | None = None
    draw: int | None = None
    seed: str | None = None
    policy: str | None = None

    @property
    def key(self) -> UnitKey:
        """Where the statement was that it is about."""
        return UnitKey(self.case, self.runner, self.arm, self.trial, self.check, self.item)


class LabelRemoval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line that takes an earlier one back, by its id."""

    schema: Literal["whet/label/1"]
    removes: str
    at: str = ""
    by: str = ""


class LabelLine(Struct, frozen=True, kw_only=True):
    """A label with the id of its line."""

    id: str
    label: Label


class LabelLineHead(Struct):
    """What tells a removal from a label."""

    removes: str | UnsetType = UNSET


# Why a label does not count for the judge and the statements of today.
StaleReason = Literal["judge changed", "question texts changed", "statement changed", "answer changed"]
_TEXTS = "questions"


class StaleLabel(Struct, frozen=True, kw_only=True):
    """A label that does not count, why, and what of the judge is another."""

    line: LabelLine
    reason: StaleReason
    changed: tuple[str, ...] = ()
    # What the label is about by now, if that is still there.
    unit: JudgedUnit | None = None

    @property
    def why(self) -> str:
        """The reason, with what changed in brackets."""
        return f"{self.reason} ({', '.join(self.changed)})" if self.changed else self.reason


class LabelledUnit(Struct, frozen=True, kw_only=True):
    """A judged statement with the labels that count: one of each person, the first person first."""

    unit: JudgedUnit
    lines: tuple[LabelLine, ...]

    @property
    def truth(self) -> bool | None:
        """What people say: the first of them who is sure; None if nobody is."""
        return next((line.label.label == "true" for line in self.lines if line.label.label != "unsure"), None)


class Matching(Struct, frozen=True, kw_only=True):
    """The labels of a file beside the units of runs.

    `elsewhere` are current labels of units of other runs: of the same judge on the same statements.
    """

    units: tuple[JudgedUnit, ...]
    labelled: tuple[LabelledUnit, ...]
    elsewhere: tuple[LabelLine, ...]
    stale: tuple[StaleLabel, ...]


def match_labels(units: Sequence[JudgedUnit], lines: Iterable[LabelLine]) -> Matching:
    """Put each label to the unit it is about; what has changed since makes it stale, with the reason."""
    places: dict[UnitKey, list[JudgedUnit]] = {}
    judges: dict[str, Mapping[str, Any]] = {}
    statements, runs = set[str](), set[str]()
    for unit in units:
        places.setdefault(unit.key, []).append(unit)
        judges[unit.judge_id] = unit.judge
        statements.add(unit.statement_id)
        runs.add(unit.run)
    by_place: dict[Place, list[LabelLine]] = {}
    elsewhere: list[LabelLine] = []
    stale: list[StaleLabel] = []
    for line in standing_labels(lines):
        place = _find_unit(places.get(line.label.key, ()), line.label)
        why = _staleness(line, place, judges, statements, is_of_these=line.label.run in runs)
        if why is not None:
            stale.append(why)
        elif place is not None and place.answer_id == line.label.answer_id:
            by_place.setdefault(place.place, []).append(line)
        else:
            elsewhere.append(line)
    counting = {_saying(line) for lines in by_place.values() for line in lines}
    stale = [entry for entry in stale if _saying(entry.line) not in counting]
    pairs = (LabelledUnit(unit=unit, lines=tuple(by_place[unit.place])) for unit in units if unit.place in by_place)
    return Matching(units=tuple(units), labelled=tuple(pairs), elsewhere=tuple(elsewhere), stale=tuple(stale))


def standing_labels(lines: Iterable[LabelLine]) -> Iterator[LabelLine]:
    """Yield the labels that count: the last of each person on each statement of an answer, for each judge.

    What was said after the judge's reason was shown does not count, and changes nothing.
    """
    last: dict[tuple[str, ...], LabelLine] = {}
    for line in lines:
        label = line.label
        if not label.after_reveal:
            last[label.by, *map(str, label.key), label.statement_id, label.answer_id, label.judge_id] = line
    yield from last.values()


def _saying(line: LabelLine) -> tuple[str, UnitKey, str, str]:
    """Return who says it of what, whatever the judge said."""
    label = line.label
    return label.by, label.key, label.statement_id, label.answer_id


def _find_unit(candidates: Sequence[JudgedUnit], label: Label) -> JudgedUnit | None:
    """Return the unit at the place of *label*: of the same run and the same answer rather than another."""

    def likeness(unit: JudgedUnit) -> tuple[bool, bool, bool]:
        same_answer = unit.answer_id == label.answer_id
        return same_answer, unit.statement_id == label.statement_id, unit.run == label.run

    return max(candidates, key=likeness, default=None)


def _staleness(
    line: LabelLine,
    unit: JudgedUnit | None,
    judges: Mapping[str, Mapping[str, Any]],
    statements: set[str],
    *,
    is_of_these: bool,
) -> StaleLabel | None:
    label = line.label
    same = unit if unit is not None and unit.answer_id == label.answer_id else None
    if label.statement_id not in statements or (same is not None and same.statement_id != label.statement_id):
        return StaleLabel(line=line, reason="statement changed", unit=unit)
    if unit is not None and same is None and is_of_these:
        return StaleLabel(line=line, reason="answer changed", unit=unit)
    if label.judge_id in ((same.judge_id,) if same is not None else judges) or not label.judge_id:
        return None
    judge = same.judge if same is not None else next(iter(judges.values()), {})
    changed = tuple(name for name, value in judge.items() if label.judge.get(name, value) != value)
    if changed == (_TEXTS,):
        return StaleLabel(line=line, reason="question texts changed", unit=unit)
    names = tuple(name for name in changed if name != _TEXTS)
    return StaleLabel(line=line, reason="judge changed", changed=names, unit=unit)
