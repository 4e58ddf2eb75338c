"""What authors of checks write: `expect`, and plain asserts that explain themselves."""
