"""What authors of checks use: `expect`, the context of a check, and asserts that explain themselves."""
