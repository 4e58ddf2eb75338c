"""Experiments of Vally: specs in several variants, which become arms; nothing but what `vary` names may differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct

from whet.errors import Problem, SuiteError
from whet.model.suite import SuiteReading
from whet.reading.fields import Fields
from whet.reading.text import did_you_mean, shown
from whet.suites.other_tools.shared import ForeignDocument, texts_of
from whet.suites.other_tools.vally.environments import EnvironmentReader
from whet.suites.other_tools.vally.files import matching_files
from whet.suites.other_tools.vally.format import DEFAULTS, skills_of_spec

_TOP = (
    *("name", "description", "version", "evals", "overrides", "vary", "baseline", "variants", "matrix", "execution"),
    "$schema",
)
_VARIANT = ("description", "overrides", "environment")
_AXIS = ("path", "values")
SKILLS, MODEL = "/environment/skills", "/defaults/model"
# The pointers that arms of ours can differ in, and the word for each.
_CARRIED = {SKILLS: "skill", MODEL: "model"}
_ARM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_UNFIT = re.compile(r"[^A-Za-z0-9._+-]+")
_FEWEST_ARMS, _MOST_ARMS = 2, 100

# What a variant says, by JSON Pointers that begin at the resolved spec.
Settings = Mapping[str, Any]


class ExperimentRun(Struct, frozen=True, kw_only=True):
    """One spec of an experiment: its arms as you would type them, and what the spec is read with."""

    spec: Path
    arms: tuple[str, ...]
    skill: Path | None
    reading: SuiteReading
    # What the arms differ in, in our words.
    vary: tuple[str, ...]


class Experiment(Struct, frozen=True, kw_only=True):
    """The runs of an experiment, one for each spec, and what of it is not carried over."""

    runs: tuple[ExperimentRun, ...]
    workers: int | None
    lost: tuple[Problem, ...]


def read_experiment(path: Path, params: Mapping[str, str]) -> Experiment:
    """Read the experiment at *path*; raises `SuiteError` if its variants differ in more than `vary` names."""
    document = ForeignDocument.read(path, params)
    specs = _specs(document)
    workers = document.top.table("execution").whole("workers")
    _raise_problems(document)
    runs: list[ExperimentRun] = []
    for spec in specs:
        folders = {"eval.parent": spec.parent.name, "eval.grandparent": spec.parent.parent.name}
        document = ForeignDocument.read(path, {**params, **folders})
        runs.append(_Resolution(document, spec, params).run())
    return Experiment(runs=tuple(runs), workers=workers, lost=document.losses())


def _raise_problems(document: ForeignDocument) -> None:
    findings = document.top.findings
    if findings.problems:
        raise SuiteError(findings.problems, findings.warnings)


def _specs(document: ForeignDocument) -> list[Path]:
    specs: list[Path] = []
    document.top.has("evals", required=True, hint="name the specs that it compares")
    for place, pattern in texts_of(document.top, "evals"):
        files = matching_files(document.path.parent, (pattern,))
        if not files:
            document.top.problem(place, f'no spec fits "{pattern}"', f"patterns begin at {document.path.parent}")
        specs += (file for file in files if file not in specs)
    return specs


class _Resolution:
    """An experiment while it is resolved for one spec."""

    def __init__(self, document: ForeignDocument, spec: Path, params: Mapping[str, str]) -> None:
        self._document = document
        self._top = document.top
        self._spec = spec
        self._params = params
        document.lose_unknown(self._top, _TOP)
        document.lose_unknown(self._top.table("execution"), ("workers",))

    def run(self) -> ExperimentRun:
        """Return the run of the spec; raises `SuiteError`."""
        variants = self._variants()
        _raise_problems(self._document)
        if len(variants) < _FEWEST_ARMS:
            self._top.problem("variants", "are fewer than two, so that there is nothing to compare")
        if len(variants) > _MOST_ARMS:
            self._top.problem("variants", f"are {len(variants):,}, and at most {_MOST_ARMS} are allowed")
        baseline = self._baseline(variants)
        _raise_problems(self._document)
        names = [baseline, *(name for name in variants if name != baseline)]
        pointers = list(dict.fromkeys(pointer for settings in variants.values() for pointer in settings))
        differing: list[str] = []
        shared_settings: dict[str, Any] = {}
        for pointer in pointers:
            if self._differs(pointer, variants, baseline):
                differing.append(pointer)
            elif pointer != SKILLS and variants[baseline].get(pointer) is not None:
                shared_settings[pointer] = variants[baseline][pointer]
        reading = self._reading(shared_settings, no_skills=SKILLS in pointers)
        arms: list[str] = []
        skills: list[Path] = []
        for name in names:
            arm_skills, model = self._arm(variants[name], differing, reading)
            arms.append(f"{name}={_arm_text(arm_skills, model)}")
            skills += arm_skills or ()
        _raise_problems(self._document)
        return ExperimentRun(
            spec=self._spec,
            arms=tuple(arms),
            skill=skills[0] if skills else None,
            reading=reading,
            vary=tuple(_CARRIED[pointer] for pointer in differing),
        )

    def _variants(self) -> dict[str, Settings]:
        """Return the settings of each variant by its name."""
        top = self._top
        overrides = dict(_flat("/defaults", top.table("overrides").values))
        if top.has("matrix"):
            for name in ("variants", "vary"):
                if top.has(name):
                    top.problem(name, "cannot be used together with matrix, which says what varies")
            return dict(self._combinations(overrides))
        top.has("variants", required=True)
        top.has("vary", required=True, hint=f"name all that may differ, such as [{SKILLS}]")
        table = top.table("variants")
        variants: dict[str, Settings] = {}
        for name in map(str, table.values):
            if self._is_arm_name(table, name):
                variants[name] = {**overrides, **self._variant(table.table(name))}
        return variants

    def _is_arm_name(self, fields: Fields, name: str) -> bool:
        if _ARM_NAME.fullmatch(name):
            return True
        fields.problem(name, "cannot be the name of an arm", "use letters, digits and any of . _ + -")
        return False

    def _variant(self, fields: Fields) -> Settings:
        self._document.lose_unknown(fields, _VARIANT)
        overrides, environment = fields.table("overrides").values, fields.table("environment").values
        return {**dict(_flat("/defaults", overrides)), **dict(_flat("/environment", environment))}

    def _combinations(self, overrides: Settings) -> Iterator[tuple[str, Settings]]:
        """Yield the combinations of the axes of a matrix, each under the labels of its values."""
        matrix = self._top.table("matrix")
        axes = [list(self._axis(matrix.table(str(name)))) for name in matrix.values]
        combinations = prod(map(len, axes))
        if combinations > _MOST_ARMS:
            self._top.problem("matrix", f"makes {combinations:,} arms, and at most {_MOST_ARMS} are allowed")
            return
        names: set[str] = set()
        for labelled_values in product(*axes):
            name = "-".join(label for label, _ in labelled_values)
            settings = dict(overrides)
            for _, setting in labelled_values:
                settings |= setting
            if name in names:
                matrix.problem(name, "is what two combinations are called", "give their values labels of their own")
            elif self._is_arm_name(matrix, name):
                names.add(name)
                yield name, settings

    def _axis(self, fields: Fields) -> Iterator[tuple[str, Settings]]:
        """Yield the label of each value of an axis with what it sets."""
        fields.refuse_unknown(_AXIS)
        pointer = _of_defaults(fields.text("path", required=True) or "")
        fields.has("values", required=True)
        if isinstance(fields.given("values"), list):
            # Without labels, values are called as they are.
            for _, value in fields.items("values"):
                yield _UNFIT.sub("-", str(value)), dict(_flat(pointer, value))
            return
        for label, value in fields.table("values").values.items():
            yield str(label), dict(_flat(pointer, value))

    def _baseline(self, variants: Mapping[str, Settings]) -> str:
        top, names = self._top, list(variants)
        value = top.given("baseline")
        if isinstance(value, Mapping):
            matrix = top.table("matrix").values
            value = "-".join(_UNFIT.sub("-", str(value.get(axis))) for axis in matrix)
        if value is None:
            return next(iter(names), "")
        if str(value) not in variants:
            hint = did_you_mean(str(value), names) or f"known: {', '.join(names)}"
            top.problem("baseline", f'is no variant: "{value}"', hint)
        return str(value)

    def _differs(self, pointer: str, variants: Mapping[str, Settings], baseline: str) -> bool:
        """Return whether variants differ in *pointer*; a difference that is not meant, or cannot be made, is noted."""
        base_value = variants[baseline].get(pointer)
        other = next((name for name, settings in variants.items() if settings.get(pointer) != base_value), None)
        if other is None:
            return False
        difference = f"{_shown(base_value)} in {baseline}, and {_shown(variants[other].get(pointer))} in {other}"
        if not self._may_vary(pointer):
            self._top.problem(
                "vary",
                f"does not name {pointer}, which differs: {difference}",
                "make it the same, or name it there too",
            )
        elif pointer not in _CARRIED:
            self._top.problem(
                "", f"varies {pointer}: {difference}", "arms of whet differ in skills and models; take the rest out"
            )
        return True

    def _may_vary(self, pointer: str) -> bool:
        if self._top.has("matrix"):
            return True
        for _, text in texts_of(self._top, "vary"):
            place = _of_defaults(text).rstrip("/")
            if f"{pointer}/".startswith(f"{place}/"):
                return True
        return False

    def _reading(self, settings: Settings, *, no_skills: bool) -> SuiteReading:
        """Return what the spec is read with: its parameters, and what all variants set in the same way."""
        defaults: dict[str, Any] = {}
        for pointer, value in settings.items():
            name = pointer.removeprefix("/defaults/")
            if name in DEFAULTS:
                defaults[name] = value
            else:
                self._document.lose(self._top, pointer, "the specs say what whet reads of it")
        return SuiteReading(params=self._params, defaults=defaults, no_skills=no_skills)

    def _arm(
        self, settings: Settings, differing: Sequence[str], reading: SuiteReading
    ) -> tuple[tuple[Path, ...] | None, str | None]:
        """Return the skills of a variant, None if those of the spec are not touched, and its own model."""
        model = settings.get(MODEL) if MODEL in differing else None
        if model is not None and not isinstance(model, str):
            self._top.problem("", f"sets {MODEL} to {shown(model)}, and a model is a text")
            model = None
        if not reading.no_skills:
            return None, model
        if SKILLS not in settings:
            return self._skills_of_spec(), model
        skills = settings[SKILLS]
        if not isinstance(skills, list | tuple):
            self._top.problem("", f"sets {SKILLS} to {shown(skills)}, and it must be a list")
            return (), model
        places = map(self._skill, map(str, skills))
        return tuple(filter(None, places)), model

    def _skill(self, text: str) -> Path | None:
        # Paths begin at the folder of the experiment, and names are those of a plug-in around the spec.
        place = EnvironmentReader(self._document).skill(text)
        if place is None:
            place = EnvironmentReader(ForeignDocument.read(self._spec, self._params)).skill(text)
        if place is None:
            self._top.problem("", f'there is no skill "{text}"', f"paths begin at {self._document.path.parent}")
        elif "," in str(place):
            self._top.problem("", f"{place} has a comma, which the words of an arm cannot have")
        return place

    def _skills_of_spec(self) -> tuple[Path, ...]:
        skills = skills_of_spec(self._spec, SuiteReading(params=self._params))
        if skills is None:
            self._top.problem(
                "variants",
                f"set skills, and one that does not leaves them to {self._spec}, whose stimuli have different ones",
                "give each variant environment.skills",
            )
        return skills or ()


def _arm_text(skills: tuple[Path, ...] | None, model: str | None) -> str:
    """Return an arm as you would type it."""
    pieces = ["skill:none"] if skills == () else []
    pieces += map("skill:{}".format, skills or ())
    if model is not None:
        pieces.append(f"model:{model}")
    return ",".join(pieces) or "as-is"


def _of_defaults(pointer: str) -> str:
    """Return *pointer* with the new name of `config`."""
    return re.sub(r"^/config(?=/|$)", "/defaults", pointer)


def _flat(pointer: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the pointer of each value that is no object."""
    if not isinstance(value, Mapping):
        yield pointer, value
        return
    for name, item in value.items():
        yield from _flat(f"{pointer}/{name}", item)


def _shown(value: Any) -> str:
    return "as the spec says" if value is None else shown(value)
