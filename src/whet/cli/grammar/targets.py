"""What a PATH names: suites, folders and skills, one case of a suite, or the id that a failure prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import StoreError, UsageError
from whet.model.request import RunRequest, Selection

if TYPE_CHECKING:
    from whet.record.run_file import RunFile
    from whet.suites.find import FoundSuite, SkippedFile

_SEPARATOR = "::"
# What follows the case in the id of a trial: its runner, its arm and its number. Without a number, it is all of them.
_TRIAL = re.compile(r"(?P<case>.+)@(?P<runner>[^@/]+)/(?P<arm>[^@/#]+)(?:#(?P<number>[0-9]+))?")
_SHOWN = 5


class Target(Struct, frozen=True, kw_only=True):
    """A suite, folder, skill or pattern, and the case and the runner if it names them."""

    path: Path
    case: str | None = None
    runner: str | None = None
    skill: Path | None = None


def read_target(typed: Path, find_output_dir: Callable[[], Path]) -> Target:
    """Return what *typed* names: a path, `PATH::CASE`, or the id of a trial whose suite was run."""
    text = str(typed)
    suite, separator, part = text.partition(_SEPARATOR)
    if not separator or typed.exists():
        return Target(path=typed)
    if not suite or not part:
        raise UsageError(f"{text}: needs a suite and a case", hint="such as suite.py::my-case")
    trial = _TRIAL.fullmatch(part)
    target = Target(path=Path(suite), case=trial["case"] if trial else part, runner=trial["runner"] if trial else None)
    return target if target.path.exists() else _recorded(target, find_output_dir())


def _recorded(target: Target, output_dir: Path) -> Target:
    """Return *target* with the path of the suite that was run by this name."""
    name = str(target.path)
    for _, asked in _runs_of(name, output_dir):
        if asked.suite_path:
            return replace(target, path=Path(asked.suite_path), skill=Path(asked.skill) if asked.skill else None)
    raise UsageError(
        f"{name}: no such file, and no run of a suite with this name in {output_dir}",
        hint="write the path of the suite before the case, such as suite.py::my-case",
    )


def _runs_of(suite: str, output_dir: Path) -> Iterator[tuple[Path, RunFile]]:
    """Yield the runs of the suite with this name, the newest first."""
    from whet.record.read.run import run_folders
    from whet.record.run_file import read_run_file

    for folder in reversed(run_folders(output_dir)):
        # A folder that cannot be read is not one of our runs.
        with suppress(StoreError):
            asked = read_run_file(folder)
            if asked.suite == suite:
                yield folder, asked


def find_trial(typed: Path, find_output_dir: Callable[[], Path]) -> Path:
    """Return the folder of the trial whose id was *typed*, in the newest run that has it; a path stays as it is."""
    suite, separator, part = str(typed).partition(_SEPARATOR)
    trial = _TRIAL.fullmatch(part)
    if not separator or trial is None or typed.exists():
        return typed
    from whet.model.run import TrialKey

    output_dir = find_output_dir()
    name = Path(suite).stem if Path(suite).is_file() else suite
    key = TrialKey(
        suite=name, case=trial["case"], runner=trial["runner"], arm=trial["arm"], number=int(trial["number"] or 1)
    )
    for folder, _ in _runs_of(name, output_dir):
        place = folder / "trials" / key.folder
        if place.is_dir():
            return place
    raise UsageError(f"no run in {output_dir} has the trial {typed}", hint="name the folder of the trial")


def usual_paths() -> tuple[Path, ...]:
    """Return what is meant without a PATH: the skill whose folder you are in, or the only suite below it."""
    from whet.suites.find import find_suites
    from whet.workspace.make import MANIFEST

    here = Path()
    if (here / MANIFEST).is_file():
        return (here,)
    try:
        suites = find_suites([here]).suites
    except UsageError:
        return ()
    if len(suites) <= 1:
        return tuple(suite.path for suite in suites)
    names = [str(suite.path) for suite in suites[:_SHOWN]]
    more = f", and {len(suites) - _SHOWN} more" if len(suites) > _SHOWN else ""
    raise UsageError(
        f"no suite was given, and there are {len(suites)} here: {', '.join(names)}{more}",
        hint='name one, or all of them with "."',
    )


def find_named(paths: Sequence[Path]) -> tuple[FoundSuite, ...]:
    """Return the suites of *paths*, or without any what is meant then; a file is one, whatever is in it."""
    from whet.suites.find import FoundSuite, find_suites
    from whet.workspace.make import MANIFEST

    paths = tuple(paths) or usual_paths()
    if not paths:
        raise UsageError("no suite was given", hint="name a suite, a skill or a folder of these")
    if all(path.is_file() and path.name != MANIFEST for path in paths):
        return tuple(FoundSuite(path) for path in paths)
    return find_suites(paths).suites


def find_targets(targets: Iterable[Target]) -> tuple[list[tuple[FoundSuite, Selection]], tuple[SkippedFile, ...]]:
    """Return the suites of *targets*, each once with what is selected of it, and what was passed over."""
    from whet.suites.find import find_suites

    targets = list(targets)
    search = find_suites(list(dict.fromkeys(target.path for target in targets)))
    below = {target.path: {suite.path for suite in find_suites([target.path]).suites} for target in targets}
    selected_suites: list[tuple[FoundSuite, Selection]] = []
    for suite in search.suites:
        # A folder, such as that of a skill, names the suites below it.
        own = [target for target in targets if suite.path in below[target.path]]
        selected_suites.append((replace(suite, skill=suite.skill or _skill_of(own)), _selected(own)))
    return selected_suites, search.passed_over


def _skill_of(own: Sequence[Target]) -> Path | None:
    return next((target.skill for target in own if target.skill is not None), None)


def _selected(own: Sequence[Target]) -> Selection:
    """Return what is selected of a suite that *own* targets name: all of it, if one of them names no case."""
    if not all(target.case for target in own):
        return Selection()
    return Selection(cases=_names(target.case for target in own), runners=_names(target.runner for target in own))


def _names(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name is not None))


def with_selection(request: RunRequest, selection: Selection) -> RunRequest:
    """Return *request* with the cases and runners that a target names in addition to those of the options."""
    own = request.selection
    return replace(
        request,
        selection=replace(
            own,
            cases=tuple(dict.fromkeys((*own.cases, *selection.cases))),
            runners=tuple(dict.fromkeys((*own.runners, *selection.runners))),
        ),
    )
