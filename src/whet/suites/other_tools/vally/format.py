"""The format of Vally: a document with `stimuli`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import isclose
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from whet.errors import Problem
from whet.model.run import id_problem
from whet.model.suite import AS_WRITTEN, Case, Check, Limits, Suite, SuiteReading
from whet.reading.fields import Fields, Findings
from whet.suites.conversation import WrittenTurn, conversation_prompts
from whet.suites.document_formats import document_format
from whet.suites.other_tools.shared import ForeignDocument, activation, answered, case_id, new_case, texts_of
from whet.suites.other_tools.vally.environments import Environment, EnvironmentReader, skill_around
from whet.suites.other_tools.vally.files import SETTINGS, refuse_other_files
from whet.suites.other_tools.vally.graders import (
    GraderContext,
    WeighableCheck,
    constraint_checks,
    duration,
    is_pairwise,
    lower_grader,
    read_pairs_question,
)
from whet.suites.split.fields import PART_FIELDS

_TOP = (
    *("name", "description", "version", "type", "defaults", "config", "environment", "tags", "scoring", "stimuli"),
    "$schema",
)
DEFAULTS = ("runs", "timeout", "model", "judge_model", "executor")
_STIMULUS = (
    *("name", "prompt", "turns", "graders", "rubric", "environment", "tags", "constraints", "expect_activation"),
    *PART_FIELDS,
)
_TYPES = ("capability", "regression")
_EXECUTOR = "copilot-sdk"
_USUAL_TIMEOUT_S = 120.0
_MOST_RUNS = 1000


class _RunDefaults(Struct, frozen=True, kw_only=True):
    trials: int | None = None
    timeout_s: float | None = None
    model: str | None = None
    judge_model: str | None = None


class _Scoring(Struct, frozen=True, kw_only=True):
    """From which score on a stimulus passes, and the weights of its graders by type or by name."""

    threshold: float | None = None
    weights: Mapping[str, float] | None = None


class VallyFormat:
    """A YAML or JSON file with `stimuli`."""

    def recognizes(self, path: Path) -> bool:
        """Return whether *path* has stimuli."""
        return path.name == SETTINGS or document_format(path) == "vally"

    def lower(self, path: Path) -> Suite:
        """Read the file; what cannot be carried over is a loss."""
        return self.lower_with(path, AS_WRITTEN)

    def lower_with(self, path: Path, reading: SuiteReading) -> Suite:
        """Read the file with parameters, and with what an experiment says in the place of its own words."""
        refuse_other_files(path)
        spec = _Spec(ForeignDocument.read(path, reading.params), reading)
        stimuli = spec.cases()
        skill = None if reading.no_skills else _skill_under_test(path, stimuli)
        if skill is not None:
            stimuli = [(fields, name, _without(skill.resolve(), case)) for fields, name, case in stimuli]
        _say_once(spec.document.top.findings)
        name = spec.document.top.text("name")
        return spec.document.suite(
            stimuli,
            name=name if name and not id_problem(name) else path.stem.removesuffix(".eval"),
            description=spec.document.top.text("description") or "",
            usual_timeout_s=_USUAL_TIMEOUT_S,
            usual_skill=skill,
        )


def _say_once(findings: Findings) -> None:
    """Leave one of the warnings that say the same of several stimuli, because these share an environment."""
    by_message: dict[str, list[Problem]] = {}
    for warning in findings.warnings:
        by_message.setdefault(warning.message, []).append(warning)
    findings.warnings.clear()
    for message, same in by_message.items():
        times = f" ({len(same)} times)" if len(same) > 1 else ""
        findings.warnings.append(same[0]._replace(message=f"{message}{times}"))


def _skill_under_test(path: Path, stimuli: Sequence[tuple[Fields, str, Case]]) -> Path | None:
    """Return the only skill of the environments, or else the one around the spec."""
    named_skills = {skill for _, _, case in stimuli for skill in case.skills}
    return named_skills.pop() if len(named_skills) == 1 else skill_around(path)


def skills_of_spec(path: Path, reading: SuiteReading) -> tuple[Path, ...] | None:
    """Return the skills that every stimulus of the spec at *path* has; None if they differ."""
    spec = _Spec(ForeignDocument.read(path, reading.params), reading)
    skill_lists = {case.skills for _, _, case in spec.cases()}
    return skill_lists.pop() if len(skill_lists) == 1 else None


def _without(skill: Path, case: Case) -> Case:
    return replace(case, skills=tuple(place for place in case.skills if place.resolve() != skill))


class _Spec:
    """A spec while its stimuli are read, with what holds for all of them."""

    def __init__(self, document: ForeignDocument, reading: SuiteReading) -> None:
        top = document.top
        self.document = document
        self._reading = reading
        _warn_of_unused(document, reading)
        document.lose_unknown(top, _TOP)
        top.choice("type", _TYPES)
        self._reader = EnvironmentReader(document)
        self._environment = self._reader.read(top)
        self._defaults = _read_defaults(document, reading)
        self._scoring = _read_scoring(document)
        self._tags = _tags(top)

    def cases(self) -> list[tuple[Fields, str, Case]]:
        """Return the case of each stimulus with its fields, and the field of its id."""
        return [self._case(fields, number) for fields, number in self.document.cases("stimuli")]

    def _case(self, fields: Fields, number: int) -> tuple[Fields, str, Case]:
        id_field, name = case_id(fields, ("name",), number)
        fields.case = name
        fields.has("name", required=True)
        document = self.document
        document.lose_unknown(fields, _STIMULUS)
        prompts = conversation_prompts(fields, tuple(_turns(document, fields)))
        context = GraderContext(
            document=document,
            prompt=prompts[0],
            rubric=tuple(text for _, text in texts_of(fields, "rubric")),
            turn_count=len(prompts),
            judge_model=self._defaults.judge_model,
        )
        grader_fields = list(_graders(fields))
        pair_graders = [grader for grader in grader_fields if is_pairwise(grader)]
        graders = [
            check
            for grader in grader_fields
            if not is_pairwise(grader) and (check := lower_grader(context, grader)) is not None
        ]
        environment = self._environment + self._reader.read(fields)
        if self._reading.no_skills:
            environment = replace(environment, skills=())
        checks = tuple(self._checks(context, fields, graders, in_pairs=bool(pair_graders)))
        case = new_case(
            fields,
            name,
            prompts[0],
            sorted(checks, key=lambda check: check.turn or len(prompts) + 1),
            then=prompts[1:],
            tags=tuple(chain.from_iterable({**self._tags, **_tags(fields)}.values())),
            limits=Limits(timeout_s=self._defaults.timeout_s),
            trials=self._defaults.trials,
            model=self._defaults.model,
            pass_threshold=self._scoring.threshold,
            pairwise=read_pairs_question(context, pair_graders),
            **_workplace(environment),
        )
        return fields, id_field, case

    def _checks(
        self, context: GraderContext, fields: Fields, graders: Sequence[WeighableCheck], *, in_pairs: bool
    ) -> Iterator[Check]:
        if context.rubric and not in_pairs and not any(grader.type == "prompt" for grader in graders):
            self.document.lose_check(fields, "rubric", "no grader of the type prompt asks for it")
        yield from self._weighted(fields, graders)
        if in_pairs and not graders:
            yield answered(context.prompt)
        elif not graders:
            # Without a grader nothing decides, and constraints alone are no task.
            return
        yield from constraint_checks(context, fields.table("constraints"))
        if fields.has("expect_activation"):
            yield replace(activation(context.prompt, wanted=fields.flag("expect_activation")), weight=0.0)

    def _weighted(self, fields: Fields, graders: Sequence[WeighableCheck]) -> Iterator[Check]:
        """Yield the checks; graders that share a weight, by their type or their name, have equal parts of it."""
        weights = self._scoring.weights
        keys = [grader.weight_key(weights or {}) for grader in graders]
        # Without weights, or if none of the graders has one, all count alike.
        is_weighted = weights is not None and any(map(weights.get, keys))
        for grader, key in zip(graders, keys, strict=True):
            if weights is None or not is_weighted:
                yield grader.check
            elif weight := weights.get(key):
                yield replace(grader.check, weight=weight / keys.count(key))
            else:
                self.document.lose(fields, "graders", f"{grader.type}, because scoring gives it no weight")


def _workplace(environment: Environment) -> dict[str, object]:
    return {
        "placed": environment.placed,
        "bootstrap": environment.bootstrap,
        "skills": environment.skills,
        "workspace": environment.workspace,
    }


def _turns(document: ForeignDocument, fields: Fields) -> Iterator[WrittenTurn]:
    for place, item in fields.items("turns"):
        if isinstance(item, str):
            yield WrittenTurn(prompt=fields.text_at(place, item) or "")
            continue
        turn = fields.object(place, item)
        document.lose_unknown(turn, ("prompt",))
        yield WrittenTurn(prompt=turn.text("prompt", required=isinstance(item, Mapping)) or "")


def _graders(fields: Fields) -> Iterator[Fields]:
    fields.has("graders", required=True, hint="nothing says what is expected")
    for place, item in fields.items("graders"):
        grader = fields.object(place, item)
        if grader.values:
            yield grader


def _warn_of_unused(document: ForeignDocument, reading: SuiteReading) -> None:
    """Warn of a parameter that the file does not have: most likely its name is misspelt."""
    text = document.path.read_text("utf-8") if reading.params else ""
    for name in reading.params:
        if f"${{{name}}}" not in text:
            document.top.warn("", f"there is no ${{{name}}} in this spec, so that --param {name} changes nothing")


def _read_defaults(document: ForeignDocument, reading: SuiteReading) -> _RunDefaults:
    top = document.top
    if top.has("defaults") and top.has("config"):
        top.problem("config", "cannot be used together with defaults, which is its new name", "move its fields there")
    fields = top.table("defaults" if top.has("defaults") else "config")
    fields = replace(fields, values={**fields.values, **reading.defaults})
    document.lose_unknown(fields, DEFAULTS)
    executor = fields.text("executor")
    if executor not in (None, _EXECUTOR):
        document.lose(fields, "executor", "the settings say which agent works")
    runs = fields.whole("runs", least=0, most=_MOST_RUNS)
    if runs == 0:
        document.lose(fields, "runs", "whet validate looks at files without a run, and whet run runs them once")
    return _RunDefaults(
        trials=runs or 1,
        timeout_s=duration(fields, "timeout"),
        model=fields.text("model"),
        judge_model=fields.text("judge_model"),
    )


def _read_scoring(document: ForeignDocument) -> _Scoring:
    fields = document.top.table("scoring")
    document.lose_unknown(fields, ("weights", "threshold"))
    threshold = fields.number("threshold", least=0, most=1)
    weights = None
    if fields.has("weights"):
        table = fields.table("weights")
        weights = dict[str, float]()
        for name in map(str, table.values):
            weights[name] = table.number(name, default=0.0, least=0)
        total = sum(weights.values())
        if not total:
            fields.problem("weights", "have the sum 0, so that no grader counts", "give one of them a number above 0")
        elif not isclose(total, 1.0, abs_tol=1e-6):
            message = f"have the sum {total:g}, so that each counts as its share of it; newer versions of Vally want 1"
            fields.warn("weights", message)
    # Without a threshold all graders have to hold.
    return _Scoring(threshold=None if threshold is None else float(threshold), weights=weights)


_BLANKS = re.compile(r"\s+")


def _tags(fields: Fields) -> dict[str, tuple[str, ...]]:
    """Return the tags such as `area:docs` by their keys: of each key one or several."""
    table = fields.table("tags")
    tags: dict[str, tuple[str, ...]] = {}
    for key, value in table.values.items():
        items = value if isinstance(value, list) else (value,)
        tags[str(key)] = tuple(filter(None, (tag_of(str(key), item) for item in items)))
    return tags


def tag_of(key: str, value: object) -> str:
    """Return the tag of a value such as `area:docs`; an empty text for no value."""
    text = _BLANKS.sub("-", _written(value).strip())
    return f"{key}:{text}" if text else ""


def _written(value: object) -> str:
    """Return a value as YAML writes it; nothing for null."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
