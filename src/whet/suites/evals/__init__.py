"""Eval suites: read their documents, and lower each case to a prompt and a grader."""
