"""Explain an attempt: ask its agent, in a copy of its session."""
