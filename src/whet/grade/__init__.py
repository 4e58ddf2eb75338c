"""Grade: evidence becomes grades."""
