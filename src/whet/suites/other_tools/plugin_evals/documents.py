"""The files of a case, read with the line of every value: `prompt.md`, `case.yaml` and `graders/*.md`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from whet.errors import SuiteError
from whet.reading.documents import DocumentError
from whet.reading.fields import Fields, Findings
from whet.reading.files import read_file
from whet.reading.front_matter import split_front_matter
from whet.reading.yaml import checked_root, read_yaml
from whet.suites.other_tools.plugin_evals.folders import CASE, PROMPT

GRADERS = "graders"
_LARGEST = 1024 * 1024
_MOST_GRADERS = 256
CASE_KEYS = ("schema_version", "name", "description", "expected_outcome", "tags", "plugins", "runs")
# Two more are internal to their tool.
EXECUTION_KEYS = (
    "model",
    "max_turns",
    "timeout_seconds",
    "allowed_tools",
    "disallowed_tools",
    "append_system_prompt",
    "env",
    "artifact_publish",
    "growthbook_overrides",
)


class GraderDocument(Struct, frozen=True):
    """A grader as it is written: its fields, its name, and the body of its file, if it has a file."""

    fields: Fields
    name: str
    body: str = ""
    markdown: str | None = None


class CaseDocument(Struct, frozen=True, kw_only=True):
    """A case as it is written, in one file or in both; of both, the front matter of `prompt.md` wins key by key."""

    folder: Path
    prose: Fields | None
    body: str
    yaml: Fields | None
    graders: tuple[GraderDocument, ...]
    findings: tuple[Findings, ...]

    @property
    def source(self) -> str:
        """In which files it is, by the words of their tool."""
        if self.prose is None:
            return "case_yaml"
        return "prose" if self.yaml is None else "mixed"

    @property
    def fields(self) -> Fields:
        """The fields of its first file."""
        fields = self.prose if self.prose is not None else self.yaml
        assert fields is not None
        return fields

    def about(self, name: str) -> Fields:
        """Return the fields that hold *name*, or would."""
        if self.yaml is None or (self.prose is not None and self.prose.given(name) is not None):
            return self.fields
        in_yaml = self.yaml if name in CASE_KEYS else self.execution
        return in_yaml if self.prose is None or in_yaml.given(name) is not None else self.prose

    @property
    def execution(self) -> Fields:
        """The table `execution` of `case.yaml`; empty without that."""
        return self._table("execution")

    @property
    def context(self) -> Fields:
        """The table `context` of `case.yaml`; empty without that."""
        return self._table("context")

    def _table(self, name: str) -> Fields:
        if self.yaml is None or not isinstance(self.yaml.given(name), dict):
            return Fields({}, self.fields.findings)
        return self.yaml.table(name)


def read_case(folder: Path, root: Path) -> CaseDocument:
    """Read the files of the case in *folder*, which is in *root*; raises `SuiteError` with all that cannot be read."""
    _refuse_links(folder, root)
    errors: list[SuiteError] = []
    prose, body, yaml = None, "", None
    try:
        if (folder / PROMPT).is_file():
            prose, body = _read_prose(folder / PROMPT)
    except SuiteError as error:
        errors.append(error)
    try:
        if (folder / CASE).is_file():
            yaml = _read_case_yaml(folder / CASE)
    except SuiteError as error:
        errors.append(error)
    graders: list[GraderDocument] = []
    try:
        graders += _yaml_graders(yaml) if yaml is not None else ()
        graders += _grader_files(folder, errors)
    except SuiteError as error:
        errors.append(error)
    if errors:
        raise SuiteError([problem for error in errors for problem in error.problems])
    for fields in (prose, yaml, *(grader.fields for grader in graders)):
        if fields is not None:
            fields.case = folder.name
    findings = [fields.findings for fields in (prose, yaml, *(grader.fields for grader in graders)) if fields]
    distinct = list({id(item): item for item in findings}.values())
    return CaseDocument(
        folder=folder, prose=prose, body=body, yaml=yaml, graders=tuple(graders), findings=tuple(distinct)
    )


def _refuse_links(folder: Path, root: Path) -> None:
    """Raise `SuiteError` if a file of a case is a link that leads out of *root*: agents would be told what is there."""
    files = (folder / PROMPT, folder / CASE, *sorted((folder / GRADERS).glob("*.md")))
    outside = [file for file in files if file.is_file() and not is_inside(file, root)]
    if outside:
        message = f"is a link that leads out of {root}"
        raise SuiteError([DocumentError(message, hint="copy the file to its place").problem(file) for file in outside])


def is_inside(path: Path, root: Path) -> bool:
    """Return whether *path* is in the folder *root*, also where links lead."""
    return path.resolve().is_relative_to(root.resolve())


def _read_prose(path: Path) -> tuple[Fields, str]:
    """Return the front matter of a file, without fields if it has none, and its trimmed body."""
    front, body = _split(path)
    if front is None:
        return Fields({}, Findings(str(path))), body.strip()
    return _front_fields(path, front), body.strip()


def _split(path: Path) -> tuple[str | None, str]:
    try:
        text = read_file(path, _LARGEST).decode("utf-8-sig")
        return split_front_matter(text.replace("\r\n", "\n"))
    except UnicodeDecodeError:
        raise SuiteError([DocumentError("is not UTF-8", hint="save it in UTF-8").problem(path)]) from None
    except DocumentError as error:
        raise SuiteError([error.problem(path)]) from None
    except OSError as error:
        raise SuiteError([DocumentError(f"cannot be read: {error.strerror}").problem(path)]) from None


def _front_fields(path: Path, front: str) -> Fields:
    if not front.strip():
        return Fields({}, Findings(str(path)))
    try:
        document = read_yaml(front)
    except DocumentError as error:
        raise SuiteError([error.problem(path)]) from None
    if document.repeats:
        raise SuiteError(document.repeat_problems(path))
    values = document.root.plain()
    if not isinstance(values, dict):
        raise SuiteError([DocumentError("has a front matter that is not an object", line=2).problem(path)])
    return Fields(values, Findings(str(path), document.root))


def _read_case_yaml(path: Path) -> Fields:
    root = checked_root(path)
    values = root.plain()
    if not isinstance(values, dict):
        raise SuiteError([DocumentError("must be an object", line=1).problem(path)])
    return Fields(values, Findings(str(path), root))


def _yaml_graders(top: Fields) -> Iterator[GraderDocument]:
    for number, (place, item) in enumerate(top.items("graders", most=_MOST_GRADERS), 1):
        fields = top.object(place, item)
        yield GraderDocument(fields, fields.text("name", required=True) or str(number))


def _grader_files(folder: Path, errors: list[SuiteError]) -> Iterator[GraderDocument]:
    """Yield the graders in files, sorted by name; a file without front matter is none."""
    paths = sorted(path for path in (folder / GRADERS).glob("*.md") if path.is_file())
    if len(paths) > _MOST_GRADERS:
        message = f"has {len(paths)} graders, and at most {_MOST_GRADERS} are allowed"
        raise SuiteError([DocumentError(message).problem(folder / GRADERS)])
    for path in paths:
        try:
            front, body = _split(path)
            if front is None:
                continue
            fields = _front_fields(path, front)
        except SuiteError as error:
            errors.append(error)
            continue
        yield GraderDocument(fields, fields.text("name") or path.stem, body.strip(), body.strip())


def passed_over(folder: Path) -> Iterator[Path]:
    """Yield the files beside graders that have no front matter, and so are none."""
    for path in sorted((folder / GRADERS).glob("*.md")):
        if path.is_file() and _split(path)[0] is None:
            yield path
