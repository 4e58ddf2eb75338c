"""Store baselines: the trials of a run as a small file beside the settings, to compare later runs with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from whet.decide.judging.units import UnitKey
from whet.errors import StoreError, UsageError
from whet.model import codec
from whet.model.comparison import MOST_TAKEN, USUAL_ERROR, ArmSamples, RunSamples, Sampled
from whet.model.run import id_problem
from whet.model.suite import Part
from whet.record.folder import write_atomically, writing

_SCHEMA = "whet/baseline/1"
_FOLDER = "baselines"


class StoredStatement(Struct, frozen=True, kw_only=True, array_like=True):
    """A statement on a trial as a judge decided it, and what people say of it; `truth` is null if nobody is sure."""

    check: str
    item: str
    passed: bool
    rating: float
    threshold: float
    truth: bool | None


# What was judged on each trial, by arm, runner, case and number.
Statements = Mapping[tuple[str, str, str, int], tuple[StoredStatement, ...]]


class _Trials(Struct, frozen=True, kw_only=True):
    """The trials of one case, a list for each figure: much shorter than an object for each trial."""

    value: tuple[float | None, ...]
    cost_usd: tuple[float | None, ...]
    seconds: tuple[float | None, ...]
    tokens: tuple[float | None, ...]
    steps: tuple[float | None, ...]
    # What identifies the answer of each trial that a model judged; empty if it judged none.
    judged: tuple[str | None, ...] = ()
    # Whether each errored for a reason that its agent and its checks have no part in; empty if none did.
    blameless: tuple[bool, ...] = ()
    # The statements on each trial that a judge decided; empty if it decided none.
    statements: tuple[tuple[StoredStatement, ...], ...] = ()

    def is_even(self) -> bool:
        """Return whether all lists are of the same trials."""
        always = (self.cost_usd, self.seconds, self.tokens, self.steps)
        at_times = (column for column in (self.judged, self.blameless, self.statements) if column)
        return {len(column) for column in (*always, *at_times)} == {len(self.value)}


class _BaselineArm(Struct, frozen=True, kw_only=True):
    arm: str
    runner: str
    cases: dict[str, _Trials]


class Baseline(Struct, frozen=True, kw_only=True):
    """What a baseline file holds."""

    schema: str
    name: str
    run_id: str
    suite: str
    suite_digest: str | None
    saved_at: str
    weights: dict[str, float]
    digests: dict[str, str] = field(default_factory=dict)
    splits: dict[str, Part] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    # How often its run was looked at before it ended, as `RunSamples` has it: an arm may have ended as lucky as it was.
    grown_from: tuple[int, ...] = ()
    rounds_planned: int | None = None
    error: float = USUAL_ERROR
    # The runs that its trials are of, and those whose failures selected its cases, as `RunSamples` has them.
    runs: tuple[str, ...] = ()
    selected_from: tuple[str, ...] = ()
    arms: tuple[_BaselineArm, ...]

    def samples(self) -> RunSamples:
        """Return the trials of the baseline for a comparison; they ran at another time than the trials of any run."""
        arms = tuple(
            ArmSamples(
                arm=arm.arm,
                runner=arm.runner,
                trials=tuple(trial for case, trials in arm.cases.items() for trial in _samples_of(case, trials)),
            )
            for arm in self.arms
        )
        return RunSamples(
            name=self.name,
            arms=arms,
            weights=self.weights,
            digests=self.digests,
            splits=self.splits,
            edited=self.edited,
            grown_from=self.grown_from,
            rounds_planned=self.rounds_planned,
            error=self.error,
            runs=self.runs or (self.run_id,),
            selected_from=self.selected_from,
            interleaved=False,
        )

    def statements(self) -> Iterator[tuple[UnitKey, StoredStatement]]:
        """Yield what a judge decided on its trials, each with its place; trials are numbered as they are stored."""
        for arm in self.arms:
            for case, trials in arm.cases.items():
                for number, stored in enumerate(trials.statements, 1):
                    for entry in stored:
                        yield UnitKey(case, arm.runner, arm.arm, number, entry.check, entry.item), entry


def baseline_path(folder: Path, name: str) -> Path:
    """Return the file of the baseline called *name* of the project in *folder*."""
    if problem := id_problem(name):
        raise UsageError(f'the name of a baseline {problem}: "{name}"')
    if "/" in name or name.startswith("."):
        raise UsageError(f'the name of a baseline is a plain file name, not "{name}"')
    return folder / _FOLDER / f"{name}.json"


def save_baseline(
    path: Path,
    samples: RunSamples,
    *,
    suite: str,
    digest: str | None,
    saved_at: str,
    statements: Statements = MappingProxyType({}),
) -> None:
    """Write the trials of *samples* to *path*, in one step, with the *statements* on them that a judge decided."""
    document = Baseline(
        schema=_SCHEMA,
        name=path.stem,
        run_id=samples.name,
        suite=suite,
        suite_digest=digest,
        saved_at=saved_at,
        weights=dict(samples.weights),
        digests=dict(samples.digests),
        splits=dict(samples.splits),
        edited=samples.edited,
        grown_from=samples.grown_from,
        rounds_planned=samples.rounds_planned,
        error=samples.error,
        runs=samples.runs,
        selected_from=samples.selected_from,
        arms=tuple(
            _BaselineArm(arm=arm.arm, runner=arm.runner, cases=_by_case(arm, statements)) for arm in samples.arms
        ),
    )
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, _lines(document))


def _lines(document: Baseline) -> bytes:
    """Return the document with one line for each case, so that a change of it can be read."""
    head = codec.encode_pretty(replace(document, arms=())).removesuffix(b"[]\n}\n")
    arms = (
        b"\n    "
        + codec.encode(replace(arm, cases={})).removesuffix(b"{}}")
        + b"{"
        + b",".join(b"\n      " + codec.encode({case: trials})[1:-1] for case, trials in arm.cases.items())
        + b"\n    }}"
        for arm in document.arms
    )
    return head + b"[" + b",".join(arms) + b"\n  ]\n}\n"


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file; raises `UsageError` if there is none, and `StoreError` if it is not one."""
    try:
        baseline = codec.decode_file(path, Baseline)
    except FileNotFoundError:
        raise UsageError(f"there is no baseline {path}", hint=f"store one: whet baseline save {path.stem}") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    except codec.WireError as error:
        raise StoreError(f"{path} is not a baseline: {error}") from error
    if problem := _problem(baseline):
        raise StoreError(f"{path} is not a baseline: {problem}")
    return baseline


