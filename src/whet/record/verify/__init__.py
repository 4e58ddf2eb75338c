"""Verify a record: hashes, chain, and results computed again from the journal."""
