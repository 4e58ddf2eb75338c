"""Where a stimulus works: its environment, that of its spec, and those that `.vally.yaml` defines by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from whet.errors import SuiteError
from whet.model.suite import BootstrapSpec, PlacedItem, WorkspaceSpec
from whet.reading.fields import Fields
from whet.reading.paths import inside_problem
from whet.reading.plugin_folder import can_be_given
from whet.reading.text import did_you_mean
from whet.suites.document_formats import document_format
from whet.suites.other_tools.shared import MANIFEST, ForeignDocument, find_fixture, fixture, texts_of
from whet.suites.other_tools.vally.files import SETTINGS

_FIELDS = ("skills", "files", "commands", "git", "mcpServers")
_FILE = ("src", "dest")
_GIT = ("type", "source", "ref")
_PARAMETER = re.compile(r"\$\{([^}]*)\}")
_COMMAND_TIMEOUT_S = 120.0
_NO_SERVERS = "whet starts no MCP servers, so that the agent has none of their tools"
# Where Copilot looks for skills in a project.
_PLACE_OF_SKILLS = ".github/skills"


class Environment(Struct, frozen=True, kw_only=True):
    """What a stimulus is given: skills by their folders, files, commands that run first, and a clone to work in."""

    skills: tuple[Path, ...] = ()
    placed: tuple[PlacedItem, ...] = ()
    commands: tuple[str, ...] = ()
    workspace: WorkspaceSpec | None = None

    def __add__(self, other: Environment) -> Environment:
        """Add an environment that is nearer to the stimulus, whose files and clone win."""
        paths = {item.path for item in other.placed}
        return Environment(
            skills=tuple(dict.fromkeys((*self.skills, *other.skills))),
            placed=(*(item for item in self.placed if item.path not in paths), *other.placed),
            commands=(*self.commands, *other.commands),
            workspace=other.workspace or self.workspace,
        )

    @property
    def bootstrap(self) -> BootstrapSpec | None:
        """The commands as one script, which ends at the first that fails."""
        if not self.commands:
            return None
        script = "\n".join(("set -e", *self.commands))
        return BootstrapSpec(command="/bin/sh", args=("-c", script), timeout_s=_COMMAND_TIMEOUT_S * len(self.commands))


class EnvironmentReader:
    """Reads the environments of one spec."""

    def __init__(self, document: ForeignDocument) -> None:
        self._document = document
        self._folder = document.path.parent
        self._settings: Path | None = None
        # Paths begin at the folder of the spec, and may lead to anything in its repository.
        self._root = self._folder
        for place in document.path.parents:
            if self._settings is None and (place / SETTINGS).is_file():
                self._settings = place / SETTINGS
                self._root = place
            if (place / ".git").exists():
                self._root = place
                break

    def read(self, fields: Fields) -> Environment:
        """Return the environment that *fields* have, by name or in full; an empty one if they have none."""
        value = fields.given("environment")
        if isinstance(value, str):
            return self._by_name(fields, value)
        return self._environment(self._document, fields.table("environment"))

    def skill(self, text: str) -> Path | None:
        """Return the folder of a skill by its path, seen from the folder of the document, or by its name."""
        return self._skill(self._folder, text)

    def _by_name(self, fields: Fields, name: str) -> Environment:
        if (parameter := _PARAMETER.search(name)) is not None:
            option = f"--param {parameter[1]}=NAME"
            self._document.lose(fields, "environment", f"nothing says what {parameter[0]} is; say it with {option}")
            return Environment()
        if self._settings is None:
            self._document.lose(
                fields, "environment", f"there is no {SETTINGS} above the spec, which says what {name} is"
            )
            return Environment()
        document = ForeignDocument.read(self._settings)
        environments = document.top.table("environments")
        if name not in environments.values:
            names = list(map(str, environments.values))
            hint = did_you_mean(name, names) or f"known: {', '.join(names) or 'none'}"
            fields.problem("environment", f'{self._settings} has no environment "{name}"', hint)
            return Environment()
        environment = self._environment(document, environments.table(name))
        findings = document.top.findings
        if findings.problems:
            raise SuiteError(findings.problems, findings.warnings)
        fields.findings.warnings += [
            problem for problem in findings.warnings if problem not in fields.findings.warnings
        ]
        for loss in document.losses():
            field = (loss.field or "").removeprefix(f"environments.{name}.").partition(" ")[0]
            why = loss.message.removeprefix("not carried over: ")
            self._document.lose(fields, "environment", f"{field} of {name} in {SETTINGS}, because {why}")
        return environment

    def _environment(self, document: ForeignDocument, fields: Fields) -> Environment:
        document.lose_unknown(fields, _FIELDS)
        if fields.given("mcpServers") is not None:
            fields.table("mcpServers")
            document.lose(fields, "mcpServers", _NO_SERVERS)
        skills, missing_skills = self._skills(document, fields)
        workspace, missing_clone = self._clone(document, fields)
        return Environment(
            skills=skills,
            placed=(*missing_skills, *missing_clone, *self._files(document, fields)),
            commands=tuple(text for _, text in texts_of(fields, "commands")),
            workspace=workspace,
        )

    def _skills(self, document: ForeignDocument, fields: Fields) -> tuple[tuple[Path, ...], list[PlacedItem]]:
        skills: list[Path] = []
        missing: list[PlacedItem] = []
        for place, text in texts_of(fields, "skills"):
            skill = self._skill(document.path.parent, text)
            if skill is not None:
                skills.append(skill)
                continue
            missing.append(fixture(fields, place, text, f"{_PLACE_OF_SKILLS}/{Path(text).name}", self._roots(document)))
        return tuple(skills), missing

    def _skill(self, folder: Path, text: str) -> Path | None:
        """Return the folder of a skill by its path, or by its name alone where plug-ins keep theirs."""
        place = find_fixture(text, (folder, self._root)) or find_fixture(text, (self._root,))
        if place is None and "/" not in text:
            place = next(iter(sorted(self._root.glob(f"plugins/*/skills/{text}"))), None)
        if place is not None and place.name == MANIFEST:
            place = place.parent
        return place if place is not None and can_be_given(place) else None

    def _roots(self, document: ForeignDocument) -> Sequence[Path]:
        return tuple(dict.fromkeys((document.path.parent, self._root)))

    def _files(self, document: ForeignDocument, fields: Fields) -> Iterator[PlacedItem]:
        for place, item in fields.items("files"):
            if isinstance(item, str):
                yield from self._placed(document, fields, place, item, Path(item).name)
                continue
            file = fields.object(place, item)
            document.lose_unknown(file, _FILE)
            source = file.text("src", required=True)
            destination = file.checked("dest", file.text("dest"), inside_problem) or Path(source or "").name
            if source is not None:
                yield from self._placed(document, file, "src", source, os.path.normpath(destination or "."))

    def _placed(
        self, document: ForeignDocument, fields: Fields, place: str, source: str, destination: str
    ) -> Iterator[PlacedItem]:
        folder = find_fixture(source, self._roots(document)) if destination == "." else None
        if Path(os.path.normpath(document.path.parent / source)) == document.path.parent:
            folder = document.path.parent
        if folder is None or not folder.is_dir():
            path = Path(source).name if destination == "." else destination
            yield fixture(fields, place, source, path, self._roots(document))
            return
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - names
            entry = folder / name
            if not self._is_answer(entry):
                yield PlacedItem(path=os.path.normpath(f"{destination}/{name}"), source=entry)

    def _is_answer(self, entry: Path) -> bool:
        """Return whether an entry of a folder is a suite or settings of one, or leads out of the repository."""
        inside = os.path.realpath(entry).startswith(f"{os.path.realpath(self._root)}/")
        is_suite = entry.is_file() and document_format(entry) not in (None, "bench")
        return not inside or is_suite or entry.name in (SETTINGS, MANIFEST, ".git")

    def _clone(self, document: ForeignDocument, fields: Fields) -> tuple[WorkspaceSpec | None, tuple[PlacedItem, ...]]:
        """Return the workspace that is a copy of a clone, or what is missing for it."""
        if not fields.has("git"):
            return None, ()
        git = fields.table("git")
        document.lose_unknown(git, _GIT)
        git.choice("type", ("worktree",))
        source = git.text("source", required=True) or ""
        if git.text("ref") is not None:
            document.lose(git, "ref", "the agent works in a copy of what the clone has checked out")
        clone = Path(os.path.normpath(document.path.parent / source))
        if not (clone / ".git").exists():
            git.warn("source", f"there is no clone in {clone}", "a case without it is errored: make the clone first")
            return None, (PlacedItem(path=clone.name, wanted=source),)
        return WorkspaceSpec(mode="isolated", template_dir=clone), ()


def skill_around(path: Path) -> Path | None:
    """Return the skill whose folder the spec lies in, by itself or in a folder for evals."""
    folders = (path.parent, path.parent.parent) if path.parent.name in ("evals", "eval", "tests") else (path.parent,)
    return next((folder for folder in folders if (folder / MANIFEST).is_file()), None)