def _problem(baseline: Baseline) -> str | None:
    """Return what is wrong with a baseline that somebody may have edited."""
    if baseline.schema != _SCHEMA:
        return f'its schema is "{baseline.schema}", not {_SCHEMA}'
    if len({(arm.arm, arm.runner) for arm in baseline.arms}) < len(baseline.arms):
        return "it has an arm twice on one runner"
    every = [trials for arm in baseline.arms for trials in arm.cases.values()]
    if not all(value is None or 0 <= value <= 1 for trials in every for value in trials.value):
        return "a value is not between 0 and 1"
    amounts = [(each.cost_usd, each.seconds, each.tokens, each.steps) for each in every]
    if not all(each.is_even() for each in every):
        return "a case has lists of different lengths"
    if not all(each is None or 0 <= each <= MOST_TAKEN for four in amounts for amount in four for each in amount):
        return "a cost, a time or a number of tokens or steps is less than 0, or not a number"
    return "a weight is less than 0" if min(baseline.weights.values(), default=0) < 0 else None


def _by_case(arm: ArmSamples, statements: Statements) -> dict[str, _Trials]:
    cases: dict[str, list[Sampled]] = {}
    for trial in arm.trials:
        cases.setdefault(trial.case, []).append(trial)
    return {
        case: _columns(trials, [statements.get((arm.arm, arm.runner, case, trial.round or 0), ()) for trial in trials])
        for case, trials in sorted(cases.items())
    }


def _columns(trials: Sequence[Sampled], statements: Sequence[tuple[StoredStatement, ...]]) -> _Trials:
    judged = tuple(trial.judged for trial in trials)
    blameless = tuple(trial.blameless for trial in trials)
    return _Trials(
        value=tuple(trial.value for trial in trials),
        cost_usd=tuple(trial.cost_usd for trial in trials),
        seconds=tuple(trial.seconds for trial in trials),
        tokens=tuple(trial.tokens for trial in trials),
        steps=tuple(trial.steps for trial in trials),
        judged=judged if any(judged) else (),
        blameless=blameless if any(blameless) else (),
        statements=tuple(statements) if any(statements) else (),
    )


def _samples_of(case: str, trials: _Trials) -> list[Sampled]:
    columns = (trials.value, trials.cost_usd, trials.seconds, trials.tokens, trials.steps)
    answers = trials.judged or (None,) * len(trials.value)
    blameless = trials.blameless or (False,) * len(trials.value)
    return [
        Sampled(
            case=case,
            value=value,
            cost_usd=cost,
            seconds=seconds,
            tokens=tokens,
            steps=steps,
            judged=answer,
            blameless=is_blameless,
        )
        for value, cost, seconds, tokens, steps, answer, is_blameless in zip(*columns, answers, blameless, strict=True)
    ]
