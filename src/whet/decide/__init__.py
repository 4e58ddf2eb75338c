"""Decide between arms: pure statistics from verdicts to comparisons and gates."""
