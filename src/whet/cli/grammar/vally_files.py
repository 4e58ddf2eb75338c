"""Experiments and suites of Vally as requests: one for each spec, with its arms or the cases that are selected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from whet.callable.examine import ExaminedFile
from whet.errors import Problem, SuiteError, UsageError
from whet.model.request import RunRequest
from whet.model.suite import Suite, SuiteReading
from whet.reading.text import count, listed
from whet.suites.format import load_suite
from whet.suites.losses import lost_check_count
from whet.suites.other_tools.vally.experiments import Experiment, ExperimentRun, read_experiment
from whet.suites.other_tools.vally.files import SETTINGS, vally_file
from whet.suites.other_tools.vally.named_suites import SelectedSpec, select_specs, suite_names

_SEPARATOR = "::"
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def read_params(texts: Iterable[str]) -> SuiteReading:
    """Return what `--param NAME=VALUE` says."""
    params: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not _PARAMETER.fullmatch(name):
            raise UsageError(f'--param: "{text}" is not of the form NAME=VALUE')
        if name in params:
            raise UsageError(f"--param: {name} is given twice")
        params[name] = value
    return SuiteReading(params=params)


def requests_of_vally(request: RunRequest, typed: Path) -> list[RunRequest] | None:
    """Return a request for each spec that an experiment, or a suite of `.vally.yaml`, names; None of other files."""
    name, separator, suite = str(typed).partition(_SEPARATOR)
    path = typed if typed.exists() else Path(name)
    if not path.is_file() or (separator and path.name != SETTINGS):
        return None
    match vally_file(path):
        case "suites":
            specs = select_specs(path, suite or None, request.reading)
            return list(map(partial(_of_spec, request), specs))
        case "experiment":
            experiment = read_experiment(path, request.reading.params)
            return list(_of_experiment(request, path, experiment))
    return None


def examine_vally_file(path: Path) -> tuple[Sequence[Suite], ExaminedFile | None]:
    """Look into a file that names specs of Vally, and into these; return nothing of any other file."""
    match vally_file(path):
        case "experiment":
            experiment = read_experiment(path, {})
            arm_names = [arm.partition("=")[0] for arm in experiment.runs[0].arms]
            suites = [load_suite(run.spec, run.reading) for run in experiment.runs]
            title = f"an experiment with {count(len(arm_names), 'arm')} ({listed(arm_names)})"
            return suites, _examined(path, title, suites, experiment.lost)
        case "suites":
            names, lost = suite_names(path)
            specs: dict[Path, None] = {}
            for name in names or (None,):
                specs |= dict.fromkeys(spec.path for spec in select_specs(path, name))
            suites = list(map(load_suite, specs))
            title = f"settings with {count(len(names), 'suite')} ({listed(names) or 'none'})"
            return suites, _examined(path, title, suites, lost)
    return (), None


def _examined(path: Path, title: str, suites: Sequence[Suite], lost: Sequence[Problem]) -> ExaminedFile:
    losses, notes, cases, lost_checks, lost_cases = [*lost], list[Problem](), 0, 0, 0
    for suite in suites:
        losses += suite.lost
        notes += suite.warnings
        cases += len(suite.cases)
        lost_checks += lost_check_count(suite)
        lost_cases += len(suite.lost_cases)
    for loss in losses:
        click.echo(str(loss), err=True)
    summary = f"{title}, {count(len(suites), 'spec')} and {count(cases, 'case')}"
    return ExaminedFile(path, summary, tuple(notes), tuple(losses), lost_checks, lost_cases)


def _of_spec(request: RunRequest, spec: SelectedSpec) -> RunRequest:
    cases = request.selection.cases
    if spec.cases is not None:
        if cases:
            raise UsageError(
                "--case and -k cannot be used together with a suite that has a filter",
                hint="name the spec itself, and the case",
            )
        cases = spec.cases
    return replace(request, suite=spec.path, selection=replace(request.selection, cases=cases))


def _of_experiment(request: RunRequest, path: Path, experiment: Experiment) -> Iterator[RunRequest]:
    if request.strict and experiment.lost:
        raise SuiteError(experiment.lost)
    for loss in experiment.lost:
        click.echo(str(loss), err=True)
    if request.skill is not None:
        raise UsageError("--skill: the experiment says which skills its variants have", hint="leave it out")
    flags: dict[str, Any] = {**request.flags}
    if experiment.workers is not None:
        flags.setdefault("max_parallel", experiment.workers)
    for run in experiment.runs:
        yield replace(
            request,
            suite=run.spec,
            skill=run.skill,
            arms=tuple(_selected_arms(request.arms, path, run)),
            reading=run.reading,
            flags=flags if "vary" in flags else {**flags, "vary": run.vary},
        )


def _selected_arms(typed: Iterable[str], path: Path, run: ExperimentRun) -> Iterator[str]:
    """Yield the arms of *run*, or those of them that were *typed*."""
    arms: Mapping[str, str] = {arm.partition("=")[0]: arm for arm in run.arms}
    names = tuple(typed) or tuple(arms)
    for name in names:
        if name not in arms:
            raise UsageError(f'--arm: {path} has no variant "{name}"', hint=f"known: {', '.join(arms)}")
        yield arms[name]
