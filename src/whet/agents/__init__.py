"""The agents under test: how each is started, what its output means, and callable skills."""
