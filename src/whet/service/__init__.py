"""The service: suites, runs and their evidence over HTTP; needs the extra `whet-eval[server]`."""
