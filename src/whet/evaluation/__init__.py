"""Benchmarks over callable skills: a run of the one engine, in which skills are called."""
