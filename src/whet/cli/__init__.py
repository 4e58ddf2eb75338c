"""The command line: what you type becomes a request."""
