"""What is held against a candidate before anything is spent on it."""
