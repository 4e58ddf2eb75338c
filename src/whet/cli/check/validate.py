"""`whet validate`: say all that is wrong with suites, benchmarks and skills, without starting anything."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import convert

from whet import exit_codes
from whet.cli.common import FILE, JSON, print_document, print_lines, screen_of
from whet.cli.errors import warn
from whet.cli.grammar.options import option
from whet.errors import PathRefused, Problem, SuiteError, UsageError
from whet.reading.text import count, path_for_people

if TYPE_CHECKING:
    from whet.callable.examine import ExaminedFile
    from whet.cli.machine.documents import ValidationDocument
    from whet.model.suite import Suite
    from whet.report.screen import Style
    from whet.suites.skills.rules import SkillReport

# What follows in a warning is the reason, the same for all suites below the same settings.
_NO_JUDGE = ", and there is none: "


@click.command("validate", short_help="Check suites, benchmarks and skills for problems.")
@click.argument("files", metavar="[PATH]...", nargs=-1, type=FILE)
@click.option("--strict", is_flag=True, help="Treat warnings as errors, and lost checks and cases too.")
@option("-v", "--verbose", is_flag=True, help="Say what is skipped in folders.")
@JSON
def validate_command(files: tuple[Path, ...], strict: bool, verbose: bool, as_json: bool) -> int:
    """Load each suite in PATH as a run would, and print every problem of all of them.

    PATH is a suite, a benchmark, a skill, a folder of these, or a pattern in quotes (default: the current folder).

    \b
    Exit codes:
      0  whet can run all files
      2  it cannot run some
    """
    validation = _Validation(strict=strict, verbose=verbose)
    validation.examine(files or (Path(),))
    if as_json:
        print_document(validation.document())
        return exit_codes.USAGE if validation.problems else exit_codes.DONE
    screen = screen_of(sys.stdout)
    for report in validation.reports:
        is_lossy = bool(report.lost_checks or report.lost_cases)
        if not (strict and (report.notes or is_lossy)):
            verdict = "" if is_lossy else ", no problems"
            style: Style = "good"
            if report.notes:
                verdict, style = f", {count(len(report.notes), 'warning')}", "warn"
            print_lines([f"{report.file}: {report.summary}{screen.paint(verdict, style)}"])
    if validation.problems:
        raise SuiteError(validation.problems, validation.warnings)
    warn(validation.warnings)
    return exit_codes.DONE


class _Validation:
    """What was found in all files: the reports of those that can run, problems and warnings."""

    def __init__(self, *, strict: bool, verbose: bool) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.reports: list[ExaminedFile] = []
        self._strict, self._verbose = strict, verbose
        # A suite may itself be a folder.
        self._suites: set[Path] = set()
        self._skills: dict[Path, SkillReport] = {}

    def examine(self, files: Sequence[Path]) -> None:
        """Look into *files*, and into the suites of folders among them."""
        # The manifest stands for its folder, as in a run.
        waiting = [file.parent if file.name.lower() == "skill.md" and file.is_file() else file for file in files]
        while waiting:
            waiting[:0] = self._examine(waiting.pop(0))
        self.warnings += _say_once([note for report in self.reports for note in report.notes])
        if self._strict:
            self.problems, self.warnings = self.problems + self.warnings, []

    def _examine(self, file: Path) -> list[Path]:
        """Look into one file; of a folder or a pattern, return the suites."""
        from whet.callable.examine import examine
        from whet.reading.paths import refusals

        try:
            with refusals():
                reports = examine(file)
                is_group = file not in self._suites and (file.is_dir() or (not file.exists() and has_magic(str(file))))
                if reports is None and not is_group:
                    self.reports.append(self._examine_suite(file))
                    return []
                self.reports += reports or []
                if reports is None:
                    return self._note_suites(self._suites_in(file))
                return self._note_suites(_suites_beside_skills(file))
        except SuiteError as error:
            self.problems += error.problems
            self.warnings += error.warnings
        except PathRefused as error:
            self.problems.append(Problem(file=error.path, message=error.reason, hint=error.hint))
        return []

    def _examine_suite(self, file: Path) -> ExaminedFile:
        """Load a suite for agents; what it lost of another tool's suite is a problem if warnings are errors."""
        from whet.suites.format import load_suite
        from whet.suites.losses import loss_problems

        suites, examined_file = _examine_vally_file(file)
        if examined_file is None:
            suites = (load_suite(file),)
            examined_file = _examined_suite(file, suites[0])
        for suite in suites:
            if self._strict:
                self.problems += loss_problems(suite)
            self._look_at_skills(suite)
        return examined_file

    def _look_at_skills(self, suite: Suite) -> None:
        """Hold the skills that *suite* is about against the rules, and look for its text in them.

        Those that its runners and its cases bring only have to keep to the rules.
        """
        from whet.suites.skills.leaks import find_leaks
        from whet.suites.skills.of_suite import skills_of_suite

        own_skills = skills_of_suite(suite)
        for skill in (*own_skills, *_skills_beside(suite)):
            is_new = skill.resolve() not in self._skills
            report = self._check_skill(skill)
            leaks = find_leaks(suite, skill, (report.name,)) if skill in own_skills else ()
            findings = (*(report.of_level("warning") if is_new else ()), *(leak.problem() for leak in leaks))
            self.warnings += _for_people(findings)

    def _check_skill(self, skill: Path) -> SkillReport:
        """Hold the skill in that folder against the rules, once; its errors are problems."""
        from whet.suites.skills.rules import check_skill

        place = skill.resolve()
        if place not in self._skills:
            self._skills[place] = check_skill(skill)
            self.problems += _for_people(self._skills[place].of_level("error"))
        return self._skills[place]

    def _suites_in(self, path: Path) -> list[Path]:
        """Return the suites in a folder or of a pattern, and look at its skills; broken files are problems."""
        from whet.suites.find import find_suites
        from whet.workspace.make import MANIFEST

        if path.is_dir() and _is_skill(path):
            self._examine_skill(path)
        try:
            search = find_suites([path], may_be_none=path.resolve() in self._skills)
        except UsageError as error:
            message = error.message.removeprefix(f"{path}: ")
            raise SuiteError([Problem(file=str(path), message=message, hint=error.hint)]) from None
        self.problems += (
            Problem(file=str(over.path), message=over.reason) for over in search.passed_over if over.broken
        )
        if self._verbose:
            lines = "".join(f"skipped: {over}\n" for over in search.passed_over if not over.broken)
            click.echo(lines, nl=False, err=True)
        skills = (*(suite.skill for suite in search.suites), *(over.path for over in search.passed_over))
        for skill in dict.fromkeys(filter(None, skills)):
            if (skill / MANIFEST).is_file():
                self._examine_skill(skill)
        return [suite.path for suite in search.suites]

    def _examine_skill(self, skill: Path) -> None:
        """Report on a skill that was named, or found in a folder."""
        from whet.callable.examine import ExaminedFile

        if skill.resolve() in self._skills:
            return
        report = self._check_skill(skill)
        if not report.of_level("error"):
            summary = f"skill {report.name}, about {count(report.tokens, 'token')}"
            self.reports.append(ExaminedFile(report.manifest, summary, report.of_level("warning")))
        else:
            self.warnings += report.of_level("warning")

    def _note_suites(self, suites: Sequence[Path]) -> list[Path]:
        """Return the *suites* that are not known yet, and remember them."""
        new_suites = [suite for suite in suites if suite not in self._suites]
        self._suites.update(new_suites)
        return new_suites

    def document(self) -> ValidationDocument:
        """Return what was found as JSON has it."""
        from whet.cli.machine.documents import ValidatedFile, ValidationDocument, ValidationProblem

        return ValidationDocument(
            ok=not self.problems,
            files=tuple(
                ValidatedFile(
                    file=str(report.file),
                    summary=report.summary,
                    warnings=len(report.notes),
                    lost_checks=report.lost_checks,
                    lost_cases=report.lost_cases,
                )
                for report in self.reports
            ),
            problems=tuple(convert(problem._asdict(), ValidationProblem) for problem in self.problems),
            warnings=tuple(convert(problem._asdict(), ValidationProblem) for problem in self.warnings),
            not_carried_over=tuple(
                convert(problem._asdict(), ValidationProblem) for report in self.reports for problem in report.lost
            ),
        )


