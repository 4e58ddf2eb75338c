"""Load suites: every way of writing one becomes a `Suite`."""
