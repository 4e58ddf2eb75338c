"""The plan of a regrading: one execution for each that was recorded, so that checks can be asked again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from whet.errors import UsageError
from whet.model.request import Settings
from whet.model.run import Execution, Plan, Runner, in_variant
from whet.model.suite import NO_SKILL, SKILL, Case, Suite, WorkspaceSpec
from whet.record.history import Record


def plan_regrading(suite: Suite, settings: Settings, record: Record) -> Plan:
    """One execution for each that was recorded and whose case is still there, in the suite's order."""
    trials: dict[tuple[str, str, str], int] = {}
    for case, runner, variant, number in record.results:
        trials[case, runner, variant] = max(number, trials.get((case, runner, variant), 0))
    runners = {runner: _runner(runner, settings, record) for _, runner, _ in trials}
    executions = tuple(
        in_variant(
            suite,
            _execution(case, runners[runner], variant, count, control=_is_control(trials, case, runner, variant)),
        )
        for case in suite.cases
        for (identifier, runner, variant), count in trials.items()
        if identifier == case.id
    )
    if not executions:
        raise UsageError(
            f"{suite.source} has none of the cases of {record.run_dir.name}",
            hint="name the suite that was run with --suite",
        )
    return Plan(
        suite=suite,
        executions=executions,
        schedule="parallel",
        max_parallel=settings.max_parallel,
        retries=0,
        check_timeout_s=settings.check_timeout_s,
        command_timeout_s=settings.command_timeout_s,
    )


def notices(suite: Suite, record: Record) -> Iterator[str]:
    """What of the suite was not recorded, and what of the record is no longer in the suite."""
    cases = [case.id for case in suite.cases]
    recorded = list(dict.fromkeys(case for case, *_ in record.results))
    gone = [case for case in recorded if case not in cases]
    fresh = [case for case in cases if case not in recorded]
    if gone:
        yield f"no longer in the suite, so left out: {', '.join(gone)}"
    if fresh:
        yield f"not in the recorded run, so not regraded: {', '.join(fresh)}"


def _execution(case: Case, runner: Runner, variant: str, trials: int, *, control: bool) -> Execution:
    # No agent runs and no workspace is made by the plan's word: what was recorded decides. A package has its verifier.
    return Execution(
        case=case,
        runner=runner,
        variant=variant,
        limits=case.limits,
        workspace=case.workspace or WorkspaceSpec(),
        trials=trials,
        control=control,
    )


def _is_control(trials: Mapping[tuple[str, str, str], int], case: Case, runner: str, variant: str) -> bool:
    return variant == NO_SKILL and (case.id, runner, SKILL) in trials


def _runner(name: str, settings: Settings, record: Record) -> Runner:
    """The runner as it is configured, or else as the record tells."""
    configured = next((runner for runner in settings.runners if runner.id == name), None)
    session = next((record.session(item) for item in record.results.values() if item.key.runner == name), None)
    if configured is not None and (session is None or session.agent == configured.agent):
        return configured
    if session is None:
        return Runner(id=name, agent="unknown")
    return Runner(id=name, agent=session.agent, model=session.model)
