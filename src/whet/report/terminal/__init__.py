"""The terminal: progress while a run goes on, and how it ended."""
