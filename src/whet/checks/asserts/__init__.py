"""Asserts that explain themselves: rewrite them, and show the values of their parts."""
