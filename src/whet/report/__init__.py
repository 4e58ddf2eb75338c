"""Reporters: listeners that show a run to somebody."""
