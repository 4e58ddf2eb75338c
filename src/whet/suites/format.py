"""The contract of a format, the one function that loads a suite, and what all formats read alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from whet import plugins
from whet.errors import Problem, SuiteError
from whet.model.run import folder_name
from whet.model.suite import AS_WRITTEN, Case, Pairwise, Solution, Suite, SuiteReading
from whet.reading.documents import DocumentError
from whet.reading.fields import Fields
from whet.reading.paths import nearest_beside
from whet.reading.toml import PROJECT_FILE
from whet.reading.yaml import read_plain
from whet.suites.document_formats import document_format
from whet.suites.references import read_reference
from whet.suites.split.lock import with_parts

# The endings of formats that need not be read to be known: the readers of JSON and YAML take long to import.
_BY_ENDING = {".py": "python"}
# The files of one case of a plug-in, and the settings of Vally.
_BY_NAME = {"prompt.md": "plugin-evals", "case.yaml": "plugin-evals", ".vally.yaml": "vally"}
_OF_FOLDERS = ("harbor", "plugin-evals")
_COMMAND = 'write the answer as a text, or a command such as {"run": "echo 4 > result.txt"}'


# The bench format takes every other JSON and YAML file, so that it can say what is wrong with it.
BENCH = "bench"


class Format(Protocol):
    """One way of writing suites; one that reads folders has `takes_folders = True`."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* is written in this format."""

    def lower(self, path: Path) -> Suite:
        """Return the suite in *path*; raises `SuiteError` with every problem."""


# Such as a pipe of a shell: a suite is read more than once, and has a folder.
NO_FILE = "is a pipe or a device, not a file; name a file"


def load_suite(path: Path, reading: SuiteReading = AS_WRITTEN) -> Suite:
    """Return the suite in *path*, in whatever format it is, with the parts that its lock says.

    The suite is read with the values in *reading*.
    """
    return with_parts(_without_references(lower_suite(path, reading)))


def _without_references(suite: Suite) -> Suite:
    """Return *suite* with the stored answers held out that those of agents are compared with."""
    references = (case.pairwise.reference_file for case in suite.cases if case.pairwise is not None)
    files = dict.fromkeys((*suite.held_out, *(file for file in references if file is not None)))
    return replace(suite, held_out=tuple(files))


def lower_suite(path: Path, reading: SuiteReading = AS_WRITTEN) -> Suite:
    """Return the suite in *path* as it is written, with the parts that its cases say themselves."""
    if path.is_dir() and (name := format_of(path)) is not None:
        return _lower(name, path, reading)
    if not path.is_file():
        problem = NO_FILE if path.exists() else "there is no such file"
        reason = "is a folder; name the suite file" if path.is_dir() else problem
        hint = None if path.exists() else nearest_beside(path)
        raise SuiteError([Problem(file=str(path), message=reason, hint=hint)])
    name = format_of(path)
    if name is not None:
        return _lower(name, path, reading)
    format_names = ", ".join(plugins.names("formats"))
    raise SuiteError([Problem(file=str(path), message=f"is in no known format (known: {format_names})")])


def _lower(name: str, path: Path, reading: SuiteReading) -> Suite:
    suite_format: Format = plugins.find("formats", name)()
    if reading == AS_WRITTEN:
        return suite_format.lower(path.resolve())
    lower_with: Callable[[Path, SuiteReading], Suite] | None = getattr(suite_format, "lower_with", None)
    if lower_with is None:
        message = f"takes no parameters: its format is {name}, and only specs of Vally have them"
        raise SuiteError([Problem(file=str(path), message=message, hint="leave out --param")])
    return lower_with(path.resolve(), reading)


def format_of(path: Path) -> str | None:
    """Return the name of the format that *path* is written in."""
    built_in = _built_in_format_of(path)
    if built_in is not None and (built_in != BENCH or is_surely_bench(path)):
        return built_in
    # Only now: the names of installed formats take long to find.
    return installed_format_of(path) or built_in


def _built_in_format_of(path: Path) -> str | None:
    if path.is_dir():
        return next((name for name in _OF_FOLDERS if _is_written_in(name, path)), None)
    by_name = _BY_NAME.get(path.name)
    if by_name and _is_written_in(by_name, path):
        return by_name
    return _BY_ENDING.get(path.suffix) or document_format(path)


def installed_format_of(path: Path) -> str | None:
    """Return the name of the format of another package that *path* is written in."""
    names = (name for name in plugins.names("formats") if name not in plugins.BUILT_IN["formats"])
    return next((name for name in names if _is_written_in(name, path)), None)


def _is_written_in(name: str, path: Path) -> bool:
    suite_format: Format = plugins.find("formats", name)()
    if path.is_dir() and not getattr(suite_format, "takes_folders", False):
        return False
    return suite_format.recognizes(path)


