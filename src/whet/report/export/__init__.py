"""Export trials and their steps for other tools."""
