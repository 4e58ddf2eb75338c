"""The grader of claims, which are the checks of bench suites."""

from whet.grade.claims.grader import ClaimGrader

__all__ = ["ClaimGrader"]
