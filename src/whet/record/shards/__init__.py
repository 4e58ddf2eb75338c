"""Shards of a run: find those that belong together, and merge them."""
