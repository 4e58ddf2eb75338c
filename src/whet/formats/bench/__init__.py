"""Bench suites: JSON or YAML, a prompt and a few expectations for each case."""

from whet.formats.bench.format import BenchFormat

__all__ = ["BenchFormat"]
