"""What a suite of another tool asks for and whet does not check: counted, and refused if you ask for that."""

from __future__ import annotations

from collections.abc import Iterator

from whet.errors import Problem, SuiteError
from whet.model.suite import Suite
from whet.reading.text import count

_HINT = "write these checks in another way, or leave out --strict: such cases are then marked in the results"


def losses_in_words(suite: Suite) -> str:
    """Return what is not carried over, such as "; 18 checks not carried over"; empty if nothing is lost."""
    counts = (
        (lost_check_count(suite), "check", "not carried over"),
        (len(suite.lost_cases), "case", "left out"),
    )
    return "".join(f"; {count(number, noun)} {verb}" for number, noun, verb in counts if number)


def lost_check_count(suite: Suite) -> int:
    """Return how many checks are not carried over, over all cases."""
    return sum(len(case.lost_checks) for case in suite.cases)


def refuse_losses(suite: Suite) -> None:
    """Raise `SuiteError` if a case passes with less than its author asks for, or is left out."""
    if problems := list(loss_problems(suite)):
        raise SuiteError(problems, suite.warnings)


def loss_problems(suite: Suite) -> Iterator[Problem]:
    """Yield a problem for each case that lost checks, and one for all that are left out."""
    for case in suite.cases:
        if case.lost_checks:
            message = f"{count(len(case.lost_checks), 'check')} not carried over: {'; '.join(case.lost_checks)}"
            yield Problem(file=str(suite.source), case=case.id, message=message, hint=_HINT)
    if suite.lost_cases:
        names = ", ".join(dict.fromkeys(suite.lost_cases))
        yield Problem(file=str(suite.source), message=f"{count(len(suite.lost_cases), 'case')} left out: {names}")
