"""The format of `claude plugin eval`: a folder of cases, or one case, and the plug-in that they belong to."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from whet.errors import Problem, SuiteError
from whet.model.run import id_problem
from whet.model.suite import BootstrapSpec, Case, Limits, PlacedItem, Suite
from whet.reading.fields import Fields, Findings
from whet.reading.paths import inside_problem
from whet.reading.plugin_folder import plugin_manifest
from whet.suites.other_tools.plugin_evals.documents import (
    CASE_KEYS,
    EXECUTION_KEYS,
    CaseDocument,
    is_inside,
    passed_over,
    read_case,
)
from whet.suites.other_tools.plugin_evals.folders import (
    CASE,
    PROMPT,
    case_folders,
    is_case,
    manifest_warnings,
    plugin_of,
    unread_manifests,
)
from whet.suites.other_tools.plugin_evals.graders import (
    LoweredGrader,
    count_checks,
    is_baseline,
    lower_grader,
    read_baseline,
)
from whet.suites.other_tools.shared import ForeignDocument, answered, new_case
from whet.suites.split.fields import PART_FIELDS

_USUAL_RUNS, _MOST_RUNS = 3, 50
_USUAL_TURNS, _MOST_TURNS = 10, 200
_USUAL_S, _LONGEST_S = 300, 3600
_SCAFFOLD_S = 120
_TOP = (*CASE_KEYS, "execution", "context", "graders", *PART_FIELDS)
_CONTEXT = ("scaffold_script", "history_file", "add_dirs")
# Any tool may call a file `case.yaml`.
_OF_A_CASE = re.compile(rb'(?:^|")(?:execution|graders)"?[ \t]*:', re.MULTILINE)
_VARIABLE = re.compile(r"EVAL_[A-Z0-9_]*")
_BLANK = "TODO: describe"
_EVERY_TOOL = "the agent may use every tool, inside of the sandbox"
_LOST = {
    "allowed_tools": _EVERY_TOOL,
    "disallowed_tools": _EVERY_TOOL,
    "append_system_prompt": "no agent is given more than its prompt",
    "artifact_publish": "whet publishes nothing",
    "growthbook_overrides": "it is internal to Claude Code",
}
_MOCKS = "mocks"
_NO_MOCKS = "whet has no mocks of MCP servers yet, so that the agent has none of their tools"


class PluginEvalsFormat:
    """A folder that holds folders with `prompt.md` or `case.yaml`, or one of these files."""

    takes_folders = True

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* is such a folder or file."""
        if path.is_dir():
            return is_case(path) or next(case_folders(path), None) is not None
        if not path.is_file() or path.name not in (PROMPT, CASE):
            return False
        return (path.parent / PROMPT).is_file() or _OF_A_CASE.search(path.read_bytes()) is not None

    def lower(self, path: Path) -> Suite:
        """Read every case; a mistake in one of them is a problem of the suite, found before anything starts."""
        folder = path if path.is_dir() else path.parent
        folders = [folder] if is_case(folder) else list(case_folders(folder))
        if not folders:
            raise SuiteError([Problem(file=str(path), message=f"has no case: no folder with {PROMPT} or {CASE}")])
        root = plugin_of(folder)
        suite = _PluginSuite(path, folder, root)
        cases = [case for place in folders if (case := suite.read(place)) is not None]
        return suite.finish(cases)


