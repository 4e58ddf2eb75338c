"""Plain asserts that explain themselves."""