def _suites_beside_skills(folder: Path) -> list[Path]:
    """Return the suites for agents in a folder that has callable skills too."""
    from whet.suites.find import find_suites

    if not folder.is_dir() or (folder / "skill.json").is_file():
        return []
    with suppress(UsageError):
        return [suite.path for suite in find_suites([folder]).suites]
    return []


def _examine_vally_file(file: Path) -> tuple[Sequence[Suite], ExaminedFile | None]:
    """Return the suites that an experiment or the settings of Vally name, and what is to be said of these."""
    if file.suffix not in (".json", ".yaml", ".yml"):
        return (), None
    from whet.cli.grammar.vally_files import examine_vally_file

    return examine_vally_file(file)


def _examined_suite(file: Path, suite: Suite) -> ExaminedFile:
    """Return what a suite for agents is, and say what is not carried over of one that was written for another tool."""
    from whet.callable.examine import ExaminedFile
    from whet.suites.losses import lost_check_count

    click.echo("".join(f"{loss}\n" for loss in suite.lost), nl=False, err=True)
    notes = (*suite.warnings, *_warn_of_missing_files(suite), *_without_judge(suite))
    return ExaminedFile(file, _summary(suite), notes, suite.lost, lost_check_count(suite), len(suite.lost_cases))


def _warn_of_missing_files(suite: Suite) -> Iterator[Problem]:
    """Yield a warning if the skill that the suite is about or lies in names what agents are not given of it."""
    from whet.suites.left_out import left_out, warning_of_lost
    from whet.workspace.make import MANIFEST

    around = (folder for folder in suite.source.parents if (folder / MANIFEST).is_file())
    skill = suite.usual_skill or next(around, None)
    if skill is not None and (warning := warning_of_lost(skill, left_out(skill))) is not None:
        yield Problem(file=str(skill / MANIFEST), message=warning)


