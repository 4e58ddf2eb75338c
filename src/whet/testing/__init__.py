"""The public kit for those who extend whet."""
