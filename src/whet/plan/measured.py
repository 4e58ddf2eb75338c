"""Say by digests what a run measures: the content, the skill, the settings and the agent of each execution.

The facts go into run.json. `plan/outstanding.py` compares them with those of a new plan, to run only what has changed.
None depends on the folder that the project lies in.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from whet.agents.known import known_agent
from whet.agents.observe.loading import question_of
from whet.grade.contract import grader_class
from whet.model import codec
from whet.model.request import Settings
from whet.model.run import Execution, Plan, Runner
from whet.plan.skill_copies import tree_digest
from whet.record.run_file import ExecutionDigests
from whet.record.sources import SourceFile, fixtures_of, programs_of
from whet.suites.digests import case_digest

# A program may be large, and what is built anew differs at its ends.
_ENDS = 1 << 20
# The package of a program is at most so many folders above it.
_MOST_ABOVE = 3
# Where something is kept changes no verdict.
_PLACES_OF_JUDGES = frozenset({"cache_dir", "key_variable"})


def measure(plan: Plan, settings: Settings, sources: Mapping[str, SourceFile]) -> dict[str, ExecutionDigests]:
    """Return what each execution of *plan* measures, by its name; *sources* are the files that agents start from."""
    measure_of = _DigestMaker(plan, settings, sources)
    return {str(execution): measure_of.execution(execution) for execution in plan.whole or plan.executions}


class _DigestMaker:
    """Digests what executions share only once."""

    def __init__(self, plan: Plan, settings: Settings, sources: Mapping[str, SourceFile]) -> None:
        self._plan = plan
        self._settings = settings
        self._sources = sources
        self._paths = sorted(sources)
        homes = (settings.file.parent if settings.file else None, plan.suite.source.parent)
        self._homes = tuple(dict.fromkeys(str(home.resolve()) for home in homes if home is not None))
        # The suite counts case by case, and the settings one by one.
        own_files = (plan.suite.source, settings.file)
        self._own_files = frozenset(str(path.absolute()) for path in own_files if path is not None)
        self._files: dict[str, list[tuple[str, str]]] = {}
        self._skills: dict[Path, str] = {}
        self._programs: dict[str, str] = {}

    def execution(self, execution: Execution) -> ExecutionDigests:
        """Return what *execution* measures."""
        return ExecutionDigests(
            case=case_digest(execution.case),
            files=_digest([self._files_below(place) for place in fixtures_of(execution)]),
            helpers=self._plan.suite.helpers,
            skill=_digest([(path.name, self._skill(path)) for path in execution.runner.skills]),
            settings=_digest(self._without_homes(self._setting_facts(execution))),
            agent=_digest(self._without_homes(_agent_facts(execution.runner))),
            program=self._program(execution.runner),
            trials=execution.trials - self._plan.added,
        )

    def _files_below(self, place: str) -> list[tuple[str, str]]:
        """Return the files of *place* by their paths in it, each with its content."""
        if place not in self._files:
            self._files[place] = list(self._find_files(os.path.normpath(Path.cwd() / place)))
        return self._files[place]

    def _find_files(self, top: str) -> Iterator[tuple[str, str]]:
        if top in self._sources:
            yield "", _content(self._sources[top])
        prefix = f"{top}/"
        for path in self._paths[bisect_left(self._paths, prefix) :]:
            if not path.startswith(prefix):
                return
            if path not in self._own_files:
                yield path.removeprefix(prefix), _content(self._sources[path])

    def _skill(self, folder: Path) -> str:
        if folder not in self._skills:
            self._skills[folder] = tree_digest(folder, frozenset())
        return self._skills[folder]

    def _setting_facts(self, execution: Execution) -> list[Any]:
        plan, settings, case = self._plan, self._settings, execution.case
        arm_facts = next((arm.facts() for arm in plan.arms if arm.name == execution.arm), {})
        spec = execution.workspace
        bootstraps = [part for part in (spec.bootstrap, case.bootstrap) if part is not None]
        return [
            [execution.limits, plan.retries, plan.check_timeout_s, plan.command_timeout_s, plan.fail_fast],
            [settings.max_output_bytes, settings.model_silence_s, settings.ceilings, settings.check_network],
            [settings.sandbox, settings.image, settings.install, settings.keep_services, case.image, case.task],
            [settings.allow_env, settings.cassette is not None, sorted(case.env.items())],
            [spec.mode, spec.template_dir is not None, spec.without_skills, spec.package, bootstraps],
            sorted((name, value) for name, value in arm_facts.items() if name not in {"skill", "model", "runner"}),
            self._judge_facts(execution),
            sorted(settings.playing.items()) if case.user is not None else [],
            settings.run_to_end and question_of(case, plan.suite.skill) is not None,
        ]

    def _judge_facts(self, execution: Execution) -> list[Any]:
        """Return how the judge is asked, if one decides some checks."""
        checks = execution.case.checks
        if not any(grader_class(check.grader).needs_judge(check, execution.runner) for check in checks):
            return []
        table = sorted((name, value) for name, value in self._settings.judge.items() if name not in _PLACES_OF_JUDGES)
        judge = self._settings.judge_runner
        return [table, _agent_facts(judge) if judge else None]

    def _without_homes(self, facts: list[Any]) -> str:
        """Return *facts* as a text without the folders that paths of this project begin with."""
        text = json.dumps(facts, default=_plain, sort_keys=True)
        for number, home in enumerate(self._homes):
            text = text.replace(f'"{home}', f'"<{number}>')
        return text

    def _program(self, runner: Runner) -> str:
        """Return a digest of the program that *runner* starts; empty if it is not on this machine."""
        name = runner.options.get("command") or _usual_program(runner.agent)
        if not isinstance(name, str):
            return _digest([self._files_below(place) for place in programs_of(runner)])
        if name not in self._programs:
            self._programs[name] = _program_digest(shutil.which(name))
        program = self._programs[name]
        scripts = [self._files_below(place) for place in programs_of(runner, program=False)]
        return _digest([program, scripts]) if program else ""


def _content(source: SourceFile) -> str:
    """Return what tells the content of a file; of one that is too large to hash, its size and time."""
    return source.digest or f"{source.size} {source.mtime_ns}"


def _agent_facts(runner: Runner) -> list[Any]:
    return [runner.agent, runner.model, sorted((name, value) for name, value in runner.options.items())]


def _usual_program(agent: str) -> str | None:
    known = known_agent(agent)
    return known.program if known else None


def _program_digest(program: str | None) -> str:
    """Return a digest of a program, of which the package says the version; of a large one, only of its ends."""
    if program is None:
        return ""
    path = Path(os.path.realpath(program))
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(b"%d " % size)
            digest.update(file.read(_ENDS))
            if size > _ENDS:
                file.seek(max(_ENDS, size - _ENDS))
                digest.update(file.read(_ENDS))
    except OSError:
        return ""
    digest.update(_version_of_package(path).encode())
    return digest.hexdigest()[:_LENGTH]


def _version_of_package(program: Path) -> str:
    """Return the name and version of the npm package that *program* is of; nothing for others."""
    for folder in program.parents[: _MOST_ABOVE + 1]:
        with suppress(OSError, codec.WireError, AttributeError):
            package = codec.decode((folder / "package.json").read_bytes(), dict[str, Any])
            if "node_modules" in folder.parts:
                return f"{package.get('name')} {package.get('version')}"
    return ""


# Twelve bytes: chance does not make two of these the same.
_LENGTH = 24


def _digest(facts: Any) -> str:
    text = facts if isinstance(facts, str) else json.dumps(facts, default=_plain, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]


def _plain(value: Any) -> Any:
    """Return *value* in words of JSON."""
    fields: Iterable[str] | None = getattr(value, "__struct_fields__", None)
    if fields is not None:
        return {name: getattr(value, name) for name in fields}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (frozenset, set)):
        return sorted(value, key=repr)
    return str(value)
