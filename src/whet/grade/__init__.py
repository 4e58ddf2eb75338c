"""Graders: code that decides one kind of check."""
