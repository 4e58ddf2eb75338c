"""The journal: one line for each finished trial, chained by hashes, and its index."""
