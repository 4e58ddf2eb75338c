"""What is wrong with an eval suite: every problem, each with the path of the field that it concerns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.errors import UsageError


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing that is wrong, and where: a path such as `cases_json[3].environment_ref`, empty for the whole."""

    path: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class EvalSuiteError(UsageError):
    """A document that is no eval suite; holds every problem that was found."""

    code = "suite"

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)
