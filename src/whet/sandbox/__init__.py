"""Sandboxes: run a command behind a boundary, within limits, so that nothing outlives it."""
