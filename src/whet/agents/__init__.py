"""The agents under test: how each is started, and what its output means."""
