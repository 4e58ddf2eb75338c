"""Settings: one table for files, options and variables, and where each value comes from."""
