"""The grader of task packages: their own verifier decides."""

from whet.grade.package.grader import TaskPackageGrader

__all__ = ["TaskPackageGrader"]