def _without_judge(suite: Suite) -> Iterator[Problem]:
    """Yield a warning if a judge has to decide some checks, and the settings have none."""
    from whet.grade.contract import grader_class
    from whet.model.run import Runner

    # Whether an agent runs decides some checks, and there may be no runners yet.
    any_runner = Runner(id="some", agent="some")
    judged_cases = [
        case.id
        for case in suite.cases
        if any(grader_class(check.grader).needs_judge(check, any_runner) for check in case.checks)
    ]
    if not judged_cases:
        return
    from whet.plan.judge import find_judge, hint_of_unjudged
    from whet.plan.settings.load import load_settings, with_found_agent

    try:
        find_judge(with_found_agent(load_settings(suite.source, flags={}, environ=os.environ), suite), os.environ)
    except UsageError as error:
        more = f" and {len(judged_cases) - 1} more" if len(judged_cases) > 1 else ""
        cases = f'the case "{judged_cases[0]}"{more}'
        message = f"{cases} cannot be graded without a judge{_NO_JUDGE}{error.message}"
        hint = "\n".join(filter(None, (error.hint, hint_of_unjudged(suite))))
        yield Problem(file=str(suite.source), message=message, hint=hint)


def _say_once(notes: Sequence[Problem]) -> list[Problem]:
    """Return *notes* with one for all suites that need a judge and have none for the same reason."""
    kept_notes: list[Problem] = []
    numbers: dict[str, int] = {}
    suite_counts: Counter[str] = Counter()
    for note in notes:
        reason = note.message.partition(_NO_JUDGE)[2]
        suite_counts[reason] += 1
        if not reason or reason not in numbers:
            numbers[reason] = len(kept_notes)
            kept_notes.append(note)
    for reason, number in numbers.items():
        if reason and suite_counts[reason] > 1:
            others = count(suite_counts[reason] - 1, "more suite")
            message = f"cases of this and {others} cannot be graded without a judge"
            kept_notes[number] = kept_notes[number]._replace(message=f"{message}{_NO_JUDGE}{reason}")
    return kept_notes


def _skills_beside(suite: Suite) -> Iterator[Path]:
    """Yield the skills that the runners of the settings and the cases of *suite* bring, as far as they are there."""
    from whet.plan.settings.load import load_settings

    for case in suite.cases:
        yield from filter(_is_skill, case.skills)
    # What is wrong with the settings is said by what needs them.
    with suppress(UsageError):
        for runner in load_settings(suite.source, flags={}, environ=os.environ).runners:
            yield from filter(_is_skill, runner.skills)


def _is_skill(folder: Path) -> bool:
    from whet.suites.skills.rules import wrong_manifest
    from whet.workspace.make import MANIFEST

    # Also one that is no file: then it says that it cannot be read.
    return os.path.lexists(folder / MANIFEST) or wrong_manifest(folder) is not None


def _for_people(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield *problems* with their files as seen from here."""
    for problem in problems:
        yield problem._replace(file=path_for_people(Path(problem.file), Path.cwd()))


def _summary(suite: Suite) -> str:
    from whet.suites.losses import losses_in_words

    checks = sum(len(case.checks) for case in suite.cases)
    return f"{count(len(suite.cases), 'case')} with {count(checks, 'check')}{losses_in_words(suite)}"
