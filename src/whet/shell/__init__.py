"""Read command lines as a shell would, without running them: what they start, read, write and match."""
