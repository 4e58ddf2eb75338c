"""Callable skills: reading what their folders say, and calling them."""
