"""The graders of eval suites: answers by code, answers by a judge, and whether a skill was loaded."""

from whet.grade.evals.answer import AnswerGrader
from whet.grade.evals.rubric import RubricGrader
from whet.grade.evals.trigger import TriggerGrader

__all__ = ["AnswerGrader", "RubricGrader", "TriggerGrader"]
