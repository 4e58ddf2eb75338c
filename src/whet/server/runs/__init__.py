"""Runs of the service: a queue, and one process of `whet run` for each run under way."""
