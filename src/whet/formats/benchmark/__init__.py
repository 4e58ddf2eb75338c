"""Benchmarks for callable skills, written as JSON: reading, checking and finding them."""
