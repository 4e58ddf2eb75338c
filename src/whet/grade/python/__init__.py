"""Grade with the author's Python functions, each in a worker."""
