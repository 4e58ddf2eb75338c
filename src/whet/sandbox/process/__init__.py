"""Processes: start and end them with all that they start, capture their output, pause them, and keep workers."""
