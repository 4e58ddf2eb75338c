"""Grading by a language model: what it is asked, how it is called, and what its word is worth."""
