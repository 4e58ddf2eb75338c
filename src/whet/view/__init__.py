"""The pages: documents about runs, trials, comparisons and history, the server of `whet view`, and its files."""
