"""Eval suites: cases for a skill, as a service keeps them and as `whet run --skill` runs them."""

from whet.formats.evals.format import EvalsFormat

__all__ = ["EvalsFormat"]
