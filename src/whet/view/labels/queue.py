"""What a person is asked to label, and what they said: the same for the pages and for the terminal."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from whet.decide.judging.draw import Drawn, draw, label_queue, second_queue
from whet.decide.judging.units import JudgedUnit, Label, LabelLine, LabelWord, UnitKey, match_labels
from whet.errors import UsageError
from whet.reading.files import read_file
from whet.record.judging.labelling import new_label
from whet.record.judging.labels_file import POLICY_FILE, add_labels, policy_of, read_labels, remove_label
from whet.record.read.rows import RowKey
from whet.view.addresses import Missing
from whet.view.documents import ShownAttempt, TrialDocument
from whet.view.labels.documents import JudgeReasonDocument, KeptLabel, LabelItemDocument, LabelQueueDocument
from whet.view.run import RunView
from whet.view.trial import TrialViews

_NAME_DIGITS = 16
_LONGEST_POLICY = 100_000


class QueueOptions(Struct, frozen=True, kw_only=True):
    """How many are drawn, with which seed, and whether a second person is asked."""

    n: int
    seed: str
    second: bool = False


class LabelStore(Protocol):
    """Where the labels of a suite are kept: in a file beside it, or in the database of a service."""

    @property
    def place(self) -> str:
        """Where that is, for people."""

    @property
    def policy(self) -> str | None:
        """What identifies the text that says what counts as true."""

    @property
    def policy_text(self) -> str | None:
        """That text."""

    def lines(self) -> list[LabelLine]:
        """Return the labels that nobody removed, the oldest first."""

    def add(self, label: Label) -> LabelLine:
        """Keep a label."""

    def remove(self, line_id: str, by: str) -> bool:
        """Take a label back, and return whether there was one."""


class LabelsBeside:
    """The labels in the file *path*, beside the suite."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def place(self) -> str:
        """The file."""
        return str(self._path)

    @property
    def policy(self) -> str | None:
        """What identifies the text beside the labels."""
        return policy_of(self._path)

    @property
    def policy_text(self) -> str | None:
        """The text beside the labels."""
        try:
            return read_file(self._path.with_name(POLICY_FILE), _LONGEST_POLICY).decode("utf-8", "replace")
        except OSError:
            return None

    def lines(self) -> list[LabelLine]:
        """Return the labels of the file."""
        return read_labels(self._path)

    def add(self, label: Label) -> LabelLine:
        """Add a line to the file."""
        [line] = add_labels(self._path, [label])
        return line

    def remove(self, line_id: str, by: str) -> bool:
        """Add a line that takes another one back."""
        return remove_label(self._path, line_id, by)


