"""The replay agent: prints what a recorded agent printed, and changes what it changed."""