class _PluginSuite:
    """A suite while its cases are read: what is lost, what is wrong, and the names that are taken."""

    def __init__(self, path: Path, folder: Path, root: Path | None) -> None:
        self._folder, self._root = folder, root
        # What a case names lies in here.
        self._inside = folder if root is None else root
        self._document = ForeignDocument(path, Fields({}, Findings(str(path))))
        self._names: set[str] = set()
        self._digest = hashlib.sha256()

    def read(self, folder: Path) -> tuple[Fields, str, Case] | None:
        """Return the case in *folder* with its fields and the field of its id; None if it cannot be carried over."""
        findings = self._document.top.findings
        try:
            document = read_case(folder, self._inside)
        except SuiteError as error:
            findings.problems += error.problems
            return None
        case = self._case(document)
        for item in document.findings:
            findings.problems += item.problems
            findings.warnings += item.warnings
        self._digest_files(folder)
        return None if case is None else (document.about("name"), "name", case)

    def finish(self, cases: Sequence[tuple[Fields, str, Case]]) -> Suite:
        """Return the suite of *cases*; raises `SuiteError` with the problems of all."""
        manifest = None if self._root is None else plugin_manifest(self._root)
        warnings = self._document.top.findings.warnings
        if manifest is not None:
            warnings += manifest_warnings(manifest)
        if self._root is None:
            warnings += unread_manifests(self._folder)
        if manifest:
            name = manifest.name
        elif self._root:
            name = self._root.name
        else:
            name = None
        if (self._folder / _MOCKS).is_dir():
            self._document.lose(self._document.top, _MOCKS, _NO_MOCKS)
        return self._document.suite(
            cases,
            name=name,
            digest=self._digest.hexdigest(),
            usual_skill=self._root,
            usual_timeout_s=_USUAL_S,
            description=manifest.description if manifest else "",
        )

    def _digest_files(self, folder: Path) -> None:
        for place, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted(names):
                path = Path(place, name)
                self._digest.update(f"{path.relative_to(self._folder)}\0".encode("utf-8", "surrogateescape"))
                if path.is_file():
                    with path.open("rb") as file:
                        self._digest.update(hashlib.file_digest(file, "sha256").digest())

    def _case(self, document: CaseDocument) -> Case | None:
        _check_keys(self._document, document)
        if not self._is_carried_over(document):
            return None
        prompt = _prompt(document)
        pair_graders = [grader for grader in document.graders if is_baseline(grader)]
        lowered = [
            check
            for grader in document.graders
            if not is_baseline(grader) and (check := lower_grader(self._document, grader, prompt)) is not None
        ]
        pairwise = read_baseline(self._document, pair_graders, document.folder, self._inside)
        _check_graders(document)
        fields = document.fields
        name = self._free_name(document)
        self._document.assign_lost_checks(name)
        case = new_case(
            fields,
            name,
            prompt,
            count_checks(lowered) if lowered or pairwise is None else (answered(prompt),),
            tags=document.about("tags").texts("tags"),
            limits=_limits(document),
            model=document.about("model").text("model"),
            trials=document.about("runs").whole("runs", most=_MOST_RUNS) or _USUAL_RUNS,
            env=document.about("env").variables("env", _VARIABLE),
            bootstrap=_scaffold(document, self._inside),
            placed=tuple(_placed(document, self._inside)),
            pairwise=pairwise,
        )
        _warn_of_checks(document, lowered)
        return case

    def _is_carried_over(self, document: CaseDocument) -> bool:
        """Note what is lost of a case; return False if the rest would be another case."""
        for name, why in _LOST.items():
            fields = document.about(name)
            if fields.given(name) is not None:
                _check_lost(fields, name)
                self._document.lose(fields, name, why)
        if (document.folder / _MOCKS).is_dir():
            self._document.lose(document.fields, "", f"{_MOCKS}: {_NO_MOCKS}")
        if document.context.given("history_file") is not None:
            why = "the case, because whet resumes no session that it did not begin"
            self._document.lose_case(document.context, "history_file", why)
            return False
        fields = document.about("plugins")
        others = [text for text in fields.texts("plugins") if (document.folder / text).resolve() != self._root]
        if others:
            why = f"the case, because {others[0]} is not the plug-in under test"
            self._document.lose_case(fields, "plugins", why)
            return False
        return True

    def _free_name(self, document: CaseDocument) -> str:
        """Return the name of a case; of two with one name, the second is called by its folder."""
        fields = document.about("name")
        name = fields.checked("name", fields.text("name"), id_problem) or document.folder.name
        if name in self._names:
            path = document.folder.relative_to(self._folder).as_posix()
            fields.warn("name", f'is the name of another case too, so this one is called "{path}"')
            name = path
        self._names.add(name)
        return name


