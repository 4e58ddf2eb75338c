"""`whet suites`: suites on a service, their runs, and improve runs."""
