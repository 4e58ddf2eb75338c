"""The record: what is kept of a run, and whether it is as it was written."""
