"""Decisions in words: compare arms and runs, plan how many trials a decision takes."""
