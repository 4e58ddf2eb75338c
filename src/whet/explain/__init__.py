"""Explaining: the questions that failed expectations left behind, asked of the agent in its own session."""
