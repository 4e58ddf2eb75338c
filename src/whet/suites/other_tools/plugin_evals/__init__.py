"""Suites of `claude plugin eval`: where their cases are, and what their files become."""
