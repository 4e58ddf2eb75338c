"""Callable skills (`whet eval`): their folders, benchmarks, calls and reports."""
