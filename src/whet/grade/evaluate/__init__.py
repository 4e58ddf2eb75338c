"""Evaluators: what decides whether a callable skill's answer is right, and how far."""
