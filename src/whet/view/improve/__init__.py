"""Improve runs as pages: the classes of their documents, how they are made, and report.html."""