def is_surely_bench(path: Path) -> bool:
    """Return whether every case has an id, a prompt and an expectation: then no other format is asked."""
    try:
        document = read_plain(path)
    except DocumentError:
        return False
    cases = document.get("cases") if isinstance(document, dict) else None
    return isinstance(cases, list) and bool(cases) and all(map(_is_bench_case, cases))


def _is_bench_case(case: object) -> bool:
    return isinstance(case, dict) and "id" in case and ("turns" in case or {"prompt", "expect"} <= set(case))


def read_script(fields: Fields, name: str) -> str | None:
    """Read a line of shell, or several in a list."""
    if not isinstance(fields.given(name), list):
        return fields.text(name)
    lines = fields.texts(name)
    return "\n".join(("set -e", *lines)) if lines else None


def read_solution(fields: Fields) -> Solution | None:
    """Read what passes a case: a text is the answer, and under `run` is shell for the place of the agent."""
    value = fields.given("solution")
    if value is None or isinstance(value, str):
        answer = fields.text("solution")
        return None if answer is None else Solution(answer=answer)
    if not isinstance(value, Mapping):
        fields.problem("solution", f"must be a text or a command, not {fields.shown('solution', value)}", _COMMAND)
        return None
    table = fields.table("solution")
    table.refuse_unknown(("run",))
    if table.given("run") in (None, []):
        table.problem("run", "is missing", _COMMAND)
    return Solution(run=read_script(table, "run"))


def read_pairwise(fields: Fields, folder: Path | None) -> Pairwise | None:
    """Read the field `pairwise`; its files are seen from *folder*, and without one there are none."""
    if fields.given("pairwise") is None:
        return None
    table = fields.table("pairwise")
    table.refuse_unknown(("question", "reference"))
    question = table.text("question")
    value = table.given("reference")
    if not isinstance(value, Mapping):
        return Pairwise(question=question, reference=table.text("reference"))
    place = table.table("reference")
    place.refuse_unknown(("file",))
    text = place.text("file", required=True)
    if text is None:
        return Pairwise(question=question)
    if folder is None:
        place.problem("file", "cannot be read here: there are no files beside these cases", "write the answer itself")
        return Pairwise(question=question)
    file = Path(os.path.normpath(folder / text))
    return Pairwise(question=question, reference=read_reference(place, "file", file), reference_file=file)


def read_check_files(fields: Fields, suite: Path) -> tuple[Path, ...]:
    """Read the files and folders that commands of checks may read; relative paths start at the folder of *suite*."""
    paths = []
    for index, text in enumerate(fields.texts("check_files")):
        path = Path(os.path.normpath(suite.parent / Path(text).expanduser()))
        # A sandbox shows what a link leads to.
        inside = next((place for place in _answers(suite) if _holds(path, place)), None)
        if not path.exists():
            fields.problem(f"check_files[{index}]", f"{path} does not exist")
        elif inside is not None:
            fields.problem(
                f"check_files[{index}]",
                f"{text} holds {inside.name}, which no command of a check may read",
                "put what checks need into a folder of its own",
            )
        else:
            paths.append(path)
    return tuple(dict.fromkeys(paths))


def _holds(path: Path, place: Path) -> bool:
    """Return whether *place* is *path* or below it, also where links lead, or is the same file by another name."""
    if place.is_relative_to(path) or place.resolve().is_relative_to(path.resolve()):
        return True
    return path.is_file() and place.is_file() and path.samefile(place)


def _answers(suite: Path) -> Iterator[Path]:
    """Yield what the commands of checks must not see, because they run what the agent left: suite and settings."""
    yield suite
    yield from (folder / PROJECT_FILE for folder in suite.parents if (folder / PROJECT_FILE).is_file())


def held_out(path: Path, cases: Iterable[Case]) -> tuple[Path, ...]:
    """Return the suite itself if it holds a solution: then no agent may see it."""
    return (path,) if any(case.solution or _has_reference(case) for case in cases) else ()


def _has_reference(case: Case) -> bool:
    return case.pairwise is not None and case.pairwise.reference is not None and case.pairwise.reference_file is None


def note_shared_ids(ids: Iterable[tuple[Fields, str, str]]) -> None:
    """Note ids that are the same, or would share a folder, also if the file system ignores case.

    Each id comes with its case and the name of its field.
    """
    first: dict[str, tuple[Fields, str]] = {}
    for fields, field, name in ids:
        earlier, first_name = first.setdefault(folder_name(name).casefold(), (fields, name))
        first_place = fields.findings.place(earlier.path) if earlier.path else "another case"
        if earlier is fields:
            continue
        if first_name == name:
            fields.problem(field, f"is the id of {first_place} too", "give each case its own")
        else:
            fields.problem(field, f'would share the folder "{folder_name(name)}" with {first_place}, "{first_name}"')
