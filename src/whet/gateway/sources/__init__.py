"""Answers that do not come from the provider: cassettes, a cache, and faults on purpose."""
