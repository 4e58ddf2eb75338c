"""Suites that were written for other tools: read where they lie, with a list of what is lost."""
