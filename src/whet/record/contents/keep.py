"""Keep the texts that a run starts from, so that arms and runs can be shown with what differs between them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from whet.model import codec
from whet.model.arm import Arm
from whet.model.run import Execution, Plan
from whet.model.suite import PlacedItem
from whet.reading.files import read_file
from whet.record.folder import CONTENTS_FILE, PRIVATE, write_atomically
from whet.record.safe_open import read_inside
from whet.record.sources import SourceFile
from whet.secrets import looks_secret

# The files of a part by their paths, each with the digest of its text, or of its bytes if it is no text.
Files = dict[str, str]
# The part that is the skill under test; others are called "skill NAME".
SKILL_PART = "skill"
# What is larger is not kept as text: a skill is text for a model, and a template may be a whole repository.
_LARGEST_FILE, _MOST_BYTES, _MOST_FILES = 256 * 1024, 4 * 1024 * 1024, 500
_LARGEST_KEPT = 256 * 1024 * 1024
_SKIPPED = frozenset((".git", ".whet", "__pycache__", "node_modules"))


class ArmContents(Struct, kw_only=True):
    """What an arm is run with: its model, agent and so on by name, and the files of each part."""

    values: dict[str, str] = field(default_factory=dict)
    parts: dict[str, Files] = field(default_factory=dict)


class Contents(Struct, kw_only=True):
    """What a run was made of, each text once, by its digest; `prompts` has that of each case."""

    texts: dict[str, str] = field(default_factory=dict)
    arms: dict[str, ArmContents] = field(default_factory=dict)
    shared: dict[str, Files] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)


def keep_contents(run_dir: Path, plan: Plan, sources: Mapping[str, SourceFile], mask: Callable[[str], str]) -> str:
    """Write what *plan* starts from to the record, masked, and return the hash for run.json."""
    data = codec.encode_pretty(_ContentsReader(plan, sources, mask).contents())
    write_atomically(run_dir / CONTENTS_FILE, data, mode=PRIVATE)
    return hashlib.sha256(data).hexdigest()


def read_contents(run_dir: Path) -> Contents:
    """Return what a run was made of, as far as its record holds it."""
    content = read_inside(run_dir, CONTENTS_FILE, _LARGEST_KEPT)
    if content is None or content[1]:
        return Contents()
    try:
        return codec.decode(content[0], Contents)
    except codec.WireError:
        return Contents()


class _ContentsReader:
    """Reads each file once, however many arms and cases have it."""

    def __init__(self, plan: Plan, sources: Mapping[str, SourceFile], mask: Callable[[str], str]) -> None:
        self._executions = plan.whole or plan.executions
        self._plan = plan
        self._sources = sources
        self._mask = mask
        # An agent might look into the record too: of what holds answers, only the digest is kept.
        self._held_out = tuple(path.resolve() for path in plan.suite.held_out)
        self._texts: dict[str, str] = {}
        self._folders: dict[Path, Files] = {}

    def contents(self) -> Contents:
        """Return everything that the plan names."""
        return Contents(
            arms={arm.name: self._arm(arm) for arm in self._plan.arms},
            shared=dict(self._shared_parts()),
            prompts={
                execution.case.id: self._keep("\n\n".join((execution.case.prompt, *execution.case.then)))
                for execution in self._executions
            },
            texts=self._texts,
        )

    def _arm(self, arm: Arm) -> ArmContents:
        executions = [execution for execution in self._executions if execution.arm == arm.name]
        parts = dict(self._skills(arm, executions))
        if arm.prompt is not None:
            parts["prompt"] = {"prompt of the arm": self._keep(arm.prompt)}
        return ArmContents(values=dict(self._values(arm, executions)), parts=parts)

    def _values(self, arm: Arm, executions: list[Execution]) -> Iterator[tuple[str, str]]:
        """Yield what is no text: names, and variables without those that look secret."""
        values_by_name = {
            "runner": [execution.runner.id for execution in executions],
            "agent": [execution.runner.agent for execution in executions],
            "model": [execution.case.model or execution.runner.model or "" for execution in executions],
        }
        for name, values in values_by_name.items():
            distinct_values = [value for value in dict.fromkeys(values) if value]
            if distinct_values:
                yield name, ", ".join(distinct_values)
        for name, value in arm.env.items():
            shown = f"hidden {_digest_of(value)[:8]}" if looks_secret(name) else self._mask(value)
            yield f"env {name}", shown

    def _skills(self, arm: Arm, executions: list[Execution]) -> Iterator[tuple[str, Files]]:
        """Yield the skills that agents are given, the one under test first."""
        under_test = arm.skill.path if arm.skill else None
        if under_test is not None:
            yield SKILL_PART, self._folder(under_test)
        for path in dict.fromkeys(path for execution in executions for path in execution.runner.skills):
            if path != under_test:
                yield f"skill {path.name}", self._folder(path)

    def _shared_parts(self) -> Iterator[tuple[str, Files]]:
        """Yield what all arms begin with: the suite, templates, and the files of single cases."""
        source = self._plan.suite.source
        if source.is_file():
            yield "suite", dict(self._files(source, source.parent))
        templates = dict.fromkeys(execution.workspace.template_dir for execution in self._executions)
        folders = [folder for folder in templates if folder is not None]
        for folder in folders:
            yield "template" if len(folders) == 1 else f"template {folder.name}", self._folder(folder)
        for execution in self._executions:
            if files := self._placed_files(execution):
                yield f"files of {execution.case.id}", files

    def _placed_files(self, execution: Execution) -> Files:
        files: Files = {}
        given_skills = {execution.skill, *execution.runner.skills}
        for item in execution.workspace.placed:
            if item.source not in given_skills or item.source is None:
                files.update(self._placed(item))
        return files

    def _placed(self, item: PlacedItem) -> Files:
        if item.source is None:
            return {item.path: self._keep(item.text)} if item.text is not None else {}
        if item.source.is_dir():
            return {f"{item.path}/{path}": digest for path, digest in self._folder(item.source).items()}
        digests = (digest for _, digest in self._files(item.source, item.source.parent))
        return dict(zip((item.path,), digests, strict=False))

    def _folder(self, folder: Path) -> Files:
        if folder not in self._folders:
            self._folders[folder] = dict(self._files(folder, folder))
        return self._folders[folder]

    def _files(self, place: Path, root: Path) -> Iterator[tuple[str, str]]:
        """Yield the files at *place* by their paths from *root*, each with the digest of what it holds."""
        left = _MOST_BYTES
        for number, path in enumerate(_paths(place)):
            text = _text(path, min(_LARGEST_FILE, left)) if number < _MOST_FILES else None
            source = self._sources.get(str(path))
            if text is not None and self._holds_answers(path):
                yield path.relative_to(root).as_posix(), _digest_of(text)
                continue
            if text is not None:
                left -= len(text)
                yield path.relative_to(root).as_posix(), self._keep(text)
            elif source is not None and source.digest is not None:
                yield path.relative_to(root).as_posix(), source.digest

    def _holds_answers(self, path: Path) -> bool:
        return bool(self._held_out) and any(path.resolve().is_relative_to(place) for place in self._held_out)

    def _keep(self, text: str) -> str:
        masked_text = self._mask(text)
        digest = _digest_of(masked_text)
        self._texts[digest] = masked_text
        return digest


def _digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _paths(place: Path) -> Iterator[Path]:
    if not place.is_dir():
        yield place
        return
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        yield from (Path(folder, name) for name in sorted(names))


def _text(path: Path, most: int) -> str | None:
    """Return the text of a file; None if it is a link, too large, or no text."""
    try:
        return None if path.is_symlink() else read_file(path, most).decode()
    except (OSError, UnicodeDecodeError):
        return None
