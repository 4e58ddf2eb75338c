"""Candidates: what a proposer is shown and told, the run in which it works, and what becomes of what it leaves."""
