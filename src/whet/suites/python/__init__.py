"""Suites in Python: load a module, turn its cases into the model, and find mistakes of the author."""