def _check_keys(document: ForeignDocument, case: CaseDocument) -> None:
    """Refuse unknown keys of a front matter, as its tool does; in `case.yaml` it ignores them, so they are lost."""
    if case.prose is not None:
        case.prose.refuse_unknown((*CASE_KEYS, *EXECUTION_KEYS))
    if case.yaml is not None:
        document.lose_unknown(case.yaml, _TOP)
        document.lose_unknown(case.execution, (*EXECUTION_KEYS, "prompt"))
        document.lose_unknown(case.context, _CONTEXT)
        for name in ("schema_version", "name"):
            case.yaml.has(name, required=True)
        for name in ("execution", "context"):
            case.yaml.table(name, required=name == "execution" and case.prose is None)
    fields = case.about("schema_version")
    version = fields.text("schema_version")
    major = (version or "1").partition(".")[0]
    if not major.isdecimal() or int(major) > 1:
        fields.problem("schema_version", f"must be 1 or 1.x, not {version}")
    for name in ("description", "expected_outcome"):
        case.about(name).text(name, empty=True)


def _check_lost(fields: Fields, name: str) -> None:
    """Check the type of a field that is not carried over: a mistake in it is still one."""
    if name.endswith("_tools"):
        fields.texts(name)
    elif name == "append_system_prompt":
        fields.text(name, empty=True)


def _check_graders(document: CaseDocument) -> None:
    fields = document.fields
    if not document.graders:
        name = "" if document.yaml is None else "graders"
        fields.problem(name, "has no graders", "write graders/NAME.md with a type, such as regex or llm")
    names = [grader.name for grader in document.graders]
    for index, grader in enumerate(document.graders):
        if grader.name in names[:index]:
            grader.fields.problem("name" if grader.fields.has("name") else "", f'"{grader.name}" is a grader already')
    for path in passed_over(document.folder):
        fields.warn("", f"graders/{path.name} has no front matter, so it is no grader")


def _prompt(document: CaseDocument) -> str:
    in_yaml = document.execution.text("prompt") if document.yaml is not None else None
    prompt = document.body or (in_yaml or "").strip()
    if not prompt and (document.yaml is None or document.yaml.has("execution")):
        has_yaml = document.yaml is not None
        owner = document.yaml if document.yaml is not None else document.fields
        owner.problem("execution.prompt" if has_yaml else "", "has no prompt", f"write it into {PROMPT}")
    if prompt.startswith(_BLANK):
        document.fields.problem("", "has the prompt of the template, which is still to be written")
    return prompt


def _limits(document: CaseDocument) -> Limits:
    turns = document.about("max_turns").whole("max_turns", most=_MOST_TURNS)
    seconds = document.about("timeout_seconds").whole("timeout_seconds", most=_LONGEST_S)
    return Limits(timeout_s=float(seconds or _USUAL_S), max_steps=turns or _USUAL_TURNS)


def _scaffold(document: CaseDocument, root: Path) -> BootstrapSpec | None:
    context = document.context
    script = context.text("scaffold_script")
    if script is None:
        return None
    file = document.folder / script
    if "\n" in script or not file.is_file() or not is_inside(file, root):
        hint = "write the commands into a file beside case.yaml, and name that"
        context.problem("scaffold_script", "must be a Bash file in the folder of the case", hint)
        return None
    context.checked("scaffold_script", script, inside_problem)
    return BootstrapSpec(command="bash", args=(str(file),), timeout_s=_SCAFFOLD_S)


def _placed(document: CaseDocument, root: Path) -> Iterator[PlacedItem]:
    context = document.context
    for number, path in enumerate(context.texts("add_dirs", reason=inside_problem)):
        place = document.folder / path
        if not place.is_dir():
            context.problem(f"add_dirs[{number}]", f"there is no folder {path} beside the case")
        elif not is_inside(place, root):
            context.problem(f"add_dirs[{number}]", f"leads out of {root}", "copy the folder to its place")
        else:
            yield PlacedItem(path=path, source=place)


def _warn_of_checks(document: CaseDocument, lowered: Sequence[LoweredGrader]) -> None:
    if lowered and all(grader.with_only for grader in lowered):
        document.fields.warn("", "has only graders that ask about the plug-in, so they count without it too")
