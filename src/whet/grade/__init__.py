"""Grading: evidence becomes grades, and grades become scores."""
