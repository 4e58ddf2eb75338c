"""Grade claims about the workspace, each decided in a worker."""