class LabelQueue:
    """The queue of people who label *units* of the runs in *folders*; several may work on it at once."""

    def __init__(
        self,
        units: Sequence[JudgedUnit],
        folders: Mapping[str, Path],
        store: LabelStore,
        options: QueueOptions,
        revealed: set[tuple[str, str]] | None = None,
    ) -> None:
        self._units = units
        self._folders = folders
        self._store = store
        self._options = options
        # What was added here, so that it can be taken back, and whose reasons were shown to whom.
        self._added: set[str] = set()
        self._revealed = revealed if revealed is not None else set()
        self._lock = threading.RLock()

    @property
    def place(self) -> str:
        """Where the labels are kept, for people."""
        return self._store.place

    def document(self, by: str) -> LabelQueueDocument:
        """Return what is left for *by* to label."""
        with self._lock:
            entries = self._open(by)
            return LabelQueueDocument(
                suite=self._units[0].suite,
                by=by,
                second=self._options.second,
                drawn=len(entries) if self._options.second else len(self._draw),
                names=tuple(self.name_of(entry.unit) for entry in entries),
                policy=self._store.policy_text,
                place=self.place,
            )

    def _open(self, by: str) -> list[Drawn]:
        """Return what *by* is asked: what nobody has labelled, or what one other person has."""
        people = self._people()
        if self._options.second:
            return second_queue(self._units, self._options.seed, people, by)
        return label_queue(self._units, self._options.n, self._options.seed, set(people))

    def _people(self) -> dict[UnitKey, set[str]]:
        """Return who has labelled each unit."""
        matching = match_labels(self._units, self._store.lines())
        return {entry.unit.key: {line.label.by for line in entry.lines} for entry in matching.labelled}

    @cached_property
    def _draw(self) -> Sequence[Drawn]:
        return draw(self._units, self._options.n, self._options.seed)

    @cached_property
    def _places(self) -> Mapping[str, Drawn]:
        """All units by their names, with their places in the whole order: a queue that is made longer has them too."""
        every = draw(self._units, len(self._units), self._options.seed)
        return {self.name_of(entry.unit): entry for entry in every}

    def name_of(self, unit: JudgedUnit | Label) -> str:
        """Return a name for *unit*, or for what a label is about, that says nothing about it."""
        place = "\0".join(("label", self._options.seed, unit.run, *map(str, unit.key)))
        return hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:_NAME_DIGITS]

    def _find(self, name: str) -> Drawn:
        entry = self._places.get(name)
        if entry is None:
            raise Missing("there is nothing of this name to label")
        return entry

    def item(self, name: str) -> LabelItemDocument:
        """Return what is shown of a unit."""
        unit = self._find(name).unit
        with self._lock:
            document = self._trials(unit.run).document(
                RowKey(unit.key.case, unit.key.runner, unit.key.arm, unit.key.trial)
            )
        attempt = _attempt_of(document, unit)
        return LabelItemDocument(
            name=name,
            statement=unit.statement,
            prompt=document.case.prompt if document else None,
            turns=document.case.turns if document else (),
            answer=attempt.final_output if attempt else "",
            changes=attempt.changes if attempt else None,
            diff=attempt.diff if attempt else "",
            diff_cut=attempt.diff_cut if attempt else False,
            problem=None if attempt else "the answer is not in the record any more",
        )

    def _trials(self, run: str) -> TrialViews:
        if run not in self._views:
            self._views[run] = TrialViews(RunView(self._folders[run], private=True))
        return self._views[run]

    @cached_property
    def _views(self) -> dict[str, TrialViews]:
        return {}

    def label(self, name: str, word: LabelWord, by: str, note: str = "") -> KeptLabel:
        """Keep what *by* says of a unit."""
        entry = self._find(name)
        if not by.strip():
            raise UsageError("a label needs the name of a person")
        with self._lock:
            is_late = (name, by) in self._revealed
            label = new_label(
                entry.unit,
                word,
                by.strip(),
                drawn=entry,
                seed=self._options.seed,
                note=note.strip() or None,
                after_reveal=is_late,
                policy=self._store.policy,
            )
            line = self._store.add(label)
            self._added.add(line.id)
        return KeptLabel(id=line.id, counts=not is_late)

    def take_back(self, line_id: str, by: str) -> None:
        """Remove a label that was added here."""
        with self._lock:
            if line_id not in self._added or not self._store.remove(line_id, by):
                raise Missing("there is no such label of this queue")
            self._added.discard(line_id)

    def labels_on(self, name: str, by: str) -> list[str]:
        """Return the ids of what *by* has said of a unit."""
        unit = self._find(name).unit
        return [line.id for line in self._store.lines() if _is_on(line, unit, by)]

    def reason(self, name: str, by: str) -> JudgeReasonDocument:
        """Return what the judge said of a unit that *by* has labelled; refuses before that."""
        unit = self._find(name).unit
        with self._lock:
            if not self.labels_on(name, by):
                raise UsageError("the judge's reason is shown after your label, so that it cannot decide it")
            self._revealed.add((name, by))
        return JudgeReasonDocument(
            verdict=unit.verdict, rating=unit.rating, threshold=unit.threshold * 10, reason=unit.reason
        )


def _is_on(line: LabelLine, unit: JudgedUnit, by: str) -> bool:
    label = line.label
    return label.by == by and label.key == unit.key and label.answer_id == unit.answer_id


def _attempt_of(document: TrialDocument | None, unit: JudgedUnit) -> ShownAttempt | None:
    attempts: Iterable[ShownAttempt] = document.attempts if document else ()
    return next((attempt for attempt in attempts if attempt.number == unit.attempt), None)


def changed_files(item: LabelItemDocument) -> Iterator[str]:
    """Yield a line for each file that an agent created, changed or deleted."""
    if item.changes is not None:
        for word, paths in (
            ("created", item.changes.created),
            ("modified", item.changes.modified),
            ("deleted", item.changes.deleted),
        ):
            yield from (f"{word} {path}" for path in paths)
