"""One attempt: from its workspace to its grade."""
