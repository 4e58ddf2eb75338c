"""Saying what should have happened."""
